//! Buffers through which the blocks of a step exchange values, and where they leave times.

/// Most blocks of a launch.
pub const MAX_BLOCKS: u32 = 512;
/// Words of the synchronization buffer: the step's first phase number, then a packet per block with its
/// candidate for the next token.
pub const SYNC_WORDS: u32 = CANDIDATES + 4 * MAX_BLOCKS;
/// Word of the step's first phase number; it must not be 0 at first.
pub const FIRST_PHASE_AT: u32 = 0;
/// Word of the first candidate.
pub(super) const CANDIDATES: u32 = 4;
/// Phase numbers of a step; the last is that of the candidates, all others are below it.
pub const PHASES_PER_STEP: u32 = 4096;
/// Clock readings per phase in the buffer of times.
pub const MARKS: u32 = 8;
/// Values of a packet.
pub const PACKET_VALUES: u32 = 4;
/// Bytes of a packet.
pub const PACKET_BYTES: u32 = 16;
