//! Findings of a machine's checks: mistakes of kernels that the hardware does not report.

use std::fmt;
use std::io::{self, Write as _};
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use bitflags::bitflags;
use nv_hw::Shown;

use crate::pieces::Location;

/// Findings that are kept; later ones of other instructions are dropped.
const MOST: usize = 256;

bitflags! {
    /// Mistakes of kernels that the model searches for while it executes them. Any of them makes it slower
    /// and uses one worker; without any, execution is as fast as ever.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Checks: u8 {
        /// Reads of memory that nothing wrote, and stores of registers that nothing wrote. Fresh memory then
        /// holds a pattern of NaNs instead of zeros.
        const INIT = 1 << 0;
        /// Accesses to the same memory, at least one of them a write, that nothing orders: between warps of a
        /// block in shared memory, between blocks of a launch in global memory.
        const RACE = 1 << 1;
        /// Barriers and exchanges that some lanes of a warp do not take part in.
        const SYNC = 1 << 2;
        /// Accesses to global memory outside the pieces that the program has noted, to freed ones, and to those
        /// that are not for kernels; accesses to local memory outside the thread's stack.
        const MEMORY = 1 << 3;
        /// Accesses to the same memory by launches, copies and the program that no barrier and no wait
        /// orders; messages between blocks without a fence; launch descriptors that change in flight. With
        /// [`Schedule::Shuffled`](crate::sm::Schedule::Shuffled) work that nothing orders runs in random
        /// order, and stores become visible late.
        const ORDER = 1 << 4;
    }
}

impl Checks {
    /// Values that [`from_str`](Checks::from_str) reads.
    pub const EXPECTED: &str = "a list of memory, init, race, sync and order, separated by commas, or all";
}

/// A list of checks names one that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no check is called {0:?}: expected {expected}", expected = Checks::EXPECTED)]
pub struct UnknownCheck(pub String);

impl FromStr for Checks {
    type Err = UnknownCheck;

    fn from_str(list: &str) -> Result<Self, UnknownCheck> {
        list.split(',').map(str::trim).filter(|name| !name.is_empty()).try_fold(
            Checks::empty(),
            |checks, name| {
                let check = match name {
                    "memory" => Checks::MEMORY,
                    "init" => Checks::INIT,
                    "race" => Checks::RACE,
                    "sync" => Checks::SYNC,
                    "order" => Checks::ORDER,
                    "all" => Checks::all(),
                    _ => return Err(UnknownCheck(name.to_owned())),
                };
                Ok(checks | check)
            },
        )
    }
}

/// An instruction that a thread executed, or another access to memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Guest address of the instruction; 0 for other accesses.
    pub pc: u64,
    /// The instruction; for other accesses, their name.
    pub sass: String,
    /// The thread's block.
    pub block: [u32; 3],
    /// The thread within its block.
    pub thread: [u32; 3],
    /// File and line, if the program has noted them.
    pub source: Option<String>,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Event { pc, sass, block: [bx, by, bz], thread: [x, y, z], source } = self;
        if *pc == 0 {
            return f.write_str(sass);
        }
        write!(f, "{sass} at {pc:#x}")?;
        if let Some(source) = source {
            write!(f, " ({})", Shown(source))?;
        }
        write!(f, ", block ({bx},{by},{bz}), thread ({x},{y},{z})")
    }
}

/// A mistake of a kernel, or of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The check that found it.
    pub check: Checks,
    /// The mistake.
    pub text: String,
    /// The work that did it where it was noticed first, and the missing order; may be empty.
    pub detail: String,
    /// Guest address of the kernel's first instruction; 0 where no kernel did it.
    pub program: u64,
    /// Name of the kernel, if the program has noted it.
    pub kernel: Option<String>,
    /// Place where it was noticed first. For a copy only `sass` has text: what is copied.
    pub event: Event,
    /// The address it is about: in global memory a guest address, in shared and local memory an offset.
    pub address: Option<u64>,
    /// The piece of memory that holds the address, or the nearest one.
    pub location: Option<Location>,
    /// The other one, where there are two.
    pub earlier: Option<Event>,
    /// Number of times that the same instruction did it.
    pub count: u64,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Finding { text, detail, program, event, .. } = self;
        write!(f, "{text}: {event}")?;
        match (program, &self.kernel) {
            (0, _) => (),
            (_, Some(kernel)) => write!(f, ", kernel {} at {program:#x}", Shown(kernel))?,
            (_, None) => write!(f, ", kernel at {program:#x}")?,
        }
        if let Some(address) = self.address {
            write!(f, ", address {address:#x}")?;
        }
        if let Some(location) = &self.location {
            write!(f, ": {location}")?;
        }
        if let Some(earlier) = &self.earlier {
            write!(f, "; earlier {earlier}")?;
        }
        if !detail.is_empty() {
            write!(f, "; {detail}")?;
        }
        Ok(())
    }
}

/// All findings of a machine so far.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    all: Mutex<Vec<Finding>>,
    /// Whether each is printed on stderr.
    printed: bool,
}

impl Findings {
    /// No findings yet.
    pub(crate) fn new(printed: bool) -> Self {
        Self { all: Mutex::default(), printed }
    }

    /// Records one, loudly the first time that this instruction does it.
    pub(crate) fn record(&self, finding: Finding) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |old: &&mut Finding| {
            (old.event.pc, old.program, &old.text) == (finding.event.pc, finding.program, &finding.text)
        };
        if let Some(old) = all.iter_mut().find(same) {
            old.count += 1;
        } else if all.len() < MOST {
            tracing::error!("{finding}");
            if self.printed {
                // A failed write to stderr is no reason to stop.
                let _ = writeln!(io::stderr(), "ga10b: {finding}");
            }
            all.push(finding);
        }
    }

    /// All so far.
    pub(crate) fn all(&self) -> Vec<Finding> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_checks_is_read_by_name() {
        assert_eq!("init,race".parse(), Ok(Checks::INIT | Checks::RACE));
        assert_eq!(" sync ".parse(), Ok(Checks::SYNC));
        assert_eq!("order".parse(), Ok(Checks::ORDER));
        assert_eq!("all".parse(), Ok(Checks::all()));
        assert_eq!("".parse(), Ok(Checks::empty()));
        assert_eq!("init,leaks".parse::<Checks>(), Err(UnknownCheck("leaks".to_owned())));
    }
}
