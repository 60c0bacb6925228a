//! The whole of a bring-up: as text while it runs and afterwards, and as JSON.

use std::io::{self, Write};

use serde::{Deserialize, Serialize};

use crate::bringup::outcome::{Fact, Figure, Status, StepResult};
use crate::bringup::plan;
use crate::bringup::settings::{Bases, CELLS, Cell, Table, differences, values};
use crate::report::style::{ASIDE, HEADING, NAME, PROBLEM};
use crate::report::{Report, plain};

/// Point at which a bring-up was interrupted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interruption {
    /// The step that has no result; `None` while figures were measured, after the steps.
    pub step: Option<u32>,
    /// The signal's name; `None` if the program, or the machine, ended without one that it could receive.
    pub signal: Option<String>,
}

/// A bring-up, complete or up to where it stopped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bringup {
    /// Version of this program.
    pub version: String,
    /// Start time, in UTC.
    pub date: String,
    /// Identity of the machine: a number made of it, or the name that the user gave.
    pub host: String,
    /// The driver: `nvgpu`, `rm` or `sim`.
    pub driver: String,
    /// Whether the GPU is the software ga10b, also one that answers as nvgpu.
    #[serde(default)]
    pub software: bool,
    /// Point at which it was interrupted, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupted: Option<Interruption>,
    /// Each step that was reached.
    pub steps: Vec<StepResult>,
    /// The settings that were tried, if they were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<Table>,
    /// Figures, if they were measured.
    pub figures: Vec<Figure>,
    /// Why figures are missing, if some are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unmeasured: Option<String>,
}

/// Most seconds that a step can have taken.
const LONGEST: f64 = 1e9;

/// Says that steps between two others have no result.
fn print_missing(before: u32, after: u32, out: &mut dyn Write) -> io::Result<()> {
    let (first, last) = (before + 1, after - 1);
    match last.checked_sub(first) {
        None => Ok(()),
        Some(0) => writeln!(out, "    {PROBLEM}step {first} is missing{PROBLEM:#}"),
        Some(_) => writeln!(out, "    {PROBLEM}steps {first} to {last} are missing{PROBLEM:#}"),
    }
}

/// Prints a fact, with a mark and the expected value where they differ.
fn print_fact(fact: &Fact, out: &mut dyn Write) -> io::Result<()> {
    let (name, value) = (plain(&fact.name), plain(&fact.value));
    match &fact.expected {
        Some(expected) if expected.differs => {
            writeln!(out, "    {PROBLEM}!{PROBLEM:#} {name}: {value}")?;
            let (wanted, source) = (plain(&expected.value), plain(&expected.source));
            writeln!(out, "        {ASIDE}expected: {wanted} ({source}){ASIDE:#}")
        }
        _ => writeln!(out, "      {name}: {value}"),
    }
}

/// Prints one step's result.
///
/// # Errors
/// Those of `out`.
pub fn print_step(step: &StepResult, out: &mut dyn Write) -> io::Result<()> {
    let (style, word) = match step.status {
        Status::Passed => (NAME, "ok"),
        Status::Failed => (PROBLEM, "FAILED"),
        Status::Skipped => (ASIDE, "skipped"),
        Status::Unseen => (PROBLEM, "not seen"),
    };
    let (number, title) = (step.number, plain(&step.title));
    write!(out, "{number:>2}  {style}{word:<9}{style:#}{title:<30}")?;
    match step.status {
        Status::Skipped => writeln!(out)?,
        _ => writeln!(out, " {ASIDE}{:>8.2} s{ASIDE:#}", step.seconds)?,
    }
    for fact in &step.notes.facts {
        print_fact(fact, out)?;
    }
    for warning in &step.notes.warnings {
        writeln!(out, "      {NAME}note{NAME:#}: {}", plain(warning))?;
    }
    if step.status == Status::Failed
        && let Some(planned) = plan::find(step.number)
    {
        writeln!(out, "      expected: {}", planned.expects)?;
    }
    if let Some(reason) = &step.reason {
        let label = match step.status {
            Status::Failed => "found",
            Status::Unseen => "not seen",
            Status::Skipped | Status::Passed => "because",
        };
        writeln!(out, "      {label}: {}", plain(reason))?;
    }
    if let Some(remedy) = &step.remedy {
        writeln!(out, "      try: {}", plain(remedy))?;
    }
    if step.status == Status::Failed {
        for line in &step.log {
            writeln!(out, "      {ASIDE}log: {}{ASIDE:#}", plain(line))?;
        }
    }
    Ok(())
}

