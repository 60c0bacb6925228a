//! What a profiler would count.

use std::ops::AddAssign;

/// Events of one or more launches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Launches run.
    pub launches: u64,
    /// Blocks run.
    pub blocks: u64,
    /// Warps run.
    pub warps: u64,
    /// Instructions times lanes that executed them.
    pub thread_instructions: u64,
    /// Instructions issued, those with every lane predicated off included.
    pub warp_instructions: u64,
    /// 32-byte sectors that global loads touched.
    pub global_load_sectors: u64,
    /// 32-byte sectors that global stores touched.
    pub global_store_sectors: u64,
    /// Lanes that did a global atomic.
    pub global_atomics: u64,
    /// Shared-memory accesses, one per warp instruction.
    pub shared_accesses: u64,
    /// Extra passes that shared-memory accesses needed because lanes met in a bank.
    pub shared_bank_conflicts: u64,
}

impl AddAssign for Counters {
    fn add_assign(&mut self, o: Self) {
        self.launches += o.launches;
        self.blocks += o.blocks;
        self.warps += o.warps;
        self.thread_instructions += o.thread_instructions;
        self.warp_instructions += o.warp_instructions;
        self.global_load_sectors += o.global_load_sectors;
        self.global_store_sectors += o.global_store_sectors;
        self.global_atomics += o.global_atomics;
        self.shared_accesses += o.shared_accesses;
        self.shared_bank_conflicts += o.shared_bank_conflicts;
    }
}
