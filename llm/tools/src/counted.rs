//! Counts of the software ga10b, and the times that follow from them for an Orin.

use std::fmt;
use std::sync::Arc;

use ga10b_llm::search::Counter;
use ga10b_sim::sm::{CacheConfig, Config as ExecutorConfig, Counters};
use ga10b_sim::{Sim, SimConfig};
use hcq::{Device, DeviceOptions};
use serde::Serialize;

use crate::roofline::{Cost, Machine};

/// Bytes of a DRAM sector.
const SECTOR: u64 = 32;

/// The reason a counting device could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The software ga10b could not be set up.
    #[error("cannot set up the software ga10b")]
    Sim(#[source] std::io::Error),
    /// The device over it refused or failed.
    #[error(transparent)]
    Device(#[from] hcq::Error),
}

/// The software ga10b with a level-2 cache in the model, and access to its counters.
#[derive(Clone)]
pub struct CountingDevice {
    /// The device.
    pub device: Device,
    sim: Arc<Sim>,
}

impl fmt::Debug for CountingDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CountingDevice")
    }
}

impl CountingDevice {
    /// Opens a fresh one with the level-2 cache of an AGX Orin.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open() -> Result<Self, OpenError> {
        Self::with_cache(CacheConfig::ORIN.bytes)
    }

    /// Opens a fresh one with a level-2 cache of `bytes`.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn with_cache(bytes: u64) -> Result<Self, OpenError> {
        let l2 = Some(CacheConfig { bytes, ..CacheConfig::ORIN });
        let executor = ExecutorConfig { l2, ..ExecutorConfig::default() };
        let sim = Sim::try_new(SimConfig { executor, ..SimConfig::default() });
        let sim = sim.map_err(|errno| OpenError::Sim(errno.into()))?;
        Ok(Self { device: hcq::sim::open(sim.clone(), DeviceOptions::default())?, sim })
    }

    /// The counts so far.
    pub fn counters(&self) -> Counters {
        self.sim.counters().sm
    }

    /// Predicts times of work on this device for `machine`.
    pub fn predictor(&self, machine: Machine) -> Box<dyn Counter> {
        Box::new(Predictor { device: self.clone(), before: self.counters(), machine })
    }
}

/// The counts of some work, a token or a launch.
#[derive(Clone, Debug, Serialize)]
pub struct Counted {
    /// Kernel launches.
    pub launches: u64,
    /// Thread blocks of all launches.
    pub blocks: u64,
    /// Instructions that warps issue.
    pub warp_instructions: u64,
    /// Instructions of all threads.
    pub thread_instructions: u64,
    /// Bytes of weights that the work reads.
    pub weight_bytes: u64,
    /// Bytes of keys and values so far, each counted once.
    pub cache_bytes: u64,
    /// Bytes read from DRAM.
    pub dram_read_bytes: u64,
    /// Bytes written to DRAM.
    pub dram_write_bytes: u64,
    /// DRAM bytes over weights and cache.
    pub dram_ratio: f64,
    /// 32-byte sectors per load of a warp.
    pub sectors_per_load: f64,
    /// Passes beyond the first, per access of a warp to shared memory.
    pub bank_conflicts_per_access: f64,
}

impl Counted {
    /// The work between two readings of the counters.
    pub fn between(before: &Counters, after: &Counters, weight_bytes: u64, cache_bytes: u64) -> Self {
        let d = |field: fn(&Counters) -> u64| field(after) - field(before);
        let ratio = |a: u64, b: u64| a as f64 / b.max(1) as f64;
        let dram_read_bytes = SECTOR * d(|c| c.dram_read_sectors);
        let dram_write_bytes = SECTOR * d(|c| c.dram_write_sectors);
        Self {
            launches: d(|c| c.launches),
            blocks: d(|c| c.blocks),
            warp_instructions: d(|c| c.warp_instructions),
            thread_instructions: d(|c| c.thread_instructions),
            weight_bytes,
            cache_bytes,
            dram_read_bytes,
            dram_write_bytes,
            dram_ratio: ratio(dram_read_bytes + dram_write_bytes, weight_bytes + cache_bytes),
            sectors_per_load: ratio(d(|c| c.global_load_sectors), d(|c| c.global_loads)),
            bank_conflicts_per_access: ratio(d(|c| c.shared_bank_conflicts), d(|c| c.shared_accesses)),
        }
    }

    /// The cost that a prediction needs.
    pub fn cost(&self) -> Cost {
        Cost {
            dram_bytes: (self.dram_read_bytes + self.dram_write_bytes) as f64,
            warp_instructions: self.warp_instructions as f64,
            launches: self.launches as f64,
        }
    }
}

/// Predicts the time of candidates in a search for kernel shapes.
#[derive(Debug)]
struct Predictor {
    device: CountingDevice,
    before: Counters,
    machine: Machine,
}

impl Counter for Predictor {
    fn start(&mut self) {
        self.before = self.device.counters();
    }

    fn predicted_ns(&mut self) -> f64 {
        let counted = Counted::between(&self.before, &self.device.counters(), 0, 0);
        1e9 / self.machine.predict(&counted.cost()).tokens_per_second
    }
}
