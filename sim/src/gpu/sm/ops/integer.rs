//! Integer arithmetic, logic and shifts.

use crate::gpu::sm::core::{Core, Flow};
use crate::gpu::sm::lanes::{each, spread};
use crate::gpu::sm::lower::{Lower, Refusal};
use crate::gpu::sm::micro_op::MicroOp;
use crate::gpu::sm::micro_op::{LaneFn, Map, Op, lane_ops, warp_ops};
use crate::gpu::sm::slots::{NO_PREDICATE, ZERO};

lane_ops! {
    /// D = B
    Mov(_, b, _, _) b;
    Add3(a, b, c, _) a.wrapping_add(b).wrapping_add(c);
    Add2(a, _, c, _) a.wrapping_add(c);
    Add3Neg(a, b, c, op) (a ^ op.k[0]).wrapping_add(b ^ op.k[1]).wrapping_add(c ^ op.k[2]).wrapping_add(op.k[3]);
    MulAdd(a, b, c, _) a.wrapping_mul(b).wrapping_add(c);
    MulSub(a, b, c, _) a.wrapping_mul(b).wrapping_sub(c);
    ShiftLeftConst(a, _, _, op) a << (op.k[0] & 31);
    Abs(_, b, _, _) (b as i32).unsigned_abs();
    MinSigned(a, b, _, _) (a as i32).min(b as i32) as u32;
    MaxSigned(a, b, _, _) (a as i32).max(b as i32) as u32;
    MinUnsigned(a, b, _, _) a.min(b);
    MaxUnsigned(a, b, _, _) a.max(b);
    /// D = saturated B; k: 0 U8, 1 S8, 2 U16, 3 S16.
    SaturateInt(_, b, _, op) saturate(b as i32, op.k[0]) as u32;
    SaturatePack(a, b, c, op) {
        let convert = |x: u32| -> u32 {
            let x = x as i32;
            match op.k[1] {
                0 => x as u32,
                1 => saturate(x, op.k[0]) as u32,
                _ => saturate(x, op.k[0]).max(0) as u32,
            }
        };
        if op.k[0] >= 2 {
            convert(a) << 16 | (convert(b) & 0xffff)
        } else {
            let half = if op.k[2] != 0 { c >> 16 } else { c & 0xffff };
            half << 16 | (convert(a) & 0xff) << 8 | (convert(b) & 0xff)
        }
    };
}

fn saturate(x: i32, kind: u32) -> i32 {
    match kind {
        0 => x.clamp(0, 0xff),
        1 => x.clamp(-0x80, 0x7f),
        2 => x.clamp(0, 0xffff),
        _ => x.clamp(-0x8000, 0x7fff),
    }
}

/// Dot product of bytes, or of halves with bytes, plus C.
struct Dot<const A_SIGNED: bool, const B_SIGNED: bool>;

impl<const A_SIGNED: bool, const B_SIGNED: bool> LaneFn for Dot<A_SIGNED, B_SIGNED> {
    #[inline(always)]
    fn f(a: u32, b: u32, c: u32, _: &MicroOp) -> u32 {
        let byte = |x: u32, i: u32, signed: bool| {
            let up = x << (24 - 8 * i);
            if signed { (up as i32) >> 24 } else { (up >> 24) as i32 }
        };
        let mut sum = c as i32;
        for i in 0..4 {
            sum = sum.wrapping_add(byte(a, i, A_SIGNED).wrapping_mul(byte(b, i, B_SIGNED)));
        }
        sum as u32
    }
}

lane_ops! {
    /// The same with the sign of C changed, and the two-way form.
    DotGeneral(a, b, c, op) {
        let [a_signed, b_signed, two, high, neg] = [op.k[0] != 0, op.k[1] != 0, op.k[2] != 0, op.k[3] != 0, op.k[4] != 0];
        let byte = |x: u32, i: u32, signed: bool| if signed { i32::from((x >> (8 * i)) as i8) } else { i32::from((x >> (8 * i)) as u8) };
        let half = |x: u32, i: u32| if a_signed { i32::from((x >> (16 * i)) as i16) } else { i32::from((x >> (16 * i)) as u16) };
        let c = if neg { (c as i32).wrapping_neg() } else { c as i32 };
        let mut sum = c;
        if two {
            let first = if high { 2 } else { 0 };
            for i in 0..2 {
                sum = sum.wrapping_add(half(a, i).wrapping_mul(byte(b, first + i, b_signed)));
            }
        } else {
            for i in 0..4 {
                sum = sum.wrapping_add(byte(a, i, a_signed).wrapping_mul(byte(b, i, b_signed)));
            }
        }
        sum as u32
    };
}

