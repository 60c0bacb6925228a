//! The norm of the result of attention or of the feed-forward block, before it is added to the residual
//! stream.

use ptxgen::{Cache, Kernel, Reg, Special};

use crate::kernels::inverse_root::inverse_root;
use crate::kernels::layers::sum::block_sum;

/// Threads of a block, which takes one token.
pub const THREADS: u32 = 512;

/// `post_norm(sums, weight, x, len, eps, shares, share_pitch, factor)`: adds the RMS norm of a product to the
/// residual stream `x`. The product is the sum of `shares` parts of `sums` that are `share_pitch` tokens
/// apart, times `factor`; its first part becomes that sum. Grid: `[tokens]`.
pub(crate) fn kernel() -> Kernel {
    let k = Kernel::new("post_norm");
    k.max_threads(THREADS);
    let [sums, weight, x] = ["sums", "weight", "x"].map(|name| k.param_ptr::<f32>(name, 16));
    let len = k.param_multiple("len", 16);
    let eps = k.param::<f32>("eps");
    let shares = k.param::<u32>("shares");
    let share_pitch = k.param::<u32>("share_pitch");
    let factor = k.param::<f32>("factor");
    let partial = k.shared::<f32>(THREADS / 32);
    let (tid, token) = (k.special(Special::TidX), k.special(Special::CtaidX));
    let line = k.row(sums, token, len);
    let squares = k.var(0f32);
    k.for_(tid, len.reg(), THREADS, |i: Reg<u32>| {
        let sum = k.var(0f32);
        k.for_(0u32, shares, 1u32, |share: Reg<u32>| {
            let part = k.row(sums, k.mad(share, share_pitch, token), len);
            k.add_to(sum, k.load_with(k.at(part, i), 1, Cache::Default)[0]);
        });
        let value = k.mul(sum, factor);
        k.store(k.at(line, i), value);
        k.mad_to(squares, value, value, squares);
    });
    let sum = block_sum(&k, partial, (tid, THREADS), squares);
    let mean = k.div(sum, k.convert::<u32, f32>(len.reg()));
    let scale = inverse_root(&k, mean, eps);
    let x = k.row(x, token, len);
    k.for_(tid, len.reg(), THREADS, |i: Reg<u32>| {
        // The thread's own stores.
        let value = k.mul(k.load_with(k.at(line, i), 1, Cache::Default)[0], scale);
        let to = k.at(x, i);
        k.store(to, k.mad(value, k.load(k.at(weight, i)), k.load_with(to, 1, Cache::Default)[0]));
    });
    k
}
