//! GELU, of the feed-forward vector or of its gate.

use half::f16;
use ptxgen::{Kernel, Multiple, Ptr, Reg, Special, kernel_params};

use crate::kernels::activation::gelu;

/// Threads of a block.
pub const THREADS: u32 = 128;

/// The value of a thread: its number in the row, and its token. Threads past the end of a row exit.
fn own(k: &Kernel, len: Multiple) -> (Reg<u32>, Reg<u32>) {
    let i = k.mad(k.special(Special::CtaidX), THREADS, k.special(Special::TidX));
    k.exit_if(k.ge(i, len.reg()));
    (i, k.special(Special::CtaidY))
}

kernel_params! {
    /// `prompt_gelu`: `factor · gelu(up + bias)` in f16 of the sums of `shares` parts that are `share_pitch`
    /// tokens apart. Grid: `[len / THREADS, tokens]`.
    pub struct PromptGelu {
        up: Ptr<f32, 16>, bias: Ptr<f32, 16>, out: Ptr<f16, 16>,
        len: Multiple = 16, shares: u32, share_pitch: u32, factor: f32,
    }
}

pub(crate) fn prompt() -> Kernel {
    let k = Kernel::new("prompt_gelu");
    k.max_threads(THREADS);
    let p = PromptGelu::declare(&k);
    let (i, token) = own(&k, p.len);
    let sum = k.var(k.load(k.at(p.bias, i)));
    k.for_(0u32, p.shares, 1u32, |share: Reg<u32>| {
        let part = k.row(p.up, k.mad(share, p.share_pitch, token), p.len);
        k.add_to(sum, k.load(k.at(part, i)));
    });
    let value = k.mul(gelu(&k, sum), p.factor);
    k.store(k.at(k.row(p.out, token, p.len), i), k.convert::<f32, f16>(value));
    k
}

kernel_params! {
    /// `prompt_gelu_gate`: `factor · gelu(gate) · up` in f16; `sums` has `len` sums of gates and `len` of the
    /// rest per token, in `shares` parts that are `share_pitch` tokens apart. Grid: `[len / THREADS,
    /// tokens]`.
    pub struct PromptGeluGate {
        sums: Ptr<f32, 16>, out: Ptr<f16, 16>,
        len: Multiple = 16, shares: u32, share_pitch: u32, factor: f32,
    }
}

pub(crate) fn gate_prompt() -> Kernel {
    let k = Kernel::new("prompt_gelu_gate");
    k.max_threads(THREADS);
    let p = PromptGeluGate::declare(&k);
    let (i, token) = own(&k, p.len);
    let (gate, up) = (k.var(0f32), k.var(0f32));
    k.for_(0u32, p.shares, 1u32, |share: Reg<u32>| {
        let part = k.row(p.sums, k.mad(share, p.share_pitch, token), k.scale(p.len, 2));
        k.add_to(gate, k.load(k.at(part, i)));
        k.add_to(up, k.load(k.at(part, k.add(p.len.reg(), i))));
    });
    let value = k.mul(k.mul(gelu(&k, gate), up), p.factor);
    k.store(k.at(k.row(p.out, token, p.len), i), k.convert::<f32, f16>(value));
    k
}
