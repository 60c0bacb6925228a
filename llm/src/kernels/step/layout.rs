//! The input of a matrix phase in shared memory: tiles of [`TILE`] values.

/// Values of a tile.
pub(crate) const TILE: u32 = 2048;
/// Bytes of a tile.
pub(super) const TILE_BYTES: u32 = 4 * TILE;
