//! The outcome of a step, and its measurements.

use std::fmt::Display;

use serde::{Deserialize, Serialize};

/// Outcome of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// The work was done.
    Passed,
    /// Work was not done: a request that is needed is refused, a value does not arrive, a result is wrong, a
    /// fault is not reported.
    Failed,
    /// Has no meaning on this GPU, rests on a step that failed, or lacks its program.
    Skipped,
    /// The work was done, and something else that the step has to examine could not be examined.
    Unseen,
}

/// Finding of a step besides passing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fact {
    /// Subject.
    pub name: String,
    /// Value found.
    pub value: String,
    /// Expected value, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<Expected>,
}

impl Fact {
    /// Whether something else was expected.
    #[must_use]
    pub fn differs(&self) -> bool {
        self.expected.as_ref().is_some_and(|expected| expected.differs)
    }
}

/// Expectation of a fact: no condition, but a value that a reader of the report compares with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expected {
    /// The value, or a description of it.
    pub value: String,
    /// Source of the expectation: a file of the driver's source, notes from a machine.
    pub source: String,
    /// Whether the fact is another one.
    pub differs: bool,
}

/// A measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Measured quantity.
    pub name: String,
    /// Median of the samples.
    pub p50: f64,
    /// The 99th percentile, or the 1st where more is better.
    pub worst: f64,
    /// Its unit: `us`, `GB/s`, `tokens/s`.
    pub unit: String,
}

impl Figure {
    /// The figure of some samples; `None` without any.
    #[must_use]
    pub fn of(name: impl Into<String>, unit: &str, mut samples: Vec<f64>) -> Option<Self> {
        samples.sort_by(f64::total_cmp);
        let more_is_better = unit.ends_with("/s");
        let worst = if more_is_better { samples.len() / 100 } else { (samples.len() * 99) / 100 };
        let worst = *samples.get(worst)?;
        Some(Self { name: name.into(), p50: *samples.get(samples.len() / 2)?, worst, unit: unit.to_owned() })
    }
}

/// Notes that a step makes while it runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Notes {
    /// Findings.
    pub facts: Vec<Fact>,
    /// Unusual findings that are no failures.
    pub warnings: Vec<String>,
    /// Reason why something could not be examined.
    #[serde(skip)]
    unseen: Option<String>,
}

impl Notes {
    /// Adds a finding.
    pub fn fact(&mut self, name: &str, value: impl Display) {
        self.facts.push(Fact { name: name.to_owned(), value: value.to_string(), expected: None });
    }

    /// Adds a finding, with its expected value and the source of that.
    pub fn expect(&mut self, name: &str, found: impl Display, expected: impl Display, source: &str) {
        let as_expected = found.to_string() == expected.to_string();
        self.judge(name, found, as_expected, expected, source);
    }

    /// Adds a finding, with the description of the expected value, and whether it matches.
    pub fn judge(
        &mut self,
        name: &str,
        found: impl Display,
        as_expected: bool,
        expected: impl Display,
        source: &str,
    ) {
        self.facts.push(Fact {
            name: name.to_owned(),
            value: found.to_string(),
            expected: Some(Expected {
                value: expected.to_string(),
                source: source.to_owned(),
                differs: !as_expected,
            }),
        });
    }

    /// Adds the reason why something could not be examined: the step is not passed by that alone. The first
    /// is kept.
    pub fn unseen(&mut self, what: impl Into<String>) {
        self.unseen.get_or_insert(what.into());
    }

    /// Takes the reason why something could not be examined.
    pub(super) fn take_unseen(&mut self) -> Option<String> {
        self.unseen.take()
    }

    /// Adds a warning.
    pub fn warn(&mut self, text: impl Into<String>) {
        self.warnings.push(text.into());
    }
}

/// A step's result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepResult {
    /// Its number, from 1.
    pub number: u32,
    /// Its name.
    pub title: String,
    /// Outcome.
    pub status: Status,
    /// Duration.
    pub seconds: f64,
    /// Findings and warnings.
    #[serde(flatten)]
    pub notes: Notes,
    /// Why it failed or was skipped, or why something could not be examined.
    pub reason: Option<String>,
    /// Remedy.
    pub remedy: Option<String>,
    /// Lines that the driver logged meanwhile.
    pub log: Vec<String>,
}

impl StepResult {
    /// A step that was not run.
    #[must_use]
    pub fn skipped(number: u32, title: &str, reason: impl Into<String>) -> Self {
        Self {
            number,
            title: title.to_owned(),
            status: Status::Skipped,
            seconds: 0.0,
            notes: Notes::default(),
            reason: Some(reason.into()),
            remedy: None,
            log: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fact_differs_from_what_was_expected_and_from_nothing_else() {
        let mut notes = Notes::default();
        notes.fact("clock", 1300);
        notes.expect("bytes", 400, 328, "a header");
        notes.expect("bytes", 328, 328, "a header");
        notes.judge("time", "60 ms", true, "some", "a register");
        let differs: Vec<bool> = notes.facts.iter().map(Fact::differs).collect();
        assert_eq!(differs, [false, true, false, false]);
        let read: Notes = serde_json::from_str(&serde_json::to_string(&notes).unwrap()).unwrap();
        assert_eq!(read, notes);
    }

    #[test]
    fn the_worst_of_a_time_is_the_longest_and_of_a_rate_the_lowest() {
        let samples: Vec<f64> = (1..=200).map(f64::from).collect();
        let time = Figure::of("t", "us", samples.clone()).expect("samples");
        assert_eq!((time.p50, time.worst), (101.0, 199.0));
        let rate = Figure::of("r", "GB/s", samples).expect("samples");
        assert_eq!((rate.p50, rate.worst), (101.0, 3.0));
        assert_eq!(Figure::of("none", "us", Vec::new()), None);
    }
}