/// Prints the heading of the lines of cells.
///
/// # Errors
/// Those of `out`.
pub fn print_cells_head(out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "{HEADING}Settings{HEADING:#}, each line a process of its own: a submission, a launch, a chain of launches"
    )?;
    let [memory, subcontext, preemption, release, descriptor] = CELL_COLUMNS;
    writeln!(
        out,
        "    {:<14}{ASIDE}{memory:<16}{subcontext:<12}{preemption:<12}{release:<9}{descriptor}{ASIDE:#}",
        ""
    )
}

/// Names of the columns, as a profile has them.
const CELL_COLUMNS: [&str; 5] = ["command-memory", "subcontext", "preemption", "release", "descriptor"];

/// Prints the result of some settings.
///
/// # Errors
/// Those of `out`.
pub fn print_cell(cell: &Cell, bases: &Bases, out: &mut dyn Write) -> io::Result<()> {
    let values = values(&cell.settings);
    let value =
        |name: &str| values.iter().find(|setting| setting.0 == name).map_or("", |setting| setting.1.as_str());
    let (style, word) = match &cell.failure {
        None => (NAME, "works"),
        Some(failure) => (PROBLEM, failure.stage.name()),
    };
    let [memory, subcontext, preemption, release, descriptor] = CELL_COLUMNS.map(value);
    write!(
        out,
        "    {style}{word:<14}{style:#}{memory:<16}{subcontext:<12}{preemption:<12}{release:<9}{descriptor:<14}"
    )?;
    write!(out, "{ASIDE}{:>6.2} s{ASIDE:#}", cell.seconds)?;
    let known = [
        (bases.conservative, "what ran on an Orin"),
        (bases.default, "the defaults"),
        (bases.in_use, "in use now"),
    ];
    let known: Vec<_> = known.iter().filter(|base| base.0 == cell.settings).map(|base| base.1).collect();
    let space = if known.is_empty() { "" } else { "  " };
    writeln!(out, "{space}{}", known.join(", "))?;
    if let Some(failure) = &cell.failure {
        writeln!(out, "      found: {}", plain(&failure.reason))?;
    }
    match &cell.found {
        Some(found) => writeln!(out, "      {}", plain(found)),
        None => Ok(()),
    }
}

/// Changes of a conservative device besides its profile.
const EVERYTHING: &str =
    "HCQ_CONSERVATIVE=1, which also changes links between launches, barriers, objects, rings and signals";

/// Prints which settings are to be used.
///
/// # Errors
/// Those of `out`.
pub fn print_choice(table: &Table, out: &mut dyn Write) -> io::Result<()> {
    let (tried, working) = (table.cells.len(), table.cells.iter().filter(|cell| cell.works()).count());
    writeln!(out, "  {working} of {tried} work{}", if tried < CELLS { ", of 32 there are" } else { "" })?;
    if let Some(ended) = &table.ended {
        writeln!(out, "  {PROBLEM}ended{PROBLEM:#}: {}", plain(ended))?;
    }
    let bases = &table.bases;
    if bases.in_use != bases.default && table.cell(&bases.in_use).is_some() && !table.works(&bases.in_use) {
        let changed = differences(&bases.in_use, &bases.default).join(", ");
        writeln!(out, "  {PROBLEM}the settings in use do not work{PROBLEM:#}: {changed}")?;
    }
    match table.chosen.map(|chosen| differences(&chosen, &bases.default)) {
        None => {
            writeln!(
                out,
                "  {PROBLEM}no profile works{PROBLEM:#}: report the file that this command writes"
            )?;
            match &table.everything {
                Some(cell) if cell.works() => writeln!(out, "  {EVERYTHING}: works"),
                Some(cell) => {
                    let why = cell.failure.as_ref().map_or("", |failure| &failure.reason);
                    writeln!(out, "  {EVERYTHING}: {}", plain(why))
                }
                None => Ok(()),
            }
        }
        Some(none) if none.is_empty() => writeln!(out, "  to use: the defaults"),
        Some(changed) => writeln!(out, "  to use: the defaults, but {}", changed.join(", ")),
    }
}

impl Bringup {
    /// The forms that are read: the second has expectations of facts, steps that are not seen, and a table of
    /// settings, which the first leaves out.
    pub const READ: [&str; 2] = ["nvdiag.bringup/1", Self::SCHEMA];

