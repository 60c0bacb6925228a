//! Lowered instructions, and the per-host compilation of the loops over lanes that they run.
//!
//! Every operation is written once, as a safe function that is always inlined. [`entry`] gives the copy of it
//! that was compiled for the vector instructions of this host: on x86-64 with AVX-512, or with AVX2 and FMA, that
//! is one with these features enabled, elsewhere (and on aarch64, where the baseline has NEON and fused
//! multiply-add) the plain one. `agreement` compares the copies.

use std::marker::PhantomData;

use crate::gpu::sm::core::{Core, Flow};
use crate::gpu::sm::lanes::Isa;

/// One lowered instruction.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(crate) struct MicroOp {
    /// The function that executes it.
    pub run: OpFn,
    /// Inverts the guard.
    pub guard_xor: u32,
    /// Lanes that execute regardless of the guard, if any does: all of them for an operation of the uniform
    /// datapath.
    pub widen: u32,
    /// Guard predicate.
    pub guard: u8,
    /// Predicate destinations.
    pub pd: [u8; 2],
    /// Predicate sources, [`NOT`](crate::gpu::sm::slots::NOT) inverts.
    pub ps: [u8; 3],
    /// Destination slot.
    pub d: u16,
    /// Source slots; the second word of a wide value lies in the next slot.
    pub a: u16,
    pub b: u16,
    pub c: u16,
    /// Other operands: masks, shifts, immediates, modes.
    pub k: [u32; 6],
}

/// Function that an operation compiles to.
///
/// # Safety
/// The host must have the features of the [`Isa`] that was passed to [`entry`].
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

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,bmi1,bmi2,lzcnt,popcnt,f16c")]
fn avx512<O: Op>(core: &mut Core<'_>, op: &MicroOp) -> Flow {
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
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => avx512::<O>,
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

/// Declares operations by their effect on one lane: `Name(a, b, c, op) expression;`.
macro_rules! lane_ops {
    ($($(#[$m:meta])* $name:ident ($a:pat, $b:pat, $c:pat, $op:pat) $body:expr;)*) => { $(
        $(#[$m])*
        struct $name;
        impl $crate::gpu::sm::micro_op::LaneFn for $name {
            #[inline(always)]
            fn f($a: u32, $b: u32, $c: u32, $op: &$crate::gpu::sm::micro_op::MicroOp) -> u32 { $body }
        }
    )* };
}
pub(crate) use lane_ops;

/// Declares operations by their whole body: `Name(core, op) { ... }`.
macro_rules! warp_ops {
    ($($(#[$m:meta])* $name:ident ($core:ident, $op:pat) $body:block)*) => { $(
        $(#[$m])*
        pub(crate) struct $name;
        impl $crate::gpu::sm::micro_op::Op for $name {
            #[inline(always)]
            fn run($core: &mut $crate::gpu::sm::core::Core<'_>, $op: &$crate::gpu::sm::micro_op::MicroOp) -> $crate::gpu::sm::core::Flow $body
        }
    )* };
}
pub(crate) use warp_ops;
