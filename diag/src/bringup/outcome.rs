//! How a step ended, and what it measured.

use std::fmt::Display;

use serde::{Deserialize, Serialize};

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// As expected.
    Passed,
    /// Not as expected.
    Failed,
    /// Has no meaning on this GPU, or rests on a step that failed.
    Skipped,
}

/// What a step found out besides passing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fact {
    /// What it is about.
    pub name: String,
    /// What was found.
    pub value: String,
}

/// A measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// What was measured.
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

/// What a step writes down while it runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Notes {
    /// What was found.
    pub facts: Vec<Fact>,
    /// What is not as usual, and no failure.
    pub warnings: Vec<String>,
}

impl Notes {
    /// Writes down what was found.
    pub fn fact(&mut self, name: &str, value: impl Display) {
        self.facts.push(Fact { name: name.to_owned(), value: value.to_string() });
    }

    /// Writes down what is unusual.
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
    /// How it ended.
    pub status: Status,
    /// How long it took.
    pub seconds: f64,
    /// What it found and what is unusual.
    #[serde(flatten)]
    pub notes: Notes,
    /// Why it failed or was skipped.
    pub reason: Option<String>,
    /// What to try.
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
    fn the_worst_of_a_time_is_the_longest_and_of_a_rate_the_lowest() {
        let samples: Vec<f64> = (1..=200).map(f64::from).collect();
        let time = Figure::of("t", "us", samples.clone()).expect("samples");
        assert_eq!((time.p50, time.worst), (101.0, 199.0));
        let rate = Figure::of("r", "GB/s", samples).expect("samples");
        assert_eq!((rate.p50, rate.worst), (101.0, 3.0));
        assert_eq!(Figure::of("none", "us", Vec::new()), None);
    }
}
