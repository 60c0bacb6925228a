//! Calls that a real machine does not survive.

use std::fmt;
use std::sync::{Mutex, PoisonError};

/// Something the program did that would crash, freeze or corrupt a real Orin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// What the real machine would do.
    pub consequence: Consequence,
    /// Which call did it, as the headers name it.
    pub call: &'static str,
    /// What is wrong and what to do instead.
    pub text: String,
}

/// What a real machine would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consequence {
    /// The kernel crashes or the machine freezes.
    Freeze,
    /// A call never returns.
    Hang,
    /// Memory of the program, or addresses, are used for two things at once.
    Corruption,
    /// A kernel resource is lost until reboot.
    Leak,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({})", self.call, self.text, self.consequence)
    }
}

impl fmt::Display for Consequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Freeze => "a real machine crashes or freezes",
            Self::Hang => "on a real machine the call never returns",
            Self::Corruption => "on a real machine memory is corrupted",
            Self::Leak => "on a real machine a kernel resource is lost until reboot",
        })
    }
}

/// All violations so far, and what stopped launches.
#[derive(Debug, Default)]
pub(crate) struct Violations {
    calls: Mutex<Vec<Violation>>,
    faults: Mutex<Vec<String>>,
}

impl Violations {
    /// Records one, loudly.
    pub(crate) fn record(&self, consequence: Consequence, call: &'static str, text: impl Into<String>) {
        let text = text.into();
        tracing::error!(call, ?consequence, "{text}");
        let violation = Violation { consequence, call, text };
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).push(violation);
    }

    /// All so far.
    pub(crate) fn all(&self) -> Vec<Violation> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// An SM stopped a launch.
    pub(crate) fn record_fault(&self, text: String) {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).push(text);
    }

    /// What stopped launches so far.
    pub(crate) fn faults(&self) -> Vec<String> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