/// The sum of three sources and of what `more` gives a lane, with both carries.
#[inline(always)]
fn add3(core: &mut Core<'_>, op: &MicroOp, more: impl Fn(usize) -> u32) -> Flow {
    let (a, b, c) = (core.src(op.a), core.src(op.b), core.src(op.c));
    let (mut t, mut carry, mut carry2) = ([0u32; 32], 0u32, 0u32);
    for i in 0..32 {
        let sum = u64::from(a[i] ^ op.k[0])
            + u64::from(b[i] ^ op.k[1])
            + u64::from(c[i] ^ op.k[2])
            + u64::from(more(i));
        t[i] = sum as u32;
        carry |= u32::from(sum >> 32 != 0) << i;
        carry2 |= u32::from(sum >> 33 != 0) << i;
    }
    core.put(op.d, &t);
    core.put_pred(op.pd[0], carry);
    core.put_pred(op.pd[1], carry2);
    Flow::Next
}

warp_ops! {
    /// A + C with carry.
    Add2Carry(core, op) {
        let (a, c) = (core.src(op.a), core.src(op.c));
        let (mut t, mut carry) = ([0u32; 32], 0u32);
        for i in 0..32 {
            t[i] = a[i].wrapping_add(c[i]);
            carry |= u32::from(t[i] < a[i]) << i;
        }
        core.put(op.d, &t);
        core.put_pred(op.pd[0], carry);
        Flow::Next
    }

    /// IADD3 with carries: k 0 to 2 invert the sources, k[3] is added.
    Add3Carry(core, op) {
        add3(core, op, |_| op.k[3])
    }

    /// IADD3.X: the same with Ps and Ps2 added.
    Add3Extended(core, op) {
        let (in1, in2) = (core.pred(op.ps[0]), core.pred(op.ps[1]));
        add3(core, op, |i| (in1 >> i & 1) + (in2 >> i & 1))
    }

    /// IADD3.X without carries out.
    Add3ExtendedLow(core, op) {
        let (in1, in2) = (core.pred(op.ps[0]), core.pred(op.ps[1]));
        let (a, b, c) = (core.src(op.a), core.src(op.b), core.src(op.c));
        let mut t = [0u32; 32];
        for i in 0..32 {
            t[i] = (a[i] ^ op.k[0])
                .wrapping_add(b[i] ^ op.k[1])
                .wrapping_add(c[i] ^ op.k[2])
                .wrapping_add((in1 >> i & 1) + (in2 >> i & 1));
        }
        core.put(op.d, &t);
        Flow::Next
    }

    /// IMAD.X: C inverted by k[0], Ps added.
    MulAddExtended(core, op) {
        let carry = core.pred(op.ps[0]);
        let (a, b, c) = (core.src(op.a), core.src(op.b), core.src(op.c));
        let mut t = [0u32; 32];
        for i in 0..32 {
            t[i] = a[i].wrapping_mul(b[i]).wrapping_add(c[i] ^ op.k[0]).wrapping_add(carry >> i & 1);
        }
        core.put(op.d, &t);
        Flow::Next
    }

    /// |A - B| + C with carry; k[0] signed.
    AbsDiff(core, op) {
        let (a, b, c) = (core.src(op.a), core.src(op.b), core.src(op.c));
        let (mut t, mut carry) = ([0u32; 32], 0u32);
        for i in 0..32 {
            let d = if op.k[0] != 0 { (a[i] as i32).abs_diff(b[i] as i32) } else { a[i].abs_diff(b[i]) };
            let (sum, over) = d.overflowing_add(c[i]);
            t[i] = sum;
            carry |= u32::from(over) << i;
        }
        core.put(op.d, &t);
        core.put_pred(op.pd[0], carry);
        Flow::Next
    }

    /// Four byte differences, packed or (k[1]) summed and added to C; k[0] signed. Pd is the carry of the sum.
    AbsDiff4(core, op) {
        let (a, b, c) = (core.src(op.a), core.src(op.b), core.src(op.c));
        let signed = op.k[0] != 0;
        let byte = |x: u32, i: u32| if signed { i32::from((x >> (8 * i)) as i8) } else { i32::from((x >> (8 * i)) as u8) };
        let (mut t, mut carry) = ([0u32; 32], 0u32);
        for i in 0..32 {
            let (mut packed, mut sum) = (0u32, 0u32);
            for n in 0..4 {
                let d = byte(a[i], n).abs_diff(byte(b[i], n));
                packed |= d << (8 * n);
                sum += d;
            }
            let (sum, over) = sum.overflowing_add(c[i]);
            t[i] = if op.k[1] != 0 { sum } else { packed };
            carry |= u32::from(over && op.k[1] != 0) << i;
        }
        core.put(op.d, &t);
        core.put_pred(op.pd[0], carry);
        Flow::Next
    }

    /// D = Ps ? A : B
    Select(core, op) {
        let p = core.pred(op.ps[0]);
        let (a, b) = (core.src(op.a), core.src(op.b));
        let mut t = [0u32; 32];
        for i in 0..32 {
            t[i] = b[i] ^ ((a[i] ^ b[i]) & spread(p, i));
        }
        core.put(op.d, &t);
        Flow::Next
    }

    MinMaxSelect(core, op) {
        let p = core.pred(op.ps[0]);
        let (a, b) = (core.src(op.a), core.src(op.b));
        let flip = if op.k[0] != 0 { 0x8000_0000 } else { 0 };
        let mut t = [0u32; 32];
        for i in 0..32 {
            let (x, y) = (a[i] ^ flip, b[i] ^ flip);
            let (least, most) = (x.min(y), x.max(y));
            t[i] = flip ^ most ^ ((least ^ most) & spread(p, i));
        }
        core.put(op.d, &t);
        Flow::Next
    }
}

