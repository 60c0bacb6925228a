//! RMS norm, and the product with SiLU for gate and up matrices that are separate.

use ptxgen::{Cache, Kernel, Multiple, Ptr, Reg, Special, kernel_params};

use crate::kernels::activation::silu_times;
use crate::kernels::inverse_root::inverse_root;
use crate::kernels::operations::striped::{striped_chunk, striped_index};

/// Threads of the one block of `rmsnorm`.
pub const THREADS: u32 = 512;
/// Threads of a block of `silu_mul`.
pub const SILU_THREADS: u32 = 128;

kernel_params! {
    /// `rmsnorm`: one block; `out` is striped.
    pub struct RmsNorm {
        x: Ptr<f32, 16>, weight: Ptr<f32, 16>, out: Ptr<f32, 16>,
        len: Multiple = 16, eps: f32,
    }
}

pub(crate) fn rmsnorm() -> Kernel {
    let k = Kernel::new("rmsnorm");
    k.max_threads(THREADS);
    let p = RmsNorm::declare(&k);
    let partial = k.shared::<f32>(THREADS / 32);
    let tid = k.special(Special::TidX);
    let (chunks, quarter) = (k.halve(p.len, 2), k.halve(p.len, 2));
    let squares = k.var(0f32);
    k.for_(tid, chunks.reg(), THREADS, |c: Reg<u32>| {
        for v in k.load_with(k.at(p.x, k.scale(c, 4)), 4, Cache::Default) {
            k.mad_to(squares, v, v, squares);
        }
    });
    let sum = k.warp_sum(squares);
    k.if_(k.eq(k.and(tid, 31), 0), || k.store(k.at(partial, k.shr(tid, 5)), sum));
    k.sync_threads();
    let partials = k.load_with(partial, THREADS / 32, Cache::Default);
    let sum = partials.into_iter().reduce(|a, b| k.add(a, b)).unwrap_or(sum);
    let mean = k.div(sum, k.convert::<u32, f32>(p.len.reg()));
    let scale = inverse_root(&k, mean, p.eps);
    k.for_(tid, chunks.reg(), THREADS, |c: Reg<u32>| {
        let values = k.load_with(k.at(p.x, k.scale(c, 4)), 4, Cache::Default);
        let weights = k.load_with(k.at(p.weight, k.scale(c, 4)), 4, Cache::ReadOnly);
        let scaled: Vec<_> =
            values.into_iter().zip(weights).map(|(v, w)| k.mul(k.mul(v, scale), w)).collect();
        k.store_n(striped_chunk(&k, p.out, c, quarter), &scaled);
    });
    k
}

kernel_params! {
    /// `silu_mul`: `silu(gate) · up`; `out` is striped.
    pub struct SiluMul { gate: Ptr<f32, 4>, up: Ptr<f32, 4>, out: Ptr<f32, 16>, len: Multiple = 16 }
}

pub(crate) fn silu_mul() -> Kernel {
    let k = Kernel::new("silu_mul");
    k.max_threads(SILU_THREADS);
    let p = SiluMul::declare(&k);
    let i = k.mad(k.special(Special::CtaidX), SILU_THREADS, k.special(Special::TidX));
    k.exit_if(k.ge(i, p.len.reg()));
    let value = silu_times(&k, k.load(k.at(p.gate, i)), k.load(k.at(p.up, i)));
    k.store(k.at(p.out, striped_index(&k, i, k.halve(p.len, 2).reg())), value);
    k
}
