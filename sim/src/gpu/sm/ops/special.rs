//! Special registers, predicates as data, and exchange between a warp's lanes.

use crate::gpu::sm::core::{Core, Flow};
use crate::gpu::sm::fault::esr;
use crate::gpu::sm::lanes::{each, spread};
use crate::gpu::sm::launch::Windows;
use crate::gpu::sm::lower::{Lower, Refusal};
use crate::gpu::sm::micro_op::{MicroOp, Op, warp_ops};

use crate::gpu::sm::ops::atomic::operands;

/// A special register that is the same in all lanes.
fn common(core: &Core<'_>, id: u32) -> Option<u64> {
    let launch = core.env.launch;
    let half = |x: u64, high: bool| if high { x >> 32 } else { x & 0xffff_ffff };
    Some(match id {
        // %warpid is taken from bits 8 to 14.
        0x02 => 0,
        0x03 => u64::from(core.warp.index & 0x7f) << 8,
        0x25..=0x27 => u64::from(core.block.id[id as usize - 0x25]),
        0x2e => half(launch.windows.local_base, true),
        0x2f => half(launch.windows.shared_base, true),
        0x30 => half(launch.windows.shared_base, false),
        0x31 | 0x35 => Windows::LEN,
        0x32 => u64::from(launch.shared_bytes),
        0x34 => half(launch.windows.local_base, false),
        0x36 => u64::from(launch.local_bytes),
        0x37 => Windows::LEN - u64::from(launch.local_bytes),
        // Among others the block's number in its cluster (0x88 on sm_90): there are no clusters.
        0x40 | 0x42 | 0x64..=0x73 | 0x88 | 0xff => 0,
        0x43 => u64::from(core.block.sm),
        // The counters of this worker advance with every instruction, so that a timed spin ends; the path's
        // own are added late, hence the wall clock beside them.
        0x50 | 0x52 => core.env.clock.read_by_kernel(),
        0x51 | 0x53 => core.env.clock.read_by_kernel() >> 32,
        _ => return None,
    })
}

/// The place in the block of each lane's thread, in x, y and z.
#[inline(always)]
fn threads(core: &Core<'_>) -> [[u32; 32]; 3] {
    let [bx, by, bz] = core.env.launch.block.map(|n| n.max(1));
    let first = 32 * core.warp.index;
    if by == 1 && bz == 1 {
        return [each(|i| first + i as u32), [0; 32], [0; 32]];
    }
    let mut at = [[0; 32]; 3];
    let (mut x, mut y, mut z) = (first % bx, first / bx % by, first / bx / by);
    for i in 0..32 {
        (at[0][i], at[1][i], at[2][i]) = (x, y, z);
        x += 1;
        if x == bx {
            (x, y) = (0, y + 1);
        }
        if y == by {
            (y, z) = (0, z + 1);
        }
    }
    at
}

/// A special register that differs between lanes.
#[inline(always)]
fn by_lane(core: &Core<'_>, id: u32) -> Option<[u32; 32]> {
    Some(match id {
        0x00 => each(|i| i as u32),
        0x20 => {
            let [x, y, z] = threads(core);
            each(|i| x[i] | y[i] << 16 | z[i] << 26)
        }
        0x21..=0x23 => threads(core)[id as usize - 0x21],
        0x38 => each(|i| 1 << i),
        0x39 => each(|i| (1 << i) - 1),
        0x3a => each(|i| u32::MAX >> (31 - i)),
        0x3b => each(|i| !(u32::MAX >> (31 - i))),
        0x3c => each(|i| u32::MAX << i),
        _ => return None,
    })
}

/// The lanes' values taken together.
#[inline(always)]
fn fold(values: &[u32; 32], f: impl Fn(u32, u32) -> u32) -> u32 {
    let mut r = values[0];
    for i in 1..32 {
        r = f(r, values[i]);
    }
    r
}