/// 32 x 32 + 64 bits; the low, the high or both words of the result.
struct MulWide<const SIGNED: bool, const HIGH: bool>;

impl<const SIGNED: bool, const HIGH: bool> Op for MulWide<SIGNED, HIGH> {
    #[inline(always)]
    fn run(core: &mut Core<'_>, op: &MicroOp) -> Flow {
        let c = core.src_pair(op.c);
        let (a, b) = (core.src(op.a), core.src(op.b));
        let mut t = [0u64; 32];
        for i in 0..32 {
            t[i] = product::<SIGNED>(a[i], b[i]).wrapping_add(c[i]);
        }
        if HIGH {
            core.put(op.d, &each(|i| (t[i] >> 32) as u32));
        } else {
            core.put_pair(op.d, &t);
        }
        Flow::Next
    }
}

#[inline(always)]
fn product<const SIGNED: bool>(a: u32, b: u32) -> u64 {
    if SIGNED {
        i64::from(a as i32).wrapping_mul(i64::from(b as i32)) as u64
    } else {
        u64::from(a).wrapping_mul(u64::from(b))
    }
}

/// The same with negation of C (k[0] inverts, k[1] adds), carry in (k[2]) and carry out.
struct MulWideCarry<const SIGNED: bool, const HIGH: bool>;

impl<const SIGNED: bool, const HIGH: bool> Op for MulWideCarry<SIGNED, HIGH> {
    #[inline(always)]
    fn run(core: &mut Core<'_>, op: &MicroOp) -> Flow {
        let extra = if op.k[2] != 0 { core.pred(op.ps[0]) } else { 0 };
        let not = u64::from(op.k[0]) | u64::from(op.k[0]) << 32;
        let c = core.src_pair(op.c);
        let (a, b) = (core.src(op.a), core.src(op.b));
        let (mut t, mut carry) = ([0u64; 32], 0u32);
        for i in 0..32 {
            let sum = u128::from(product::<SIGNED>(a[i], b[i]))
                + u128::from(c[i] ^ not)
                + u128::from(op.k[1])
                + u128::from(extra >> i & 1);
            t[i] = sum as u64;
            carry |= u32::from(sum >> 64 != 0) << i;
        }
        if HIGH {
            core.put(op.d, &each(|i| (t[i] >> 32) as u32));
        } else {
            core.put_pair(op.d, &t);
        }
        core.put_pred(op.pd[0], carry);
        Flow::Next
    }
}

/// Integer comparison: codes F, LT, EQ, LE, GT, NE, GE, T.
struct Compare<const CODE: u8, const SIGNED: bool>;

