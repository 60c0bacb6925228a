//! Parts of a launch: the program, the grid, the memory it sees, and how it ends.

use std::ptr::NonNull;

use crate::findings::Checks;
use crate::gpu::sm::l2::CacheConfig;
use crate::pieces::Pieces;

/// Kind of access of an instruction that translates an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// A load.
    Read,
    /// A store.
    Write,
    /// A read-modify-write.
    Atomic,
    /// An instruction fetch.
    Fetch,
}

/// Host memory that backs the guest range `[va, va + len)`.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// First guest address of the range.
    pub va: u64,
    /// Length of the range in bytes.
    pub len: u64,
    /// Host address of `va`. It is congruent to `va` modulo 16.
    pub host: NonNull<u8>,
    /// Whether stores and atomics are allowed.
    pub writable: bool,
}

/// A translation that the MMU refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryFault {
    /// The guest address that was translated.
    pub va: u64,
    /// The attempted access.
    pub access: Access,
    /// MMU fault type number (0 PDE, 2 PTE, 6 read-only violation, ...).
    pub kind: u32,
}

/// The guest's global memory, as the MMU shows it.
///
/// # Safety
/// A [`Span`] that [`translate`](Memory::translate) returns must stay mapped, readable and (where it is
/// marked so) writable host memory until [`generation`](Memory::generation) returns another value, and no
/// Rust reference to that memory may exist meanwhile: the workers of an
/// [`Executor`](crate::gpu::sm::Executor) read and write it concurrently.
pub unsafe trait Memory: Sync {
    /// Translates the page that holds `va`.
    ///
    /// # Errors
    /// [`MemoryFault`] when no page is mapped there or the page does not allow `access`.
    fn translate(&self, va: u64, access: Access) -> Result<Span, MemoryFault>;

    /// A number that changes whenever a translation given out earlier may have become wrong. It is read once
    /// per launch and per time slice of a worker.
    fn generation(&self) -> u64;

    /// The program's notes about the memory, for checks; none by default.
    fn pieces(&self) -> Option<&Pieces> {
        None
    }
}

/// Positions of the shared-memory and local-memory windows in the generic address space; each is 16 MiB on
/// sm_87.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    /// First address of the shared-memory window.
    pub shared_base: u64,
    /// First address of the local-memory window.
    pub local_base: u64,
}

impl Windows {
    /// Length of each window in bytes.
    pub const LEN: u64 = 1 << 24;
}

/// One bound constant bank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConstBank {
    /// Guest address of its first byte.
    pub va: u64,
    /// Length in bytes.
    pub len: u32,
}

/// One kernel launch, as the launch descriptor gives it.
#[derive(Clone, Debug)]
pub struct Launch {
    /// Instruction set of the program.
    pub arch: sass::Arch,
    /// Guest address of the first instruction.
    pub program: u64,
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y, z.
    pub block: [u32; 3],
    /// Registers that each thread may use.
    pub registers: u32,
    /// Shared memory of a block in bytes, the reserved part included.
    pub shared_bytes: u32,
    /// Local memory of a thread in bytes: the sum of its use at the bottom and at the top of the local
    /// window.
    pub local_bytes: u32,
    /// Block barriers granted.
    pub barriers: u32,
    /// Constant banks 0 to 7.
    pub banks: [Option<ConstBank>; 8],
    /// Memory windows of the context.
    pub windows: Windows,
    /// Number of the grid, as `%gridid` reads it.
    pub grid_id: u64,
    /// Streaming multiprocessors of the modelled GPU.
    pub sm_count: u32,
    /// Warps that one of them holds.
    pub max_warps_per_sm: u32,
    /// Shared memory of one of them in bytes.
    pub shared_bytes_per_sm: u32,
}

impl Launch {
    /// Threads of a block.
    pub fn threads_per_block(&self) -> u32 {
        self.block.iter().fold(1u32, |n, &d| n.saturating_mul(d))
    }

    /// Warps of a block.
    pub fn warps_per_block(&self) -> u32 {
        self.threads_per_block().div_ceil(32)
    }

    /// Blocks of the grid.
    pub fn blocks(&self) -> u64 {
        self.grid.iter().fold(1u64, |n, &d| n.saturating_mul(u64::from(d)))
    }
}

/// The order in which blocks and warps run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Schedule {
    /// Blocks spread over the workers: the fastest, and the order of blocks varies.
    #[default]
    Parallel,
    /// One worker, always the same order.
    Deterministic,
    /// One worker, blocks and warps interleaved at random from this seed: finds missing barriers.
    Shuffled(u64),
}

/// Settings by which an [`Executor`](crate::gpu::sm::Executor) runs launches.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Worker threads of the parallel schedule; 0 takes one per core.
    pub workers: usize,
    /// Order of blocks and warps.
    pub schedule: Schedule,
    /// Matrix instructions with the tensor core's own rounding (`true`) or with plain f32 sums, which are
    /// faster and differ from it by less than 2^-22 of the largest partial sum.
    pub exact_mma: bool,
    /// Warp instructions that a launch may run without any block finishing or storing to global memory before
    /// it is reported as hung, and an eighth of those that it may run without any block finishing; 0 for no
    /// limit. The default is some seconds of a loop that waits; under checks an eighth counts, which takes as
    /// long.
    pub stall_budget: u64,
    /// Whether to take the vector instructions that the host has beyond its baseline.
    pub host_simd: bool,
    /// A level-2 cache whose DRAM traffic is counted. It costs time, and changes no result; `None` counts
    /// none.
    pub l2: Option<CacheConfig>,
    /// Mistakes of kernels to search for; none by default. With any there is one worker.
    pub checks: Checks,
}

impl Config {
    /// The stall budget, in view of the time that checks take.
    pub(crate) fn budget(&self) -> u64 {
        if self.checks.is_empty() { self.stall_budget } else { self.stall_budget.div_ceil(4) }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            workers: 0,
            schedule: Schedule::Parallel,
            exact_mma: true,
            stall_budget: 1 << 28,
            host_simd: true,
            l2: None,
            checks: Checks::empty(),
        }
    }
}
