//! fp32 arithmetic and comparison.

use crate::gpu::sm::core::{Core, Flow};
use crate::gpu::sm::lanes::{each, has, spread};
use crate::gpu::sm::lower::{Lower, Refusal, Src};
use crate::gpu::sm::micro_op::MicroOp;
use crate::gpu::sm::micro_op::{LaneFn, Map, Op, lane_ops, warp_ops};
use crate::gpu::sm::soft::{self, F32, Rounding};

use crate::gpu::sm::ops::integer::{combine, with_code};

/// The NaN that every fp32 operation returns.
pub(super) const NAN: u32 = 0x7fff_ffff;
const SIGN: u32 = 0x8000_0000;
/// The smallest normal number.
const NORMAL: u32 = 0x0080_0000;

#[inline(always)]
pub(super) fn is_nan(x: u32) -> bool {
    x & !SIGN > 0x7f80_0000
}

/// Subnormal numbers become zeros of the same sign.
#[inline(always)]
pub(super) fn flush(x: u32) -> u32 {
    if x & 0x7f80_0000 == 0 { x & SIGN } else { x }
}

#[inline(always)]
fn canonical(x: f32) -> u32 {
    if x.is_nan() { NAN } else { x.to_bits() }
}

/// Clamps to 0 … 1; NaN and negative values give +0.
#[inline(always)]
fn saturate(x: u32) -> u32 {
    if is_nan(x) || x & SIGN != 0 {
        0
    } else if x > 0x3f80_0000 {
        0x3f80_0000
    } else {
        x
    }
}

/// A source modifier: k[i] keeps bits, k[i + 1] flips them.
#[inline(always)]
fn modified(x: u32, op: &MicroOp, i: usize) -> u32 {
    (x & op.k[i]) ^ op.k[i + 1]
}

/// Sets the words of k that apply `src`'s modifiers to source `i`.
fn set_modifiers(l: &mut Lower<'_>, i: usize, src: Src) {
    l.op.k[2 * i] = if src.abs { !SIGN } else { u32::MAX };
    l.op.k[2 * i + 1] = if src.neg { SIGN } else { 0 };
}

/// `r` is the host's sum; where it is the smallest normal number it may have been rounded up to it, and is
/// flushed unless the exact value, rounded with an unbounded exponent, reaches it.
#[inline(always)]
fn flush_fma(r: u32, a: u32, b: u32, c: u32) -> u32 {
    let magnitude = r & !SIGN;
    if magnitude < NORMAL {
        r & SIGN
    } else if magnitude == NORMAL {
        flush_edge(r, a, b, c)
    } else {
        r
    }
}

#[cold]
#[inline(never)]
fn flush_edge(r: u32, a: u32, b: u32, c: u32) -> u32 {
    soft::fma(F32, a.into(), b.into(), c.into(), Rounding::Nearest, true).map_or(r, |x| x as u32)
}

const ONE: u32 = 0x3f80_0000;

struct Fma<const FTZ: bool, const MODS: bool>;

impl<const FTZ: bool, const MODS: bool> LaneFn for Fma<FTZ, MODS> {
    #[inline(always)]
    fn f(a: u32, b: u32, c: u32, op: &MicroOp) -> u32 {
        let (mut a, mut b, mut c) =
            if MODS { (modified(a, op, 0), modified(b, op, 2), modified(c, op, 4)) } else { (a, b, c) };
        if FTZ {
            (a, b, c) = (flush(a), flush(b), flush(c));
        }
        canonical(f32::from_bits(a).mul_add(f32::from_bits(b), f32::from_bits(c)))
    }
}

/// The same with results below the normal range flushed.
struct FmaFlush<L>(std::marker::PhantomData<L>);

