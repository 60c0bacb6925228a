//! fp64 arithmetic and comparison, on register pairs.

use crate::gpu::sm::core::{Core, Flow};
use crate::gpu::sm::lower::{Lower, Refusal, Src};
use crate::gpu::sm::micro_op::MicroOp;
use crate::gpu::sm::micro_op::Op;
use crate::gpu::sm::soft::{F64, Rounding};

use crate::gpu::sm::ops::float::compare;
use crate::gpu::sm::ops::integer::{combine, with_code};

const QUIET: u64 = 1 << 51;
/// The NaN of an operation whose operands are numbers.
const DEFAULT_NAN: u64 = 0xfff8_0000_0000_0000;

/// A source with its modifiers: k[2i] keeps bits of the upper word, k[2i + 1] flips them.
#[inline(always)]
fn modified(x: u64, op: &MicroOp, i: usize) -> u64 {
    (x & (u64::from(op.k[2 * i]) << 32 | 0xffff_ffff)) ^ u64::from(op.k[2 * i + 1]) << 32
}

fn set_modifiers(l: &mut Lower<'_>, i: usize, src: Src) {
    l.op.k[2 * i] = if src.abs { 0x7fff_ffff } else { u32::MAX };
    l.op.k[2 * i + 1] = if src.neg { 0x8000_0000 } else { 0 };
}

/// The NaN that an operation passes on: that of B, else that of C, else that of A, made quiet. Signs and
/// absolutes do not touch it. (Measured on Hopper, every pair and triple of places.)
fn nan_of<const KIND: u8>([a, b, c]: [u64; 3]) -> Option<u64> {
    let order: &[u64] = match KIND {
        0 => &[c, a],
        1 => &[b, a],
        _ => &[b, c, a],
    };
    order.iter().find(|&&x| F64.is_nan(x)).map(|x| x | QUIET)
}

/// The bits of a result; `raw` holds the operands without their modifiers.
#[inline(always)]
fn finish<const KIND: u8>(r: f64, raw: [u64; 3]) -> u64 {
    if r.is_nan() { nan_of::<KIND>(raw).unwrap_or(DEFAULT_NAN) } else { r.to_bits() }
}

/// DADD (0), DMUL (1) or DFMA (2); the rounding is in ps[1].
struct Arithmetic<const KIND: u8, const NEAREST: bool>;

impl<const KIND: u8, const NEAREST: bool> Op for Arithmetic<KIND, NEAREST> {
    #[inline(always)]
    fn run(core: &mut Core<'_>, op: &MicroOp) -> Flow {
        let (a, b, c) = (core.src_pair(op.a), core.src_pair(op.b), core.src_pair(op.c));
        let mut t = [0u64; 32];
        for i in 0..32 {
            let raw = [a[i], b[i], c[i]];
            let [x, y, z] = [modified(a[i], op, 0), modified(b[i], op, 1), modified(c[i], op, 2)];
            t[i] = if NEAREST {
                nearest::<KIND>(x, y, z, raw)
            } else {
                directed::<KIND>(x, y, z, raw, op.ps[1])
            };
        }
        core.put_pair(op.d, &t);
        Flow::Next
    }
}

#[inline(always)]
fn nearest<const KIND: u8>(a: u64, b: u64, c: u64, raw: [u64; 3]) -> u64 {
    let (x, y, z) = (f64::from_bits(a), f64::from_bits(b), f64::from_bits(c));
    let r = match KIND {
        0 => x + z,
        1 => x * y,
        _ => x.mul_add(y, z),
    };
    finish::<KIND>(r, raw)
}

fn directed<const KIND: u8>(a: u64, b: u64, c: u64, raw: [u64; 3], rounding: u8) -> u64 {
    let rounding = Rounding::from_field(rounding.into());
    let special = |x: u64| x & F64.infinity() == F64.infinity();
    let used: &[u64] = match KIND {
        0 => &[a, c],
        1 => &[a, b],
        _ => &[a, b, c],
    };
    if used.iter().any(|&x| special(x)) {
        return nearest::<KIND>(a, b, c, raw);
    }
    let (x, y, z) = (F64.unpack(a), F64.unpack(b), F64.unpack(c));
    let exact = match KIND {
        0 => x.add(z, rounding),
        1 => x.mul(y),
        _ => x.mul(y).add(z, rounding),
    };
    F64.round(exact, rounding, false)
}

fn arithmetic<const KIND: u8>(l: &mut Lower<'_>) {
    l.op.ps[1] = l.bits(78, 2) as u8;
    if l.op.ps[1] == 0 { l.run::<Arithmetic<KIND, true>>() } else { l.run::<Arithmetic<KIND, false>>() }
}

/// DSETP; 0 and 15 are the selections of a minimum and a maximum. k[4] the boolean function.
struct Compare<const CODE: u32>;

impl<const CODE: u32> Op for Compare<CODE> {
    #[inline(always)]
    fn run(core: &mut Core<'_>, op: &MicroOp) -> Flow {
        let (a, b) = (core.src_pair(op.a), core.src_pair(op.b));
        let (mut t, mut both) = (0u32, 0u32);
        for i in 0..32 {
            let (x, y) = (modified(a[i], op, 0), modified(b[i], op, 1));
            let (nx, ny) = (F64.is_nan(x), F64.is_nan(y));
            let (fx, fy) = (f64::from_bits(x), f64::from_bits(y));
            let take_a = match CODE {
                // Of two zeros the negative one is the smaller.
                0 => !nx && (ny || fx.total_cmp(&fy).is_le()),
                15 => !nx && (ny || fx.total_cmp(&fy).is_gt()),
                _ => compare(fx, fy, CODE),
            };
            t |= u32::from(take_a) << i;
            both |= u32::from(nx && ny) << i;
        }
        let p = core.pred(op.ps[0]);
        core.put_pred(op.pd[0], combine(op.k[4], t, p));
        let other = if matches!(CODE, 0 | 15) { both } else { !t };
        core.put_pred(op.pd[1], combine(op.k[4], other, p));
        Flow::Next
    }
}

pub(super) fn dadd(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.dst(2)?;
    let a = l.a(2)?;
    let c = l.c(2)?;
    set_modifiers(l, 0, a);
    set_modifiers(l, 2, c);
    arithmetic::<0>(l);
    Ok(())
}

pub(super) fn dmul(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.dst(2)?;
    let a = l.a(2)?;
    let b = l.b(2)?;
    set_modifiers(l, 0, a);
    set_modifiers(l, 1, b);
    arithmetic::<1>(l);
    Ok(())
}

pub(super) fn dfma(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.dst(2)?;
    let sources = [l.a(2)?, l.b(2)?, l.c(2)?];
    for (i, src) in sources.into_iter().enumerate() {
        set_modifiers(l, i, src);
    }
    arithmetic::<2>(l);
    Ok(())
}

pub(super) fn dsetp(l: &mut Lower<'_>) -> Result<(), Refusal> {
    let a = l.a(2)?;
    let b = l.b_or_c(2)?;
    set_modifiers(l, 0, a);
    set_modifiers(l, 1, b);
    l.pds();
    l.op.ps[0] = l.ps();
    l.op.k[4] = l.bits(74, 2);
    with_code!(l, l.bits(76, 4), Compare, [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15]);
    Ok(())
}
