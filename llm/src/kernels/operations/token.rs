//! The token's row of the embedding, the choice of the next token, and the step to the next position.

use ptxgen::{Cache, Kernel, Reg, Special};

use crate::kernels::format::Format;
use crate::kernels::state::{TOKENS_AT, block_best, take_better, warp_best};

/// Threads of a block of `embed` and `argmax`.
pub const THREADS: u32 = 128;
/// Blocks of `argmax`.
pub const ARGMAX_BLOCKS: u32 = 64;

/// Blocks of `embed` for rows of `cols` values.
pub const fn embed_blocks(format: Format, cols: u32) -> u32 {
    (cols / format.unit()).div_ceil(THREADS)
}

/// `embed_SUFFIX(weights, state, out, rows, cols)`: the current token's row of the embedding, dequantized.
pub(crate) fn embed(format: Format) -> Kernel {
    let k = Kernel::new(&format!("embed_{}", format.suffix()));
    k.max_threads(THREADS);
    let weights = format.param(&k);
    let state = k.param_ptr::<u32>("state", 16);
    let out = k.param_ptr::<f32>("out", 16);
    let rows = k.param::<u32>("rows");
    let cols = k.param_multiple("cols", format.block());
    let unit = k.mad(k.special(Special::CtaidX), THREADS, k.special(Special::TidX));
    k.exit_if(k.ge(unit, k.halve(cols, format.unit().trailing_zeros()).reg()));
    let position = k.load(state);
    let token = k.load(k.at(state.plus(i64::from(TOKENS_AT)), position));
    let row = format.row(&k, weights, k.min(token, k.sub(rows, 1)), cols);
    let packed = format.fetch(&k, &row, unit);
    for (start, values) in format.runs(&k, unit).into_iter().zip(format.weights(&k, &packed)) {
        k.store_n(k.at(out, start), &values);
    }
    k
}

/// `argmax(logits, best_values, best_indices, count)`: one candidate per block.
pub(crate) fn argmax() -> Kernel {
    let k = Kernel::new("argmax");
    k.max_threads(THREADS);
    let logits = k.param_ptr::<f32>("logits", 4);
    let values = k.param_ptr::<f32>("best_values", 4);
    let indices = k.param_ptr::<u32>("best_indices", 4);
    let count = k.param::<u32>("count");
    let partial = (k.shared::<f32>(THREADS / 32), k.shared::<u32>(THREADS / 32));
    let (tid, block) = (k.special(Special::TidX), k.special(Special::CtaidX));
    let best = block_best(&k, THREADS, partial, (tid, block), (logits, count));
    k.store(k.at(values, block), best.0);
    k.store(k.at(indices, block), best.1);
    k
}

/// `argmax_finish(best_values, best_indices, state, candidates)`: one warp takes the best candidate, writes
/// it as the next token and advances the position. Logits without any number give token 0.
pub(crate) fn argmax_finish() -> Kernel {
    let k = Kernel::new("argmax_finish");
    k.max_threads(32);
    let values = k.param_ptr::<f32>("best_values", 4);
    let indices = k.param_ptr::<u32>("best_indices", 4);
    let state = k.param_ptr::<u32>("state", 16);
    let candidates = k.param::<u32>("candidates");
    let lane = k.special(Special::LaneId);
    let best = (k.var(f32::NEG_INFINITY), k.var(u32::MAX));
    k.for_(lane, candidates, 32u32, |i: Reg<u32>| {
        take_better(&k, best, (k.load(k.at(values, i)), k.load(k.at(indices, i))));
    });
    warp_best(&k, best);
    k.exit_if(k.ne(lane, 0));
    let next = k.add(k.load(state), 1);
    let token = k.select(k.eq(best.1, u32::MAX), 0u32, best.1);
    k.store(k.at(state.plus(i64::from(TOKENS_AT)), next), token);
    k.store(state, next);
    k
}

/// `advance(state)`: one thread moves to the next position, whose token is already in the state.
pub(crate) fn advance() -> Kernel {
    let k = Kernel::new("advance");
    k.max_threads(32);
    let state = k.param_ptr::<u32>("state", 16);
    k.exit_if(k.ne(k.special(Special::TidX), 0));
    k.store(state, k.add(k.load_with(state, 1, Cache::Default)[0], 1));
    k
}
