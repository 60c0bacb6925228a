//! The result of comparing devices.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::conformance::case::Case;
use crate::conformance::tolerance::{Tolerance, Verdict};

/// A word in which two results differ without being allowed to.
#[derive(Clone, Debug, Serialize)]
pub struct Difference {
    /// Row of the table.
    pub family: &'static str,
    /// The program.
    pub program: String,
    /// Seed of its inputs.
    pub seed: u64,
    /// The operation that made the word.
    pub what: String,
    /// Buffer of the program.
    pub buffer: usize,
    /// Word in the buffer.
    pub word: usize,
    /// The two results.
    pub between: String,
    /// The two words.
    pub values: [u32; 2],
    /// Distance as f32, where both are numbers.
    pub ulps: Option<u32>,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { program, seed, what, buffer, word, between, values: [a, b], .. } = self;
        write!(
            f,
            "{between}: {a:#010x} / {b:#010x} in {program} (seed {seed}), buffer {buffer} word {word}  [{what}]"
        )
    }
}

/// The counts of one family.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Totals {
    /// Programs run.
    pub programs: u64,
    /// Words compared.
    pub words: u64,
    /// Words that differ without being allowed to.
    pub differing: u64,
    /// Words that differ within their bound.
    pub within: u64,
    /// Words that differ and that the program never sets.
    pub unset: u64,
    /// The largest allowed difference met, in units in the last place.
    pub worst_ulps: u32,
    /// The bounds of the words that differ, as text.
    pub bounds: Vec<String>,
    /// Programs that did not come to an end, with the reason.
    pub failed: Vec<String>,
}

/// The bounds of two results' differences.
enum Bounds<'a> {
    /// There is one right value.
    Exact,
    /// The place of each word, and in addition so much in the words of each buffer.
    Of(&'a [f64]),
}

/// The comparison so far.
#[derive(Debug, Serialize)]
pub struct Comparison {
    /// The two results: `device / sm_90 model`.
    pub between: String,
    /// Per family.
    pub families: BTreeMap<&'static str, Totals>,
    /// The first differences of each program.
    pub differences: Vec<Difference>,
    /// Differences of one program that are listed one by one.
    #[serde(skip)]
    pub listed: u64,
    /// Whether both run the same instruction set.
    pub same_architecture: bool,
}

impl Comparison {
    /// Of two results, named `between`.
    pub fn new(between: &str) -> Self {
        Self {
            between: between.to_owned(),
            families: BTreeMap::new(),
            differences: Vec::new(),
            listed: 4,
            same_architecture: true,
        }
    }

    /// Whether there is nothing that needs an explanation.
    pub fn agrees(&self) -> bool {
        self.families.values().all(|t| t.differing == 0 && t.failed.is_empty())
    }

    /// Counts a program that could not be compared.
    pub fn fail(&mut self, case: &Case, reason: &str) {
        let totals = self.families.entry(case.family).or_default();
        totals.programs += 1;
        totals.failed.push(format!("{} (seed {}): {reason}", case.program, case.seed));
    }

    /// Compares two results of a case.
    pub fn compare(&mut self, case: &Case, a: &[Vec<u32>], b: &[Vec<u32>]) {
        let slack = case.slack.as_ref().map_or(Vec::new(), |slack| slack(a, b));
        let some = |words: &[Vec<u32>]| -> Vec<Vec<Option<u32>>> {
            words.iter().map(|w| w.iter().copied().map(Some).collect()).collect()
        };
        self.compare_known(case, a, &some(b), &Bounds::Of(&slack));
        self.families.entry(case.family).or_default().programs += 1;
    }

    /// Compares a result with what is right, where that is known.
    pub fn check(&mut self, case: &Case, result: &[Vec<u32>]) {
        if let Some(expected) = &case.expected {
            self.compare_known(case, result, expected, &Bounds::Exact);
            self.families.entry(case.family).or_default().programs += 1;
        }
    }

    /// Compares a result with what is known of it.
    fn compare_known(&mut self, case: &Case, a: &[Vec<u32>], b: &[Vec<Option<u32>>], bounds: &Bounds<'_>) {
        let totals = self.families.entry(case.family).or_default();
        let mut listed = 0;
        for (buffer, (a, b)) in a.iter().zip(b).enumerate() {
            for (word, (&a, b)) in a.iter().zip(b).enumerate() {
                let Some(b) = *b else { continue };
                totals.words += 1;
                if a == b {
                    continue;
                }
                let Some(place) = (case.place)(buffer, word) else {
                    totals.unset += 1;
                    continue;
                };
                let tolerance = match bounds {
                    Bounds::Exact => Tolerance::Exact,
                    Bounds::Of(_) if case.by_architecture && !self.same_architecture => Tolerance::Any,
                    Bounds::Of(slack) => place.tolerance.widened(slack.get(buffer).copied().unwrap_or(0.0)),
                };
                let bound = tolerance.to_string();
                match tolerance.judge(a, b) {
                    Verdict::Same => {}
                    Verdict::Within(ulps) => {
                        totals.within += 1;
                        totals.worst_ulps = totals.worst_ulps.max(ulps);
                        if !totals.bounds.contains(&bound) {
                            totals.bounds.push(bound);
                        }
                    }
                    Verdict::Beyond(ulps) => {
                        totals.differing += 1;
                        listed += 1;
                        if listed <= self.listed {
                            self.differences.push(Difference {
                                family: case.family,
                                program: case.program.clone(),
                                seed: case.seed,
                                what: place.what,
                                buffer,
                                word,
                                between: self.between.clone(),
                                values: [a, b],
                                ulps,
                            });
                        }
                    }
                }
            }
        }
    }
}

impl std::fmt::Display for Comparison {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "{:<24} {:>8} {:>12} {:>9} {:>9} {:>9} {:>6}  bounds",
            self.between, "programs", "words", "differing", "in bounds", "worst ulp", "unset"
        )?;
        for (family, t) in &self.families {
            let bounds = t.bounds.join(", ");
            writeln!(
                f,
                "{family:<24} {:>8} {:>12} {:>9} {:>9} {:>9} {:>6}  {bounds}",
                t.programs, t.words, t.differing, t.within, t.worst_ulps, t.unset
            )?;
        }
        for failed in self.families.values().flat_map(|t| &t.failed) {
            writeln!(f, "failed: {failed}")?;
        }
        for difference in &self.differences {
            writeln!(f, "{difference}")?;
        }
        Ok(())
    }
}
