//! A mixture of experts, for one token: the choice of the experts, their products, and the weighted sum.

use ptxgen::{Cache, Global, Kernel, Multiple, Pointer, Ptr, Reg, Special, kernel_params};

use crate::kernels::activation::silu_times;
use crate::kernels::format::Format;
use crate::kernels::operations::matvec::activations;
use crate::kernels::operations::striped::striped_index;

/// Threads of a block.
pub const THREADS: u32 = 128;
/// The module with the products.
pub const PRODUCTS: &str = "experts";

/// Name of the product with a matrix of `format`.
pub fn product_name(format: Format) -> String {
    format!("experts_{}", format.suffix())
}

kernel_params! {
    /// `route`: one warp takes the `used` experts with the largest scores, of equals the first, and their
    /// shares of the softmax over all. The scores of those become the lowest finite number.
    pub struct Route {
        scores: Ptr<f32, 4>, chosen: Ptr<u32, 4>, shares: Ptr<f32, 4>,
        experts: u32, used: u32,
    }
}

pub(crate) fn route() -> Kernel {
    let k = Kernel::new("route");
    k.max_threads(32);
    let p = Route::declare(&k);
    choose(
        &k,
        Choice { scores: p.scores, chosen: p.chosen, shares: p.shares, experts: p.experts, used: p.used },
    );
    k
}

/// The choice of a token's experts.
pub(crate) struct Choice {
    /// A score per expert.
    pub scores: Pointer<Global, f32>,
    /// The experts that are chosen, and their shares.
    pub chosen: Pointer<Global, u32>,
    /// See `chosen`.
    pub shares: Pointer<Global, f32>,
    /// Number of experts, and of those that are chosen.
    pub experts: Reg<u32>,
    /// See `experts`.
    pub used: Reg<u32>,
}

/// The work of a warp of `route`.
pub(crate) fn choose(k: &Kernel, c: Choice) {
    let Choice { scores, chosen, shares, experts, used } = c;
    let lane = k.special(Special::LaneId);
    let score = |i: Reg<u32>| k.load_with(k.at(scores, i), 1, Cache::Default)[0];
    let (most, total) = (k.var(f32::NEG_INFINITY), k.var(0f32));
    k.for_(lane, experts, 32u32, |i: Reg<u32>| k.set(most, k.max(most, score(i))));
    for log2 in 0..5u32 {
        let partner = k.xor(lane, 1 << log2);
        k.set(most, k.max(most, k.broadcast(most, partner)));
    }
    let exponential = |score: Reg<f32>| k.exp2(k.mul(k.sub(score, most), std::f32::consts::LOG2_E));
    k.for_(lane, experts, 32u32, |i: Reg<u32>| k.add_to(total, exponential(score(i))));
    let total = k.warp_sum(total);
    k.for_(0u32, used, 1u32, |slot: Reg<u32>| {
        let (best, at) = (k.var(f32::NEG_INFINITY), k.var(u32::MAX));
        let take = |value: Reg<f32>, index: Reg<u32>| {
            let first = k.both(k.eq(value, best), k.lt(index, at));
            let better = k.either(k.gt(value, best), first);
            k.set(best, k.select(better, value, best));
            k.set(at, k.select(better, index, at));
        };
        k.for_(lane, experts, 32u32, |i: Reg<u32>| take(score(i), i));
        for log2 in 0..5u32 {
            let partner = k.xor(lane, 1 << log2);
            take(k.broadcast(best, partner), k.broadcast(at, partner));
        }
        k.if_(k.eq(lane, 0), || {
            // Scores that are no numbers choose none: an expert that exists, and a share that is no number.
            let expert = k.min(at, k.sub(experts, 1));
            k.store(k.at(chosen, slot), expert);
            k.store(k.at(shares, slot), k.div(exponential(best), total));
            k.store(k.at(scores, expert), f32::MIN);
        });
        k.sync_warp();
    });
}

