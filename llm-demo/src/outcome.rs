//! The result of a command, beside its output.

use ga10b_sim::UnknownSetting;

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

/// Options that cannot be together, or with a setting of the environment, whatever files and device hold.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// The exit code of a failure: 2 where the command line or the environment is at fault, else 1.
pub fn failure(error: &anyhow::Error) -> u8 {
    let unusable = |cause: &(dyn std::error::Error + 'static)| {
        cause.is::<Usage>()
            || cause.is::<UnknownSetting>()
            || device(cause).is_some_and(hcq::Error::is_setting)
    };
    if error.chain().any(unusable) { 2 } else { 1 }
}

/// The error of a device that `cause` is.
pub fn device<'a>(cause: &'a (dyn std::error::Error + 'static)) -> Option<&'a hcq::Error> {
    match cause.downcast_ref() {
        Some(ga10b_llm::Error::Device(error)) => Some(error),
        _ => cause.downcast_ref(),
    }
}
