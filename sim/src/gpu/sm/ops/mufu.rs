//! The multi-function unit: reciprocals, roots, exponentials, logarithms and circular functions.
//!
//! The hardware's last bit comes from its tables and is not reproduced: results here are the exact value
//! rounded once (or within the documented tolerance of it), with the hardware's treatment of special values
//! and subnormal numbers.

use crate::gpu::sm::fault::esr;
use crate::gpu::sm::lower::{Lower, Refusal};
use crate::gpu::sm::micro_op::MicroOp;
use crate::gpu::sm::micro_op::{LaneFn, Map, lane_ops};
use crate::gpu::sm::soft::{F16, Rounding};

use crate::gpu::sm::ops::float::{NAN, flush, is_nan};
use crate::gpu::sm::ops::half::{narrow_with, widen};

const COS: u8 = 0;
const SIN: u8 = 1;
const EX2: u8 = 2;
const LG2: u8 = 3;
const RCP: u8 = 4;
const RSQ: u8 = 5;
const SQRT: u8 = 8;
const TANH: u8 = 9;

/// Subnormal inputs count as zero, subnormal results become zero.
#[inline(always)]
fn finish(x: f32) -> u32 {
    if x.is_nan() { NAN } else { flush(x.to_bits()) }
}

/// 2^x for any x, to about 1e-12 before it is rounded to fp32.
#[inline(always)]
fn exp2(x: f32) -> f32 {
    let x = x.clamp(-160.0, 160.0);
    let whole = x.round_ties_even();
    let f = f64::from(x - whole) * std::f64::consts::LN_2;
    // The series of e^f for |f| <= 0.3466.
    let p = 1.0 / 362_880.0;
    let p = f.mul_add(p, 1.0 / 40_320.0);
    let p = f.mul_add(p, 1.0 / 5_040.0);
    let p = f.mul_add(p, 1.0 / 720.0);
    let p = f.mul_add(p, 1.0 / 120.0);
    let p = f.mul_add(p, 1.0 / 24.0);
    let p = f.mul_add(p, 1.0 / 6.0);
    let p = f.mul_add(p, 0.5);
    let p = f.mul_add(p, 1.0);
    let p = f.mul_add(p, 1.0);
    let scale = f64::from_bits(((i64::from(whole as i32) + 1023) as u64) << 52);
    (p * scale) as f32
}

/// The value of one function; the input is not a subnormal number.
#[inline(always)]
fn evaluate<const F: u8>(x: f32) -> f32 {
    let wide = f64::from(x);
    // The argument of the circular functions is in turns: whole turns do not matter.
    let angle = || {
        let turns = wide - wide.round_ties_even();
        turns * std::f64::consts::TAU
    };
    match F {
        COS if x.is_infinite() => f32::NAN,
        COS => angle().cos() as f32,
        SIN if x.is_infinite() => f32::NAN,
        SIN if x == 0.0 => x,
        SIN => {
            let s = angle().sin() as f32;
            if s == 0.0 { 0f32.copysign(x) } else { s }
        }
        EX2 => exp2(x),
        LG2 => wide.log2() as f32,
        RCP => 1.0 / x,
        RSQ if x == 0.0 => f32::INFINITY.copysign(x),
        RSQ => (1.0 / wide.sqrt()) as f32,
        SQRT => x.sqrt(),
        _ => wide.tanh() as f32,
    }
}

/// A function of an fp32 number; k: 0 keeps bits, 1 flips them.
struct Function<const F: u8>;

impl<const F: u8> LaneFn for Function<F> {
    #[inline(always)]
    fn f(_: u32, b: u32, _: u32, op: &MicroOp) -> u32 {
        let x = (b & op.k[0]) ^ op.k[1];
        if is_nan(x) {
            return NAN;
        }
        if F == TANH {
            return evaluate::<F>(f32::from_bits(x)).to_bits();
        }
        finish(evaluate::<F>(f32::from_bits(flush(x))))
    }
}

/// The same of an fp16 number; k[2]: the upper half.
struct HalfFunction<const F: u8>;

