//! The whole of a bring-up: as text while it runs and afterwards, and as JSON.

use std::io::{self, Write};

use serde::{Deserialize, Serialize};

use crate::bringup::outcome::{Figure, Status, StepResult};
use crate::bringup::plan;
use crate::report::Report;
use crate::report::style::{ASIDE, HEADING, NAME, PROBLEM};

/// Where a bring-up ended before its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interruption {
    /// The step that has no result; `None` while figures were measured, after the steps.
    pub step: Option<u32>,
    /// The signal's name; `None` if the program, or the machine, went away without one that it could hear.
    pub signal: Option<String>,
}

/// A bring-up, complete or up to where it stopped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bringup {
    /// Version of this program.
    pub version: String,
    /// When it began, in UTC.
    pub date: String,
    /// What tells machines apart: a number made of the machine's identity, or the name that the user gave.
    pub host: String,
    /// The driver: `nvgpu`, `rm` or `sim`.
    pub driver: String,
    /// Whether the GPU is the software ga10b, also one that answers as nvgpu.
    #[serde(default)]
    pub software: bool,
    /// Where it was interrupted, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupted: Option<Interruption>,
    /// Each step that was reached.
    pub steps: Vec<StepResult>,
    /// Figures, if they were measured.
    pub figures: Vec<Figure>,
}

/// A text without what a terminal would obey: a report may come from anyone.
pub(super) fn plain(text: &str) -> String {
    // Unicode's overrides of the writing direction make a text read as another one.
    let obeyed = |c: char| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().map(|c| if obeyed(c) { '\u{fffd}' } else { c }).collect()
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

/// Prints one step's result.
///
/// # Errors
/// Those of `out`.
pub fn print_step(step: &StepResult, out: &mut dyn Write) -> io::Result<()> {
    let (style, word) = match step.status {
        Status::Passed => (NAME, "ok"),
        Status::Failed => (PROBLEM, "FAILED"),
        Status::Skipped => (ASIDE, "skipped"),
    };
    let (number, title) = (step.number, plain(&step.title));
    write!(out, "{number:>2}  {style}{word:<8}{style:#}{title:<30}")?;
    match step.status {
        Status::Skipped => writeln!(out)?,
        _ => writeln!(out, " {ASIDE}{:>8.2} s{ASIDE:#}", step.seconds)?,
    }
    for fact in &step.notes.facts {
        writeln!(out, "      {}: {}", plain(&fact.name), plain(&fact.value))?;
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
        let label = if step.status == Status::Failed { "found" } else { "because" };
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

impl Bringup {
    /// Whether it is one that a run can have left; an error names the member that is not.
    ///
    /// # Errors
    /// The member, and what is wrong with it.
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
        match &self.interrupted {
            None if self.steps.is_empty() => Err("steps is empty".to_owned()),
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
        if !self.figures.is_empty() {
            writeln!(out, "{HEADING}Figures{HEADING:#}")?;
        }
        for figure in &self.figures {
            let Figure { name, p50, worst, unit } = figure;
            let (name, unit) = (plain(name), plain(unit));
            writeln!(out, "  {name:<42} {p50:>10.2} {unit} (99 %: {worst:.2})")?;
        }
        let count = |status| self.steps.iter().filter(|step| step.status == status).count();
        let (passed, failed) = (count(Status::Passed), count(Status::Failed));
        let style = if failed == 0 { HEADING } else { PROBLEM };
        writeln!(
            out,
            "{style}{passed} passed, {failed} failed, {} skipped{style:#}",
            count(Status::Skipped)
        )?;
        let Some(Interruption { step, signal }) = &self.interrupted else { return Ok(()) };
        let place = step.map_or("after the steps".to_owned(), |number| format!("in step {number}"));
        let cause = match signal {
            Some(signal) => format!("by {}", plain(signal)),
            None => "without a signal: the program was killed, or the machine stopped".to_owned(),
        };
        writeln!(out, "{PROBLEM}interrupted {place}{PROBLEM:#} {cause}")
    }

    /// Prints what it is about.
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
    const SCHEMA: &'static str = "nvdiag.bringup/1";

    fn has_problem(&self) -> bool {
        self.steps.iter().any(|step| step.status == Status::Failed)
    }

    fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        self.print_head(out)?;
        let mut before = None;
        for step in &self.steps {
            print_missing(before.unwrap_or(step.number - 1), step.number, out)?;
            print_step(step, out)?;
            before = Some(step.number);
        }
        self.print_end(out)
    }
}
