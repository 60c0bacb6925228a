//! Division of a block's shared memory and its warps.

use crate::kernels::format::{Format, TILE_COLS, TILE_ROWS};

/// Warps that multiply.
pub const CONSUMERS: u32 = 8;
/// The warp that loads weights.
pub(super) const PRODUCER: u32 = CONSUMERS;
/// The warp that uses the results.
pub(super) const RESULTS: u32 = CONSUMERS + 1;
/// Warps of a block.
pub(super) const WARPS: u32 = CONSUMERS + 2;
/// Threads of a block.
pub const THREADS: u32 = 32 * WARPS;

/// Neighbouring tiles of a row of tiles in a slot of the ring.
pub const SLOT_TILES: u32 = 2;
/// Slots of one tile for every consumer.
pub const GROUP_SLOTS: u32 = CONSUMERS / SLOT_TILES;
/// Most slots.
pub const MAX_SLOTS: u32 = 64;

/// The input of a column of tiles: high bytes, low bytes, sums of each 32 values, the scale. High and low bytes
/// of one value are in different banks.
pub(super) mod input {
    pub const HIGH: u32 = 0;
    pub const LOW: u32 = 272;
    pub const SUMS: u32 = 528;
    pub const SCALE: u32 = 560;
    pub const BYTES: u32 = 576;
    /// Bytes from a lane's place that are read, for zeros.
    pub const READ: u32 = 160;
}

/// Tiles whose sums the results warp uses together, one per four lanes.
pub(super) const CHUNK: u32 = 8;
/// Sums of a tile: of each consumer 16 rows, and some padding: neighbouring tiles are in different banks.
pub(super) const TILE_SUMS: u32 = CONSUMERS * TILE_ROWS + 16;

/// Bytes of dynamic shared memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Bytes of a slot of the ring.
    pub slot: u32,
    /// For the inputs of a phase.
    pub inputs: u32,
    /// For the gate's sums of a block's rows.
    pub held: u32,
    /// For attention.
    pub scratch: u32,
}

impl Needs {
    /// The most of both.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self {
            slot: self.slot.max(other.slot),
            inputs: self.inputs.max(other.inputs),
            held: self.held.max(other.held),
            scratch: self.scratch.max(other.scratch),
        }
    }

    /// All but the ring.
    pub fn fixed(self) -> u32 {
        self.inputs + self.held + self.scratch
    }
}

/// Bytes of the quantized input of a phase with rows of `cols` values, and of a column that takes what is past
/// their end.
pub(super) const fn input_bytes(cols: u32) -> u32 {
    (cols.div_ceil(TILE_COLS).next_multiple_of(CONSUMERS) + 1) * input::BYTES
}

/// Bytes of the same input as numbers.
pub(super) const fn number_bytes(cols: u32) -> u32 {
    cols.div_ceil(TILE_COLS) * TILE_COLS * 4
}

/// Rows of a tile that a slot takes at least, if it takes numbers.
pub(super) const QUAD: u32 = 4;

/// Bytes of a row of a slot that takes numbers.
pub(super) const fn row_bytes(format: Format) -> u32 {
    SLOT_TILES * TILE_COLS * format.value_bytes()
}
