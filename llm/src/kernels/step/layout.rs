//! The input of a matrix phase in shared memory, as integers: tiles of [`TILE`] values.
//!
//! A tile has the high and the low bytes of its values (of each 32 values the first 16 of all units, then the
//! others), then scales, then sums.

/// Values of a tile.
pub(crate) const TILE: u32 = 2048;
/// Units of 32 values in a tile.
pub(super) const UNITS: u32 = TILE / 32;
/// From the first half of all units' bytes to the second.
pub(super) const HALF: u32 = TILE / 2;
/// Byte offset of the low bytes.
pub(super) const LOW: u32 = TILE;
/// Byte offset of the scales.
pub(super) const SCALES: u32 = 2 * TILE;
/// Byte offset of the sums.
pub(super) const SUMS: u32 = SCALES + 4 * UNITS;
/// Bytes of a tile.
pub(super) const TILE_BYTES: u32 = 2 * TILE + 2 * UNITS * 4;
