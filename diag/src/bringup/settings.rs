//! Settings of `hcq` that work on a board: cells that were tried, the search among them, and the resulting
//! profile.
//!
//! A cell is a value for each of the five settings of an [`hcq::Profile`]. It works when a submission, a
//! launch and a chain of launches end with the right words; with preemption between instructions, also when
//! another context's launch ends while a kernel of the cell is still running.

use std::collections::BTreeMap;

use hcq::{CommandMemory, Descriptor, DeviceOptions, Preemption, Profile, Release, Subcontext};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Number of settings.
const SETTINGS: usize = 5;
/// Number of cells.
pub const CELLS: usize = 1 << SETTINGS;

/// Beginning of the first line of a profile's file.
pub const HEAD: &str = "# Settings that nvdiag bringup has tried";

/// A part of a cell's work, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// A device is opened.
    Open,
    /// A submission without a launch.
    Submission,
    /// One launch.
    Launch,
    /// Launches that depend on each other.
    Chain,
    /// Another context's launch, while a kernel runs.
    Preemption,
    /// The process as a whole: it crashed, or took too long.
    Process,
}

impl Stage {
    /// Returns the name of the stage.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Open => "no device",
            Self::Submission => "no submission",
            Self::Launch => "no launch",
            Self::Chain => "no chain",
            Self::Preemption => "no preemption",
            Self::Process => "no end",
        }
    }
}

/// Failure of a cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Stage that failed.
    pub stage: Stage,
    /// Symptom.
    pub reason: String,
}

/// Settings that were tried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// All five.
    #[serde(serialize_with = "write", deserialize_with = "read")]
    pub settings: Profile,
    /// Why they do not work; `None` if they do.
    pub failure: Option<Failure>,
    /// Further findings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<String>,
    /// Duration.
    pub seconds: f64,
}

impl Cell {
    /// Whether they work.
    #[must_use]
    pub fn works(&self) -> bool {
        self.failure.is_none()
    }
}

/// The settings that a search begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bases {
    /// Those of `hcq` without any setting.
    #[serde(serialize_with = "write", deserialize_with = "read")]
    pub default: Profile,
    /// Those that other people have run on an Orin.
    #[serde(serialize_with = "write", deserialize_with = "read")]
    pub conservative: Profile,
    /// Those of the environment.
    #[serde(serialize_with = "write", deserialize_with = "read")]
    pub in_use: Profile,
}

impl Bases {
    /// Those of device options, as far as they have them.
    #[must_use]
    pub fn of(options: &DeviceOptions) -> Self {
        let mut default = Profile::default();
        default.command_memory = Some(CommandMemory::Cacheable);
        default.subcontext = Some(Subcontext::Async);
        default.preemption = Some(Preemption::WaitForIdle);
        default.release = Some(Release::Launch);
        default.descriptor = Some(Descriptor::Own);
        let conservative = Profile::CONSERVATIVE.or(default);
        let left = if options.conservative == Some(true) { conservative } else { default };
        Self { default, conservative, in_use: options.profile.or(left) }
    }
}

/// The cells that were tried, and the results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// Settings that it began with.
    pub bases: Bases,
    /// In the order in which they were tried.
    pub cells: Vec<Cell>,
    /// The settings to use: of those that work, those that differ least from the defaults; with preemption
    /// between instructions where that works too.
    #[serde(serialize_with = "write_any", deserialize_with = "read_any")]
    pub chosen: Option<Profile>,
    /// The conservative settings, where no cell works, with all else that `HCQ_CONSERVATIVE=1` changes and no
    /// profile has: links between launches, barriers, channels' objects, rings and signals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub everything: Option<Cell>,
    /// Why cells were left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
}