impl<const MODS: bool> Op for FmaFlush<Fma<true, MODS>> {
    #[inline(always)]
    fn run(core: &mut Core<'_>, op: &MicroOp) -> Flow {
        let (a, b, c) = (core.src(op.a), core.src(op.b), core.src(op.c));
        let (mut t, mut edge) = ([0u32; 32], 0u32);
        for i in 0..32 {
            let r = <Fma<true, MODS> as LaneFn>::f(a[i], b[i], c[i], op);
            let magnitude = r & !SIGN;
            edge |= u32::from(magnitude == NORMAL);
            t[i] = if magnitude < NORMAL { r & SIGN } else { r };
        }
        if edge != 0 {
            for i in 0..32 {
                let [x, y, z] = if MODS {
                    [modified(a[i], op, 0), modified(b[i], op, 2), modified(c[i], op, 4)]
                } else {
                    [a[i], b[i], c[i]]
                };
                t[i] = flush_fma(t[i], flush(x), flush(y), flush(z));
            }
        }
        core.put(op.d, &t);
        Flow::Next
    }
}

struct Add<const MODS: bool>;

impl<const MODS: bool> LaneFn for Add<MODS> {
    #[inline(always)]
    fn f(a: u32, b: u32, _: u32, op: &MicroOp) -> u32 {
        let (a, b) = if MODS { (modified(a, op, 0), modified(b, op, 2)) } else { (a, b) };
        canonical(f32::from_bits(a) + f32::from_bits(b))
    }
}

struct Mul<const MODS: bool>;

impl<const MODS: bool> LaneFn for Mul<MODS> {
    #[inline(always)]
    fn f(a: u32, b: u32, _: u32, op: &MicroOp) -> u32 {
        let (a, b) = if MODS { (modified(a, op, 0), modified(b, op, 2)) } else { (a, b) };
        canonical(f32::from_bits(a) * f32::from_bits(b))
    }
}

/// Options of the general form besides a * b + c, in `ps[1]` and `ps[2]` of the op.
const FTZ: u8 = 1;
const SAT: u8 = 2;
const FMZ: u8 = 4;
/// No addend, so that the sign of a zero product stays.
const PRODUCT: u8 = 8;

lane_ops! {
    /// Every combination of rounding, flushing, saturation and scale, computed exactly; ps[1] holds the flags, ps[2] the rounding and,
    /// above it, the scale as an exponent biased by 3.
    FmaGeneral(a, b, c, op) {
        let flags = op.ps[1];
        let rounding = Rounding::from_field(u32::from(op.ps[2]));
        let scale = i32::from(op.ps[2] >> 2) - 3;
        let (mut a, mut b, mut c) = (modified(a, op, 0), modified(b, op, 2), modified(c, op, 4));
        if flags & (FTZ | FMZ) != 0 {
            (a, b, c) = (flush(a), flush(b), flush(c));
        }
        let r = general(a, b, c, flags, rounding, scale);
        if flags & SAT != 0 { saturate(r) } else { r }
    };
}

fn general(a: u32, b: u32, c: u32, flags: u8, rounding: Rounding, scale: i32) -> u32 {
    let (ua, ub, uc) = (u64::from(a), u64::from(b), u64::from(c));
    if flags & FMZ != 0 && (F32.is_zero(ua) || F32.is_zero(ub)) {
        return if is_nan(c) {
            NAN
        } else if flags & PRODUCT != 0 {
            0
        } else {
            canonical(f32::from_bits(c) + 0.0)
        };
    }
    let special = |x: u64| x & F32.infinity() == F32.infinity();
    if special(ua) || special(ub) || special(uc) {
        let (x, y, z) = (f32::from_bits(a), f32::from_bits(b), f32::from_bits(c));
        return canonical(if flags & PRODUCT != 0 { x * y } else { x.mul_add(y, z) });
    }
    let mut x = F32.unpack(ua).mul(F32.unpack(ub));
    x.exp += scale;
    if flags & PRODUCT == 0 {
        x = x.add(F32.unpack(uc), rounding);
    }
    F32.round(x, rounding, flags & (FTZ | FMZ) != 0) as u32
}

