//! Rotary positions.
//!
//! Angles are kept as 64-bit fixed-point fractions of a turn: the product of position and step wraps by
//! itself, so an angle at position 100,000 is as exact as one at position 1.

use ptxgen::{Cache, Global, Kernel, Pointer, Reg};

/// The rotation of one pair per position, as a fraction of a turn times 2^64.
pub fn turns(radians_per_position: f64) -> u64 {
    let turns = (radians_per_position / std::f64::consts::TAU).rem_euclid(1.0);
    // Below 2^64: at most the last f64 below one turn. Casts of floats saturate.
    (turns * 2f64.powi(64)) as u64
}

/// The pair `(a, b)` rotated by `position` times the step at `turns`.
pub(crate) fn rotate(
    k: &Kernel,
    turns: Pointer<Global, u64>,
    position: Reg<u32>,
    a: Reg<f32>,
    b: Reg<f32>,
) -> (Reg<f32>, Reg<f32>) {
    rotate_by(k, k.load_with(turns, 1, Cache::ReadOnly)[0], position, a, b)
}

/// The pair `(a, b)` rotated by `position` times `step`.
pub(crate) fn rotate_by(
    k: &Kernel,
    step: Reg<u64>,
    position: Reg<u32>,
    a: Reg<f32>,
    b: Reg<f32>,
) -> (Reg<f32>, Reg<f32>) {
    rotate_pair(k, angle(k, step, position), a, b)
}

/// Sine and cosine of `position` times `step`.
pub(crate) fn angle(k: &Kernel, step: Reg<u64>, position: Reg<u32>) -> (Reg<f32>, Reg<f32>) {
    let fraction = k.mul(step, k.convert::<u32, u64>(position));
    // The upper half as a signed number is the angle, at most half a turn in either direction.
    let upper = k.bits::<u32, i32>(k.convert::<u64, u32>(k.shr(fraction, 32)));
    let radians = k.mul(k.convert::<i32, f32>(upper), (std::f64::consts::TAU / 2f64.powi(32)) as f32);
    (k.sin(radians), k.cos(radians))
}

/// The pair `(a, b)` rotated by an angle with this sine and cosine.
pub(crate) fn rotate_pair(
    k: &Kernel,
    (sin, cos): (Reg<f32>, Reg<f32>),
    a: Reg<f32>,
    b: Reg<f32>,
) -> (Reg<f32>, Reg<f32>) {
    (k.mad(a, cos, k.neg(k.mul(b, sin))), k.mad(a, sin, k.mul(b, cos)))
}
