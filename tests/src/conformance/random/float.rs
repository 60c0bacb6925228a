//! Operations on f32, f64 and pairs of f16.
//!
//! A NaN that f32 arithmetic makes is 0x7fffffff, in f16 0x7fff. What f64 arithmetic makes of a NaN is left
//! open here, as is the smaller of two zeros: that only one device against the other decides.

use half::f16;
use ptxgen::{F16x2, Kernel, Reg};

use crate::conformance::random::integer::{fold, folded, wide, wide_of};
use crate::conformance::random::operation::LaneOp;

fn f(k: &Kernel, a: Reg<u32>) -> Reg<f32> {
    k.bits(a)
}

fn w(k: &Kernel, a: Reg<f32>) -> Reg<u32> {
    k.bits(a)
}

fn x(a: u32) -> f32 {
    f32::from_bits(a)
}

/// The bits of an f32 result.
fn single(a: f32) -> u32 {
    if a.is_nan() { 0x7fff_ffff } else { a.to_bits() }
}

/// Negative zero counts as less than zero; of a NaN and a number the number.
fn least(a: f32, b: f32) -> f32 {
    match (a.is_nan(), b.is_nan()) {
        (true, _) => b,
        (_, true) => a,
        _ if a.total_cmp(&b).is_lt() => a,
        _ => b,
    }
}

/// The bits of a minimum or maximum, which the compiler leaves out where both are the same register.
fn extreme(a: u32, b: u32, result: f32) -> Option<u32> {
    (a != b || !result.is_nan()).then(|| single(result))
}

fn d(k: &Kernel, lo: Reg<u32>, hi: Reg<u32>) -> Reg<f64> {
    k.bits(wide(k, lo, hi))
}

fn from_d(k: &Kernel, a: Reg<f64>) -> Reg<u32> {
    fold(k, k.bits(a))
}

fn y(lo: u32, hi: u32) -> f64 {
    f64::from_bits(wide_of(lo, hi))
}

fn double(a: f64) -> Option<u32> {
    (!a.is_nan()).then(|| folded(a.to_bits()))
}

fn h(k: &Kernel, a: Reg<u32>) -> Reg<F16x2> {
    k.bits(a)
}

/// The f16 nearest to `real`, ties to even: through the f32 towards zero whose last bit says that it is
/// inexact.
pub(super) fn nearest_half(real: f64) -> f16 {
    let near = real as f32;
    if f64::from(near) == real || !near.is_finite() {
        return f16::from_f32(near);
    }
    let towards_zero = near.to_bits() - u32::from(f64::from(near).abs() > real.abs());
    f16::from_f32(f32::from_bits(towards_zero | 1))
}

/// Applies `op`, exact or nearly so in f64, to both halves.
fn pairs(words: [u32; 3], op: fn(f64, f64, f64) -> f64) -> u32 {
    let half = |shift: u32| {
        let [a, b, c] = words.map(|w| f16::from_bits((w >> shift) as u16).to_f64());
        let r = op(a, b, c);
        if r.is_nan() { 0x7fff } else { u32::from(nearest_half(r).to_bits()) }
    };
    half(0) | half(16) << 16
}

macro_rules! ops {
    ($($name:literal: |$k:ident, $regs:pat_param| $emit:expr, |$words:pat_param| $eval:expr;)*) => {
        &[$(LaneOp { name: $name, emit: |$k, $regs, _| $emit, eval: |$words, _| $eval }),*]
    };
}

