//! Buffers through which the blocks of a step synchronize, and where they leave times.

/// Most blocks of a launch.
pub const MAX_BLOCKS: u32 = 512;
/// Words of the synchronization buffer: the blocks' counter, the step's first flag, then values and indices
/// of candidates.
pub const SYNC_WORDS: u32 = CANDIDATES + 2 * MAX_BLOCKS;
/// Word of the first candidate.
pub(super) const CANDIDATES: u32 = 32;
/// Word that holds the blocks' counter.
pub const COUNTER_AT: u64 = 0;
/// Word that holds the step's first flag; it must not be 0 at first.
pub const FIRST_FLAG_AT: u32 = 1;
/// Flags of a step; all numbers are below this.
pub const FLAGS_PER_STEP: u32 = 4096;
/// Clock readings per phase in the buffer of times.
pub const MARKS: u32 = 8;
