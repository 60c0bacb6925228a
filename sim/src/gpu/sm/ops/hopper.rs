//! Operations that sm_90 added: sums and minima of the integer pipe, sums of 64 bits, a second return address,
//! one lane of a warp.

use std::array::from_fn;

use crate::gpu::sm::core::{Core, Flow};
use crate::gpu::sm::fault::esr;
use crate::gpu::sm::lanes::{each, has};
use crate::gpu::sm::lower::{Lower, Refusal};
use crate::gpu::sm::micro_op::MicroOp;
use crate::gpu::sm::micro_op::{LaneFn, Map, Op, lane_ops, warp_ops};
use crate::gpu::sm::slots::NO_PREDICATE;

/// Applies `f` to both halves.
#[inline(always)]
fn halves(a: u32, b: u32, f: impl Fn(u32, u32) -> u32) -> u32 {
    (f(a & 0xffff, b & 0xffff) & 0xffff) | f(a >> 16, b >> 16) << 16
}

/// The smaller or greater of two words of type `kind` ([72,74): U32, S32, U16x2, S16x2), never below 0 with
/// `relu`.
#[inline(always)]
fn extreme(a: u32, b: u32, least: bool, kind: u32, relu: bool) -> u32 {
    let word = |x: i64, y: i64| {
        let r = if least { x.min(y) } else { x.max(y) };
        (if relu { r.max(0) } else { r }) as u32
    };
    match kind {
        0 => word(a.into(), b.into()),
        1 => word((a as i32).into(), (b as i32).into()),
        2 => halves(a, b, |x, y| word(x.into(), y.into())),
        _ => halves(a, b, |x, y| word((x as i16).into(), (y as i16).into())),
    }
}

/// A sum, or a difference, of words or (`kind` 2 and 3) of their halves.
#[inline(always)]
fn sum(a: u32, b: u32, subtract: bool, kind: u32) -> u32 {
    let word = |x: u32, y: u32| if subtract { x.wrapping_sub(y) } else { x.wrapping_add(y) };
    if kind < 2 { word(a, b) } else { halves(a, b, word) }
}

/// A sum of three pairs of registers; k: the masks that negated ones are inverted with, and their number.
struct Add3Pairs;

impl Op for Add3Pairs {
    #[inline(always)]
    fn run(core: &mut Core<'_>, op: &MicroOp) -> Flow {
        let [a, b, c] = [op.a, op.b, op.c].map(|slot| core.src_pair(slot));
        let inverted = |value: u64, mask: u32| value ^ (u64::from(mask) | u64::from(mask) << 32);
        let sum = |i: usize| {
            let ab = inverted(a[i], op.k[0]).wrapping_add(inverted(b[i], op.k[1]));
            ab.wrapping_add(inverted(c[i], op.k[2])).wrapping_add(op.k[3].into())
        };
        let sums = from_fn(sum);
        core.put_pair(op.d, &sums);
        Flow::Next
    }
}

lane_ops! {
    /// k: 0 subtracts, 1 the type.
    Sum(a, b, _, op) sum(a, b, op.k[0] != 0, op.k[1]);
}

/// min or max of A + B and C; k as [`Sum`], 2 at least 0.
struct SumExtreme<const LEAST: bool>;

impl<const LEAST: bool> LaneFn for SumExtreme<LEAST> {
    #[inline(always)]
    fn f(a: u32, b: u32, c: u32, op: &MicroOp) -> u32 {
        extreme(sum(a, b, op.k[0] != 0, op.k[1]), c, LEAST, op.k[1], op.k[2] != 0)
    }
}

