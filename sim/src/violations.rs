//! Calls that a real machine does not survive, or not unharmed: traps.

use nix::errno::Errno;
use std::fmt;
use std::io::{self, Write as _};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use crate::findings::{FaultPlace, Record};
use crate::handover::Handover;

/// Treatment of a trap that a program steps into.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Traps {
    /// It is reported, and a call that would freeze a real machine fails with `EIO`.
    #[default]
    Error,
    /// It is reported, and every call continues as if the machine had survived it.
    Warn,
    /// It is not reported.
    Off,
}

impl FromStr for Traps {
    type Err = UnknownTraps;

    fn from_str(text: &str) -> Result<Self, UnknownTraps> {
        match text {
            "error" => Ok(Self::Error),
            "warn" => Ok(Self::Warn),
            "off" => Ok(Self::Off),
            _ => Err(UnknownTraps),
        }
    }
}

/// The text names none of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected error, warn or off")]
pub struct UnknownTraps;

/// Something the program did that would crash, freeze or corrupt a real Orin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The consequence on a real machine.
    pub consequence: Consequence,
    /// The call, as the headers name it.
    pub call: &'static str,
    /// The mistake and the correct way.
    pub text: String,
}

/// Consequence on a real machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consequence {
    /// The kernel crashes or the machine freezes.
    Freeze,
    /// It has frozen a machine, for reasons that are not known in full.
    MayFreeze,
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
            Self::MayFreeze => "it has frozen a real machine",
            Self::Hang => "on a real machine the call never returns",
            Self::Corruption => "on a real machine memory is corrupted",
            Self::Leak => "on a real machine a kernel resource is lost until reboot",
        })
    }
}

/// All violations so far, and what stopped launches.
#[derive(Debug, Default)]
pub(crate) struct Violations {
    traps: Traps,
    handover: Option<Arc<Handover>>,
    calls: Mutex<Vec<Violation>>,
    faults: Mutex<Vec<String>>,
    absent: Mutex<Vec<&'static str>>,
}

impl Violations {
    /// None so far; `traps` is their treatment.
    pub(crate) fn new(traps: Traps, handover: Option<Arc<Handover>>) -> Self {
        Self { traps, handover, ..Self::default() }
    }

    /// Leaves a line where the machine's findings go; whether it could.
    fn is_handed_over(&self, record: impl FnOnce(u32) -> Record) -> bool {
        let file = self.handover.as_ref();
        file.is_some_and(|file| file.add(&record(std::process::id())).is_some())
    }

    /// Records one, loudly: on stderr where the same was not said before.
    pub(crate) fn record(&self, consequence: Consequence, call: &'static str, text: impl Into<String>) {
        if self.traps == Traps::Off {
            return;
        }
        let violation = Violation { consequence, call, text: text.into() };
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let told = |pid| Record::Call {
            pid,
            call: call.to_owned(),
            text: violation.text.clone(),
            consequence: consequence.to_string(),
        };
        if !calls.contains(&violation) && !self.is_handed_over(told) {
            let level = if self.traps == Traps::Error { "error" } else { "warning" };
            let _ = writeln!(io::stderr(), "ga10b: {level}: {violation}");
        }
        calls.push(violation);
    }

    /// Records a call that freezes a real machine.
    ///
    /// # Errors
    /// `EIO` where traps are errors.
    pub(crate) fn freeze(&self, call: &'static str, text: impl Into<String>) -> Result<(), Errno> {
        self.record(Consequence::Freeze, call, text);
        if self.traps == Traps::Error { Err(Errno::EIO) } else { Ok(()) }
    }

    /// A request was made that the model does not serve.
    pub(crate) fn record_absent(&self, name: &'static str) {
        let mut absent = self.absent.lock().unwrap_or_else(PoisonError::into_inner);
        if !absent.contains(&name) {
            tracing::error!("{name} is not modelled");
            let _ = writeln!(io::stderr(), "ga10b: {name} is not modelled, and fails with ENOTTY");
            absent.push(name);
        }
    }

    /// The names of such requests.
    pub(crate) fn absent(&self) -> Vec<&'static str> {
        self.absent.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// All so far.
    pub(crate) fn all(&self) -> Vec<Violation> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// An SM stopped a launch, for a mistake that a check has found or not. Returns the number of the fault.
    pub(crate) fn record_fault(&self, text: String, found: bool, place: Option<Box<FaultPlace>>) -> usize {
        self.is_handed_over(|pid| Record::Fault { pid, text: text.clone(), found, place });
        let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        faults.push(text);
        faults.len() - 1
    }

    /// Returns the faults that stopped launches so far.
    pub(crate) fn faults(&self) -> Vec<String> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
