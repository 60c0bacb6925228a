//! How long something takes: by the GPU's clock, or computed from what the software device counts.

use std::fmt;
use std::sync::Arc;

use ga10b_sim::Sim;

use super::Bench;
use crate::error::Result;
use crate::roofline::{Cost, Machine};

/// How candidates are compared.
#[derive(Clone)]
pub enum Meter {
    /// By the GPU's clock.
    Clock,
    /// By what `machine` would need for what `sim` counts, since times on the software device mean nothing.
    Count {
        /// The software device that the search runs on.
        sim: Arc<Sim>,
        /// The machine that is predicted.
        machine: Machine,
    },
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Meter::Clock => f.write_str("Clock"),
            Meter::Count { machine, .. } => write!(f, "Count({})", machine.name),
        }
    }
}

/// Bytes of a DRAM sector.
const SECTOR: u64 = 32;

impl Bench<'_> {
    /// The time in ns of what `run` records, from its start to its end.
    pub(super) fn time(&mut self, run: &mut dyn FnMut(&mut Self) -> Result<()>) -> Result<f64> {
        let before = match &self.meter {
            Meter::Clock => None,
            Meter::Count { sim, .. } => Some(sim.counters().sm),
        };
        let start = self.queue.timestamp()?;
        run(self)?;
        let end = self.queue.timestamp()?;
        self.finish()?;
        if let (Meter::Count { sim, machine }, Some(before)) = (&self.meter, before) {
            let after = sim.counters().sm;
            let sectors = (after.dram_read_sectors + after.dram_write_sectors)
                - (before.dram_read_sectors + before.dram_write_sectors);
            let cost = Cost {
                dram_bytes: (SECTOR * sectors) as f64,
                warp_instructions: (after.warp_instructions - before.warp_instructions) as f64,
                launches: (after.launches - before.launches) as f64,
            };
            return Ok(1e9 / machine.predict(&cost).tokens_per_second);
        }
        let ns = end.ns().zip(start.ns());
        Ok(ns.map_or(f64::INFINITY, |(end, start)| end.saturating_sub(start) as f64))
    }
}
