//! The sum over a block.

use ptxgen::{Cache, Kernel, Pointer, Reg, Shared};

/// The sum of `value` over a block of `threads` threads, in all of them; `partial` has a word per warp, which
/// nothing else uses.
pub(crate) fn block_sum(
    k: &Kernel,
    partial: Pointer<Shared, f32>,
    (tid, threads): (Reg<u32>, u32),
    value: Reg<f32>,
) -> Reg<f32> {
    let sum = k.warp_sum(value);
    k.if_(k.eq(k.and(tid, 31), 0), || k.store(k.at(partial, k.shr(tid, 5)), sum));
    k.sync_threads();
    let partials = k.load_with(partial, threads / 32, Cache::Default);
    partials.into_iter().reduce(|a, b| k.add(a, b)).unwrap_or(sum)
}
