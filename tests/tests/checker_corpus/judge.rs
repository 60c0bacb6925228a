//! Verdicts on what was found, by the rules of `tools/checker-corpus/sanitize.py`.

use std::fmt;

use ga10b_sim::{Checks, Finding};
use serde::{Deserialize, Serialize};

use super::cases::{Case, Marks};
use super::machine::Outcome;

/// How well a mistake was found, from the best to the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// A right kernel without a finding.
    Clean,
    /// A check for this class of mistakes names the kernel and a line that is marked.
    Right,
    /// Anything else was found, also a fault.
    Vague,
    /// Nothing was found; the launch may not have ended.
    Missed,
    /// A finding in a right kernel.
    False,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Verdict::Clean => "clean",
            Verdict::Right => "right",
            Verdict::Vague => "vague",
            Verdict::Missed => "missed",
            Verdict::False => "false",
        })
    }
}

/// The checks whose findings fit a class of mistakes.
fn fitting(class: &str) -> Checks {
    match class {
        "memory" => Checks::MEMORY,
        "race" => Checks::RACE | Checks::ORDER,
        "init" => Checks::INIT,
        // A barrier that does not hold what it should is seen in the data too, and a barrier object may be unwritten.
        "sync" => Checks::SYNC | Checks::RACE | Checks::INIT,
        _ => Checks::empty(),
    }
}

/// The lines of the case's file in `source`, such as `memory.cu:8`, and the calls it was inlined by.
fn lines<'a>(case: &'a Case, source: &'a str) -> impl Iterator<Item = u32> + 'a {
    source.split(", inlined at ").filter_map(|place| {
        let (path, line) = place.rsplit_once(':')?;
        let name = path.rsplit('/').next()?.strip_suffix(".cu")?;
        line.parse().ok().filter(|_| name == case.file)
    })
}

fn is_right(case: &Case, marks: &Marks, finding: &Finding) -> bool {
    let others: &[u32] = if matches!(case.class(), "race" | "sync") { &marks.other } else { &[] };
    let sources = [Some(&finding.event), finding.earlier.as_ref()].into_iter().flatten();
    let mut lines = sources.filter_map(|event| event.source.as_deref()).flat_map(|text| lines(case, text));
    fitting(case.class()).contains(finding.check)
        && finding.kernel.as_ref() == Some(&case.kernel)
        && lines.any(|line| marks.bug.contains(&line) || others.contains(&line))
}

/// Name of a check.
pub fn name(check: Checks) -> &'static str {
    let names = [
        (Checks::MEMORY, "memory"),
        (Checks::INIT, "init"),
        (Checks::RACE, "race"),
        (Checks::SYNC, "sync"),
        (Checks::ORDER, "order"),
    ];
    names.into_iter().find(|(c, _)| *c == check).map_or("?", |(_, name)| name)
}

/// The verdict, what decided it (the check, or `fault`), and its text.
pub fn judge(case: &Case, marks: &Marks, outcome: &Outcome) -> (Verdict, Option<&'static str>, String) {
    let first = outcome.findings.first();
    let right = outcome.findings.iter().find(|finding| is_right(case, marks, finding));
    let found = |finding: &Finding, verdict| (verdict, Some(name(finding.check)), finding.to_string());
    match (case.right, right, first, &outcome.failure) {
        (true, _, Some(finding), _) => found(finding, Verdict::False),
        (true, _, None, Some(failure)) => (Verdict::False, Some("fault"), failure.clone()),
        (true, _, None, None) => (Verdict::Clean, None, String::new()),
        (false, Some(finding), ..) => found(finding, Verdict::Right),
        (false, None, Some(finding), _) => found(finding, Verdict::Vague),
        (false, None, None, Some(failure)) if !outcome.hangs || failure.contains("deadlock") => {
            (Verdict::Vague, Some("fault"), failure.clone())
        }
        (false, None, None, failure) => (Verdict::Missed, None, failure.clone().unwrap_or_default()),
    }
}
