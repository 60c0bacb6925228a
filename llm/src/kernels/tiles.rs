//! Blocks and tiles as types, and the loop that fills tiles from rows of blocks.
//!
//! A strip of [`TILE_ROWS`] rows is read in the order of the file, at the speed of a copy, and stays in the
//! core's cache while some of its tiles at a time are filled; filled tiles are appended. So what is packed is
//! written once and in order, and nothing is cleared before.

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::kernels::format::{TILE_COLS, TILE_ROWS};

/// Tiles that are filled together: few enough that they stay in the first-level cache with what they are
/// filled from, enough for runs of blocks that are worth fetching.
const TOGETHER: usize = 8;
/// Bytes of a line of the CPU's caches; of a part of one where lines are longer.
const LINE: usize = 64;

/// Packs rows of blocks.
pub(super) fn tiles<B: Block>(cols: u32, rows: &[u8], packed: &mut Vec<u8>) {
    let rows = <[B]>::ref_from_bytes(rows).expect("whole blocks");
    let (tiles, blocks) =
        (cols.div_ceil(TILE_COLS) as usize, cols as usize * B::PER_TILE / TILE_COLS as usize);
    assert!(rows.len().is_multiple_of(blocks), "rows of {blocks} blocks");
    let (strip, all) = (blocks * TILE_ROWS as usize, rows.len() / blocks);
    packed.reserve(all.div_ceil(TILE_ROWS as usize) * tiles * size_of::<B::Tile>());
    let mut filled: [B::Tile; TOGETHER] = std::array::from_fn(|_| B::Tile::new_zeroed());
    for rows in rows.chunks(strip) {
        fetch(rows.as_bytes());
        for first in (0..tiles).step_by(TOGETHER) {
            let filled = &mut filled[..TOGETHER.min(tiles - first)];
            let (begin, end) = (first * B::PER_TILE, (first + filled.len()) * B::PER_TILE);
            if rows.len() < strip || end > blocks {
                // Of what is past the end.
                filled.zero();
            }
            for (row, blocks) in rows.chunks_exact(blocks).enumerate() {
                let blocks = &blocks[begin..end.min(blocks.len())];
                for (tile, blocks) in filled.iter_mut().zip(blocks.chunks(B::PER_TILE)) {
                    B::pack(blocks, tile, row);
                }
            }
            packed.extend_from_slice(filled.as_bytes());
        }
    }
}

/// Has the core's cache hold `bytes`: read in order they come from memory ahead of the loop, not when they
/// are used.
fn fetch(bytes: &[u8]) {
    std::hint::black_box(bytes.chunks(LINE).fold(0, |all, line| all | line[0]));
}

/// A block of a file.
pub(super) trait Block: Sized + FromBytes + IntoBytes + Immutable + KnownLayout + Unaligned {
    /// A tile of such blocks, in the layout of `Format::sections`.
    type Tile: FromZeros + IntoBytes + Immutable;
    /// Blocks of a row of a tile.
    const PER_TILE: usize;

    /// Writes the blocks of row `row` of a tile, from its first column on, to their places.
    fn pack(blocks: &[Self], tile: &mut Self::Tile, row: usize);
}

/// Pieces of 16 bytes for each unit, `[h][s][g][t]` for row 8h + g and unit 4s + t.
pub(super) type Pieces16 = [[[[[U64; 2]; 4]; 8]; 2]; 2];
/// Pieces of 8 bytes for each unit, `[h][g][t][s]`.
pub(super) type Pieces8 = [[[[U64; 2]; 4]; 8]; 2];
/// Smaller pieces for each unit, `[g][t][h][s]`.
pub(super) type Pieces<T> = [[[[T; 2]; 2]; 4]; 8];
/// A piece for each row.
pub(super) type Rows<T> = [T; TILE_ROWS as usize];
/// Declares types of blocks and tiles.
macro_rules! plain {
    ($($(#[$doc:meta])* struct $name:ident { $($field:ident: $type:ty),* $(,)? })*) => { $(
        $(#[$doc])*
        #[derive(
            zerocopy::FromBytes,
            zerocopy::IntoBytes,
            zerocopy::Immutable,
            zerocopy::KnownLayout,
            zerocopy::Unaligned,
        )]
        #[repr(C)]
        pub(super) struct $name { $(pub(super) $field: $type),* }
    )* };
}
pub(super) use plain;
