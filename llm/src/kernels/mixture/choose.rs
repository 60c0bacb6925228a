//! The choice of a token's experts.

use ptxgen::{Cache, Global, Kernel, Pointer, Reg, Special};

/// Inputs and results of the choice of a token's experts.
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
    /// Whether shares are divided by their sum: not 0.
    pub normalized: Reg<u32>,
}

/// A warp takes the `used` experts with the largest scores, of equals the first, and their shares of the softmax
/// over all, or over those. The scores of those become the lowest finite number.
pub(crate) fn choose(k: &Kernel, c: Choice) {
    let Choice { scores, chosen, shares, experts, used, normalized } = c;
    let lane = k.special(Special::LaneId);
    let score = |i: Reg<u32>| k.load_with(k.at(scores, i), 1, Cache::Default)[0];
    let (most, total) = (k.var(f32::NEG_INFINITY), k.var(0f32));
    k.for_(lane, experts, 32u32, |i: Reg<u32>| k.set(most, k.max(most, score(i))));
    for log2 in 0..5u32 {
        let partner = k.xor(lane, 1 << log2);
        k.set(most, k.max(most, k.broadcast(most, partner)));
    }
    let exponential = |score: Reg<f32>| k.exp2_flushed(k.mul(k.sub(score, most), std::f32::consts::LOG2_E));
    k.for_(lane, experts, 32u32, |i: Reg<u32>| k.add_to(total, exponential(score(i))));
    let (total, of_chosen) = (k.warp_sum(total), k.var(0f32));
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
            k.store(k.at(shares, slot), exponential(best));
            k.store(k.at(scores, expert), f32::MIN);
        });
        k.add_to(of_chosen, exponential(best));
        k.sync_warp();
    });
    let total = k.select(k.ne(normalized, 0), of_chosen, total);
    k.for_(lane, used, 32u32, |slot: Reg<u32>| {
        let share = k.at(shares, slot);
        k.store(share, k.div(k.load_with(share, 1, Cache::Default)[0], total));
    });
}
