//! Quantized weights as plain numbers: whole matrices as f16 for the tensor cores, rows of an embedding for many tokens.

use half::f16;
use ptxgen::{F16x2, Global, Kernel, Pointer, Reg, Special};

use super::format::Format;
use super::prompt::{COUNT_AT, PROMPT_TOKENS_AT};

/// Threads of a block.
pub const THREADS: u32 = 128;
/// Rows that a block expands, one per warp.
const ROWS: u32 = THREADS / 32;

/// Values that a lane has in flight.
const VALUES: u32 = 64;

/// Blocks that `rows` rows take.
pub const fn blocks(rows: u32) -> u32 {
    rows.div_ceil(ROWS)
}

/// `dequantize_SUFFIX(planes.., out, rows, cols)`: `[rows][cols]` in f16, each value rounded to the nearest.
pub(super) fn matrix(format: Format) -> Kernel {
    let k = Kernel::new(&format!("dequantize_{}", format.suffix()));
    k.max_threads(THREADS);
    let planes = format.params(&k);
    let out = k.param_ptr::<f16>("out", 16);
    let rows = k.param::<u32>("rows");
    let cols = k.param_multiple("cols", format.block());
    let row = k.mad(k.special(Special::CtaidX), ROWS, k.shr(k.special(Special::TidX), 5));
    k.exit_if(k.ge(row, rows));
    let from = format.row(&k, &planes, row, cols);
    let to = k.row(out, row, cols);
    let units = k.halve(cols, format.unit().trailing_zeros()).reg();
    let together = (VALUES / format.unit()).min(8);
    k.for_(k.special(Special::LaneId), units, 32 * together, |first: Reg<u32>| {
        let last = k.sub(units, 1);
        let fetched: Vec<_> = (0..together)
            .map(|i| {
                let unit = k.add(first, 32 * i);
                (unit, format.fetch(&k, &from, k.min(unit, last)))
            })
            .collect();
        for (unit, packed) in fetched {
            k.if_(k.lt(unit, units), || {
                for (start, values) in format.runs(&k, unit).into_iter().zip(format.weights(&k, &packed)) {
                    store_rounded(&k, k.at(to, start), &values);
                }
            });
        }
    });
    k
}

/// Stores an even number of values as f16.
pub(super) fn store_rounded(k: &Kernel, to: Pointer<Global, f16>, values: &[Reg<f32>]) {
    let pairs: Vec<Reg<F16x2>> = values.chunks_exact(2).map(|pair| k.pack_f32(pair[0], pair[1])).collect();
    k.store_n(to.cast::<F16x2>(), &pairs);
}

/// `embed_prompt_SUFFIX(planes.., prompt, out, rows, cols)`: the rows of the chunk's tokens, in f32. A block per token.
pub(super) fn embed(format: Format) -> Kernel {
    let k = Kernel::new(&format!("embed_prompt_{}", format.suffix()));
    k.max_threads(THREADS);
    let planes = format.params(&k);
    let prompt = k.param_ptr::<u32>("prompt", 16);
    let out = k.param_ptr::<f32>("out", 16);
    let rows = k.param::<u32>("rows");
    let cols = k.param_multiple("cols", format.block());
    let index = k.special(Special::CtaidX);
    k.exit_if(k.ge(index, k.load(prompt.plus(COUNT_AT))));
    let token = k.load(k.at(prompt.plus(PROMPT_TOKENS_AT), index));
    let from = format.row(&k, &planes, k.min(token, k.sub(rows, 1)), cols);
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
