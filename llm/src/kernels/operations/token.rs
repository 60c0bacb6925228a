//! The token's row of the embedding, the choice of the next token, and the step to the next position.

use ptxgen::{Cache, Kernel, Multiple, Ptr, Reg, Special, kernel_params};

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

kernel_params! {
    /// `embed_SUFFIX`: the current token's row of the embedding, dequantized.
    pub struct Embed(format: Format) {
        weights: Ptr<u8, 16>, state: Ptr<u32, 16>, out: Ptr<f32, 16>,
        rows: u32, cols: Multiple = format.block(),
    }
}

pub(crate) fn embed(format: Format) -> Kernel {
    let k = Kernel::new(&format!("embed_{}", format.suffix()));
    k.max_threads(THREADS);
    let p = Embed::declare(&k, format);
    let unit = k.mad(k.special(Special::CtaidX), THREADS, k.special(Special::TidX));
    k.exit_if(k.ge(unit, k.halve(p.cols, format.unit().trailing_zeros()).reg()));
    let position = k.load(p.state);
    let token = k.load(k.at(p.state.plus(i64::from(TOKENS_AT)), position));
    let row = format.row(&k, p.weights, k.min(token, k.sub(p.rows, 1)), p.cols);
    let packed = format.fetch(&k, &row, unit);
    for (start, values) in format.runs(&k, unit).into_iter().zip(format.weights(&k, &packed)) {
        k.store_n(k.at(p.out, start), &values);
    }
    k
}

kernel_params! {
    /// `argmax`: one candidate per block.
    pub struct Argmax {
        logits: Ptr<f32, 4>, best_values: Ptr<f32, 4>, best_indices: Ptr<u32, 4>,
        count: u32,
    }
}

pub(crate) fn argmax() -> Kernel {
    let k = Kernel::new("argmax");
    k.max_threads(THREADS);
    let p = Argmax::declare(&k);
    let partial = (k.shared::<f32>(THREADS / 32), k.shared::<u32>(THREADS / 32));
    let (tid, block) = (k.special(Special::TidX), k.special(Special::CtaidX));
    let best = block_best(&k, THREADS, partial, (tid, block), (p.logits, p.count));
    k.store(k.at(p.best_values, block), best.0);
    k.store(k.at(p.best_indices, block), best.1);
    k
}

kernel_params! {
    /// `argmax_finish`: one warp takes the best candidate, writes it as the next token and advances the
    /// position. Logits without any number give token 0.
    pub struct ArgmaxFinish {
        best_values: Ptr<f32, 4>, best_indices: Ptr<u32, 4>, state: Ptr<u32, 16>,
        candidates: u32,
    }
}

pub(crate) fn argmax_finish() -> Kernel {
    let k = Kernel::new("argmax_finish");
    k.max_threads(32);
    let p = ArgmaxFinish::declare(&k);
    let lane = k.special(Special::LaneId);
    let best = (k.var(f32::NEG_INFINITY), k.var(u32::MAX));
    k.for_(lane, p.candidates, 32u32, |i: Reg<u32>| {
        take_better(&k, best, (k.load(k.at(p.best_values, i)), k.load(k.at(p.best_indices, i))));
    });
    warp_best(&k, best);
    k.exit_if(k.ne(lane, 0));
    let next = k.add(k.load(p.state), 1);
    let token = k.select(k.eq(best.1, u32::MAX), 0u32, best.1);
    k.store(k.at(p.state.plus(i64::from(TOKENS_AT)), next), token);
    k.store(p.state, next);
    k
}

kernel_params! {
    /// `advance`: one thread moves to the next position, whose token is already in the state.
    pub struct Advance { state: Ptr<u32, 16> }
}

pub(crate) fn advance() -> Kernel {
    let k = Kernel::new("advance");
    k.max_threads(32);
    let p = Advance::declare(&k);
    k.exit_if(k.ne(k.special(Special::TidX), 0));
    k.store(p.state, k.add(k.load_with(p.state, 1, Cache::Default)[0], 1));
    k
}
