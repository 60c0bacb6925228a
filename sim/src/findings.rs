//! Findings of a machine's checks: mistakes of kernels that the hardware does not report.

use std::fmt;
use std::io::{self, Write as _};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use bitflags::bitflags;
use nv_hw::Shown;
use serde::{Deserialize, Serialize};

use crate::handover::{CountPlace, Handover};
use crate::pieces::Location;

/// Findings that are kept; later ones of other instructions are dropped.
const MOST: usize = 256;

bitflags! {
    /// Mistakes of kernels that the model searches for while it executes them. Any of them makes it slower
    /// and uses one worker; without any, execution is as fast as ever.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[serde(into = "String", try_from = "String")]
    pub struct Checks: u8 {
        /// Reads of memory that nothing wrote, and stores of registers that nothing wrote. Fresh memory then
        /// holds a pattern of NaNs instead of zeros.
        const INIT = 1 << 0;
        /// Accesses to the same memory, at least one of them a write, that nothing orders: between warps of a
        /// block in shared memory, between blocks of a launch in global memory.
        const RACE = 1 << 1;
        /// Barriers and exchanges that some lanes of a warp do not take part in.
        const SYNC = 1 << 2;
        /// Accesses to global memory outside the pieces that the program has noted, to freed ones, and to those
        /// that are not for kernels; accesses to local memory outside the thread's stack.
        const MEMORY = 1 << 3;
        /// Accesses to the same memory by launches, copies and the program that no barrier and no wait
        /// orders; messages between blocks without a fence; launch descriptors that change in flight. With
        /// [`Schedule::Shuffled`](crate::sm::Schedule::Shuffled) work that nothing orders runs in random
        /// order, and stores become visible late.
        const ORDER = 1 << 4;
    }
}

impl Checks {
    /// Values that [`from_str`](Checks::from_str) reads.
    pub const EXPECTED: &str = "a list of memory, init, race, sync and order, separated by commas, or all";
}

impl fmt::Display for Checks {
    /// The list that [`from_str`](Checks::from_str) reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.iter_names().map(|(name, _)| name.to_lowercase()).collect();
        f.write_str(&names.join(","))
    }
}

impl From<Checks> for String {
    fn from(checks: Checks) -> Self {
        checks.to_string()
    }
}

impl TryFrom<String> for Checks {
    type Error = UnknownCheck;

    fn try_from(list: String) -> Result<Self, UnknownCheck> {
        list.parse()
    }
}

/// A list of checks names one that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no check is called {0:?}: expected {expected}", expected = Checks::EXPECTED)]
pub struct UnknownCheck(pub String);

impl FromStr for Checks {
    type Err = UnknownCheck;

    fn from_str(list: &str) -> Result<Self, UnknownCheck> {
        list.split(',').map(str::trim).filter(|name| !name.is_empty()).try_fold(
            Checks::empty(),
            |checks, name| {
                let check = match name {
                    "memory" => Checks::MEMORY,
                    "init" => Checks::INIT,
                    "race" => Checks::RACE,
                    "sync" => Checks::SYNC,
                    "order" => Checks::ORDER,
                    "all" => Checks::all(),
                    _ => return Err(UnknownCheck(name.to_owned())),
                };
                Ok(checks | check)
            },
        )
    }
}

/// An instruction that a thread executed, or another access to memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Guest address of the instruction; 0 for other accesses.
    pub pc: u64,
    /// The instruction; for other accesses, their name.
    pub sass: String,
    /// The thread's block.
    pub block: [u32; 3],
    /// The thread within its block.
    pub thread: [u32; 3],
    /// File and line, if the program has noted them.
    pub source: Option<String>,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Event { pc, sass, block: [bx, by, bz], thread: [x, y, z], source } = self;
        if *pc == 0 {
            return f.write_str(sass);
        }
        write!(f, "{sass} at {pc:#x}")?;
        if let Some(source) = source {
            write!(f, " ({})", Shown(source))?;
        }
        write!(f, ", block ({bx},{by},{bz}), thread ({x},{y},{z})")
    }
}

/// A mistake of a kernel, or of a copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The check that found it.
    pub check: Checks,
    /// The mistake.
    pub text: String,
    /// The work that did it where it was noticed first, and the missing order; may be empty.
    pub detail: String,
    /// Guest address of the kernel's first instruction; 0 where no kernel did it.
    pub program: u64,
    /// Name of the kernel, if the program has noted it.
    pub kernel: Option<String>,
    /// Place where it was noticed first. For a copy only `sass` has text: what is copied.
    pub event: Event,
    /// The address it is about: in global memory a guest address, in shared and local memory an offset.
    pub address: Option<u64>,
    /// The piece of memory that holds the address, or the nearest one.
    pub location: Option<Location>,
    /// The other one, where there are two.
    pub earlier: Option<Event>,
    /// Number of times that the same instruction, or another one of the same line, did it.
    #[serde(skip_serializing)]
    pub count: u64,
}

