//! Barrier objects in shared memory: SYNCS of sm_90, ATOMS.ARRIVE and ARRIVES.

use crate::gpu::sm::core::{Core, Flow};
use crate::gpu::sm::fault::esr;
use crate::gpu::sm::lanes::each;
use crate::gpu::sm::lower::{Lower, Refusal};
use crate::gpu::sm::mbarrier::{Arrival, Overflow, arrive_8x, arrive_9x};
use crate::gpu::sm::micro_op::{MicroOp, warp_ops};

use crate::gpu::sm::ops::address;
use crate::gpu::sm::ops::atomic::{lanes, put_old, update};
use crate::gpu::sm::ops::memory::{narrow_address, offsets};

/// Number of arrivals, k[4].
const BY_REGISTER: u32 = 2;

/// Bytes to expect, the upper half of k[4].
mod bytes {
    pub const NONE: u32 = 0;
    pub const EXPECT: u32 = 1;
    pub const COME: u32 = 2;
    pub const EXPECT_ONE: u32 = 3;
    pub const ONE_CAME: u32 = 4;
}

/// The object in the format of sm_90; the arrival drops out of later phases; the old value is kept, of it only
/// the upper word: bits of k[3].
const NEW_FORMAT: u32 = 1;
const LEAVES: u32 = 2;
const KEEPS_OLD: u32 = 4;
const UPPER_ONLY: u32 = 8;

/// Returns the object's state after one lane's arrival: of [`ObjectArrive`].
pub(crate) fn arrived(core: &Core<'_>, op: &MicroOp, lane: usize, state: u64) -> Result<u64, Overflow> {
    if op.k[3] & NEW_FORMAT == 0 {
        return Ok(arrive_8x(state));
    }
    let operand = core.lane(op.c, lane);
    let count = match op.k[4] & 0xffff {
        BY_REGISTER => operand,
        count => count,
    };
    let bytes = match op.k[4] >> 16 {
        bytes::EXPECT => i64::from(operand as i32),
        bytes::COME => -i64::from(operand as i32),
        bytes::EXPECT_ONE => 1,
        bytes::ONE_CAME => -1,
        _ => 0,
    };
    arrive_9x(state, Arrival { count, bytes, leaves: op.k[3] & LEAVES != 0 })
}

/// Returns whether `lane` finds the phase over: of [`ObjectPhase`], for the state that it reads.
pub(crate) fn is_over(core: &Core<'_>, op: &MicroOp, lane: usize, state: u64) -> bool {
    ((state >> 32) as u32 ^ core.lane(op.c, lane)) >> 31 != 0
}

/// Counts that leave their range end the launch: the result is not defined.
#[cold]
pub(super) fn overflow(core: &mut Core<'_>, lane: usize, what: Overflow) -> Flow {
    core.mask = 1 << lane;
    core.unsupported(&format!("too many {what}"))
}

