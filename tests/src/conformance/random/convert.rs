//! Conversions between all number types. The bits of a NaN that one makes, and the integer that a NaN
//! becomes, are left open here: only one device against the other decides.

use half::f16;
use ptxgen::{Float, Int, Kernel, Number, Reg, Round};

use crate::conformance::random::float::nearest_half;
use crate::conformance::random::integer::{fold, folded, wide, wide_of};
use crate::conformance::random::operation::{LaneOp, Regs, Words};

/// A number of any type, exactly.
#[derive(Clone, Copy)]
enum Value {
    Integer(i128),
    Real(f64),
}

/// A type of numbers that words hold.
trait Scalar: Number {
    fn load(k: &Kernel, lo: Reg<u32>, hi: Reg<u32>) -> Reg<Self>;
    fn store(k: &Kernel, value: Reg<Self>) -> Reg<u32>;
    fn value(lo: u32, hi: u32) -> Value;
    /// The word that holds `value` in this type, if it is laid down.
    fn word(value: Value) -> Option<u32>;
}

/// `real`, rounded already, as an integer of a range.
fn saturate(real: f64, min: i128, max: i128) -> Option<i128> {
    (!real.is_nan()).then(|| (real.trunc() as i128).clamp(min, max))
}

macro_rules! integers {
    ($($ty:ty: $load:expr, $store:expr, $fold:expr;)*) => { $(
        impl Scalar for $ty {
            fn load(k: &Kernel, lo: Reg<u32>, hi: Reg<u32>) -> Reg<Self> {
                ($load as fn(&Kernel, Reg<u32>, Reg<u32>) -> Reg<$ty>)(k, lo, hi)
            }
            fn store(k: &Kernel, value: Reg<Self>) -> Reg<u32> {
                ($store as fn(&Kernel, Reg<$ty>) -> Reg<u32>)(k, value)
            }
            fn value(lo: u32, hi: u32) -> Value {
                Value::Integer(i128::from(wide_of(lo, hi) as $ty))
            }
            fn word(value: Value) -> Option<u32> {
                let value = match value {
                    Value::Integer(i) => i as $ty,
                    Value::Real(r) => saturate(r, i128::from(<$ty>::MIN), i128::from(<$ty>::MAX))? as $ty,
                };
                Some(($fold as fn($ty) -> u32)(value))
            }
        }
    )* };
}
integers! {
    u16: |k, lo, _| k.convert::<u32, u16>(lo), |k, a| k.convert::<u16, u32>(a), |a| u32::from(a);
    i16: |k, lo, _| k.bits(k.convert::<u32, u16>(lo)), |k, a| k.bits(k.convert::<i16, i32>(a)), |a| i32::from(a) as u32;
    u32: |_, lo, _| lo, |_, a| a, |a| a;
    i32: |k, lo, _| k.bits(lo), |k, a| k.bits(a), |a| a as u32;
    u64: |k, lo, hi| wide(k, lo, hi), |k, a| fold(k, a), folded;
    i64: |k, lo, hi| k.bits(wide(k, lo, hi)), |k, a| fold(k, k.bits(a)), |a| folded(a as u64);
}

impl Scalar for f16 {
    fn load(k: &Kernel, lo: Reg<u32>, _: Reg<u32>) -> Reg<Self> {
        k.bits(k.convert::<u32, u16>(lo))
    }
    fn store(k: &Kernel, value: Reg<Self>) -> Reg<u32> {
        // Twice, because ptxas 12.6 takes a zero-extended f16 that is read as f32 for a conversion.
        k.mul(k.convert::<u16, u32>(k.bits(value)), 0x1_0001)
    }
    fn value(lo: u32, _: u32) -> Value {
        Value::Real(f16::from_bits(lo as u16).to_f64())
    }
    fn word(value: Value) -> Option<u32> {
        let rounded = match value {
            // Beyond 2^53 everything is infinite in this type.
            Value::Integer(i) => nearest_half(i as f64),
            Value::Real(r) => nearest_half(r),
        };
        (!rounded.is_nan()).then(|| u32::from(rounded.to_bits()) * 0x1_0001)
    }
}

