//! Activation functions.

use ptxgen::{Kernel, Reg};

/// `silu(g) · u`.
pub(crate) fn silu_times(k: &Kernel, g: Reg<f32>, u: Reg<f32>) -> Reg<f32> {
    let e = k.exp2(k.mul(g, -std::f32::consts::LOG2_E));
    k.mul(k.mul(g, k.rcp(k.add(e, 1f32))), u)
}
