//! Values of a whole warp, and the per-host compilation of the loops over them.
//!
//! Every operation is written once, as a safe function that is always inlined. [`entry`] gives the copy of it that was compiled for
//! the vector instructions of this host: on x86-64 with AVX2 and FMA that is one with these features enabled, elsewhere (and on
//! aarch64, where the baseline has NEON and fused multiply-add) the plain one.

use std::marker::PhantomData;

use crate::gpu::sm::code::MicroOp;
use crate::gpu::sm::core::{Core, Flow};

/// One 32-bit register of all lanes.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct Lanes(pub [u32; 32]);

impl Lanes {
    pub const ZERO: Lanes = Lanes([0; 32]);

    pub const fn splat(x: u32) -> Self {
        Lanes([x; 32])
    }
}

/// Which copy of the operations to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Isa {
    /// Compiled for the baseline of the target.
    Baseline,
    /// Compiled for AVX2, FMA and the bit instructions that come with them.
    #[cfg(target_arch = "x86_64")]
    Avx2,
}

impl Isa {
    /// The best one that this host has.
    pub fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("popcnt")
            && is_x86_feature_detected!("f16c")
        {
            return Isa::Avx2;
        }
        Isa::Baseline
    }
}

/// What an operation compiles to.
///
/// # Safety
/// The host must have the features of the [`Isa`] that [`entry`] was asked for.
pub(crate) type OpFn = unsafe fn(&mut Core<'_>, &MicroOp) -> Flow;

/// One operation of the interpreter.
pub(crate) trait Op {
    /// Runs it for the lanes of `core.mask`.
    fn run(core: &mut Core<'_>, op: &MicroOp) -> Flow;
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt,f16c")]
fn avx2<O: Op>(core: &mut Core<'_>, op: &MicroOp) -> Flow {
    O::run(core, op)
}

fn baseline<O: Op>(core: &mut Core<'_>, op: &MicroOp) -> Flow {
    O::run(core, op)
}

/// The function that runs `O` on this host.
pub(crate) fn entry<O: Op>(isa: Isa) -> OpFn {
    match isa {
        Isa::Baseline => baseline::<O>,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => avx2::<O>,
    }
}

/// A function of the same lane of up to three registers; unused sources read as zero.
pub(crate) trait LaneFn {
    /// The result of one lane.
    fn f(a: u32, b: u32, c: u32, op: &MicroOp) -> u32;
}

/// Runs a [`LaneFn`] over the warp.
pub(crate) struct Map<L>(PhantomData<L>);

impl<L: LaneFn> Op for Map<L> {
    #[inline(always)]
    fn run(core: &mut Core<'_>, op: &MicroOp) -> Flow {
        let (a, b, c) = (core.src(op.a), core.src(op.b), core.src(op.c));
        let mut t = [0u32; 32];
        for i in 0..32 {
            t[i] = L::f(a[i], b[i], c[i], op);
        }
        core.put(op.d, &t);
        Flow::Next
    }
}

/// Declares operations by what they do to one lane: `Name(a, b, c, op) expression;`.
macro_rules! lane_ops {
    ($($(#[$m:meta])* $name:ident ($a:pat, $b:pat, $c:pat, $op:pat) $body:expr;)*) => { $(
        $(#[$m])*
        struct $name;
        impl $crate::gpu::sm::lanes::LaneFn for $name {
            #[inline(always)]
            fn f($a: u32, $b: u32, $c: u32, $op: &$crate::gpu::sm::code::MicroOp) -> u32 { $body }
        }
    )* };
}
pub(crate) use lane_ops;

/// Declares operations by their whole body: `Name(core, op) { ... }`.
macro_rules! warp_ops {
    ($($(#[$m:meta])* $name:ident ($core:ident, $op:pat) $body:block)*) => { $(
        $(#[$m])*
        pub(in crate::gpu::sm) struct $name;
        impl $crate::gpu::sm::lanes::Op for $name {
            #[inline(always)]
            fn run($core: &mut $crate::gpu::sm::core::Core<'_>, $op: &$crate::gpu::sm::code::MicroOp) -> $crate::gpu::sm::core::Flow $body
        }
    )* };
}
pub(crate) use warp_ops;