    /// Whether it is one that a run can have left; an error names the member that is not.
    ///
    /// # Errors
    /// The member, and its defect.
    pub fn check(&self) -> Result<(), String> {
        let most = plan::STEPS.len();
        let mut last = 0;
        for (index, step) in self.steps.iter().enumerate() {
            let number = step.number;
            if plan::find(number).is_none() {
                return Err(format!("steps[{index}].number is {number}; steps have the numbers 1 to {most}"));
            }
            if number <= last {
                return Err(format!(
                    "steps[{index}].number is {number} after {last}; steps come once, in order"
                ));
            }
            if !(0.0..=LONGEST).contains(&step.seconds) {
                let seconds = step.seconds;
                return Err(format!("steps[{index}].seconds is {seconds}; a step takes 0 to {LONGEST}"));
            }
            last = number;
        }
        if let Some(table) = &self.settings {
            table.check()?;
            if let Some(at) = table.cells.iter().position(|cell| !(0.0..=LONGEST).contains(&cell.seconds)) {
                return Err(format!("settings.cells[{at}].seconds is none that a cell takes"));
            }
        }
        match &self.interrupted {
            None if self.steps.is_empty() && self.settings.is_none() => Err("steps is empty".to_owned()),
            Some(Interruption { step: Some(number), .. }) if plan::find(*number).is_none() => {
                Err(format!("interrupted.step is {number}; steps have the numbers 1 to {most}"))
            }
            _ => Ok(()),
        }
    }

    /// Prints the figures and the verdict, which follow the steps.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn print_end(&self, out: &mut dyn Write) -> io::Result<()> {
        if !self.figures.is_empty() || self.unmeasured.is_some() {
            writeln!(out, "{HEADING}Figures{HEADING:#}")?;
        }
        for figure in &self.figures {
            let Figure { name, p50, worst, unit } = figure;
            let (name, unit) = (plain(name), plain(unit));
            writeln!(out, "  {name:<42} {p50:>10.2} {unit} (99 %: {worst:.2})")?;
        }
        if let Some(why) = &self.unmeasured {
            writeln!(out, "  {PROBLEM}not measured{PROBLEM:#}: {}", plain(why))?;
        }
        if self.steps.is_empty() {
            return self.print_interruption(out);
        }
        let count = |status| self.steps.iter().filter(|step| step.status == status).count();
        let (passed, failed) = (count(Status::Passed), count(Status::Failed));
        let style = if failed == 0 { HEADING } else { PROBLEM };
        let (skipped, unseen) = (count(Status::Skipped), count(Status::Unseen));
        write!(out, "{style}{passed} passed, {failed} failed, {skipped} skipped{style:#}")?;
        if unseen > 0 {
            write!(out, ", {PROBLEM}{unseen} not seen{PROBLEM:#}")?;
        }
        let differing = self.steps.iter().flat_map(|step| &step.notes.facts).filter(|fact| fact.differs());
        match differing.count() {
            0 => writeln!(out)?,
            1 => writeln!(out, "; 1 fact is not as expected (!)")?,
            some => writeln!(out, "; {some} facts are not as expected (!)")?,
        }
        self.print_interruption(out)
    }

    fn print_interruption(&self, out: &mut dyn Write) -> io::Result<()> {
        let Some(Interruption { step, signal }) = &self.interrupted else { return Ok(()) };
        let place = step.map_or("after the steps".to_owned(), |number| format!("in step {number}"));
        let cause = match signal {
            Some(signal) => format!("by {}", plain(signal)),
            None => "without a signal: the program was killed, or the machine stopped".to_owned(),
        };
        writeln!(out, "{PROBLEM}interrupted {place}{PROBLEM:#} {cause}")
    }

    /// Prints its heading.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn print_head(&self, out: &mut dyn Write) -> io::Result<()> {
        let [driver, host, date, version] =
            [&self.driver, &self.host, &self.date, &self.version].map(|t| plain(t));
        let software = if driver == "sim" || self.software { " (the software ga10b)" } else { "" };
        writeln!(
            out,
            "{HEADING}bring-up through {driver}{software}{HEADING:#}, machine {host}, {date}, nvdiag {version}"
        )
    }
}

impl Report for Bringup {
    const SCHEMA: &'static str = "nvdiag.bringup/2";

    fn has_problem(&self) -> bool {
        self.steps.iter().any(|step| step.status == Status::Failed)
            || self.settings.as_ref().is_some_and(|table| table.chosen.is_none())
    }

    fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        self.print_head(out)?;
        let mut before = None;
        for step in &self.steps {
            print_missing(before.unwrap_or(step.number - 1), step.number, out)?;
            print_step(step, out)?;
            before = Some(step.number);
        }
        if let Some(table) = &self.settings {
            print_cells_head(out)?;
            table.cells.iter().try_for_each(|cell| print_cell(cell, &table.bases, out))?;
            print_choice(table, out)?;
        }
        self.print_end(out)
    }
}
