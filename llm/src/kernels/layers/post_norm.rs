//! The norm of the result of attention or of the feed-forward block, before it is added to the residual
//! stream.

use ptxgen::{Cache, Kernel, Multiple, Ptr, Reg, Special, kernel_params};

use crate::kernels::inverse_root::inverse_root;
use crate::kernels::layers::sum::block_sum;

/// Threads of a block, which takes one token.
pub const THREADS: u32 = 512;

kernel_params! {
    /// `post_norm`: adds the RMS norm of a product to the residual stream `x`. The product is the sum of
    /// `shares` parts of `sums` that are `share_pitch` tokens apart, times `factor`; its first part becomes
    /// that sum. Grid: `[tokens]`.
    pub struct PostNorm {
        sums: Ptr<f32, 16>, weight: Ptr<f32, 16>, x: Ptr<f32, 16>,
        len: Multiple = 16, eps: f32, shares: u32, share_pitch: u32, factor: f32,
    }
}

pub(crate) fn kernel() -> Kernel {
    let k = Kernel::new("post_norm");
    k.max_threads(THREADS);
    let p = PostNorm::declare(&k);
    let partial = k.shared::<f32>(THREADS / 32);
    let (tid, token) = (k.special(Special::TidX), k.special(Special::CtaidX));
    let line = k.row(p.sums, token, p.len);
    let squares = k.var(0f32);
    k.for_(tid, p.len.reg(), THREADS, |i: Reg<u32>| {
        let sum = k.var(0f32);
        k.for_(0u32, p.shares, 1u32, |share: Reg<u32>| {
            let part = k.row(p.sums, k.mad(share, p.share_pitch, token), p.len);
            k.add_to(sum, k.load_with(k.at(part, i), 1, Cache::Default)[0]);
        });
        let value = k.mul(sum, p.factor);
        k.store(k.at(line, i), value);
        k.mad_to(squares, value, value, squares);
    });
    let sum = block_sum(&k, partial, (tid, THREADS), squares);
    let mean = k.div(sum, k.convert::<u32, f32>(p.len.reg()));
    let scale = inverse_root(&k, mean, p.eps);
    let x = k.row(p.x, token, p.len);
    k.for_(tid, p.len.reg(), THREADS, |i: Reg<u32>| {
        // The thread's own stores.
        let value = k.mul(k.load_with(k.at(line, i), 1, Cache::Default)[0], scale);
        let to = k.at(x, i);
        k.store(to, k.mad(value, k.load(k.at(p.weight, i)), k.load_with(to, 1, Cache::Default)[0]));
    });
    k
}
