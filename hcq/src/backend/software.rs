//! The software ga10b, as the driver it models.

use std::sync::Arc;

use ga10b_sim::{Sim, SimConfig};

use super::kernel_log::KernelLog;
use crate::errno::Errno;
use crate::error::Error;

/// A fresh one, as the environment configures it.
pub(crate) fn start() -> Result<Arc<Sim>, Error> {
    let config = SimConfig::from_env().map_err(|bad| Error::UnknownSetting {
        variable: bad.variable,
        value: bad.value,
        expected: bad.expected,
    })?;
    Sim::try_new(config)
        .map_err(|errno| Error::Open { path: c"the software ga10b".into(), errno: Errno::of(errno) })
}

/// Its kernel log, from where it stood when this was made.
pub(crate) struct Log {
    sim: Arc<Sim>,
    from: usize,
}

impl Log {
    /// Skips what was logged before.
    pub fn new(sim: Arc<Sim>) -> Self {
        let from = sim.kernel_log().len();
        Self { sim, from }
    }
}

impl KernelLog for Log {
    fn lines(&self) -> Vec<String> {
        self.sim.kernel_log().split_off(self.from)
    }
}