/// The names and values of a profile's settings.
pub(super) fn values(profile: &Profile) -> Vec<(String, String)> {
    let text = profile.to_string();
    let pairs = text.lines().filter_map(|line| line.split_once(" = "));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Writes a profile as an object: setting and value.
fn write<S: Serializer>(profile: &Profile, to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(values(profile))
}

/// Reads it again.
fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Profile, D::Error> {
    let settings = BTreeMap::<String, String>::deserialize(from)?;
    let lines: Vec<_> = settings.iter().map(|(name, value)| format!("{name} = {value}")).collect();
    lines.join("\n").parse().map_err(D::Error::custom)
}

/// The same, or nothing.
#[derive(Serialize, Deserialize)]
struct Named(#[serde(serialize_with = "write", deserialize_with = "read")] Profile);

fn write_any<S: Serializer>(profile: &Option<Profile>, to: S) -> Result<S::Ok, S::Error> {
    profile.map(Named).serialize(to)
}

fn read_any<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Profile>, D::Error> {
    Ok(Option::<Named>::deserialize(from)?.map(|named| named.0))
}

/// The value that a setting does not have.
fn other<T: Copy + PartialEq>(all: [T; 2], value: Option<T>) -> Option<T> {
    all.into_iter().find(|one| Some(*one) != value)
}

/// The cells that differ from one in a single setting.
fn neighbours(of: Profile) -> [Profile; SETTINGS] {
    let mut all = [of; SETTINGS];
    all[0].command_memory = other(CommandMemory::ALL, of.command_memory);
    all[1].subcontext = other(Subcontext::ALL, of.subcontext);
    all[2].preemption = other(Preemption::ALL, of.preemption);
    all[3].release = other(Release::ALL, of.release);
    all[4].descriptor = other(Descriptor::ALL, of.descriptor);
    all
}

/// The settings of one cell that another one has other values of, as `name = value`.
#[must_use]
pub fn differences(of: &Profile, from: &Profile) -> Vec<String> {
    let from = values(from);
    let changed = values(of).into_iter().filter(|setting| !from.contains(setting));
    changed.map(|(name, value)| format!("{name} = {value}")).collect()
}

fn distance(of: &Profile, from: &Profile) -> usize {
    differences(of, from).len()
}

/// All cells, those that differ least from one first.
fn all(from: Profile) -> Vec<Profile> {
    let mut found = vec![from];
    let mut at = 0;
    while let Some(cell) = found.get(at).copied() {
        let new: Vec<_> = neighbours(cell).into_iter().filter(|cell| !found.contains(cell)).collect();
        found.extend(new);
        at += 1;
    }
    found
}

impl Table {
    /// An empty one.
    #[must_use]
    pub fn new(bases: Bases) -> Self {
        Self { bases, cells: Vec::new(), chosen: None, everything: None, ended: None }
    }

    /// The cell of these settings, if it was tried.
    #[must_use]
    pub fn cell(&self, settings: &Profile) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.settings == *settings)
    }

    /// Whether these settings were tried and work.
    #[must_use]
    pub fn works(&self, settings: &Profile) -> bool {
        self.cell(settings).is_some_and(Cell::works)
    }

    /// Of the cells that work, the one that differs least from the defaults; of several, the one that differs
    /// least from what ran on an Orin.
    fn shortest(&self) -> Option<Profile> {
        let Bases { default, conservative, .. } = self.bases;
        let working = self.cells.iter().filter(|cell| cell.works()).map(|cell| cell.settings);
        working.min_by_key(|cell| (distance(cell, &default), distance(cell, &conservative)))
    }

    /// Tries cells until it is known which works with the fewest changes: one change at a time from what ran
    /// on an Orin and from the defaults, and all others where that does not settle it. `try_one` tries settings
    /// on a device that is conservative besides, or not; it gives nothing when the search is to end.
    ///
    /// # Errors
    /// Those of `try_one`.
    pub fn search<E>(
        &mut self,
        mut try_one: impl FnMut(Profile, bool) -> Result<Option<Cell>, E>,
    ) -> Result<(), E> {
        let Bases { default, conservative, in_use } = self.bases;
        let mut near = vec![conservative, default];
        near.extend(neighbours(conservative));
        near.extend(neighbours(default));
        near.push(in_use);
        if !self.visit(near, &mut try_one)? {
            return Ok(());
        }
        // All cells of one change are known by now: one of them that works is a shortest one.
        let is_settled = self.shortest().is_some_and(|cell| distance(&cell, &default) <= 1);
        if !is_settled && !self.visit(all(default), &mut try_one)? {
            return Ok(());
        }
        let Some(shortest) = self.shortest() else {
            self.everything = try_one(conservative, true)?;
            return Ok(());
        };
        let mut preempted = shortest;
        preempted.preemption = Some(Preemption::Instructions);
        self.chosen = Some(shortest);
        if self.visit(vec![preempted], &mut try_one)? && self.works(&preempted) {
            self.chosen = Some(preempted);
        }
        Ok(())
    }

    /// Tries those cells that were not tried yet; `false` if that has to end.
    ///
    /// After a cell that does not work, one that did is tried again: a GPU that a cell has left in disorder
    /// would make all others look as if they did not work either.
    fn visit<E>(
        &mut self,
        cells: Vec<Profile>,
        try_one: &mut impl FnMut(Profile, bool) -> Result<Option<Cell>, E>,
    ) -> Result<bool, E> {
        for settings in cells {
            if self.cell(&settings).is_some() {
                continue;
            }
            let Some(cell) = try_one(settings, false)? else { return Ok(false) };
            let works = cell.works();
            let proven = self.cells.iter().rfind(|cell| cell.works()).map(|cell| cell.settings);
            self.cells.push(cell);
            let Some(proven) = proven.filter(|_| !works) else { continue };
            let Some(again) = try_one(proven, false)? else { return Ok(false) };
            if let Some(Failure { reason, .. }) = again.failure {
                self.chosen = Some(proven);
                self.ended = Some(format!(
                    "after the last one, settings that worked do not any more ({reason}): restart the machine"
                ));
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether it is one that a run can have left; an error names the member that is not.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.cells.len() > CELLS {
            return Err(format!("settings.cells has {} members; there are {CELLS}", self.cells.len()));
        }
        let complete = |profile: &Profile| values(profile).len() == SETTINGS;
        let Bases { default, conservative, in_use } = &self.bases;
        let others = [default, conservative, in_use].into_iter().chain(&self.chosen);
        match self.cells.iter().map(|cell| &cell.settings).chain(others).all(complete) {
            true => Ok(()),
            false => Err(format!("settings has a profile of fewer than {SETTINGS} settings")),
        }
    }

    /// The profile to use as a file, with comments that describe it; `None` if no settings work.
    #[must_use]
    pub fn file(&self, about: &str) -> Option<String> {
        let chosen = self.chosen?;
        let changed = differences(&chosen, &self.bases.default);
        let changed = if changed.is_empty() { "nothing".to_owned() } else { changed.join(", ") };
        let about: String = about.chars().filter(|c| !nv_hw::is_obeyed(*c)).collect();
        Some(format!("{HEAD}: {about}\n# Other than the defaults: {changed}\n{chosen}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bases() -> Bases {
        Bases::of(&DeviceOptions::default())
    }

    fn cell(settings: Profile, works: bool) -> Cell {
        let failure = Failure { stage: Stage::Launch, reason: "it does nothing".to_owned() };
        Cell { settings, failure: (!works).then_some(failure), found: None, seconds: 0.1 }
    }

    /// The table of a board on which those settings work that `works` says.
    fn table(works: impl Fn(&Profile) -> bool) -> Table {
        let mut table = Table::new(bases());
        table.search(|settings, all| Ok::<_, ()>(Some(cell(settings, !all && works(&settings))))).unwrap();
        table
    }

    fn changed(table: &Table) -> Vec<String> {
        differences(&table.chosen.expect("settings that work"), &table.bases.default)
    }

    #[test]
    fn where_all_work_one_change_at_a_time_is_tried_and_cilp_is_proven() {
        let found = table(|_| true);
        assert_eq!(found.cells.len(), 10);
        assert_eq!(changed(&found), ["preemption = cilp"]);
        let found = table(|cell| cell.preemption == Some(Preemption::WaitForIdle));
        assert_eq!((found.cells.len(), changed(&found).len()), (10, 0), "{found:?}");
    }

    #[test]
    fn one_dead_setting_is_one_change_and_two_are_two() {
        let idle = |cell: &Profile| cell.preemption == Some(Preemption::WaitForIdle);
        let found = table(|cell| idle(cell) && cell.release == Some(Release::Host));
        // And once more with CILP beside that change.
        assert_eq!((found.cells.len(), changed(&found)), (11, vec!["release = host".to_owned()]));
        let found = table(|cell| {
            idle(cell) && cell.release == Some(Release::Host) && cell.subcontext == Some(Subcontext::Sync)
        });
        assert_eq!(found.cells.len(), CELLS);
        assert_eq!(changed(&found), ["subcontext = sync", "release = host"]);
    }

    #[test]
    fn where_nothing_works_all_are_tried_and_none_is_chosen() {
        let found = table(|_| false);
        assert_eq!((found.cells.len(), found.chosen), (CELLS, None));
        assert!(found.everything.as_ref().is_some_and(|cell| !cell.works()));
        assert_eq!(found.file("a test"), None);
    }

    #[test]
    fn a_gpu_that_does_not_recover_ends_the_search() {
        let mut table = Table::new(bases());
        let mut lost = false;
        table
            .search(|settings, _| {
                lost |= settings.command_memory == Some(CommandMemory::WriteCombined);
                Ok::<_, ()>(Some(cell(settings, !lost)))
            })
            .unwrap();
        assert!(table.ended.as_deref().is_some_and(|why| why.contains("restart the machine")));
        assert!(table.cells.len() < 10 && table.cells.iter().filter(|cell| !cell.works()).count() == 1);
        assert!(table.chosen.is_some_and(|chosen| table.works(&chosen)));
    }

    #[test]
    fn an_interrupted_search_leaves_what_it_has() {
        let mut table = Table::new(bases());
        let mut left = 3;
        table
            .search(|settings, _| {
                left -= 1;
                Ok::<_, ()>((left >= 0).then(|| cell(settings, true)))
            })
            .unwrap();
        assert_eq!((table.cells.len(), table.chosen), (3, None));
    }

    #[test]
    fn a_table_is_read_as_it_was_written_and_its_file_is_a_profile() {
        let mut found = table(|cell| cell.subcontext == Some(Subcontext::Sync));
        found.bases.in_use.subcontext = Some(Subcontext::Sync);
        let text = serde_json::to_string(&found).unwrap();
        assert_eq!(serde_json::from_str::<Table>(&text).unwrap(), found);
        assert_eq!(found.check(), Ok(()));
        let file = found.file("a machine\n= async").unwrap();
        assert_eq!(file.parse(), Ok(found.chosen.unwrap()), "{file}");
        assert!(file.contains("# Other than the defaults: subcontext = sync"), "{file}");
        found.bases.default.release = None;
        assert!(found.check().is_err_and(|error| error.contains("fewer than 5")));
    }
}