warp_ops! {
    /// R <- special register k[0]; k[1]: a pair.
    ReadSpecial(core, op) {
        if let Some(value) = common(core, op.k[0]) {
            core.put(op.d, &[value as u32; 32]);
            if op.k[1] != 0 {
                core.put(op.d + 1, &[(value >> 32) as u32; 32]);
            }
            return Flow::Next;
        }
        let Some(value) = by_lane(core, op.k[0]) else {
            return core.unsupported("special register");
        };
        core.put(op.d, &value);
        if op.k[1] != 0 {
            core.put(op.d + 1, &[0; 32]);
        }
        Flow::Next
    }

    /// UR <- special register k[0] of the first active lane.
    ReadSpecialUniform(core, op) {
        let lane = core.mask.trailing_zeros() as usize & 31;
        let value = common(core, op.k[0]).map(|x| x as u32);
        let Some(value) = value.or_else(|| by_lane(core, op.k[0]).map(|x| x[lane])) else {
            return core.unsupported("special register");
        };
        core.mask = u32::MAX;
        core.put(op.d, &[value; 32]);
        Flow::Next
    }

    /// D = (A & ~mask) | (predicates & mask), at byte k[0].
    PredicatesToRegister(core, op) {
        let base = op.k[1] as usize;
        let (a, b) = (core.src(op.a), core.src(op.b));
        let mut all = [0u32; 32];
        for i in 0..7 {
            let p = core.warp.preds[base + i];
            for lane in 0..32 {
                all[lane] |= spread(p, lane) & 1 << i;
            }
        }
        let t = each(|lane| {
            let mask = b[lane] << op.k[0];
            (a[lane] & !mask) | (all[lane] << op.k[0] & mask)
        });
        core.put(op.d, &t);
        Flow::Next
    }

    /// Sets the predicates of a mask from byte k[0] of A.
    RegisterToPredicates(core, op) {
        let base = op.k[1] as u8;
        let (a, b) = (core.src(op.a), core.src(op.b));
        let executing = core.mask;
        for p in 0..7u8 {
            let (mut value, mut wanted) = (0u32, 0u32);
            for lane in 0..32 {
                value |= (a[lane] >> (op.k[0] + u32::from(p)) & 1) << lane;
                wanted |= (b[lane] >> p & 1) << lane;
            }
            core.mask = executing & wanted;
            core.put_pred(base + p, value);
        }
        Flow::Next
    }

    /// Two functions, k[0] and k[1], of three predicates.
    PredicateLogic(core, op) {
        let (p, q, r) = (core.pred(op.ps[0]), core.pred(op.ps[1]), core.pred(op.ps[2]));
        core.put_pred(op.pd[0], table(op.k[0], p, q, r));
        core.put_pred(op.pd[1], table(op.k[1], p, q, r));
        Flow::Next
    }

    /// The same with signs of registers: k[2] is how many of the inputs are registers (B, or A, B and C).
    SignLogic(core, op) {
        let sign = |slot: u16| {
            let (x, mut m) = (core.src(slot), 0);
            for i in 0..32 {
                m |= (x[i] >> 31) << i;
            }
            m
        };
        let [p, q, r] = if op.k[2] == 1 {
            [core.pred(op.ps[0]), sign(op.b), core.pred(op.ps[2])]
        } else {
            [sign(op.a), sign(op.b), sign(op.c)]
        };
        core.put_pred(op.pd[0], table(op.k[0], p, q, r));
        core.put_pred(op.pd[1], table(op.k[1], p, q, r));
        Flow::Next
    }

    /// Ballot and vote; k[0] the mode: ALL, ANY, EQ. k[1]: the results are uniform.
    Vote(core, op) {
        let executing = core.mask;
        let p = core.pred(op.ps[0]) & executing;
        let result = match op.k[0] {
            0 => p == executing,
            1 => p != 0,
            _ => p == 0 || p == executing,
        };
        if op.k[1] != 0 {
            core.mask = u32::MAX;
        }
        core.put(op.d, &[p; 32]);
        core.put_pred(op.pd[0], if result { u32::MAX } else { 0 });
        Flow::Next
    }

    /// Lanes with equal values; k: 0 ANY, 1 64 bits.
    Match(core, op) {
        let executing = core.mask;
        let value = operands(core, op.a, op.k[1] != 0);
        let same = |i: usize| (0..32).filter(|&j| executing >> j & 1 != 0 && value[j] == value[i]).fold(0, |m, j| m | 1u32 << j);
        if op.k[0] != 0 {
            let t = each(same);
            core.put(op.d, &t);
        } else {
            let equal = same(executing.trailing_zeros() as usize & 31) == executing;
            core.put(op.d, &[if equal { executing } else { 0 }; 32]);
            core.put_pred(op.pd[0], if equal { u32::MAX } else { 0 });
        }
        Flow::Next
    }

    /// Reduction over the active lanes into a uniform register; k: 0 operation, 1 signed.
    Reduce(core, op) {
        let a = core.src(op.a);
        let mask = core.mask;
        let flip = if op.k[1] != 0 { 0x8000_0000 } else { 0 };
        // The operation's neutral element replaces lanes that do not execute.
        let (ones, zeros) = (each(|i| a[i] | !spread(mask, i)), each(|i| a[i] & spread(mask, i)));
        let r = match op.k[0] {
            0 => fold(&ones, |x, y| x & y),
            1 => fold(&zeros, |x, y| x | y),
            2 => fold(&zeros, |x, y| x ^ y),
            3 => fold(&zeros, u32::wrapping_add),
            4 => flip ^ fold(&each(|i| (a[i] ^ flip) | !spread(mask, i)), u32::min),
            _ => flip ^ fold(&each(|i| (a[i] ^ flip) & spread(mask, i)), u32::max),
        };
        core.mask = u32::MAX;
        core.put(op.d, &[r; 32]);
        Flow::Next
    }

    /// UR <- the lowest active lane; Pd = own value differs, k[0]: or-ed into Pd.
    RegisterToUniform(core, op) {
        let a = core.src(op.a);
        let executing = core.mask;
        let value = a[executing.trailing_zeros() as usize & 31];
        let mut differs = 0;
        for i in 0..32 {
            differs |= u32::from(a[i] != value) << i;
        }
        let old = if op.k[0] != 0 { core.pred(op.pd[0]) } else { 0 };
        core.put_pred(op.pd[0], old | differs);
        core.mask = u32::MAX;
        core.put(op.d, &[value; 32]);
        Flow::Next
    }

    /// Exchange between lanes; k[0] the mode: IDX, UP, DOWN, BFLY.
    Shuffle(core, op) {
        let executing = core.mask;
        let (a, b, c) = (core.src(op.a), core.src(op.b), core.src(op.c));
        let (mut t, mut valid) = ([0u32; 32], 0u32);
        for lane in 0..32u32 {
            let i = lane as usize;
            let (from, ok) = exchange(op.k[0], lane, b[i], c[i]);
            t[i] = if executing >> from & 1 != 0 { a[from as usize] } else { 0 };
            valid |= u32::from(ok) << lane;
        }
        core.put(op.d, &t);
        core.put_pred(op.pd[0], valid);
        Flow::Next
    }
}