impl Finding {
    /// Whether another one is the same mistake: at the same instruction, or, as in a loop that the compiler has
    /// unrolled, at another one of the same line.
    fn is_as(&self, other: &Finding) -> bool {
        let (Event { pc, source, .. }, there) = (&self.event, &other.event);
        let same_place = *pc == there.pc || source.is_some() && *source == there.source;
        same_place && (self.program, &self.text) == (other.program, &other.text)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Finding { text, detail, program, event, .. } = self;
        write!(f, "{text}: {event}")?;
        match (program, &self.kernel) {
            (0, _) => (),
            (_, Some(kernel)) => write!(f, ", kernel {} at {program:#x}", Shown(kernel))?,
            (_, None) => write!(f, ", kernel at {program:#x}")?,
        }
        if let Some(address) = self.address {
            write!(f, ", address {address:#x}")?;
        }
        if let Some(location) = &self.location {
            write!(f, ": {location}")?;
        }
        if let Some(earlier) = &self.earlier {
            write!(f, "; earlier {earlier}")?;
        }
        if !detail.is_empty() {
            write!(f, "; {detail}")?;
        }
        Ok(())
    }
}

/// The instruction that stopped a launch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultPlace {
    /// The error, as the SM names it.
    pub error: String,
    /// Guest address of the kernel's first instruction.
    pub program: u64,
    /// Name of the kernel, if the program has noted it.
    pub kernel: Option<String>,
    /// The instruction, with its first thread.
    pub event: Event,
}

/// A line of the file that [`SimConfig::findings`](crate::SimConfig::findings) names: a JSON object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Record {
    /// A machine began its first launch; the line's `count` is that of all.
    Launch {
        /// The process that contains the machine.
        pid: u32,
        /// Compute capability of its SMs, 87 for 8.7.
        sm: u32,
        /// Everything that is checked.
        checks: Checks,
        /// Launches so far.
        #[serde(skip_serializing)]
        count: u64,
    },
    /// Launches of a machine that have ended: the line's `count`.
    Ended {
        /// The process that contains the machine.
        pid: u32,
        /// Launches that have ended so far.
        #[serde(skip_serializing)]
        count: u64,
    },
    /// A mistake.
    Finding {
        /// The process that contains the machine.
        pid: u32,
        /// The mistake.
        #[serde(flatten)]
        finding: Box<Finding>,
    },
    /// A launch was stopped.
    Fault {
        /// The process that contains the machine.
        pid: u32,
        /// Its words of [`Sim::faults`](crate::Sim::faults).
        text: String,
        /// A check has found the mistake: it has a record of its own.
        #[serde(default)]
        found: bool,
        /// The instruction, where the launch ran with checks.
        #[serde(default)]
        place: Option<Box<FaultPlace>>,
    },
    /// The program made a call that a real machine does not survive.
    Call {
        /// The process that contains the machine.
        pid: u32,
        /// The call, as the headers name it.
        call: String,
        /// The mistake and the correct way.
        text: String,
        /// The consequence on a real machine.
        consequence: String,
    },
}

/// A finding, and how often it stands in the file.
#[derive(Debug)]
struct Kept {
    finding: Finding,
    told: Option<(CountPlace, u64)>,
}

#[derive(Debug, Default)]
struct State {
    all: Vec<Kept>,
    /// Launches that have begun and that have ended, and where the file has their numbers.
    launches: [u64; 2],
    launches_at: [Option<CountPlace>; 2],
}

impl State {
    fn tell_launches(&self, file: &Handover) {
        for (place, count) in self.launches_at.iter().zip(self.launches) {
            place.iter().for_each(|place| file.set_count(*place, count));
        }
    }
}

/// All findings of a machine so far.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    state: Mutex<State>,
    /// Whether each is printed on stderr.
    printed: bool,
    handover: Option<Arc<Handover>>,
}

impl Findings {
    /// No findings yet.
    pub(crate) fn new(printed: bool, handover: Option<Arc<Handover>>) -> Self {
        Self { printed, handover, state: Mutex::default() }
    }