kernel_params! {
    /// `experts_SUFFIX`: `out[s][r]` is the product of row `r` of the expert that was chosen as number `s`
    /// with the striped vector `pitch` values times `s` after `x`. A warp per row. Grid: `[rows / warps,
    /// experts used]`.
    pub struct ExpertProduct(format: Format) {
        weights: Ptr<u8, 16>, x: Ptr<f32, 16>, chosen: Ptr<u32, 4>, out: Ptr<f32, 4>,
        rows: u32, cols: Multiple = format.block(), pitch: Multiple = 16,
    }
}

pub(crate) fn product(format: Format) -> Kernel {
    let k = Kernel::new(&product_name(format));
    k.max_threads(THREADS);
    let p = ExpertProduct::declare(&k, format);
    let lane = k.special(Special::LaneId);
    let row = k.mad(k.special(Special::CtaidX), THREADS / 32, k.shr(k.special(Special::TidX), 5));
    let slot = k.special(Special::CtaidY);
    k.exit_if(k.ge(row, p.rows));
    let expert = k.load(k.at(p.chosen, slot));
    let x = k.row(p.x, slot, p.pitch);
    let line = format.row(&k, p.weights, k.mad(expert, p.rows, row), p.cols);
    let (quarter, sum) = (k.halve(p.cols, 2), k.var(0f32));
    k.for_(lane, k.halve(p.cols, format.unit().trailing_zeros()).reg(), 32u32, |unit: Reg<u32>| {
        let packed = format.fetch(&k, &line, unit);
        let values = activations(&k, format, x, unit, quarter);
        for (w, x) in format.weights(&k, &packed).iter().flatten().zip(values.iter().flatten()) {
            k.mad_to(sum, *w, *x, sum);
        }
    });
    let sum = k.warp_sum(sum);
    k.if_(k.eq(lane, 0), || k.store(k.at(p.out, k.mad(slot, p.rows, row)), sum));
    k
}

kernel_params! {
    /// `expert_silu`: `share · silu(gate) · up` for each chosen expert; each vector of `out` is striped.
    /// Grid: `[len / THREADS, experts used]`.
    pub struct ExpertSilu {
        gate: Ptr<f32, 16>, up: Ptr<f32, 16>, shares: Ptr<f32, 16>, out: Ptr<f32, 16>,
        len: Multiple = 16,
    }
}

pub(crate) fn silu() -> Kernel {
    let k = Kernel::new("expert_silu");
    k.max_threads(THREADS);
    let p = ExpertSilu::declare(&k);
    let i = k.mad(k.special(Special::CtaidX), THREADS, k.special(Special::TidX));
    let slot = k.special(Special::CtaidY);
    k.exit_if(k.ge(i, p.len.reg()));
    let of = |vectors| k.load(k.at(k.row(vectors, slot, p.len), i));
    let value = k.mul(silu_times(&k, of(p.gate), of(p.up)), k.load(k.at(p.shares, slot)));
    let to = k.row(p.out, slot, p.len);
    k.store(k.at(to, striped_index(&k, i, k.halve(p.len, 2).reg())), value);
    k
}

kernel_params! {
    /// `expert_sum`: adds `used` vectors to `x`.
    pub struct ExpertSum { parts: Ptr<f32, 16>, x: Ptr<f32, 16>, len: Multiple = 16, used: u32 }
}

pub(crate) fn sum() -> Kernel {
    let k = Kernel::new("expert_sum");
    k.max_threads(THREADS);
    let p = ExpertSum::declare(&k);
    let i = k.mad(k.special(Special::CtaidX), THREADS, k.special(Special::TidX));
    k.exit_if(k.ge(i, p.len.reg()));
    let to = k.at(p.x, i);
    let sum = k.load_with(to, 1, Cache::Default)[0];
    k.for_(0u32, p.used, 1u32, |slot: Reg<u32>| k.add_to(sum, k.load(k.at(k.row(p.parts, slot, p.len), i))));
    k.store(to, sum);
    k
}