/// The smaller or greater by Ps; k: modifiers of A and B, ps[1]: 1 flushes, 2 NaN wins, 4 the sign is
/// `signs`, the exclusive or of the operands' own: taking absolutes does not change it (measured on Hopper).
#[inline(always)]
fn min_max(a: u32, b: u32, take_min: bool, mode: u8, signs: u32) -> u32 {
    let (a, b) = if mode & 1 != 0 { (flush(a), flush(b)) } else { (a, b) };
    let (na, nb) = (is_nan(a), is_nan(b));
    let order = |x: u32| (x ^ (((x as i32) >> 31) as u32 >> 1)) as i32;
    let r = if na && nb || (mode & 2 != 0 && (na || nb)) {
        NAN
    } else if na {
        b
    } else if nb || (order(a) < order(b)) == take_min {
        a
    } else {
        b
    };
    if mode & 4 != 0 && !is_nan(r) { (r & !SIGN) | (signs & SIGN) } else { r }
}

warp_ops! {
    MinMax(core, op) {
        let p = core.pred(op.ps[0]);
        let (a, b) = (core.src(op.a), core.src(op.b));
        let mode = op.ps[1];
        let mut t = [0u32; 32];
        for i in 0..32 {
            let signs = a[i] ^ op.k[1] ^ b[i] ^ op.k[3];
            t[i] = min_max(modified(a[i], op, 0), modified(b[i], op, 2), has(p, i), mode, signs);
        }
        core.put(op.d, &t);
        Flow::Next
    }

    /// D = Ps ? A : B with modifiers; ps[1]: flushes.
    Select(core, op) {
        let p = core.pred(op.ps[0]);
        let (a, b) = (core.src(op.a), core.src(op.b));
        let mut t = [0u32; 32];
        for i in 0..32 {
            let (x, y) = (modified(a[i], op, 0), modified(b[i], op, 2));
            let x = y ^ ((x ^ y) & spread(p, i));
            t[i] = if op.ps[1] != 0 { flush(x) } else { x };
        }
        core.put(op.d, &t);
        Flow::Next
    }

    /// D = comparison ? 1.0 : 0; k[4] the code, k[5] the boolean function, ps[1] flushes.
    SetFloat(core, op) {
        let p = core.pred(op.ps[0]);
        let (a, b) = (core.src(op.a), core.src(op.b));
        let mut t = 0u32;
        for i in 0..32 {
            let (mut x, mut y) = (modified(a[i], op, 0), modified(b[i], op, 2));
            if op.ps[1] != 0 {
                (x, y) = (flush(x), flush(y));
            }
            t |= u32::from(compare(f32::from_bits(x), f32::from_bits(y), op.k[4])) << i;
        }
        let t = combine(op.k[5], t, p);
        core.put(op.d, &each(|i| ONE & spread(t, i)));
        Flow::Next
    }

    /// Pd = a division of A by B needs the careful way.
    CheckDivision(core, op) {
        let (a, b) = (core.src(op.a), core.src(op.b));
        let mut t = 0u32;
        for i in 0..32 {
            let exponent = |x: u32| (x >> 23 & 0xff) as i32;
            let (ea, eb) = (exponent(a[i]), exponent(b[i]));
            let fine = (2..=251).contains(&eb) && (25..=254).contains(&ea) && (-124..=126).contains(&(ea - eb));
            t |= u32::from(!fine) << i;
        }
        core.put_pred(op.pd[0], t);
        Flow::Next
    }
}

/// A floating-point comparison by its code: F LT EQ LE GT NE GE NUM, and NAN LTU EQU LEU GTU NEU GEU T which
/// hold for NaN too.
#[inline(always)]
pub(super) fn compare<T: PartialOrd>(x: T, y: T, code: u32) -> bool {
    #[allow(clippy::eq_op)]
    let unordered = x != x || y != y;
    let ordered = match code & 7 {
        0 => false,
        1 => x < y,
        2 => x == y,
        3 => x <= y,
        4 => x > y,
        // Not `!=`, which holds for NaN.
        5 => !unordered && x != y,
        6 => x >= y,
        _ => !unordered,
    };
    ordered || (code >= 8 && unordered)
}

