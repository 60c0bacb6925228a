//! Layer norm: the mean is subtracted before the variance is computed, so a mean that is large against the
//! deviation costs no digits.

use half::f16;
use ptxgen::{Cache, Global, Kernel, Multiple, Pointer, Ptr, Reg, Special, kernel_params};

use crate::kernels::inverse_root::inverse_root;
use crate::kernels::layers::sum::block_sum;

/// Threads of a block, which takes one token.
pub const THREADS: u32 = 512;

kernel_params! {
    /// `prompt_layer_norm`: adds the sums of the previous product times `factor`, in `shares` parts that are
    /// `share_pitch` tokens apart, to the residual stream `x`, and writes its norm in f16. A block per token.
    pub struct PromptLayerNorm {
        x: Ptr<f32, 16>, sums: Ptr<f32, 16>, weight: Ptr<f32, 16>, bias: Ptr<f32, 16>,
        out: Ptr<f16, 16>,
        len: Multiple = 16, eps: f32, shares: u32, share_pitch: u32, factor: f32,
    }
}

pub(crate) fn prompt() -> Kernel {
    let k = Kernel::new("prompt_layer_norm");
    k.max_threads(THREADS);
    let p = PromptLayerNorm::declare(&k);
    let (tid, token) = (k.special(Special::TidX), k.special(Special::CtaidX));
    let x = k.row(p.x, token, p.len);
    k.for_(tid, p.len.reg(), THREADS, |i: Reg<u32>| {
        let value = k.load_with(k.at(x, i), 1, Cache::Default)[0];
        k.for_(0u32, p.shares, 1u32, |share: Reg<u32>| {
            let part = k.row(p.sums, k.mad(share, p.share_pitch, token), p.len);
            k.mad_to(value, k.load(k.at(part, i)), p.factor, value);
        });
        k.store(k.at(x, i), value);
    });
    let out = k.row(p.out, token, p.len);
    normalize(&k, x, (p.weight, p.bias), (p.len, p.eps), |i, value| {
        k.store(k.at(out, i), k.convert::<f32, f16>(value));
    });
    k
}

/// Passes each value of the normalized `x` to `store`. A thread reads only values that it may have stored
/// itself.
fn normalize(
    k: &Kernel,
    x: Pointer<Global, f32>,
    (weight, bias): (Pointer<Global, f32>, Pointer<Global, f32>),
    (len, eps): (Multiple, Reg<f32>),
    store: impl FnOnce(Reg<u32>, Reg<f32>),
) {
    let partial = [(); 2].map(|()| k.shared::<f32>(THREADS / 32));
    let tid = k.special(Special::TidX);
    let value = |i: Reg<u32>| k.load_with(k.at(x, i), 1, Cache::Default)[0];
    let inverse = k.rcp(k.convert::<u32, f32>(len.reg()));
    let [sum, squares] = [(); 2].map(|()| k.var(0f32));
    k.for_(tid, len.reg(), THREADS, |i: Reg<u32>| k.add_to(sum, value(i)));
    let mean = k.mul(block_sum(k, partial[0], (tid, THREADS), sum), inverse);
    k.for_(tid, len.reg(), THREADS, |i: Reg<u32>| {
        let off = k.sub(value(i), mean);
        k.mad_to(squares, off, off, squares);
    });
    let variance = k.mul(block_sum(k, partial[1], (tid, THREADS), squares), inverse);
    let scale = inverse_root(k, variance, eps);
    k.for_(tid, len.reg(), THREADS, |i: Reg<u32>| {
        let scaled = k.mul(k.sub(value(i), mean), scale);
        store(i, k.mad(scaled, k.load(k.at(weight, i)), k.load(k.at(bias, i))));
    });
}
