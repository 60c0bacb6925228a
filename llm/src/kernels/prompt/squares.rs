//! The lengths of a matrix's rows, from which bounds of its products follow.

use half::f16;
use ptxgen::{Cache, F16x2, Kernel, Multiple, Ptr, Reg, Special, kernel_params};

use crate::kernels::prompt::gemm::DEPTH;

/// Threads of a block.
pub const THREADS: u32 = 128;
/// Rows of a block, one per warp.
const ROWS: u32 = THREADS / 32;

/// Blocks for `rows` rows.
pub const fn blocks(rows: u32) -> u32 {
    rows.div_ceil(ROWS)
}

kernel_params! {
    /// `prompt_squares`: `out[r]` is the sum of `(w[r][j] · norm[j])²`; `w` is f16, `[rows][cols]`.
    pub struct Squares {
        w: Ptr<f16, 16>, norm: Ptr<f32, 16>, out: Ptr<f32, 4>,
        rows: u32, cols: Multiple = DEPTH,
    }
}

pub(crate) fn kernel() -> Kernel {
    let k = Kernel::new("prompt_squares");
    k.max_threads(THREADS);
    let p = Squares::declare(&k);
    let (lane, warp) = (k.special(Special::LaneId), k.shr(k.special(Special::TidX), 5));
    let row = k.mad(k.special(Special::CtaidX), ROWS, warp);
    k.exit_if(k.ge(row, p.rows));
    let line = k.row(p.w, row, p.cols);
    let sum = k.var(0f32);
    k.for_(lane, k.halve(p.cols, 3).reg(), 32u32, |piece: Reg<u32>| {
        let at = k.scale(piece, 8);
        let pairs: Vec<Reg<F16x2>> = k.load_with(k.at(line, at).cast::<F16x2>(), 4, Cache::Default);
        let norms = k.load_with(k.at(p.norm, at), 8, Cache::ReadOnly);
        for (pair, norms) in pairs.into_iter().zip(norms.chunks_exact(2)) {
            let (lo, hi) = k.unpack(pair);
            for (weight, norm) in [lo, hi].into_iter().zip(norms) {
                let value = k.mul(k.convert::<f16, f32>(weight), *norm);
                k.mad_to(sum, value, value, sum);
            }
        }
    });
    let sum = k.warp_sum(sum);
    k.if_(k.eq(lane, 0), || k.store(k.at(p.out, row), sum));
    k
}