impl Scalar for f32 {
    fn load(k: &Kernel, lo: Reg<u32>, _: Reg<u32>) -> Reg<Self> {
        k.bits(lo)
    }
    fn store(k: &Kernel, value: Reg<Self>) -> Reg<u32> {
        k.bits(value)
    }
    fn value(lo: u32, _: u32) -> Value {
        Value::Real(f64::from(f32::from_bits(lo)))
    }
    fn word(value: Value) -> Option<u32> {
        let rounded = match value {
            Value::Integer(i) => i as f32,
            Value::Real(r) => r as f32,
        };
        (!rounded.is_nan()).then(|| rounded.to_bits())
    }
}

impl Scalar for f64 {
    fn load(k: &Kernel, lo: Reg<u32>, hi: Reg<u32>) -> Reg<Self> {
        k.bits(wide(k, lo, hi))
    }
    fn store(k: &Kernel, value: Reg<Self>) -> Reg<u32> {
        fold(k, k.bits(value))
    }
    fn value(lo: u32, hi: u32) -> Value {
        Value::Real(f64::from_bits(wide_of(lo, hi)))
    }
    fn word(value: Value) -> Option<u32> {
        let rounded = match value {
            Value::Integer(i) => i as f64,
            Value::Real(r) => r,
        };
        (!rounded.is_nan()).then(|| folded(rounded.to_bits()))
    }
}

fn emit<T: Scalar, D: Scalar>(k: &Kernel, [lo, hi, ..]: Regs, _: u32) -> Reg<u32> {
    D::store(k, k.convert(T::load(k, lo, hi)))
}

fn eval<T: Scalar, D: Scalar>([lo, hi, ..]: Words, _: u32) -> Option<u32> {
    D::word(T::value(lo, hi))
}

/// The rounding that a constant names.
fn rounding(constant: u32) -> Round {
    [Round::Nearest, Round::Zero, Round::Down, Round::Up][(constant & 3) as usize]
}

fn emit_round<T: Scalar + Float, D: Scalar + Int>(k: &Kernel, [lo, hi, ..]: Regs, constant: u32) -> Reg<u32> {
    D::store(k, k.round_to(T::load(k, lo, hi), rounding(constant)))
}

fn eval_round<T: Scalar, D: Scalar>([lo, hi, ..]: Words, constant: u32) -> Option<u32> {
    let Value::Real(real) = T::value(lo, hi) else { return None };
    D::word(Value::Real(match rounding(constant) {
        Round::Nearest => real.round_ties_even(),
        Round::Zero => real.trunc(),
        Round::Down => real.floor(),
        Round::Up => real.ceil(),
    }))
}

macro_rules! conversions {
    ($($from:ident => $($to:ident)*;)* [$($float:ident => $($int:ident)*;)*]) => {
        &[
            $($(LaneOp {
                name: concat!("cvt ", stringify!($from), " to ", stringify!($to)),
                emit: emit::<$from, $to>,
                eval: eval::<$from, $to>,
            },)*)*
            $($(LaneOp {
                name: concat!("cvt ", stringify!($float), " to ", stringify!($int), " in any rounding"),
                emit: emit_round::<$float, $int>,
                eval: eval_round::<$float, $int>,
            },)*)*
        ]
    };
}

pub(super) const OPS: &[LaneOp] = conversions! {
    u16 => u32 i32 u64 i64 f16 f32 f64;
    i16 => u32 i32 u64 i64 f16 f32 f64;
    u32 => u16 i16 u64 i64 f16 f32 f64;
    i32 => u16 i16 u64 i64 f16 f32 f64;
    u64 => u16 i16 u32 i32 f16 f32 f64;
    i64 => u16 i16 u32 i32 f16 f32 f64;
    f16 => u16 i16 u32 i32 u64 i64 f32 f64;
    f32 => u16 i16 u32 i32 u64 i64 f16 f64;
    f64 => u16 i16 u32 i32 u64 i64 f16 f32;
    [
        f16 => u16 i16 u32 i32 u64 i64;
        f32 => u16 i16 u32 i32 u64 i64;
        f64 => u16 i16 u32 i32 u64 i64;
    ]
};
