//! The router's scores and the activation between the products of experts, of the columns of a batch step. The
//! choice of the experts and the sum over them are those of prompts.

use ptxgen::{Cache, Kernel, Multiple, Ptr, Special, Target, kernel_params};

use crate::kernels::activation::silu_times;
use crate::kernels::columns::fragments::{place, store};
use crate::kernels::columns::state::column;
use crate::kernels::columns::vector::{OWN, THREADS, zeros};
use crate::kernels::format::{Format, TILE_COLS};
use crate::kernels::mixture::scores;

kernel_params! {
    /// `columns_scores_SUFFIX`: `prompt_scores_SUFFIX` of the columns. A warp per expert and column. Grid:
    /// `[experts / warps, columns]`.
    pub struct ColumnScores(format: Format) {
        weights: Ptr<u8, 16>, x: Ptr<f32, 16>, norm: Ptr<f32, 16>, state: Ptr<u32, 16>,
        out: Ptr<f32, 4>,
        experts: u32, cols: Multiple = format.block(), eps: f32,
    }
}

/// Name of the kernel for columns.
pub fn scores_name(format: Format) -> String {
    format!("columns_scores_{}", format.suffix())
}

pub(crate) fn scores(format: Format, target: Target) -> Kernel {
    let k = Kernel::new(&scores_name(format));
    k.max_threads(scores::THREADS);
    let p = ColumnScores::declare(&k, format);
    let own = column(&k, target, p.state, k.special(Special::CtaidY));
    let expert = k.mad(k.special(Special::CtaidX), scores::THREADS / 32, k.shr(k.special(Special::TidX), 5));
    k.exit_if(k.ge(expert, p.experts));
    let x = k.row(p.x, own.number, p.cols);
    let line = format.row(&k, p.weights, expert, p.cols);
    let all = scores::scores(&k, format, &line, &[x], (p.norm, p.cols, p.eps));
    let to = k.at(p.out, k.mad(own.number, p.experts, expert));
    k.if_(k.eq(k.special(Special::LaneId), 0), || all.iter().for_each(|score| k.store(to, *score)));
    k
}

kernel_params! {
    /// `columns_expert_act`: `silu(gate) · up` as fragments, for each expert that a column has chosen.
    /// `products` are `[column][used]`, each `len` gate values, then as many up values. The columns of an
    /// expert are `apart` bytes after those of the one before. Grid: `[tile_blocks(len), columns, used]`.
    pub struct ExpertAct {
        state: Ptr<u32, 16>, products: Ptr<f32, 16>, chosen: Ptr<u32, 4>, out: Ptr<u8, 16>,
        len: Multiple = OWN, apart: Multiple = 16,
    }
}

pub(crate) fn act(target: Target) -> Kernel {
    let k = Kernel::new("columns_expert_act");
    k.max_threads(THREADS);
    let p = ExpertAct::declare(&k);
    let (tid, number, slot) =
        (k.special(Special::TidX), k.special(Special::CtaidY), k.special(Special::CtaidZ));
    let (lane, warp) = (k.and(tid, 31), k.shr(tid, 5));
    column(&k, target, p.state, number);
    let tiles = k.shr(k.add(p.len.reg(), TILE_COLS - 1), TILE_COLS.trailing_zeros());
    let tile = k.mad(k.special(Special::CtaidX), THREADS / 32, warp);
    k.exit_if(k.ge(tile, tiles));
    let entry = k.mad(number, k.special(Special::NctaidZ), slot);
    let expert = k.load_with(k.at(p.chosen, entry), 1, Cache::Default)[0];
    let (at, values) = (k.sum(k.scale(tile, TILE_COLS), k.scale(lane, OWN)), zeros(&k));
    k.if_(k.lt(at.reg(), p.len.reg()), || {
        let own = k.row(p.products, entry, k.scale(p.len, 2));
        let [gate, up] = [at, k.sum(at, p.len)].map(|at| k.load_with(k.at(own, at), OWN, Cache::Default));
        for ((value, gate), up) in values.iter().zip(gate).zip(up) {
            k.set(*value, silu_times(&k, gate, up));
        }
    });
    let out = k.row(p.out, expert, p.apart);
    store(&k, place(&k, out, number, (tile, k.special(Special::NctaidY))), number, lane, &values);
    k
}
