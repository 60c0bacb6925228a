//! The router: its products with the normalized residual stream, in single precision. Rounded to f16, experts
//! with nearly equal scores would change places more often.

use ptxgen::{Cache, Global, Kernel, Multiple, Pointer, Ptr, Reg, Special, kernel_params};

use crate::kernels::format::Format;
use crate::kernels::prompt::chunk::COUNT_AT;

/// Threads of a block.
pub const THREADS: u32 = 128;
/// Tokens of a block, for which a row is read once.
pub const TOKENS: u32 = 8;

/// Name of the kernel for a router in `format`.
pub fn name(format: Format) -> String {
    format!("prompt_scores_{}", format.suffix())
}

/// Blocks for `tokens` tokens and `experts` rows.
pub const fn grid(tokens: u32, experts: u32) -> [u32; 3] {
    [experts.div_ceil(THREADS / 32), tokens.div_ceil(TOKENS), 1]
}

kernel_params! {
    /// `prompt_scores_SUFFIX`: `out[token][expert]` is the product of row `expert` with the RMS norm of the
    /// token's row of the residual stream `x`, with the weights `norm`. A warp per expert and [`TOKENS`]
    /// tokens. Grid: [`grid`].
    pub struct Scores(format: Format) {
        weights: Ptr<u8, 16>, x: Ptr<f32, 16>, norm: Ptr<f32, 16>, prompt: Ptr<u32, 16>,
        out: Ptr<f32, 4>,
        experts: u32, cols: Multiple = format.block(), eps: f32,
    }
}

pub(crate) fn kernel(format: Format) -> Kernel {
    let k = Kernel::new(&name(format));
    k.max_threads(THREADS);
    let p = Scores::declare(&k, format);
    let lane = k.special(Special::LaneId);
    let expert = k.mad(k.special(Special::CtaidX), THREADS / 32, k.shr(k.special(Special::TidX), 5));
    let first = k.mul(k.special(Special::CtaidY), TOKENS);
    let count = k.load(p.prompt.plus(COUNT_AT));
    k.exit_if(k.either(k.ge(expert, p.experts), k.ge(first, count)));
    let last = k.sub(count, 1);
    let tokens: Vec<_> = (0..TOKENS).map(|i| k.row(p.x, k.min(k.add(first, i), last), p.cols)).collect();
    let line = format.row(&k, p.weights, expert, p.cols);
    for (i, score) in (0..).zip(scores(&k, format, &line, &tokens, (p.norm, p.cols, p.eps))) {
        let token = k.add(first, i);
        let stores = k.both(k.eq(lane, 0), k.lt(token, count));
        k.if_(stores, || k.store(k.at(p.out, k.mad(token, p.experts, expert)), score));
    }
    k
}

/// The warp's products of a row of the router with the norm of each of `tokens`.
pub(crate) fn scores(
    k: &Kernel,
    format: Format,
    line: &[Pointer<Global, u8>],
    tokens: &[Pointer<Global, f32>],
    (norm, cols, eps): (Pointer<Global, f32>, Multiple, Reg<f32>),
) -> Vec<Reg<f32>> {
    let lane = k.special(Special::LaneId);
    let sums: Vec<[Reg<f32>; 2]> = tokens.iter().map(|_| [(); 2].map(|()| k.var(0f32))).collect();
    k.for_(lane, k.halve(cols, format.unit().trailing_zeros()).reg(), 32u32, |unit: Reg<u32>| {
        let packed = format.fetch(k, line, unit);
        for (start, values) in format.runs(k, unit).into_iter().zip(format.weights(k, &packed)) {
            for (i, four) in (0i64..).step_by(4).zip(values.as_chunks::<4>().0) {
                let norms = k.load_n::<4, _, _>(k.at(norm, start).plus(i), Cache::ReadOnly);
                let factors = [0, 1, 2, 3].map(|v| k.mul(four[v], norms[v]));
                for (token, [sum, squares]) in tokens.iter().zip(&sums) {
                    let values = k.load_n::<4, _, _>(k.at(*token, start).plus(i), Cache::ReadOnly);
                    for (value, factor) in values.into_iter().zip(factors) {
                        k.mad_to(*sum, value, factor, *sum);
                        k.mad_to(*squares, value, value, *squares);
                    }
                }
            }
        }
    });
    let len = k.convert::<u32, f32>(cols.reg());
    let score = |[sum, squares]: [Reg<f32>; 2]| {
        let (sum, squares) = (k.warp_sum(sum), k.warp_sum(squares));
        k.mul(sum, k.div(1f32, k.sqrt(k.add(k.div(squares, len), eps))))
    };
    sums.into_iter().map(score).collect()
}