impl<const CODE: u8, const SIGNED: bool> Op for Compare<CODE, SIGNED> {
    #[inline(always)]
    fn run(core: &mut Core<'_>, op: &MicroOp) -> Flow {
        let (a, b) = (core.src(op.a), core.src(op.b));
        let flip = if SIGNED { 0 } else { 0x8000_0000 };
        let (mut lt, mut eq) = (0u32, 0u32);
        for i in 0..32 {
            let (x, y) = ((a[i] ^ flip) as i32, (b[i] ^ flip) as i32);
            if matches!(CODE, 1 | 6) {
                lt |= u32::from(x < y) << i;
            }
            if matches!(CODE, 3 | 4) {
                lt |= u32::from(x > y) << i;
            }
            if matches!(CODE, 2 | 5) || op.k[1] != 0 {
                eq |= u32::from(x == y) << i;
            }
        }
        let mut t = match CODE {
            0 => 0,
            1 | 4 => lt,
            2 => eq,
            3 | 6 => !lt,
            5 => !eq,
            _ => u32::MAX,
        };
        if op.k[1] != 0 {
            // The upper words of a 64-bit comparison: equal ones leave it to the lower words.
            let low = core.pred(op.ps[1]);
            t = match CODE {
                2 => eq & low,
                5 => !eq | low,
                1 | 4 => lt | (eq & low),
                3 => (!lt & !eq) | (eq & low),
                6 => (!lt & !eq) | (eq & low),
                _ => t,
            };
        }
        let p = core.pred(op.ps[0]);
        core.put_pred(op.pd[0], combine(op.k[0], t, p));
        core.put_pred(op.pd[1], combine(op.k[0], !t, p));
        Flow::Next
    }
}

type CompareSigned<const CODE: u8> = Compare<CODE, true>;
type CompareUnsigned<const CODE: u8> = Compare<CODE, false>;

/// The boolean function of a comparison with Ps: AND, OR, XOR.
#[inline(always)]
pub(super) fn combine(function: u32, t: u32, p: u32) -> u32 {
    match function {
        0 => t & p,
        1 => t | p,
        _ => t ^ p,
    }
}

/// Runs `$l.run` with a type whose const parameter is the value of `$code`.
macro_rules! with_code {
    ($l:expr, $code:expr, $ty:ident, [$($n:literal)*]) => {
        match $code { $($n => $l.run::<$ty<$n>>(),)* _ => return Err($crate::gpu::sm::fault::esr::ILLEGAL_INSTR_PARAM) }
    };
}
pub(super) use with_code;

pub(super) fn mov(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.dst(1)?;
    l.b(1)?;
    l.run::<Map<Mov>>();
    Ok(())
}

pub(super) fn iadd3(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.dst(1)?;
    let sources = [l.a(1)?, l.b(1)?, l.c(1)?];
    let extended = l.bit(74);
    let negated = sources.iter().filter(|s| s.neg).count() as u32;
    for (k, s) in l.op.k.iter_mut().zip(&sources) {
        *k = if s.neg { u32::MAX } else { 0 };
    }
    l.pds();
    if extended {
        l.op.ps = [l.ps(), l.pred(77, 80), 7];
        if l.op.pd == [NO_PREDICATE; 2] {
            l.run::<Add3ExtendedLow>();
        } else {
            l.run::<Add3Extended>();
        }
        return Ok(());
    }
    l.op.k[3] = negated;
    if l.op.pd[1] == NO_PREDICATE && l.op.pd[0] != NO_PREDICATE && negated == 0 && l.op.c == ZERO {
        l.op.c = l.op.b;
        l.run::<Add2Carry>();
    } else if l.op.pd != [NO_PREDICATE; 2] {
        l.run::<Add3Carry>();
    } else if negated != 0 {
        l.run::<Map<Add3Neg>>();
    } else if l.op.c == ZERO {
        l.op.c = l.op.b;
        l.run::<Map<Add2>>();
    } else {
        l.run::<Map<Add3>>();
    }
    Ok(())
}

pub(super) fn imad(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.dst(1)?;
    l.a(1)?;
    let b = l.b(1)?;
    let c = l.c(1)?;
    if l.bit(74) {
        l.op.k[0] = if c.neg { u32::MAX } else { 0 };
        l.op.ps[0] = l.ps();
        l.run::<MulAddExtended>();
        return Ok(());
    }
    let imm = l.bits(32, 32);
    if c.neg {
        l.run::<Map<MulSub>>();
    } else if l.op.a == ZERO || l.op.b == ZERO {
        l.op.b = l.op.c;
        l.run::<Map<Mov>>();
    } else if b.immediate && imm == 1 {
        l.run::<Map<Add2>>();
    } else if b.immediate && imm.is_power_of_two() && l.op.c == ZERO {
        l.op.k[0] = imm.trailing_zeros();
        l.run::<Map<ShiftLeftConst>>();
    } else {
        l.run::<Map<MulAdd>>();
    }
    Ok(())
}

