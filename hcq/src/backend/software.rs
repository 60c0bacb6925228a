//! The software ga10b, as the driver it models.

use std::sync::Arc;

use ga10b_sim::{Sim, SimConfig};

use super::kernel_log::KernelLog;
use crate::error::{Error, OpenError};

/// A fresh one, as the environment configures it.
pub(crate) fn start() -> Result<Arc<Sim>, Error> {
    let config = SimConfig::from_env().map_err(|bad| {
        Error::Open(OpenError::UnknownSetting {
            variable: bad.variable,
            value: bad.value,
            expected: bad.expected,
        })
    })?;
    Sim::try_new(config).map_err(|errno| Error::open(c"the software ga10b", errno))
}

/// Its kernel log and its own words, from where they stood when this was made.
pub(crate) struct Log {
    sim: Arc<Sim>,
    from: usize,
    faults: usize,
    violations: usize,
}

impl Log {
    /// Skips what was logged before.
    pub fn new(sim: Arc<Sim>) -> Self {
        let from = sim.readable_kernel_log().map_or(0, |lines| lines.len());
        let (faults, violations) = (sim.faults().len(), sim.violations().len());
        Self { sim, from, faults, violations }
    }
}

impl KernelLog for Log {
    fn lines(&self) -> Option<Vec<String>> {
        let mut lines = self.sim.readable_kernel_log()?;
        // A full log has lost its oldest lines.
        Some(lines.split_off(self.from.min(lines.len())))
    }

    fn explanation(&self) -> Vec<String> {
        let faults = self.sim.faults().split_off(self.faults);
        let violations = self.sim.violations().split_off(self.violations);
        faults.into_iter().chain(violations.iter().map(ToString::to_string)).collect()
    }
}
