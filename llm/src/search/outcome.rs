//! The input and the results of a search.

use std::time::Duration;

use serde::Serialize;

use crate::error::Result;
use crate::kernels::choices::Kernels;
use crate::tuning::entry::Entry;

/// The limits of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Time after which no further candidate is started.
    pub budget: Duration,
    /// Measurements of each candidate, of which the median counts.
    pub repeats: usize,
    /// Time for which the device works before it is measured.
    pub warm_up: Duration,
    /// Positions in the cache; prompts are at most as long.
    pub context: usize,
    /// Most candidates per kernel.
    pub candidates: usize,
}

/// The progress of a search.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// The current candidate or action.
    pub what: String,
    /// Candidates that are done.
    pub done: usize,
    /// All candidates of this part.
    pub total: usize,
}

/// The result for one kernel and matrix.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// The kernel, and the matrix.
    pub kernel: String,
    /// The default shape.
    pub usual: String,
    /// Time with the default shape, in ns.
    pub usual_ns: u64,
    /// The chosen shape: the fastest one, or the default if none is clearly faster.
    pub chosen: String,
    /// Time with the chosen shape, in ns.
    pub ns: u64,
    /// Candidates that were timed beside the default.
    pub tried: usize,
}

/// A candidate that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Rejected {
    /// The kernel.
    pub kernel: String,
    /// Why.
    pub reason: String,
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The result to store.
    pub entry: Entry,
    /// The kernels that `entry` names.
    pub kernels: Kernels,
    /// The results per kernel, in the order of the search.
    pub findings: Vec<Finding>,
    /// The candidates that cannot be used.
    pub rejected: Vec<Rejected>,
    /// Why nothing was searched, if so.
    pub left_out: Option<String>,
    /// Whether the time was too short for some candidates.
    pub out_of_time: bool,
}

/// Is called as a search proceeds.
pub trait Listener: Send {
    /// Tensor bytes copied to the device, so far and in all.
    fn loading(&mut self, done: u64, total: u64);

    /// A candidate is about to be tried.
    fn progress(&mut self, progress: &Progress);

    /// The search is complete; its results can be stored.
    ///
    /// # Errors
    /// An error ends the search.
    fn found(&mut self, outcome: &Outcome) -> Result<()>;
}