/// SHFL.BFLY over the whole warp, when all of it executes.
struct Butterfly<const BY: usize>;

impl<const BY: usize> Op for Butterfly<BY> {
    #[inline(always)]
    fn run(core: &mut Core<'_>, op: &MicroOp) -> Flow {
        if core.mask != u32::MAX {
            return Shuffle::run(core, op);
        }
        let a = core.src(op.a);
        let mut t = [0u32; 32];
        for i in 0..32 {
            t[i] = a[i ^ BY];
        }
        core.put(op.d, &t);
        core.put_pred(op.pd[0], u32::MAX);
        Flow::Next
    }
}

/// The lane that SHFL takes the value of `lane` from, and whether it lies in the segment; modes IDX, UP, DOWN,
/// BFLY.
#[inline(always)]
pub(crate) fn exchange(mode: u32, lane: u32, by: u32, c: u32) -> (u32, bool) {
    let by = by & 31;
    let (clamp, segment) = (c & 31, c >> 8 & 31);
    let max = (lane & segment) | (clamp & !segment);
    let (from, ok) = match mode {
        0 => {
            let j = (lane & segment) | (by & !segment);
            (j, j <= max)
        }
        1 => (lane.wrapping_sub(by), lane as i32 - by as i32 >= max as i32),
        2 => (lane + by, lane + by <= max),
        _ => (lane ^ by, lane ^ by <= max),
    };
    (if ok { from & 31 } else { lane }, ok)
}

/// A function of three predicates by its truth table.
fn table(lut: u32, p: u32, q: u32, r: u32) -> u32 {
    let pick = |x: u32, one: bool| if one { x } else { !x };
    (0..8u32)
        .filter(|i| lut >> i & 1 != 0)
        .fold(0, |m, i| m | (pick(p, i & 4 != 0) & pick(q, i & 2 != 0) & pick(r, i & 1 != 0)))
}

pub(super) fn s2r(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.dst(1)?;
    l.op.k[0] = l.bits(72, 8);
    l.run::<ReadSpecial>();
    Ok(())
}

pub(super) fn s2ur(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.op.d = l.udst(1)?;
    l.op.k[0] = l.bits(72, 8);
    l.run::<ReadSpecialUniform>();
    Ok(())
}

