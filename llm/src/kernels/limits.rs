//! Limits of attention in some models: a window of positions, and a cap of scores.
//!
//! Kernels with limits are others than those without, which do not pay for them.

use ptxgen::{Kernel, Reg};

use crate::kernels::activation::capped;

/// The window of a launch whose layer sees all positions.
pub const NO_WINDOW: u32 = u32::MAX;

/// The infix in the names of kernels with limits.
pub const fn infix(limited: bool) -> &'static str {
    if limited { "limited_" } else { "" }
}

/// The limits of a launch.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    /// Positions that a token sees, itself with them; at least 1.
    window: Reg<u32>,
    /// The magnitude that scores stay below, in units of log2; 0 if there is none.
    cap: Reg<f32>,
}

impl Limits {
    /// The parameters `window` and `cap` of a kernel that has them, the latter as scores are before the softmax.
    pub fn new(k: &Kernel, (window, cap): (Option<Reg<u32>>, Option<Reg<f32>>)) -> Option<Self> {
        Some(Self { window: window?, cap: k.mul(cap?, std::f32::consts::LOG2_E) })
    }

    /// The first position that the last of `positions` positions sees.
    pub fn first(self, k: &Kernel, positions: Reg<u32>) -> Reg<u32> {
        k.sub(positions, k.min(positions, self.window))
    }

    /// `score` as the limits make it, if there are some.
    pub fn apply(limits: Option<Self>, k: &Kernel, score: Reg<f32>) -> Reg<f32> {
        limits.map_or(score, |limits| limits.capped(k, score))
    }

    /// `cap · tanh(score / cap)`, in units of log2.
    pub fn capped(self, k: &Kernel, score: Reg<f32>) -> Reg<f32> {
        k.select(k.eq(self.cap, 0f32), score, capped(k, score, self.cap))
    }
}