pub(super) fn imad_wide(l: &mut Lower<'_>, high: bool) -> Result<(), Refusal> {
    l.dst(if high { 1 } else { 2 })?;
    l.a(1)?;
    l.b(1)?;
    let c = l.c(2)?;
    let signed = l.bit(73);
    let extended = l.bit(74);
    l.pd();
    if !c.neg && !extended && l.bits(81, 3) == 7 {
        match (signed, high) {
            (false, false) => l.run::<MulWide<false, false>>(),
            (true, false) => l.run::<MulWide<true, false>>(),
            (false, true) => l.run::<MulWide<false, true>>(),
            (true, true) => l.run::<MulWide<true, true>>(),
        }
        return Ok(());
    }
    l.op.k[0] = if c.neg { u32::MAX } else { 0 };
    l.op.k[1] = u32::from(c.neg && !extended);
    l.op.k[2] = u32::from(extended);
    l.op.ps[0] = l.ps();
    match (signed, high) {
        (false, false) => l.run::<MulWideCarry<false, false>>(),
        (true, false) => l.run::<MulWideCarry<true, false>>(),
        (false, true) => l.run::<MulWideCarry<false, true>>(),
        (true, true) => l.run::<MulWideCarry<true, true>>(),
    }
    Ok(())
}

pub(super) fn idp(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.dst(1)?;
    l.a(1)?;
    l.b(1)?;
    l.c(1)?;
    let (a, b, two, neg) = (l.bit(73), l.bit(74), l.bit(76), l.bit(75));
    l.op.k = [l.flag(73), l.flag(74), l.flag(76), l.flag(77), l.flag(75), 0];
    match (two || neg, a, b) {
        (true, _, _) => l.run::<Map<DotGeneral>>(),
        (_, false, false) => l.run::<Map<Dot<false, false>>>(),
        (_, false, true) => l.run::<Map<Dot<false, true>>>(),
        (_, true, false) => l.run::<Map<Dot<true, false>>>(),
        (_, true, true) => l.run::<Map<Dot<true, true>>>(),
    }
    Ok(())
}

pub(super) fn sel(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.dst(1)?;
    l.a(1)?;
    l.b(1)?;
    l.op.ps[0] = l.ps();
    l.run::<Select>();
    Ok(())
}

pub(super) fn iabs(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.dst(1)?;
    l.b(1)?;
    l.run::<Map<Abs>>();
    Ok(())
}

pub(super) fn imnmx(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.dst(1)?;
    l.a(1)?;
    l.b(1)?;
    let signed = l.bit(73);
    l.op.ps[0] = l.ps();
    l.op.k[0] = u32::from(signed);
    match (l.bits(87, 4), signed) {
        (7, true) => l.run::<Map<MinSigned>>(),
        (7, false) => l.run::<Map<MinUnsigned>>(),
        (15, true) => l.run::<Map<MaxSigned>>(),
        (15, false) => l.run::<Map<MaxUnsigned>>(),
        _ => l.run::<MinMaxSelect>(),
    }
    Ok(())
}

pub(super) fn isetp(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.a(1)?;
    l.b(1)?;
    l.pds();
    l.op.ps = [l.ps(), l.pred(68, 71), 7];
    l.op.k = [l.bits(74, 2), l.flag(72), 0, 0, 0, 0];
    if l.bit(73) {
        with_code!(l, l.bits(76, 3), CompareSigned, [0 1 2 3 4 5 6 7]);
    } else {
        with_code!(l, l.bits(76, 3), CompareUnsigned, [0 1 2 3 4 5 6 7]);
    }
    Ok(())
}

pub(super) fn vabsdiff(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.dst(1)?;
    l.a(1)?;
    l.b(1)?;
    l.c(1)?;
    l.op.k[0] = l.flag(73);
    l.pd();
    l.run::<AbsDiff>();
    Ok(())
}

pub(super) fn vabsdiff4(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.dst(1)?;
    l.a(1)?;
    l.b(1)?;
    l.c(1)?;
    l.op.k = [l.flag(73), l.flag(75), 0, 0, 0, 0];
    l.pd();
    l.run::<AbsDiff4>();
    Ok(())
}

pub(super) fn i2i(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.dst(1)?;
    l.b(1)?;
    l.op.k[0] = l.bits(76, 2);
    l.run::<Map<SaturateInt>>();
    Ok(())
}

pub(super) fn i2ip(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.dst(1)?;
    l.a(1)?;
    l.b(1)?;
    l.c(1)?;
    let field = l.bits(74, 2);
    let mode = match (l.target.arch.encoding(), field) {
        (_, 2) => 2,
        (sass::Encoding::Sm8x, 0) | (sass::Encoding::Sm9x, 1) => 1,
        _ => 0,
    };
    l.op.k = [l.bits(76, 2), mode, l.flag(72), 0, 0, 0];
    l.run::<Map<SaturatePack>>();
    Ok(())
}
