//! Dequantization: whole matrices to f16 for the tensor cores, rows of an embedding for the tokens of a
//! chunk.

use half::f16;
use ptxgen::{Cache, F16x2, Global, Kernel, Multiple, Pointer, Ptr, Reg, Space, Special, kernel_params};

use crate::kernels::format::{Format, TILE_COLS, TILE_ROWS};
use crate::kernels::prompt::chunk::{COUNT_AT, TOKENS_AT};

/// Threads of a block: so few that it fits an SM beside a block that multiplies.
pub const THREADS: u32 = 64;
/// Threads of a block of `embed_prompt`.
pub const EMBED_THREADS: u32 = 128;
/// Threads and blocks of an SM for which the compiler allots registers: 48 registers, of which the largest
/// block that multiplies leaves enough for four warps.
const ALLOTTED: [u32; 2] = [128, 10];
/// Warps of a block.
const WARPS: u32 = THREADS / 32;
/// Values that a lane unpacks together.
const VALUES: u32 = 64;

/// The grid for `rows` rows of `cols` values.
pub const fn grid(format: Format, rows: u32, cols: u32) -> [u32; 3] {
    match format.is_quantized() {
        true => [rows.div_ceil(TILE_ROWS), cols.div_ceil(TILE_COLS), 1],
        false => [rows.div_ceil(WARPS), 1, 1],
    }
}

kernel_params! {
    /// `dequantize_SUFFIX`: `[rows][cols]` in f16, each value rounded to the nearest. Grid: [`grid`].
    pub struct Dequantize(format: Format) {
        weights: Ptr<u8, 16>, out: Ptr<f16, 16>,
        rows: u32, cols: Multiple = format.block(),
    }
}

pub(crate) fn matrix(format: Format) -> Kernel {
    let k = Kernel::new(&format!("dequantize_{}", format.suffix()));
    k.max_threads(ALLOTTED[0]);
    k.min_blocks_per_sm(ALLOTTED[1]);
    let p = Dequantize::declare(&k, format);
    match format.is_quantized() {
        true => tile(&k, format, p.weights, p.out, (p.rows, p.cols)),
        false => lines(&k, format, p.weights, p.out, (p.rows, p.cols)),
    }
    k
}

/// A tile of quantized weights, whose rows the two warps share.
///
/// The lanes collect the values of eight rows in shared memory, so that the warp writes whole lines.
fn tile(
    k: &Kernel,
    format: Format,
    weights: Pointer<Global, u8>,
    out: Pointer<Global, f16>,
    (rows, cols): (Reg<u32>, Multiple),
) {
    let gathered = k.shared::<f16>(WARPS * 32 * VALUES);
    let (lane, half) = (k.special(Special::LaneId), k.shr(k.special(Special::TidX), 5));
    let (g, t) = (k.shr(lane, 2), k.and(lane, 3));
    let (group, number) = (k.special(Special::CtaidX), k.special(Special::CtaidY));
    let across = k.special(Special::NctaidY);
    let tile = k.at_stride(weights, k.mad(group, across, number), format.tile_bytes());
    let pieces = format.lane_pieces(k, tile, (half, g, t));
    let fetched = [0, 1].map(|s| format.fetch_piece(k, &pieces, t, s));
    // Lines of 32 pieces of eight values; the pieces that eight lanes write or read together are in different
    // banks.
    let gathered = k.at(gathered, k.scale(half, 32 * VALUES));
    let twist = k.bfi(g, k.shr(t, 1), 1, 1);
    let own = k.at(k.at(gathered, k.scale(g, TILE_COLS)), k.scale(t, 32));
    let landing = [0u32, 1, 2, 3].map(|i| k.at_stride(own, k.xor(twist, i), 16));
    for (s, packed) in (0i64..).zip(&fetched) {
        let values: Vec<Reg<f32>> = format.weights(k, packed).concat();
        for (at, values) in landing.iter().zip(values.chunks_exact(8)) {
            store_rounded(k, at.plus_bytes(256 * s), values);
        }
    }
    k.sync_warp();
    let piece = k.xor(lane, k.bfe(lane, 3, 1));
    let leaving = [piece, k.xor(piece, 2)].map(|piece| k.at_stride(gathered, piece, 16));
    let row = k.mad(group, TILE_ROWS, k.shl(half, 3));
    let column = k.sum(k.scale(number, TILE_COLS), k.scale(lane, 8));
    k.exit_if(k.ge(column.reg(), cols.reg()));
    let mut to = k.at(k.row(out, row, cols), column);
    for r in 0..8u32 {
        let from = leaving[r as usize % 2].plus(i64::from(r * TILE_COLS));
        let whole: Vec<Reg<F16x2>> = k.load_with(from.cast::<F16x2>(), 4, Cache::Default);
        k.if_(k.lt(k.add(row, r), rows), || k.store_n(to.cast::<F16x2>(), &whole));
        to = k.at(to, cols);
    }
}

/// Rows of weights that are not quantized, a warp per row.
fn lines(
    k: &Kernel,
    format: Format,
    weights: Pointer<Global, u8>,
    out: Pointer<Global, f16>,
    (rows, cols): (Reg<u32>, Multiple),
) {
    let (lane, warp) = (k.special(Special::LaneId), k.shr(k.special(Special::TidX), 5));
    let row = k.mad(k.special(Special::CtaidX), WARPS, warp);
    k.exit_if(k.ge(row, rows));
    let (from, to) = (format.row(k, weights, row, cols), k.row(out, row, cols));
    let units = k.halve(cols, format.unit().trailing_zeros()).reg();
    k.for_(lane, units, 32u32, |unit: Reg<u32>| {
        let packed = format.fetch(k, &from, unit);
        for (start, values) in format.runs(k, unit).into_iter().zip(format.weights(k, &packed)) {
            store_rounded(k, k.at(to, start), &values);
        }
    });
}
/// Stores an even number of values as f16.
pub(crate) fn store_rounded<S: Space>(k: &Kernel, to: Pointer<S, f16>, values: &[Reg<f32>]) {
    let pairs: Vec<Reg<F16x2>> = values.chunks_exact(2).map(|pair| k.pack_f32(pair[0], pair[1])).collect();
    k.store_n(to.cast::<F16x2>(), &pairs);
}

kernel_params! {
    /// `embed_prompt_SUFFIX`: the embedding rows of the chunk's tokens, in f32. A block per token.
    pub struct EmbedPrompt(format: Format) {
        weights: Ptr<u8, 16>, prompt: Ptr<u32, 16>, out: Ptr<f32, 16>,
        rows: u32, cols: Multiple = format.block(),
    }
}

pub(crate) fn embed(format: Format) -> Kernel {
    let k = Kernel::new(&format!("embed_prompt_{}", format.suffix()));
    k.max_threads(EMBED_THREADS);
    let p = EmbedPrompt::declare(&k, format);
    let index = k.special(Special::CtaidX);
    k.exit_if(k.ge(index, k.load(p.prompt.plus(COUNT_AT))));
    let token = k.load(k.at(p.prompt.plus(TOKENS_AT), index));
    let from = format.row(&k, p.weights, k.min(token, k.sub(p.rows, 1)), p.cols);
    let to = k.row(p.out, index, p.cols);
    let units = k.halve(p.cols, format.unit().trailing_zeros()).reg();
    k.for_(k.special(Special::TidX), units, EMBED_THREADS, |unit: Reg<u32>| {
        let packed = format.fetch(&k, &from, unit);
        for (start, values) in format.runs(&k, unit).into_iter().zip(format.weights(&k, &packed)) {
            k.store_n(k.at(to, start), &values);
        }
    });
    k
}
