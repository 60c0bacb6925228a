//! What a command found.

/// The result of a command, beside what it printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done.
    Good,
    /// Done, and the answer is no.
    Bad,
    /// The checker found mistakes of kernels.
    Findings,
}