/// FSETP; k: modifiers of A and B, k[4] the boolean function, ps[1] flushes.
struct Compare<const CODE: u32>;

impl<const CODE: u32> Op for Compare<CODE> {
    #[inline(always)]
    fn run(core: &mut Core<'_>, op: &MicroOp) -> Flow {
        let (a, b) = (core.src(op.a), core.src(op.b));
        let keep = if op.ps[1] != 0 { NORMAL } else { 0 };
        let mut t = 0u32;
        for i in 0..32 {
            let (mut x, mut y) = (modified(a[i], op, 0), modified(b[i], op, 2));
            // Below `keep` in magnitude: a subnormal number, to be flushed. The sign of a zero does not
            // matter here.
            x = if x & !SIGN < keep { 0 } else { x };
            y = if y & !SIGN < keep { 0 } else { y };
            t |= u32::from(compare(f32::from_bits(x), f32::from_bits(y), CODE)) << i;
        }
        let p = core.pred(op.ps[0]);
        core.put_pred(op.pd[0], combine(op.k[4], t, p));
        core.put_pred(op.pd[1], combine(op.k[4], !t, p));
        Flow::Next
    }
}

/// Chooses the operation for a * b + c with the modifiers and flags of the word.
fn arithmetic(l: &mut Lower<'_>, sources: [Src; 3], kind: Kind) {
    for (i, src) in sources.into_iter().enumerate() {
        set_modifiers(l, i, src);
    }
    let mods = sources.iter().any(|s| s.neg || s.abs);
    let (rounding, ftz, sat) = (l.bits(78, 2), l.bit(80), l.bit(77));
    let fmz = kind != Kind::Add && l.bit(76);
    let scale = if kind == Kind::Mul { l.bits(84, 3) } else { 4 };
    let scale = if scale == 0 { 4 } else { scale };
    if rounding == 0 && !sat && !fmz && scale == 4 {
        match (kind, ftz, mods) {
            (Kind::Add, false, false) => return l.run::<Map<Add<false>>>(),
            (Kind::Add, false, true) => return l.run::<Map<Add<true>>>(),
            (Kind::Mul, false, false) => return l.run::<Map<Mul<false>>>(),
            (Kind::Mul, false, true) => return l.run::<Map<Mul<true>>>(),
            (Kind::Fma, false, false) => return l.run::<Map<Fma<false, false>>>(),
            (Kind::Fma, false, true) => return l.run::<Map<Fma<false, true>>>(),
            _ => {}
        }
        // The flushing forms are all sums of a product: 1 * a + b, and a * b - 0, which keeps the sign of a
        // zero product.
        match kind {
            Kind::Add => {
                l.op.c = l.op.b;
                l.op.b = l.imm(ONE);
                (l.op.k[4], l.op.k[5]) = (l.op.k[2], l.op.k[3]);
                (l.op.k[2], l.op.k[3]) = (u32::MAX, 0);
            }
            Kind::Mul => {
                let mul = MulFlushSelect { mods };
                return mul.apply(l);
            }
            Kind::Fma => {}
        }
        return if mods {
            l.run::<FmaFlush<Fma<true, true>>>()
        } else {
            l.run::<FmaFlush<Fma<true, false>>>()
        };
    }
    let flag = |on: bool, bit: u8| if on { bit } else { 0 };
    l.op.ps[1] = flag(ftz, FTZ) | flag(sat, SAT) | flag(fmz, FMZ) | flag(kind == Kind::Mul, PRODUCT);
    l.op.ps[2] = rounding as u8 | ((scale as u8 + 3 - 4) << 2);
    if kind == Kind::Add {
        l.op.c = l.op.b;
        l.op.b = l.imm(ONE);
        (l.op.k[4], l.op.k[5]) = (l.op.k[2], l.op.k[3]);
        (l.op.k[2], l.op.k[3]) = (u32::MAX, 0);
    }
    l.run::<Map<FmaGeneral>>();
}