pub(super) fn cs2r(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.dst(if l.bit(80) { 2 } else { 1 })?;
    l.op.k = [l.bits(72, 8), l.flag(80), 0, 0, 0, 0];
    l.run::<ReadSpecial>();
    Ok(())
}

pub(super) fn p2r(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.dst(1)?;
    l.a(1)?;
    l.b(1)?;
    l.op.k = [8 * l.bits(76, 2), if l.uniform { 8 } else { 0 }, 0, 0, 0, 0];
    l.run::<PredicatesToRegister>();
    Ok(())
}

pub(super) fn r2p(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.a(1)?;
    l.b(1)?;
    l.op.k = [8 * l.bits(76, 2), if l.uniform { 8 } else { 0 }, 0, 0, 0, 0];
    l.run::<RegisterToPredicates>();
    Ok(())
}

pub(super) fn plop3(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.pds();
    match l.bits(0, 9) {
        0x01c | 0x09c => {
            let mut r = l.pred(68, 71);
            if l.bit(67) && !l.uniform {
                r += crate::gpu::sm::slots::UNIFORM_PREDICATES;
            }
            l.op.ps = [l.ps(), l.pred(77, 80), r];
            l.op.k = [l.bits(64, 3) | l.bits(72, 5) << 3, l.bits(16, 8), 0, 0, 0, 0];
            l.run::<PredicateLogic>();
        }
        0x01d => {
            l.b(1)?;
            l.op.ps = [l.ps(), 7, l.pred(68, 71)];
            l.op.k = [l.bits(72, 8), l.bits(16, 8), 1, 0, 0, 0];
            l.run::<SignLogic>();
        }
        0x01f => {
            l.a(1)?;
            l.b(1)?;
            l.c(1)?;
            l.op.k = [l.bits(72, 8), l.bits(16, 8), 3, 0, 0, 0];
            l.run::<SignLogic>();
        }
        _ => return Err(esr::ILLEGAL_INSTR_ENCODING),
    }
    Ok(())
}

pub(super) fn vote(l: &mut Lower<'_>, uniform: bool) -> Result<(), Refusal> {
    l.op.ps[0] = l.ps();
    l.op.k = [l.bits(72, 2), u32::from(uniform), 0, 0, 0, 0];
    if uniform {
        l.op.d = l.udst(1)?;
        l.pd();
        if l.op.pd[0] < 7 {
            l.op.pd[0] += crate::gpu::sm::slots::UNIFORM_PREDICATES;
        }
    } else {
        l.dst(1)?;
        l.pd();
    }
    l.run::<Vote>();
    Ok(())
}

pub(super) fn match_(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.dst(1)?;
    l.a(if l.bit(73) { 2 } else { 1 })?;
    l.pd();
    l.op.k = [l.flag(79), l.flag(73), 0, 0, 0, 0];
    l.run::<Match>();
    Ok(())
}

pub(super) fn redux(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.op.d = l.udst(1)?;
    l.a(1)?;
    l.op.k = [l.bits(78, 3), l.flag(73), 0, 0, 0, 0];
    l.run::<Reduce>();
    Ok(())
}

pub(super) fn r2ur(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.op.d = l.udst(1)?;
    l.a(1)?;
    l.pd();
    l.op.k[0] = l.flag(84);
    l.run::<RegisterToUniform>();
    Ok(())
}

pub(super) fn shfl(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.dst(1)?;
    l.a(1)?;
    l.pd();
    let form = l.w.form();
    l.op.b = if matches!(form, 1 | 2) { l.reg(l.bits(32, 8), 1)? } else { l.imm(l.bits(53, 5)) };
    l.op.c = if matches!(form, 1 | 4) { l.reg(l.bits(64, 8), 1)? } else { l.imm(l.bits(40, 13)) };
    l.op.k[0] = l.bits(58, 2);
    let whole = !matches!(form, 1 | 2 | 4) && l.bits(40, 13) == 0x1f;
    match (whole && l.op.k[0] == 3, l.bits(53, 5)) {
        (true, 1) => l.run::<Butterfly<1>>(),
        (true, 2) => l.run::<Butterfly<2>>(),
        (true, 4) => l.run::<Butterfly<4>>(),
        (true, 8) => l.run::<Butterfly<8>>(),
        (true, 16) => l.run::<Butterfly<16>>(),
        _ => l.run::<Shuffle>(),
    }
    Ok(())
}
