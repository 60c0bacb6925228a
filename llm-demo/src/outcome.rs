//! The result of a command, beside its output.

/// The result of a command, beside what it printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done.
    Good,
    /// Done, and the answer is no.
    Bad,
    /// Ended by Ctrl-C, and what there was is written.
    Interrupted,
    /// The checker found mistakes of kernels.
    Findings,
}

impl Outcome {
    /// The exit code that `--help` names.
    pub fn code(self) -> u8 {
        match self {
            Self::Good => 0,
            Self::Bad => 1,
            Self::Findings => 3,
            Self::Interrupted => 130,
        }
    }
}
