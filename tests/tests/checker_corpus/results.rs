//! Verdicts as files: `ours.json`, and what `tools/checker-corpus/sanitize.py` writes.

use std::collections::BTreeMap;
use std::fs;

use serde::{Deserialize, Serialize};

use super::cases::{Case, file};
use super::judge::Verdict;

/// The verdict on one launch.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    pub verdict: Verdict,
    /// The check that decided it, or `fault`.
    pub by: Option<String>,
    pub text: String,
    pub seconds: f64,
}

/// `ours.json`: the verdicts of the software ga10b's checks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ours {
    /// Time of all cases together.
    pub seconds: f64,
    /// Verdict and check of each kernel.
    pub cases: BTreeMap<String, (Verdict, Option<String>)>,
}

impl Ours {
    /// Those of a run.
    pub fn new(seconds: f64, cases: &[Case], rows: &[Row]) -> Self {
        let verdict = |(case, row): (&Case, &Row)| (case.kernel.clone(), (row.verdict, row.by.clone()));
        Self { seconds: seconds.round(), cases: cases.iter().zip(rows).map(verdict).collect() }
    }

    /// The committed ones.
    pub fn read() -> Self {
        serde_json::from_slice(&fs::read(file("ours.json")).unwrap()).unwrap()
    }

    /// Commits them, a line for each kernel.
    pub fn write(&self) {
        let line = |(kernel, verdict): (&String, _)| format!("{kernel:?}: {}", serde_json::json!(verdict));
        let lines: Vec<String> = self.cases.iter().map(line).collect();
        let text = format!("{{\"seconds\": {}, \"cases\": {{\n{}\n}}}}\n", self.seconds, lines.join(",\n"));
        fs::write(file("ours.json"), text).unwrap();
    }

    /// That of a kernel.
    pub fn verdict(&self, kernel: &str) -> Option<Verdict> {
        self.cases.get(kernel).map(|(verdict, _)| *verdict)
    }
}

/// `sanitizer.json`: the verdicts of compute-sanitizer.
#[derive(Clone, Debug, Deserialize)]
pub struct Sanitizer {
    pub version: String,
    /// The GPU it ran on.
    pub gpu: String,
    /// Options of each tool.
    pub options: BTreeMap<String, String>,
    /// Processes at a time.
    pub workers: u32,
    pub wall_seconds: f64,
    cases: Vec<SanitizerCase>,
}

#[derive(Clone, Debug, Deserialize)]
struct SanitizerCase {
    kernel: String,
    /// None if there was no time for it.
    verdict: Option<Verdict>,
    tool: Option<String>,
}

impl Sanitizer {
    /// The committed ones.
    pub fn read() -> Self {
        serde_json::from_slice(&fs::read(file("sanitizer.json")).unwrap()).unwrap()
    }

    /// Verdict and tool of a kernel.
    pub fn verdict(&self, kernel: &str) -> Option<(Verdict, &str)> {
        let case = self.cases.iter().find(|case| case.kernel == kernel)?;
        Some((case.verdict?, case.tool.as_deref().unwrap_or_default()))
    }
}
