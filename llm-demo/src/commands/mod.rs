//! What the program does: a file per command, each with a `run`.

pub mod bench;
pub mod dump_logits;
pub mod generate;
pub mod greedy;
pub mod predict;
pub mod profile;
mod recording;
pub mod synthesize;
pub mod tune;
pub mod verify;

/// What a command found out, beside what it printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done.
    Good,
    /// Done, and the answer is no.
    Bad,
}
