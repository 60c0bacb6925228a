//! Activation functions.

use ptxgen::{Kernel, Reg};

/// `silu(g) · u`.
pub(crate) fn silu_times(k: &Kernel, g: Reg<f32>, u: Reg<f32>) -> Reg<f32> {
    let e = k.exp2_flushed(k.mul(g, -std::f32::consts::LOG2_E));
    k.mul(k.mul(g, k.rcp(k.add(e, 1f32))), u)
}

/// `tanh(x)`, within 3e-7.
fn tanh(k: &Kernel, x: Reg<f32>) -> Reg<f32> {
    let e = k.exp2_flushed(k.mul(x, 2.0 * std::f32::consts::LOG2_E));
    k.mad(k.rcp(k.add(e, 1f32)), -2f32, 1f32)
}

/// `cap · tanh(x / cap)`, and NaN of an infinity, which a cap would hide.
pub(crate) fn capped(k: &Kernel, x: Reg<f32>, cap: Reg<f32>) -> Reg<f32> {
    k.mad(x, 0f32, k.mul(cap, tanh(k, k.div(x, cap))))
}

/// `gelu(x)`, with the approximation `x / (1 + exp(-√(8/π) · (x + 0.044715 x³)))`.
pub(crate) fn gelu(k: &Kernel, x: Reg<f32>) -> Reg<f32> {
    let inner = k.mul(x, k.mad(k.mul(x, x), 0.044715f32, 1f32));
    let factor = -(8.0 / std::f64::consts::PI).sqrt() * std::f64::consts::LOG2_E;
    let e = k.exp2_flushed(k.mul(inner, factor as f32));
    k.mul(x, k.rcp(k.add(e, 1f32)))
}
