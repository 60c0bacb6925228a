//! A mixture of experts, for one token: the choice of the experts, their products, and the weighted sum.

use ptxgen::{Cache, Global, Kernel, Pointer, Reg, Special};

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

/// `route(scores, chosen, shares, experts, used)`: one warp takes the `used` experts with the largest scores,
/// of equals the first, and their shares of the softmax over all. The scores of those become the lowest
/// finite number.
pub(crate) fn route() -> Kernel {
    let k = Kernel::new("route");
    k.max_threads(32);
    let scores = k.param_ptr::<f32>("scores", 4);
    let chosen = k.param_ptr::<u32>("chosen", 4);
    let shares = k.param_ptr::<f32>("shares", 4);
    let experts = k.param::<u32>("experts");
    let used = k.param::<u32>("used");
    choose(&k, Choice { scores, chosen, shares, experts, used });
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

/// `experts_SUFFIX(weights, x, chosen, out, rows, cols, pitch)`: `out[s][r]` is the product of row `r` of the
/// expert that was chosen as number `s` with the striped vector `pitch` values times `s` after `x`. A warp
/// per row. Grid: `[rows / warps, experts used]`.
pub(crate) fn product(format: Format) -> Kernel {
    let k = Kernel::new(&product_name(format));
    k.max_threads(THREADS);
    let weights = format.param(&k);
    let x = k.param_ptr::<f32>("x", 16);
    let chosen = k.param_ptr::<u32>("chosen", 4);
    let out = k.param_ptr::<f32>("out", 4);
    let rows = k.param::<u32>("rows");
    let cols = k.param_multiple("cols", format.block());
    let pitch = k.param_multiple("pitch", 16);
    let lane = k.special(Special::LaneId);
    let row = k.mad(k.special(Special::CtaidX), THREADS / 32, k.shr(k.special(Special::TidX), 5));
    let slot = k.special(Special::CtaidY);
    k.exit_if(k.ge(row, rows));
    let expert = k.load(k.at(chosen, slot));
    let x = k.row(x, slot, pitch);
    let line = format.row(&k, weights, k.mad(expert, rows, row), cols);
    let (quarter, sum) = (k.halve(cols, 2), k.var(0f32));
    k.for_(lane, k.halve(cols, format.unit().trailing_zeros()).reg(), 32u32, |unit: Reg<u32>| {
        let packed = format.fetch(&k, &line, unit);
        let values = activations(&k, format, x, unit, quarter);
        for (w, x) in format.weights(&k, &packed).iter().flatten().zip(values.iter().flatten()) {
            k.mad_to(sum, *w, *x, sum);
        }
    });
    let sum = k.warp_sum(sum);
    k.if_(k.eq(lane, 0), || k.store(k.at(out, k.mad(slot, rows, row)), sum));
    k
}

/// `expert_silu(gate, up, shares, out, len)`: `share · silu(gate) · up` for each chosen expert; each vector
/// of `out` is striped. Grid: `[len / THREADS, experts used]`.
pub(crate) fn silu() -> Kernel {
    let k = Kernel::new("expert_silu");
    k.max_threads(THREADS);
    let [gate, up, shares, out] = ["gate", "up", "shares", "out"].map(|name| k.param_ptr::<f32>(name, 16));
    let len = k.param_multiple("len", 16);
    let i = k.mad(k.special(Special::CtaidX), THREADS, k.special(Special::TidX));
    let slot = k.special(Special::CtaidY);
    k.exit_if(k.ge(i, len.reg()));
    let of = |vectors| k.load(k.at(k.row(vectors, slot, len), i));
    let value = k.mul(silu_times(&k, of(gate), of(up)), k.load(k.at(shares, slot)));
    let to = k.row(out, slot, len);
    k.store(k.at(to, striped_index(&k, i, k.halve(len, 2).reg())), value);
    k
}

/// `expert_sum(parts, x, len, used)`: adds `used` vectors to `x`.
pub(crate) fn sum() -> Kernel {
    let k = Kernel::new("expert_sum");
    k.max_threads(THREADS);
    let parts = k.param_ptr::<f32>("parts", 16);
    let x = k.param_ptr::<f32>("x", 16);
    let len = k.param_multiple("len", 16);
    let used = k.param::<u32>("used");
    let i = k.mad(k.special(Special::CtaidX), THREADS, k.special(Special::TidX));
    k.exit_if(k.ge(i, len.reg()));
    let to = k.at(x, i);
    let sum = k.load_with(to, 1, Cache::Default)[0];
    k.for_(0u32, used, 1u32, |slot: Reg<u32>| k.add_to(sum, k.load(k.at(k.row(parts, slot, len), i))));
    k.store(to, sum);
    k
}