impl<const F: u8> LaneFn for HalfFunction<F> {
    #[inline(always)]
    fn f(_: u32, b: u32, _: u32, op: &MicroOp) -> u32 {
        let h = if op.k[2] != 0 { b >> 16 } else { b & 0xffff };
        let x = widen((h & op.k[0]) ^ op.k[1]);
        narrow_with(evaluate::<F>(x).to_bits(), F16, Rounding::Nearest, false)
    }
}

/// The same of a bf16 number, with a bf16 result (sm_90).
struct BrainFunction<const F: u8>;

impl<const F: u8> LaneFn for BrainFunction<F> {
    #[inline(always)]
    fn f(_: u32, b: u32, _: u32, op: &MicroOp) -> u32 {
        let h = if op.k[2] != 0 { b >> 16 } else { b & 0xffff };
        let x = ((h & op.k[0]) ^ op.k[1]) << 16;
        let x = f32::from_bits(if F == TANH { x } else { flush(x) });
        narrow_with(evaluate::<F>(x).to_bits(), crate::gpu::sm::soft::BF16, Rounding::Nearest, false)
    }
}

/// The upper word of a double in, the upper word of its reciprocal or reciprocal root out.
#[inline(always)]
fn double_seed(x: u32, root: bool) -> u32 {
    let x = f64::from_bits(u64::from(x) << 32);
    let x = if x.is_subnormal() { 0f64.copysign(x) } else { x };
    if x.is_nan() {
        return 0x7fff_ffff;
    }
    let r = if !root {
        1.0 / x
    } else if x == 0.0 {
        f64::INFINITY.copysign(x)
    } else {
        1.0 / x.sqrt()
    };
    if r.is_nan() {
        return 0x7fff_ffff;
    }
    let r = if r.is_subnormal() { 0f64.copysign(r) } else { r };
    (r.to_bits() >> 32) as u32
}

lane_ops! {
    Reciprocal64(_, b, _, op) double_seed((b & op.k[0]) ^ op.k[1], false);
    ReciprocalRoot64(_, b, _, op) double_seed((b & op.k[0]) ^ op.k[1], true);
}

macro_rules! by_function {
    ($l:expr, $ty:ident, $function:expr) => {
        match $function {
            0 => $l.run::<Map<$ty<COS>>>(),
            1 => $l.run::<Map<$ty<SIN>>>(),
            2 => $l.run::<Map<$ty<EX2>>>(),
            3 => $l.run::<Map<$ty<LG2>>>(),
            4 => $l.run::<Map<$ty<RCP>>>(),
            5 => $l.run::<Map<$ty<RSQ>>>(),
            8 => $l.run::<Map<$ty<SQRT>>>(),
            9 => $l.run::<Map<$ty<TANH>>>(),
            _ => return Err(esr::ILLEGAL_INSTR_PARAM),
        }
    };
}

pub(super) fn mufu(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.dst(1)?;
    let src = l.b(1)?;
    let function = l.bits(74, 4);
    // Halves: a bit each on sm_90, one bit for fp16 on sm_87.
    let (half, brain) = match l.target.arch.encoding() {
        sass::Encoding::Sm8x => (l.bit(73), false),
        sass::Encoding::Sm9x => (l.bit(72), l.bit(73)),
    };
    let narrow = (half || brain) && !matches!(function, 6 | 7);
    let sign = if narrow { 0x8000 } else { 0x8000_0000 };
    l.op.k[0] = if src.abs { !sign } else { u32::MAX };
    l.op.k[1] = if src.neg { sign } else { 0 };
    l.op.k[2] = u32::from(src.swizzle == 1);
    match (function, half, brain) {
        (6, ..) => l.run::<Map<Reciprocal64>>(),
        (7, ..) => l.run::<Map<ReciprocalRoot64>>(),
        (f, true, _) => by_function!(l, HalfFunction, f),
        (f, _, true) => by_function!(l, BrainFunction, f),
        (f, ..) => by_function!(l, Function, f),
    }
    Ok(())
}
