//! The types a PTX register can have, and which operations each takes.

use half::{bf16, f16};

/// The register file a value lives in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// One-bit predicate, `%p`.
    Pred,
    /// 16 untyped bits, `%h`.
    B16,
    /// 32 untyped bits, `%r`.
    B32,
    /// 64 untyped bits, `%rd`.
    B64,
    /// 128 untyped bits, `%rq`.
    B128,
    /// Single precision, `%f`.
    F32,
    /// Double precision, `%fd`.
    F64,
}

impl Class {
    pub(crate) const ALL: [Class; 7] =
        [Class::Pred, Class::B16, Class::B32, Class::B64, Class::B128, Class::F32, Class::F64];

    /// Prefix of register names and the type in their declaration.
    pub(crate) const fn names(self) -> (&'static str, &'static str) {
        match self {
            Class::Pred => ("%p", ".pred"),
            Class::B16 => ("%h", ".b16"),
            Class::B32 => ("%r", ".b32"),
            Class::B64 => ("%rd", ".b64"),
            Class::B128 => ("%rq", ".b128"),
            Class::F32 => ("%f", ".f32"),
            Class::F64 => ("%fd", ".f64"),
        }
    }
}

/// Kind of a type, which decides how it converts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Unsigned integer.
    Unsigned,
    /// Two's complement integer.
    Signed,
    /// Floating point.
    Float,
    /// Neither: predicates and packed pairs.
    Opaque,
}

mod sealed {
    pub trait Sealed {}
}

/// A type of registers.
pub trait Ty: sealed::Sealed + Copy + 'static {
    /// As instructions spell it, without the dot: `u32`, `f16x2`.
    const NAME: &'static str;
    /// Register file.
    const CLASS: Class;
    /// Width in bytes; 0 for predicates.
    const BYTES: u32;
    /// Integer, float or neither.
    const KIND: Kind;
}

/// Two f16 values in one 32-bit register, the first in the low half.
#[derive(Clone, Copy, Debug)]
pub struct F16x2;

/// A predicate register.
#[derive(Clone, Copy, Debug)]
pub struct Bool;

macro_rules! types {
    ($($ty:ty => $name:literal, $class:ident, $bytes:literal, $kind:ident;)*) => { $(
        impl sealed::Sealed for $ty {}
        impl Ty for $ty {
            const NAME: &'static str = $name;
            const CLASS: Class = Class::$class;
            const BYTES: u32 = $bytes;
            const KIND: Kind = Kind::$kind;
        }
    )* };
}
types! {
    Bool => "pred", Pred, 0, Opaque;
    u16 => "u16", B16, 2, Unsigned;
    i16 => "s16", B16, 2, Signed;
    f16 => "f16", B16, 2, Float;
    bf16 => "bf16", B16, 2, Float;
    u32 => "u32", B32, 4, Unsigned;
    i32 => "s32", B32, 4, Signed;
    F16x2 => "f16x2", B32, 4, Opaque;
    u64 => "u64", B64, 8, Unsigned;
    i64 => "s64", B64, 8, Signed;
    f32 => "f32", F32, 4, Float;
    f64 => "f64", F64, 8, Float;
}

/// Types with addition, subtraction and multiplication.
pub trait Number: Ty {
    /// Modifiers of `add`, `sub` and `mul` between the mnemonic and the type: floats round to nearest
    /// explicitly, which also keeps ptxas from contracting a multiplication and an addition.
    const ADD: &'static str;
    /// The same for `mul` and `mad`/`fma`.
    const MUL: &'static str;
    /// `mad` for integers, `fma` for floats.
    const MAD: &'static str;
}
/// Integers.
pub trait Int: Number {
    /// The type of the same width that bitwise instructions name.
    const BITS: &'static str;
}
/// Integers of 32 bits.
pub trait Word: Int {
    /// The 64-bit integer of the same signedness.
    type Wide: Int;
}
/// Floating point, scalar or packed.
pub trait Float: Number {}
/// Types that compare, have a minimum and a maximum.
pub trait Ordered: Number {}

macro_rules! numbers {
    (int: $($int:ty => $bits:literal),*; float: $($float:ty),*; ordered: $($ordered:ty),*;) => {
        $( impl Number for $int { const ADD: &'static str = ""; const MUL: &'static str = ".lo"; const MAD: &'static str = "mad"; }
           impl Int for $int { const BITS: &'static str = $bits; } )*
        $( impl Number for $float { const ADD: &'static str = ".rn"; const MUL: &'static str = ".rn"; const MAD: &'static str = "fma"; }
           impl Float for $float {} )*
        $( impl Ordered for $ordered {} )*
    };
}
numbers! {
    int: u16 => "b16", i16 => "b16", u32 => "b32", i32 => "b32", u64 => "b64", i64 => "b64";
    float: f16, F16x2, f32, f64;
    ordered: u16, i16, u32, i32, u64, i64, f16, f32, f64;
}
impl Word for u32 {
    type Wide = u64;
}
impl Word for i32 {
    type Wide = i64;
}

/// Element of memory: its size there and the register type a load of it gives.
pub trait Element: Copy + 'static {
    /// Bytes in memory, a power of two.
    const SIZE: u32;
    /// The type that loads and stores name.
    const MEMORY: &'static str;
    /// The register type; bytes widen to 32 bits.
    type Value: Ty;
}
macro_rules! elements {
    ($($ty:ty => $size:literal $name:literal $value:ty),* $(,)?) => { $(
        impl Element for $ty {
            const SIZE: u32 = $size;
            const MEMORY: &'static str = $name;
            type Value = $value;
        }
    )* };
}
elements! {
    u8 => 1 "u8" u32, i8 => 1 "s8" i32,
    u16 => 2 "u16" u16, i16 => 2 "s16" i16, f16 => 2 "b16" f16, bf16 => 2 "b16" bf16,
    u32 => 4 "u32" u32, i32 => 4 "s32" i32, f32 => 4 "f32" f32, F16x2 => 4 "b32" F16x2,
    u64 => 8 "u64" u64, i64 => 8 "s64" i64, f64 => 8 "f64" f64,
}
