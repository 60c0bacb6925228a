//! Dequantization: whole matrices to f16 for the tensor cores, rows of an embedding for the tokens of a
//! chunk.

use half::f16;
use ptxgen::{Cache, F16x2, Kernel, Pointer, Reg, Space, Special};

use crate::kernels::format::Format;
use crate::kernels::prompt::chunk::{COUNT_AT, TOKENS_AT};

/// Threads of a block.
pub const THREADS: u32 = 128;
/// Rows of a block, one per warp.
const ROWS: u32 = THREADS / 32;
/// Values that a lane loads together.
const VALUES: u32 = 64;

/// Blocks for `rows` rows.
pub const fn blocks(rows: u32) -> u32 {
    rows.div_ceil(ROWS)
}

/// `dequantize_SUFFIX(weights, out, rows, cols)`: `[rows][cols]` in f16, each value rounded to the nearest.
///
/// A warp collects the values that its lanes unpack in shared memory, so that it writes whole lines.
pub(crate) fn matrix(format: Format) -> Kernel {
    let k = Kernel::new(&format!("dequantize_{}", format.suffix()));
    k.max_threads(THREADS);
    let weights = format.param(&k);
    let out = k.param_ptr::<f16>("out", 16);
    let rows = k.param::<u32>("rows");
    let cols = k.param_multiple("cols", format.block());
    let gathered = k.shared::<f16>(ROWS * 32 * VALUES);
    let (lane, warp) = (k.special(Special::LaneId), k.shr(k.special(Special::TidX), 5));
    let row = k.mad(k.special(Special::CtaidX), ROWS, warp);
    k.exit_if(k.ge(row, rows));
    let gathered = k.at(gathered, k.scale(warp, 32 * VALUES));
    // Pieces of eight values; the pieces that eight lanes write or read together are in different banks.
    let piece = |number: Reg<u32>| k.at_stride(gathered, k.xor(number, k.bfe(number, 3, 3)), 16);
    let from = format.row(&k, weights, row, cols);
    let to = k.row(out, row, cols);
    let units = k.halve(cols, format.unit().trailing_zeros()).reg();
    let last = k.sub(units, 1);
    let together = VALUES / format.unit();
    k.for_(0u32, units, 32 * together, |first: Reg<u32>| {
        let fetched: Vec<_> = (0..together)
            .map(|i| {
                let unit = k.add(k.add(first, lane), 32 * i);
                (unit, format.fetch(&k, &from, k.min(unit, last)))
            })
            .collect();
        let start_of_all = k.mul(first, format.unit());
        for (unit, packed) in fetched {
            for (start, values) in format.runs(&k, unit).into_iter().zip(format.weights(&k, &packed)) {
                let start = k.sub(start.reg(), start_of_all);
                for (i, values) in (0u32..).zip(values.chunks(8)) {
                    let at = piece(k.add(k.shr(start, 3), i));
                    // A run of four values is half a piece.
                    let at = if values.len() < 8 { k.at(at, k.scale(k.bfe(start, 2, 1), 4)) } else { at };
                    store_rounded(&k, at, values);
                }
            }
        }
        k.sync_warp();
        for i in 0..VALUES / 8 {
            let number = k.add(lane, 32 * i);
            let at = k.sum(k.scale(number, 8), k.scale(k.shr(start_of_all, 3), 8));
            let whole: Vec<Reg<F16x2>> = k.load_with(piece(number).cast::<F16x2>(), 4, Cache::Default);
            k.if_(k.lt(at.reg(), cols.reg()), || k.store_n(k.at(to, at).cast::<F16x2>(), &whole));
        }
        k.sync_warp();
    });
    k
}

/// Stores an even number of values as f16.
pub(crate) fn store_rounded<S: Space>(k: &Kernel, to: Pointer<S, f16>, values: &[Reg<f32>]) {
    let pairs: Vec<Reg<F16x2>> = values.chunks_exact(2).map(|pair| k.pack_f32(pair[0], pair[1])).collect();
    k.store_n(to.cast::<F16x2>(), &pairs);
}

/// `embed_prompt_SUFFIX(weights, prompt, out, rows, cols)`: the embedding rows of the chunk's tokens, in
/// f32. A block per token.
pub(crate) fn embed(format: Format) -> Kernel {
    let k = Kernel::new(&format!("embed_prompt_{}", format.suffix()));
    k.max_threads(THREADS);
    let weights = format.param(&k);
    let prompt = k.param_ptr::<u32>("prompt", 16);
    let out = k.param_ptr::<f32>("out", 16);
    let rows = k.param::<u32>("rows");
    let cols = k.param_multiple("cols", format.block());
    let index = k.special(Special::CtaidX);
    k.exit_if(k.ge(index, k.load(prompt.plus(COUNT_AT))));
    let token = k.load(k.at(prompt.plus(TOKENS_AT), index));
    let from = format.row(&k, weights, k.min(token, k.sub(rows, 1)), cols);
    let to = k.row(out, index, cols);
    let units = k.halve(cols, format.unit().trailing_zeros()).reg();
    k.for_(k.special(Special::TidX), units, THREADS, |unit: Reg<u32>| {
        let packed = format.fetch(&k, &from, unit);
        for (start, values) in format.runs(&k, unit).into_iter().zip(format.weights(&k, &packed)) {
            k.store_n(k.at(to, start), &values);
        }
    });
    k
}
