//! Occupancy: the number of thread blocks of a kernel that fit on one SM at once, and the resource that
//! limits it.
//!
//! The rule of CUDA's occupancy header: registers are allocated per warp in units of 256 over four
//! partitions, warps in groups of four, shared memory in units of 128 bytes with one KiB reserved per block.

use crate::launch::SHARED_UNIT;
use crate::target::{RESERVED_SHARED_BYTES, Target};

/// Resource that limits the number of blocks on an SM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
pub enum Limit {
    /// The number of warps an SM holds.
    Warps,
    /// The number of blocks an SM holds.
    Blocks,
    /// The register file.
    Registers,
    /// Shared memory.
    SharedMemory,
}

impl Limit {
    /// In words.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Warps => "warps",
            Self::Blocks => "blocks",
            Self::Registers => "registers",
            Self::SharedMemory => "shared memory",
        }
    }
}

/// The occupancy of one block size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Occupancy {
    /// Threads of a block.
    pub threads: u32,
    /// Blocks on an SM at once; 0 if not even one fits.
    pub blocks_per_sm: u32,
    /// Warps on an SM at once.
    pub warps_per_sm: u32,
    /// Most warps an SM holds.
    pub max_warps_per_sm: u32,
    /// The limiting resource.
    pub limit: Limit,
}

/// The occupancy of blocks of `threads` threads with `registers` registers each and `shared_bytes` per block,
/// with the largest carve-out of the part.
#[must_use]
pub fn occupancy(target: Target, threads: u32, registers: u32, shared_bytes: u32) -> Occupancy {
    let warps = threads.div_ceil(32).max(1);
    let shared =
        (u64::from(shared_bytes) + u64::from(RESERVED_SHARED_BYTES)).next_multiple_of(SHARED_UNIT.into());
    let limits = [
        (target.max_warps() / warps, Limit::Warps),
        (target.max_blocks(), Limit::Blocks),
        (target.warps_by_registers(registers) / warps.next_multiple_of(4), Limit::Registers),
        ((u64::from(target.max_shared_bytes()) / shared) as u32, Limit::SharedMemory),
    ];
    // Of equal limits the first counts: more registers would not help where the warps are used up.
    let (blocks, limit) = limits.into_iter().min_by_key(|(blocks, _)| *blocks).unwrap_or((0, Limit::Blocks));
    Occupancy {
        threads,
        blocks_per_sm: blocks,
        warps_per_sm: blocks * warps,
        max_warps_per_sm: target.max_warps(),
        limit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_limit_as_in_the_occupancy_table() {
        // Registers and resident warps on SM 8.7, of CUDA's occupancy table.
        for (registers, warps) in [
            (40, 48),
            (48, 40),
            (56, 36),
            (64, 32),
            (72, 28),
            (80, 24),
            (96, 20),
            (128, 16),
            (168, 12),
            (255, 8),
        ] {
            let found = occupancy(Target::Sm87, 128, registers, 0);
            assert_eq!(found.warps_per_sm, warps, "{registers} registers");
        }
    }

    #[test]
    fn each_resource_can_be_the_limit() {
        assert_eq!(occupancy(Target::Sm87, 32, 16, 0).limit, Limit::Blocks);
        assert_eq!(occupancy(Target::Sm87, 768, 16, 0).limit, Limit::Warps);
        assert_eq!(occupancy(Target::Sm87, 256, 128, 0).limit, Limit::Registers);
        let big = occupancy(Target::Sm87, 256, 32, 80 * 1024);
        assert_eq!((big.blocks_per_sm, big.limit), (2, Limit::SharedMemory));
        assert_eq!(occupancy(Target::Sm87, 1024, 128, 0).blocks_per_sm, 0);
    }

    #[test]
    fn a_reserved_kib_counts_for_each_block() {
        // 164 KiB on an SM: two blocks of 81 + 1, one of more.
        let blocks = |bytes| occupancy(Target::Sm87, 128, 32, bytes).blocks_per_sm;
        assert_eq!((blocks(81 * 1024), blocks(81 * 1024 + 1), blocks(163 * 1024 + 1)), (2, 1, 0));
        // Without any, 12 blocks of four warps fill the SM.
        let full = occupancy(Target::Sm87, 128, 32, 0);
        assert_eq!((full.blocks_per_sm, full.warps_per_sm, full.max_warps_per_sm), (12, 48, 48));
        assert_eq!((full.threads, full.limit.name()), (128, "warps"));
    }

    #[test]
    fn each_limit_has_a_name_of_its_own() {
        let limits = [Limit::Warps, Limit::Blocks, Limit::Registers, Limit::SharedMemory];
        assert_eq!(limits.map(Limit::name), ["warps", "blocks", "registers", "shared memory"]);
    }
}
