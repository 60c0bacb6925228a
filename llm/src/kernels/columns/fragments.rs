//! The layout of the columns as right factors of the tensor cores.
//!
//! Tiles of 256 values, of each the groups of eight columns: the tile of a group is `BYTES` bytes, so that a
//! warp that multiplies a tile with all groups has one address. Its values are f16, each column's times a power of two of its own, so that the largest is from 256 to 511
//! whatever the range: nothing overflows, and only values 2^22 times smaller than the largest lose bits. With
//! g = lane / 4 and t = lane % 4 a lane of a multiplying warp reads of column g the units t and t + 4, eight
//! values at a time, which lie together, lane after lane.

use half::f16;
use ptxgen::{F16x2, Global, Kernel, Pointer, Reg, Shuffle};

use crate::kernels::format::TILE_COLS;

/// Columns of a group.
pub const GROUP: u32 = 8;
/// Bytes of the values of a tile of a group.
const VALUES: u32 = 2 * GROUP * TILE_COLS;
/// Offset of the sums of units: per lane those of units t and t + 4, then the remainder of each after f16.
pub(super) const SUMS_AT: u32 = VALUES;
/// Offset of the inverse factors of the columns, in f32.
pub(super) const FACTORS_AT: u32 = SUMS_AT + 8 * 32;
/// Bytes of a tile of a group.
pub const BYTES: u32 = FACTORS_AT + 4 * GROUP;
/// The exponent of the largest value.
const EXPONENT: u32 = 8;
/// Exponents of f32 as stored: their base, and the smallest one whose factor is finite.
const BASE: u32 = 127;
const LEAST: u32 = EXPONENT + 1;

/// Bytes of `columns` columns of `cols` values.
pub fn bytes(columns: u32, cols: u32) -> u64 {
    u64::from(columns.div_ceil(GROUP)) * u64::from(cols.div_ceil(TILE_COLS)) * u64::from(BYTES)
}

/// Whether all values of a tile are finite, whose bytes these are.
pub fn are_finite(tile: &[u8]) -> bool {
    let values = tile.get(..VALUES as usize).unwrap_or(tile);
    values.as_chunks().0.iter().all(|bytes| f16::from_le_bytes(*bytes).is_finite())
}

/// The tile `tile` of the group of column `column`, of `columns` columns that a step has.
pub(super) fn place(
    k: &Kernel,
    fragments: Pointer<Global, u8>,
    column: Reg<u32>,
    (tile, columns): (Reg<u32>, Reg<u32>),
) -> Pointer<Global, u8> {
    let groups = k.shr(columns, GROUP.trailing_zeros());
    k.at_stride(fragments, k.mad(tile, groups, k.shr(column, GROUP.trailing_zeros())), BYTES)
}

/// Stores a column's tile: this warp has its 256 values, each lane eight in a row.
pub(super) fn store(
    k: &Kernel,
    place: Pointer<Global, u8>,
    column: Reg<u32>,
    lane: Reg<u32>,
    v: &[Reg<f32>],
) {
    let own = v.iter().map(|v| k.abs::<f32>(*v)).reduce(|a, b| k.max(a, b)).unwrap_or_else(|| k.var(0f32));
    let exponent = k.max(k.shr(k.bits::<f32, u32>(k.warp_max(own)), 23), LEAST);
    let of_exponent = |e: Reg<u32>| k.bits::<u32, f32>(k.shl(e, 23));
    let factor = of_exponent(k.sub(k.var(2 * BASE + EXPONENT), exponent));
    let halves: Vec<Reg<F16x2>> =
        v.chunks_exact(2).map(|p| k.pack_f32(k.mul(p[0], factor), k.mul(p[1], factor))).collect();
    let (unit, piece) = (k.shr(lane, 2), k.and(lane, 3));
    let (t, s) = (k.and(unit, 3), k.shr(unit, 2));
    let reader = k.bfi(k.and(column, 7), t, 2, 3);
    let at = k.at_stride(k.at_stride(place, k.mad(s, 4u32, piece), 512), reader, 16);
    k.store_n(at.cast::<F16x2>(), &halves);
    // Of the values as they are stored.
    let sum = k.var(0f32);
    for pair in halves {
        let (lo, hi) = k.unpack(pair);
        k.add_to(sum, k.add(k.convert::<f16, f32>(lo), k.convert::<f16, f32>(hi)));
    }
    let sum = k.add(sum, k.shuffle(sum, Shuffle::Xor(1)));
    let sum = k.add(sum, k.shuffle(sum, Shuffle::Xor(2)));
    k.if_(k.eq(piece, 0), || {
        let at = k.at_stride(place.plus_bytes(SUMS_AT.into()), reader, 8);
        let at = k.at_stride(at, s, 2).cast::<f16>();
        let high = k.convert::<f32, f16>(sum);
        k.store(at, high);
        k.store(at.plus(2), k.convert::<f32, f16>(k.sub(sum, k.convert::<f16, f32>(high))));
    });
    k.if_(k.eq(lane, 0), || {
        let at = k.at_stride(place.plus_bytes(FACTORS_AT.into()), k.and(column, 7), 4).cast::<f32>();
        k.store(at, of_exponent(k.sub(exponent, EXPONENT)));
    });
}
