//! Operations that sm_90 added: sums and minima of the integer pipe, block synchronisation objects, a second
//! return address.

use crate::gpu::sm::core::Flow;
use crate::gpu::sm::fault::esr;
use crate::gpu::sm::lower::{Lower, Refusal};
use crate::gpu::sm::mbarrier;
use crate::gpu::sm::micro_op::MicroOp;
use crate::gpu::sm::micro_op::{LaneFn, Map, lane_ops, warp_ops};

use crate::gpu::sm::ops::address;
use crate::gpu::sm::ops::atomic::{lanes, put_old, update};
use crate::gpu::sm::ops::memory::{narrow_address, offsets};

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
        let t = std::array::from_fn(|i| {
            extreme(sum(a[i], b[i], op.k[0] != 0, op.k[1]), c[i], p >> i & 1 != 0, op.k[1], op.k[2] != 0)
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

    /// R <- half k[0] of the second return address.
    ReadReturn(core, op) {
        let value = core.warp.return_pc[op.k[0] as usize & 1];
        core.put(op.d, &value);
        Flow::Next
    }

    /// SYNCS.EXCH: the object in shared memory <- the uniform pair B; the old value to the pair D.
    BarrierExchange(core, op) {
        core.mask = 1;
        let at = match address::shared(core, &offsets(core, op), 8) {
            Ok(at) => at,
            Err(flow) => return flow,
        };
        let new = core.src_pair(op.c)[0];
        let old = update(at.host[0], true, |_| new);
        core.mask = u32::MAX;
        core.put_pair(op.d, &[old; 32]);
        Flow::Next
    }

    /// SYNCS.PHASECHK: Pd = the phase is another than in the upper word C of an earlier state.
    BarrierPhase(core, op) {
        let at = match address::shared(core, &offsets(core, op), 8) {
            Ok(at) => at,
            Err(flow) => return flow,
        };
        let earlier = core.src(op.c);
        let mut over = 0;
        for i in lanes(core.mask) {
            let state = (update(at.host[i], true, |x| x) >> 32) as u32;
            over |= ((state ^ earlier[i]) >> 31) << i;
        }
        core.put_pred(op.pd[0], over);
        Flow::Next
    }

    /// SYNCS.ARRIVE; k: 3 drops out of the following phases too, 4 arrivals of each lane, 5 takes them from C
    /// and ends no phase.
    BarrierArrive(core, op) {
        let at = match address::shared(core, &offsets(core, op), 8) {
            Ok(at) => at,
            Err(flow) => return flow,
        };
        let counts = core.src(op.c);
        let mut old = [0u64; 32];
        for i in lanes(core.mask) {
            let count = if op.k[5] != 0 { counts[i] } else { op.k[4] };
            old[i] = update(at.host[i], true, |x| mbarrier::arrive_9x(x, count, op.k[3] != 0));
        }
        if op.k[5] != 0 {
            // The lower word would be the lanes counted together with this one; here each is counted alone.
            old = old.map(|x| x >> 32 << 32);
        }
        put_old(core, op, &old, true);
        Flow::Next
    }
}

/// VIADD.
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

/// SYNCS in its forms.
pub(super) fn syncs(l: &mut Lower<'_>) -> Result<(), Refusal> {
    match l.bits(0, 12) {
        0x5b2 => {
            l.op.d = l.udst(2)?;
            l.op.a = l.ureg(l.bits(24, 6), 1)?;
            l.op.k[0] = l.w.sbits(40, 24) as u32;
            l.op.c = l.ureg(l.bits(32, 6), 2)?;
            l.run::<BarrierExchange>();
        }
        0x5a7 => {
            narrow_address(l, 64, false)?;
            l.op.c = l.reg(l.bits(32, 8), 1)?;
            l.pd();
            l.run::<BarrierPhase>();
        }
        0x9a7 => {
            l.dst(2)?;
            narrow_address(l, 64, false)?;
            l.op.c = l.reg(l.bits(32, 8), 1)?;
            // Arrivals and bytes: one and none, or as many as in a register.
            let by_register = match (l.bits(84, 3), l.bits(73, 2)) {
                (1, 0) => false,
                (5, 0 | 1) => true,
                _ => return Err(esr::ILLEGAL_INSTR_PARAM),
            };
            l.set_k(3, &[l.flag(75), 1, u32::from(by_register)]);
            l.run::<BarrierArrive>();
        }
        // SYNCS.CCTL.IV: the object is done with.
        _ => crate::gpu::sm::ops::control::nop(l)?,
    }
    Ok(())
}