    /// Records one, loudly the first time that it happens at this place.
    pub(crate) fn record(&self, finding: Finding) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |old: &&mut Kept| old.finding.is_as(&finding);
        if let Some(old) = state.all.iter_mut().find(same) {
            old.finding.count += 1;
        } else if state.all.len() < MOST {
            let told = self.hand_over(&finding);
            if told.is_none() {
                tracing::error!("{finding}");
            }
            if self.printed && told.is_none() {
                // A failed write to stderr is no reason to stop.
                let _ = writeln!(io::stderr(), "ga10b: {finding}");
            }
            state.all.push(Kept { finding, told });
        }
    }

    /// Leaves it where the machine's findings go.
    fn hand_over(&self, finding: &Finding) -> Option<(CountPlace, u64)> {
        let record = Record::Finding { pid: std::process::id(), finding: Box::new(finding.clone()) };
        Some((self.handover.as_ref()?.add(&record)?, 1))
    }

    /// A launch begins.
    pub(crate) fn begin_launch(&self, sm: u32, checks: Checks) {
        let Some(file) = &self.handover else { return };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let pid = std::process::id();
        if state.launches == [0; 2] {
            state.launches_at =
                [Record::Launch { pid, sm, checks, count: 1 }, Record::Ended { pid, count: 0 }]
                    .map(|record| file.add(&record));
            if let Some(place) = state.launches_at[1] {
                file.set_count(place, 0);
            }
        }
        state.launches[0] += 1;
        state.tell_launches(file);
    }

    /// A launch has ended.
    pub(crate) fn end_launch(&self) {
        let Some(file) = &self.handover else { return };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.launches[1] += 1;
        state.tell_launches(file);
    }

    /// The counts of the file are those of the findings from now on.
    pub(crate) fn tell_counts(&self) {
        let Some(file) = &self.handover else { return };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        for Kept { finding, told } in &mut state.all {
            if let Some((place, told)) = told
                && *told != finding.count
            {
                *told = finding.count;
                file.set_count(*place, finding.count);
            }
        }
    }

    /// All so far.
    pub(crate) fn all(&self) -> Vec<Finding> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.all.iter().map(|kept| kept.finding.clone()).collect()
    }
}

impl Drop for Findings {
    fn drop(&mut self) {
        self.tell_counts();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_handed_over_with_their_counts() {
        let path = std::env::temp_dir().join(format!("ga10b-findings-{}", std::process::id()));
        let findings = Findings::new(true, Some(Arc::new(Handover::new(path.clone()))));
        let event = Event {
            pc: 0x1010,
            sass: "STS [R0], R1".to_owned(),
            block: [1, 2, 3],
            thread: [4, 5, 6],
            source: Some("k.cu:7".to_owned()),
        };
        let finding = Finding {
            check: Checks::RACE,
            text: "a race".to_owned(),
            detail: String::new(),
            program: 0x1000,
            kernel: None,
            event: event.clone(),
            address: Some(u64::MAX),
            location: Some(Location::new(crate::PieceKind::Buffer, "x", 0x40, 4, 0x44)),
            earlier: Some(event),
            count: 1,
        };
        findings.begin_launch(87, Checks::RACE);
        findings.begin_launch(87, Checks::RACE);
        findings.record(finding.clone());
        findings.record(finding.clone());
        findings.end_launch();
        findings.tell_counts();
        // The next copy of the line, in a loop that was unrolled.
        let unrolled = Event { pc: 0x1050, ..finding.event.clone() };
        findings.record(Finding { event: unrolled, ..finding.clone() });
        drop(findings);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        let read: Vec<Record> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let pid = std::process::id();
        let whole = Box::new(Finding { count: 3, ..finding });
        assert_eq!(
            read,
            [
                Record::Launch { pid, sm: 87, checks: Checks::RACE, count: 2 },
                Record::Ended { pid, count: 1 },
                Record::Finding { pid, finding: whole },
            ]
        );
    }

    #[test]
    fn a_list_of_checks_is_read_by_name() {
        assert_eq!("init,race".parse(), Ok(Checks::INIT | Checks::RACE));
        assert_eq!(" sync ".parse(), Ok(Checks::SYNC));
        assert_eq!("order".parse(), Ok(Checks::ORDER));
        assert_eq!("all".parse(), Ok(Checks::all()));
        assert_eq!(Checks::all().to_string().parse(), Ok(Checks::all()));
        assert_eq!("".parse(), Ok(Checks::empty()));
        assert_eq!("init,leaks".parse::<Checks>(), Err(UnknownCheck("leaks".to_owned())));
    }
}