warp_ops! {
    /// The same, chosen lane by lane by Ps.
    SumExtremeSelect(core, op) {
        let p = core.pred(op.ps[0]);
        let (a, b, c) = (core.src(op.a), core.src(op.b), core.src(op.c));
        let t = each(|i| {
            extreme(sum(a[i], b[i], op.k[0] != 0, op.k[1]), c[i], has(p, i), op.k[1], op.k[2] != 0)
        });
        core.put(op.d, &t);
        Flow::Next
    }

    /// Half k[0] of the second return address <- B.
    WriteReturn(core, op) {
        let value = core.src(op.b);
        let mask = core.mask;
        let half = &mut core.warp.return_pc[op.k[0] as usize & 1];
        for i in 0..32 {
            if mask >> i & 1 != 0 {
                half[i] = value[i];
            }
        }
        Flow::Next
    }

    /// ELECT: Pd = the lane is the first that executes and whose Ps is true; its number goes to the uniform
    /// register D. That the hardware chooses the first is assumed.
    Elect(core, op) {
        let among = core.mask & core.pred(op.ps[0]);
        let first = among & among.wrapping_neg();
        core.put_pred(op.pd[0], first);
        core.mask = u32::MAX;
        core.put(op.d, &[first.trailing_zeros() & 31; 32]);
        Flow::Next
    }

    /// R <- half k[0] of the second return address.
    ReadReturn(core, op) {
        let value = core.warp.return_pc[op.k[0] as usize & 1];
        core.put(op.d, &value);
        Flow::Next
    }
}

/// VIADD.
/// Additions of 64 bits in the uniform datapath, without carries from and to others: no compiler is known to write
/// those.
pub(super) fn iadd3_pairs(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.dst(2)?;
    let sources = [l.a(2)?, l.b(2)?, l.c(2)?];
    l.pds();
    if l.bit(74) || l.op.pd != [NO_PREDICATE; 2] {
        return Err(esr::ILLEGAL_INSTR_ENCODING);
    }
    for (k, s) in l.op.k.iter_mut().zip(&sources) {
        *k = if s.neg { u32::MAX } else { 0 };
    }
    l.op.k[3] = sources.iter().filter(|s| s.neg).count() as u32;
    l.run::<Add3Pairs>();
    Ok(())
}

pub(super) fn viadd(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.dst(1)?;
    l.a(1)?;
    let b = l.b(1)?;
    l.op.k = [u32::from(b.neg), 2 * l.flag(73), 0, 0, 0, 0];
    l.run::<Map<Sum>>();
    Ok(())
}

fn extremes(l: &mut Lower<'_>) {
    l.op.ps[0] = l.ps();
    (l.op.k[1], l.op.k[2]) = (l.bits(72, 2), l.flag(76));
    match l.bits(87, 4) {
        7 => l.run::<Map<SumExtreme<true>>>(),
        15 => l.run::<Map<SumExtreme<false>>>(),
        _ => l.run::<SumExtremeSelect>(),
    }
}

/// VIADDMNMX.
pub(super) fn viaddmnmx(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.dst(1)?;
    l.a(1)?;
    let b = l.b(1)?;
    l.c(1)?;
    l.op.k[0] = u32::from(b.neg);
    extremes(l);
    Ok(())
}

/// VIMNMX: the sum is that of A and 0.
pub(super) fn vimnmx(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.dst(1)?;
    l.a(1)?;
    l.b(1)?;
    (l.op.b, l.op.c) = (crate::gpu::sm::slots::ZERO, l.op.b);
    extremes(l);
    Ok(())
}

/// RPCMOV between a register and half a return address.
pub(super) fn rpcmov(l: &mut Lower<'_>) -> Result<(), Refusal> {
    if l.bits(0, 12) == 0x352 {
        l.op.b = l.reg(l.bits(32, 8), 1)?;
        l.op.k[0] = l.flag(31);
        l.run::<WriteReturn>();
    } else {
        l.dst(1)?;
        l.op.k[0] = l.flag(31);
        l.run::<ReadReturn>();
    }
    Ok(())
}

/// ELECT.
pub(super) fn elect(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.op.d = l.udst(1)?;
    l.op.ps[0] = l.ps();
    l.pd();
    l.run::<Elect>();
    Ok(())
}
