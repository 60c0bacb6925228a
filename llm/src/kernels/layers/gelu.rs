//! GELU, of the feed-forward vector or of its gate.

use half::f16;
use ptxgen::{Kernel, Multiple, Reg, Special};

use crate::kernels::activation::gelu;
use crate::kernels::operations::striped::striped_index;

/// Threads of a block.
pub const THREADS: u32 = 128;

/// `gelu(up, bias, out, len)`: `gelu(up + bias)`; `out` is striped.
pub(crate) fn step() -> Kernel {
    let k = Kernel::new("gelu");
    k.max_threads(THREADS);
    let [up, bias, out] = ["up", "bias", "out"].map(|name| k.param_ptr::<f32>(name, 16));
    let len = k.param_multiple("len", 16);
    let i = k.mad(k.special(Special::CtaidX), THREADS, k.special(Special::TidX));
    k.exit_if(k.ge(i, len.reg()));
    let value = gelu(&k, k.add(k.load(k.at(up, i)), k.load(k.at(bias, i))));
    k.store(k.at(out, striped_index(&k, i, k.halve(len, 2).reg())), value);
    k
}

/// The sums of a chunk: their parameters after the buffers, and which of them are the thread's.
struct Parts {
    len: Multiple,
    shares: Reg<u32>,
    share_pitch: Reg<u32>,
    factor: Reg<f32>,
    i: Reg<u32>,
    token: Reg<u32>,
}

impl Parts {
    /// Threads past the end of a row exit.
    fn declare(k: &Kernel) -> Self {
        let len = k.param_multiple("len", 16);
        let (shares, share_pitch) = (k.param("shares"), k.param("share_pitch"));
        let factor = k.param("factor");
        let i = k.mad(k.special(Special::CtaidX), THREADS, k.special(Special::TidX));
        k.exit_if(k.ge(i, len.reg()));
        Self { len, shares, share_pitch, factor, i, token: k.special(Special::CtaidY) }
    }
}

/// `prompt_gelu(up, bias, out, len, shares, share_pitch, factor)`: `factor · gelu(up + bias)` in f16 of the
/// sums of `shares` parts that are `share_pitch` tokens apart. Grid: `[len / THREADS, tokens]`.
pub(crate) fn prompt() -> Kernel {
    let k = Kernel::new("prompt_gelu");
    k.max_threads(THREADS);
    let [up, bias] = ["up", "bias"].map(|name| k.param_ptr::<f32>(name, 16));
    let out = k.param_ptr::<f16>("out", 16);
    let Parts { len, shares, share_pitch, factor, i, token } = Parts::declare(&k);
    let sum = k.var(k.load(k.at(bias, i)));
    k.for_(0u32, shares, 1u32, |share: Reg<u32>| {
        let part = k.row(up, k.mad(share, share_pitch, token), len);
        k.add_to(sum, k.load(k.at(part, i)));
    });
    let value = k.mul(gelu(&k, sum), factor);
    k.store(k.at(k.row(out, token, len), i), k.convert::<f32, f16>(value));
    k
}

/// `gelu_gate(gate, up, out, len)`: `gelu(gate) · up`; `out` is striped.
pub(crate) fn gate_step() -> Kernel {
    let k = Kernel::new("gelu_gate");
    k.max_threads(THREADS);
    let [gate, up, out] =
        [("gate", 4), ("up", 4), ("out", 16)].map(|(name, align)| k.param_ptr::<f32>(name, align));
    let len = k.param_multiple("len", 16);
    let i = k.mad(k.special(Special::CtaidX), THREADS, k.special(Special::TidX));
    k.exit_if(k.ge(i, len.reg()));
    let value = k.mul(gelu(&k, k.load(k.at(gate, i))), k.load(k.at(up, i)));
    k.store(k.at(out, striped_index(&k, i, k.halve(len, 2).reg())), value);
    k
}

/// `prompt_gelu_gate(sums, out, len, shares, share_pitch, factor)`: `factor · gelu(gate) · up` in f16; `sums`
/// has `len` sums of gates and `len` of the rest per token, in `shares` parts that are `share_pitch` tokens
/// apart. Grid: `[len / THREADS, tokens]`.
pub(crate) fn gate_prompt() -> Kernel {
    let k = Kernel::new("prompt_gelu_gate");
    k.max_threads(THREADS);
    let sums = k.param_ptr::<f32>("sums", 16);
    let out = k.param_ptr::<f16>("out", 16);
    let Parts { len, shares, share_pitch, factor, i, token } = Parts::declare(&k);
    let (gate, up) = (k.var(0f32), k.var(0f32));
    k.for_(0u32, shares, 1u32, |share: Reg<u32>| {
        let part = k.row(sums, k.mad(share, share_pitch, token), k.scale(len, 2));
        k.add_to(gate, k.load(k.at(part, i)));
        k.add_to(up, k.load(k.at(part, k.add(len.reg(), i))));
    });
    let value = k.mul(k.mul(gelu(&k, gate), up), factor);
    k.store(k.at(k.row(out, token, len), i), k.convert::<f32, f16>(value));
    k
}
