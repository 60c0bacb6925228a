//! Occupancy of an SM by the blocks of a kernel.

/// The resource that keeps more blocks off an SM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OccupancyLimit {
    /// The number of warps an SM holds.
    Warps,
    /// The number of blocks an SM holds.
    Blocks,
    /// The register file.
    Registers,
    /// Shared memory.
    SharedMemory,
}

impl OccupancyLimit {
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
#[non_exhaustive]
pub struct Occupancy {
    /// Threads of a block.
    pub threads: u32,
    /// Blocks on an SM at once; 0 if not even one fits.
    pub blocks_per_sm: u32,
    /// Warps on an SM at once.
    pub warps_per_sm: u32,
    /// Most warps an SM holds.
    pub max_warps_per_sm: u32,
    /// The resource that limits it.
    pub limit: OccupancyLimit,
}

impl Occupancy {
    /// Of blocks of `threads` threads with `registers` registers each and `shared` bytes of shared memory.
    pub(crate) fn of(target: qmd::Target, threads: u32, registers: u32, shared: u32) -> Self {
        let found = qmd::occupancy(target, threads, registers, shared);
        Self {
            threads,
            blocks_per_sm: found.blocks_per_sm,
            warps_per_sm: found.warps_per_sm,
            max_warps_per_sm: found.max_warps_per_sm,
            limit: match found.limit {
                qmd::Limit::Warps => OccupancyLimit::Warps,
                qmd::Limit::Blocks => OccupancyLimit::Blocks,
                qmd::Limit::Registers => OccupancyLimit::Registers,
                qmd::Limit::SharedMemory => OccupancyLimit::SharedMemory,
            },
        }
    }
}