warp_ops! {
    /// SYNCS.EXCH: the object in shared memory <- the uniform pair C; the old value to the pair D.
    ObjectExchange(core, op) {
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

    /// SYNCS.PHASECHK: Pd = the phase is another than in the upper word C of an earlier state. With k[3] lanes
    /// for which it is not may be suspended: other warps run first.
    ObjectPhase(core, op) {
        let at = match address::shared(core, &offsets(core, op), 8) {
            Ok(at) => at,
            Err(flow) => return flow,
        };
        let mut over = 0;
        for i in lanes(core.mask) {
            let state = update(at.host[i], true, |x| x);
            over |= u32::from(is_over(core, op, i, state)) << i;
        }
        core.put_pred(op.pd[0], over);
        if op.k[3] != 0 && core.mask & !over != 0 {
            core.pc += 1;
            return Flow::Rest;
        }
        Flow::Next
    }

    /// SYNCS.ARRIVE, ATOMS.ARRIVE and ARRIVES; k: 0 to 2 the address, 3 flags, 4 arrivals and bytes.
    ObjectArrive(core, op) {
        let at = match address::shared(core, &offsets(core, op), 8) {
            Ok(at) => at,
            Err(flow) => return flow,
        };
        let mut old = [0u64; 32];
        for i in lanes(core.mask) {
            old[i] = update(at.host[i], true, |x| x);
            match arrived(core, op, i, old[i]) {
                // Only this block's worker changes its shared memory.
                Ok(new) => update(at.host[i], true, |_| new),
                Err(what) => return overflow(core, i, what),
            };
        }
        if op.k[3] & UPPER_ONLY != 0 {
            // The lower word would be the lanes counted together with this one; here each is counted alone.
            old = each(|i| old[i] >> 32 << 32);
        }
        if op.k[3] & KEEPS_OLD != 0 {
            put_old(core, op, &old, true);
        }
        Flow::Next
    }
}

/// SYNCS in its forms.
pub(super) fn syncs(l: &mut Lower<'_>) -> Result<(), Refusal> {
    match l.bits(0, 12) {
        0x5b2 => {
            l.op.d = l.udst(2)?;
            l.op.a = l.ureg(l.bits(24, 6), 1)?;
            l.op.k[0] = l.w.sbits(40, 24) as u32;
            l.op.c = l.ureg(l.bits(32, 6), 2)?;
            l.run::<ObjectExchange>();
        }
        0x5a7 => {
            narrow_address(l, 64, false)?;
            l.op.c = l.reg(l.bits(32, 8), 1)?;
            l.op.k[3] = l.flag(72);
            l.pd();
            l.run::<ObjectPhase>();
        }
        0x9a7 => {
            l.dst(2)?;
            narrow_address(l, 64, false)?;
            l.op.c = l.reg(l.bits(32, 8), 1)?;
            // The code of the form gives the count of arrivals and the expected bytes: one, none, or the
            // number in C.
            let (count, bytes) = match l.bits(84, 3) {
                0 => (1, bytes::EXPECT),
                1 => (1, bytes::NONE),
                2 => (0, bytes::EXPECT_ONE),
                3 => (0, bytes::EXPECT),
                4 => (0, bytes::COME),
                5 => (BY_REGISTER, bytes::NONE),
                _ => return Err(esr::ILLEGAL_INSTR_PARAM),
            };
            let upper = if count == BY_REGISTER { UPPER_ONLY } else { 0 };
            let leaves = LEAVES * l.flag(75);
            l.set_k(3, &[NEW_FORMAT | KEEPS_OLD | upper | leaves, count | bytes << 16]);
            l.run::<ObjectArrive>();
        }
        // SYNCS.CCTL.IV: the object is done with.
        _ => crate::gpu::sm::ops::control::nop(l)?,
    }
    Ok(())
}

fn is_new_format(l: &Lower<'_>) -> u32 {
    if l.target.arch.encoding() == sass::Encoding::Sm9x { NEW_FORMAT } else { 0 }
}

/// ATOMS.ARRIVE.
pub(super) fn atoms_arrive(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.dst(2)?;
    narrow_address(l, 64, true)?;
    l.set_k(3, &[is_new_format(l) | KEEPS_OLD, 1]);
    l.run::<ObjectArrive>();
    Ok(())
}

/// ARRIVES.LDGSTSBAR: copies are done when they are issued, so it arrives at once.
pub(super) fn arrives(l: &mut Lower<'_>) -> Result<(), Refusal> {
    narrow_address(l, 64, false)?;
    let format = is_new_format(l);
    let what = match l.bits(70, 2) {
        0 if format == 0 => 1,
        1 => 1,
        // Expected before by SYNCS.ARRIVE.A0T1.
        2 => bytes::ONE_CAME << 16,
        _ => return Err(esr::ILLEGAL_INSTR_PARAM),
    };
    l.set_k(3, &[format, what]);
    l.run::<ObjectArrive>();
    Ok(())
}
