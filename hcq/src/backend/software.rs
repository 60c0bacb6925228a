//! The software ga10b, as the driver it models.

use std::sync::Arc;

use core_dump::{Block, Grid, Lane, LocalMemory, Warp};
use ga10b_sim::sm::{WarpState, Windows};
use ga10b_sim::{Sim, SimConfig};

use super::Stopped;
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

    fn stopped(&self, channel: u32) -> Option<Box<Stopped>> {
        let state = self.sim.stopped_block(channel, self.faults)?;
        let grid = Grid {
            id: state.grid_id,
            entry: state.program,
            registers: state.registers,
            grid: state.grid,
            block: state.block,
            ..Grid::default()
        };
        let block = Block {
            index: state.index,
            shared: state.shared.clone(),
            warps: state.warps.iter().map(|warp| dumped(warp, state.block)).collect(),
            ..Block::default()
        };
        Some(Box::new(Stopped { sm: state.sm, grid, block }))
    }
}

/// A warp of blocks of so many threads, as core dumps have it.
fn dumped(warp: &WarpState, [x, y, _]: [u32; 3]) -> Warp {
    let lane = |lane: u32| {
        let (thread, at) = (warp.index * 32 + lane, lane as usize);
        let local = warp
            .local
            .get(at)
            .map(|bytes| LocalMemory { address: Windows::LEN - bytes.len() as u64, bytes: bytes.clone() });
        Lane {
            lane,
            thread: [thread % x, thread / x % y, thread / x / y],
            pc: warp.pc[at],
            registers: warp.registers.iter().map(|lanes| lanes[at]).collect(),
            predicates: warp.predicates.iter().map(|mask| mask >> lane & 1 != 0).collect(),
            local,
            ..Lane::default()
        }
    };
    Warp {
        id: warp.index,
        valid: warp.valid,
        active: warp.active,
        uniform_registers: warp.uniform_registers.clone(),
        uniform_predicates: warp.uniform_predicates.to_vec(),
        lanes: (0..32).filter(|n| warp.valid >> n & 1 != 0).map(lane).collect(),
        ..Warp::default()
    }
}