/// FADD, FMUL or FFMA.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Add,
    Mul,
    Fma,
}

/// The flushing product: its own operation, since adding a zero would lose the sign of a zero product.
struct MulFlushSelect {
    mods: bool,
}

impl MulFlushSelect {
    fn apply(self, l: &mut Lower<'_>) {
        if self.mods { l.run::<MulFlush<true>>() } else { l.run::<MulFlush<false>>() }
    }
}

struct MulFlush<const MODS: bool>;

impl<const MODS: bool> Op for MulFlush<MODS> {
    #[inline(always)]
    fn run(core: &mut Core<'_>, op: &MicroOp) -> Flow {
        let (a, b) = (core.src(op.a), core.src(op.b));
        let (mut t, mut edge) = ([0u32; 32], 0u32);
        let source =
            |i: usize| if MODS { (modified(a[i], op, 0), modified(b[i], op, 2)) } else { (a[i], b[i]) };
        for i in 0..32 {
            let (x, y) = source(i);
            let r = canonical(f32::from_bits(flush(x)) * f32::from_bits(flush(y)));
            let magnitude = r & !SIGN;
            edge |= u32::from(magnitude == NORMAL);
            t[i] = if magnitude < NORMAL { r & SIGN } else { r };
        }
        if edge != 0 {
            for i in 0..32 {
                if t[i] & !SIGN == NORMAL {
                    let (x, y) = source(i);
                    t[i] = general(flush(x), flush(y), 0, FTZ | PRODUCT, Rounding::Nearest, 0);
                }
            }
        }
        core.put(op.d, &t);
        Flow::Next
    }
}

const PLAIN: Src = Src { slot: 0, neg: false, abs: false, swizzle: 0, immediate: false };

pub(super) fn fadd(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.dst(1)?;
    let a = l.a(1)?;
    let b = l.b_or_c(1)?;
    arithmetic(l, [a, b, PLAIN], Kind::Add);
    Ok(())
}

pub(super) fn fmul(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.dst(1)?;
    let a = l.a(1)?;
    let b = l.b(1)?;
    arithmetic(l, [a, b, PLAIN], Kind::Mul);
    Ok(())
}

pub(super) fn ffma(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.dst(1)?;
    let sources = [l.a(1)?, l.b(1)?, l.c(1)?];
    arithmetic(l, sources, Kind::Fma);
    Ok(())
}

fn two_sources(l: &mut Lower<'_>) -> Result<(), Refusal> {
    let a = l.a(1)?;
    let b = l.b(1)?;
    set_modifiers(l, 0, a);
    set_modifiers(l, 1, b);
    l.op.ps = [l.ps(), l.flag(80) as u8, 7];
    Ok(())
}

pub(super) fn fmnmx(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.dst(1)?;
    two_sources(l)?;
    l.op.ps[1] = l.bits(80, 3) as u8;
    l.run::<MinMax>();
    Ok(())
}

pub(super) fn fsel(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.dst(1)?;
    two_sources(l)?;
    l.run::<Select>();
    Ok(())
}

pub(super) fn fset(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.dst(1)?;
    two_sources(l)?;
    // [74,76) is the boolean function here, not a modifier of C.
    l.op.k[4] = l.bits(76, 4);
    l.op.k[5] = l.bits(74, 2);
    l.run::<SetFloat>();
    Ok(())
}

pub(super) fn fsetp(l: &mut Lower<'_>) -> Result<(), Refusal> {
    two_sources(l)?;
    l.pds();
    l.op.k[4] = l.bits(74, 2);
    with_code!(l, l.bits(76, 4), Compare, [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15]);
    Ok(())
}

pub(super) fn fchk(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.op.a = l.reg(l.bits(24, 8), 1)?;
    l.b(1)?;
    l.pd();
    l.run::<CheckDivision>();
    Ok(())
}