pub(super) const OPS: &[LaneOp] = ops! {
    "add.rn.f32": |k, [a, b, ..]| w(k, k.add(f(k, a), f(k, b))), |[a, b, ..]| Some(single(x(a) + x(b)));
    "sub.rn.f32": |k, [a, b, ..]| w(k, k.sub(f(k, a), f(k, b))), |[a, b, ..]| Some(single(x(a) - x(b)));
    "mul.rn.f32": |k, [a, b, ..]| w(k, k.mul(f(k, a), f(k, b))), |[a, b, ..]| Some(single(x(a) * x(b)));
    "fma.rn.f32": |k, [a, b, c, _]| w(k, k.mad(f(k, a), f(k, b), f(k, c))), |[a, b, c, _]| Some(single(x(a).mul_add(x(b), x(c))));
    "fma.rn.f32 negated": |k, [a, b, c, _]| w(k, k.mad(k.neg(f(k, a)), f(k, b), k.abs(f(k, c)))),
        |[a, b, c, _]| Some(single((-x(a)).mul_add(x(b), x(c).abs())));
    "add.rn.f32 of absolutes": |k, [a, b, ..]| w(k, k.sub(k.abs(f(k, a)), k.abs(f(k, b)))),
        |[a, b, ..]| Some(single(x(a).abs() - x(b).abs()));
    "mul.rn.f32 then add": |k, [a, b, c, _]| w(k, k.add(k.mul(f(k, a), f(k, b)), f(k, c))),
        |[a, b, c, _]| Some(single(x(a) * x(b) + x(c)));
    "min.f32": |k, [a, b, ..]| w(k, k.min(f(k, a), f(k, b))), |[a, b, ..]| extreme(a, b, least(x(a), x(b)));
    "max.f32": |k, [a, b, ..]| w(k, k.max(f(k, a), f(k, b))), |[a, b, ..]| extreme(a, b, -least(-x(a), -x(b)));
    "div.rn.f32": |k, [a, b, ..]| w(k, k.div(f(k, a), f(k, b))), |[a, b, ..]| Some(single(x(a) / x(b)));
    "sqrt.rn.f32": |k, [a, ..]| w(k, k.sqrt(f(k, a))), |[a, ..]| Some(single(x(a).sqrt()));
    "sqrt.rn.f32 of absolutes": |k, [a, ..]| w(k, k.sqrt(k.abs(f(k, a)))), |[a, ..]| Some(single(x(a).abs().sqrt()));
    "selp setp.lt.f32": |k, [a, b, c, d]| k.select(k.lt(f(k, a), f(k, b)), c, d), |[a, b, c, d]| Some(if x(a) < x(b) { c } else { d });
    "selp setp.le.f32": |k, [a, b, c, d]| k.select(k.le(f(k, a), f(k, b)), c, d), |[a, b, c, d]| Some(if x(a) <= x(b) { c } else { d });
    "selp setp.gt.f32": |k, [a, b, c, d]| k.select(k.gt(f(k, a), f(k, b)), c, d), |[a, b, c, d]| Some(if x(a) > x(b) { c } else { d });
    "selp setp.ge.f32": |k, [a, b, c, d]| k.select(k.ge(f(k, a), f(k, b)), c, d), |[a, b, c, d]| Some(if x(a) >= x(b) { c } else { d });
    "selp setp.eq.f32": |k, [a, b, c, d]| k.select(k.eq(f(k, a), f(k, b)), c, d), |[a, b, c, d]| Some(if x(a) == x(b) { c } else { d });
    "selp setp.neu.f32": |k, [a, b, c, d]| k.select(k.ne(f(k, a), f(k, b)), c, d), |[a, b, c, d]| Some(if x(a) != x(b) { c } else { d });
    "add.rn.f64": |k, [a, b, c, e]| from_d(k, k.add(d(k, a, b), d(k, c, e))), |[a, b, c, e]| double(y(a, b) + y(c, e));
    "mul.rn.f64": |k, [a, b, c, e]| from_d(k, k.mul(d(k, a, b), d(k, c, e))), |[a, b, c, e]| double(y(a, b) * y(c, e));
    "fma.rn.f64": |k, [a, b, c, e]| from_d(k, k.mad(d(k, a, b), d(k, b, c), d(k, c, e))),
        |[a, b, c, e]| double(y(a, b).mul_add(y(b, c), y(c, e)));
    "div.rn.f64": |k, [a, b, c, e]| from_d(k, k.div(d(k, a, b), d(k, c, e))), |[a, b, c, e]| double(y(a, b) / y(c, e));
    "max.f64": |k, [a, b, c, e]| from_d(k, k.max(d(k, a, b), d(k, c, e))), |[a, b, c, e]| {
        let (p, q) = (y(a, b), y(c, e));
        if p == 0.0 && q == 0.0 { None } else { double(p.max(q)) }
    };
    "selp setp.lt.f64": |k, [a, b, c, e]| k.select(k.lt(d(k, a, b), d(k, c, e)), a, c),
        |[a, b, c, e]| Some(if y(a, b) < y(c, e) { a } else { c });
    "add.rn.f16x2": |k, [a, b, ..]| k.bits(k.add(h(k, a), h(k, b))), |[a, b, ..]| Some(pairs([a, b, 0], |a, b, _| a + b));
    "mul.rn.f16x2": |k, [a, b, ..]| k.bits(k.mul(h(k, a), h(k, b))), |[a, b, ..]| Some(pairs([a, b, 0], |a, b, _| a * b));
    "fma.rn.f16x2": |k, [a, b, c, _]| k.bits(k.mad(h(k, a), h(k, b), h(k, c))),
        |[a, b, c, _]| Some(pairs([a, b, c], |a, b, c| a * b + c));
};
