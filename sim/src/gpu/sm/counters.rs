//! Event counters, as a profiler has them.

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
    /// Instructions that the busiest block of each launch issued, added up over the launches: as many blocks
    /// of equal work as a launch has would each have its share.
    pub busiest_block_instructions: u64,
    /// Instructions issued, those with every lane predicated off included.
    pub warp_instructions: u64,
    /// Global loads, one per warp instruction.
    pub global_loads: u64,
    /// 32-byte sectors that global loads touched.
    pub global_load_sectors: u64,
    /// Global stores, one per warp instruction.
    pub global_stores: u64,
    /// 32-byte sectors that global stores touched.
    pub global_store_sectors: u64,
    /// Lanes that did a global atomic.
    pub global_atomics: u64,
    /// Shared-memory accesses, one per warp instruction.
    pub shared_accesses: u64,
    /// Extra passes that shared-memory accesses needed because lanes met in a bank.
    pub shared_bank_conflicts: u64,
    /// 32-byte sectors that the level-2 cache took from DRAM; 0 where none is modelled
    /// ([`Config::l2`](crate::gpu::sm::Config::l2)).
    pub dram_read_sectors: u64,
    /// 32-byte sectors that it gave back to DRAM; those it still holds are not counted.
    pub dram_write_sectors: u64,
}

impl AddAssign for Counters {
    fn add_assign(&mut self, o: Self) {
        self.launches += o.launches;
        self.blocks += o.blocks;
        self.warps += o.warps;
        self.busiest_block_instructions += o.busiest_block_instructions;
        self.thread_instructions += o.thread_instructions;
        self.warp_instructions += o.warp_instructions;
        self.global_loads += o.global_loads;
        self.global_load_sectors += o.global_load_sectors;
        self.global_stores += o.global_stores;
        self.global_store_sectors += o.global_store_sectors;
        self.global_atomics += o.global_atomics;
        self.shared_accesses += o.shared_accesses;
        self.shared_bank_conflicts += o.shared_bank_conflicts;
        self.dram_read_sectors += o.dram_read_sectors;
        self.dram_write_sectors += o.dram_write_sectors;
    }
}
