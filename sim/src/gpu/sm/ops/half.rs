//! fp16 and bf16 pairs: two elements per register, the lower half first.

use crate::gpu::sm::core::Flow;
use crate::gpu::sm::fault::esr;
use crate::gpu::sm::lanes::{each, spread};
use crate::gpu::sm::lower::{Lower, Refusal, Src};
use crate::gpu::sm::micro_op::MicroOp;
use crate::gpu::sm::micro_op::{LaneFn, Map, lane_ops, warp_ops};
use crate::gpu::sm::slots::ZERO;
use crate::gpu::sm::soft::{BF16, Exact, F16, F32, Format, Rounding};

use crate::gpu::sm::ops::float::compare;
use crate::gpu::sm::ops::integer::combine;

/// The NaN that every half-precision operation returns.
const NAN: u32 = 0x7fff;
const SIGNS: u32 = 0x8000_8000;

/// fp16 to fp32, exactly.
#[inline(always)]
pub(super) fn widen(h: u32) -> f32 {
    let sign = (h & 0x8000) << 16;
    let magnitude = h & 0x7fff;
    let small = magnitude as f32 * f32::from_bits(0x3380_0000);
    let normal = f32::from_bits((magnitude << 13) + 0x3800_0000);
    let huge = f32::from_bits((magnitude << 13) + 0x7000_0000);
    let x = if magnitude < 0x400 {
        small
    } else if magnitude >= 0x7c00 {
        huge
    } else {
        normal
    };
    f32::from_bits(x.to_bits() | sign)
}

/// fp32 to fp16, to nearest even; NaN gives 0x7fff.
#[inline(always)]
pub(super) fn narrow(x: f32) -> u32 {
    let bits = x.to_bits();
    let sign = bits >> 16 & 0x8000;
    let magnitude = bits & 0x7fff_ffff;
    // Adding 0.5 aligns the last place of a subnormal result with that of the sum.
    let small = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0x3f00_0000);
    let normal = magnitude.wrapping_sub(0x3800_0000).wrapping_add(0xfff + (magnitude >> 13 & 1)) >> 13;
    if magnitude > 0x7f80_0000 {
        NAN
    } else if magnitude >= 0x4780_0000 {
        sign | 0x7c00
    } else if magnitude < 0x3880_0000 {
        sign | small
    } else {
        sign | normal
    }
}

/// Picks the halves that a swizzle names: 2 the lower twice, 3 the upper twice.
#[inline(always)]
fn swizzled(x: u32, swizzle: u32) -> u32 {
    match swizzle {
        2 => x & 0xffff | x << 16,
        3 => x >> 16 | x & 0xffff_0000,
        _ => x,
    }
}

/// A source: swizzle in the low bits of k[i], modifiers as masks above. See [`set_source`].
#[inline(always)]
fn source(x: u32, k: u32) -> u32 {
    let x = swizzled(x, k & 3);
    let keep = if k & 4 != 0 { !SIGNS } else { u32::MAX };
    let flip = if k & 8 != 0 { SIGNS } else { 0 };
    (x & keep) ^ flip
}

fn set_source(l: &mut Lower<'_>, i: usize, src: Src, swizzles: bool) {
    let swizzle = if swizzles { u32::from(src.swizzle) } else { 0 };
    l.op.k[i] = swizzle | u32::from(src.abs) << 2 | u32::from(src.neg) << 3;
}

/// slot64 has its half-precision modifiers elsewhere: neg 84, abs 83.
fn slot64(l: &Lower<'_>, src: Src, in_slot64: bool) -> Src {
    if in_slot64 { Src { neg: l.bit(84), abs: l.bit(83), ..src } } else { src }
}

/// Flags of the arithmetic, in k[3].
const FTZ: u32 = 1;
const FMZ: u32 = 2;
const SAT: u32 = 4;
const RELU: u32 = 8;
const BF: u32 = 16;
/// There is no addend.
const PRODUCT: u32 = 32;
/// B supplies minus its upper half to the lower lane and its lower half to the upper lane.
const COMPLEX: u32 = 64;

#[inline(always)]
fn flush_half(h: u32) -> u32 {
    if h & 0x7c00 == 0 { h & 0x8000 } else { h }
}

/// a * b + c of one fp16 element, rounded once.
///
/// The product is exact in fp32. The sum is made odd where it is inexact, so that the second rounding sees on
/// which side it lies.
#[inline(always)]
fn fma_f16(a: f32, b: f32, c: f32) -> u32 {
    let p = a * b;
    let s = p + c;
    let back = s - p;
    let error = (p - (s - back)) + (c - back);
    let bits = s.to_bits();
    let odd = if error == 0.0 || bits & 1 != 0 || !s.is_finite() {
        bits
    } else if (error > 0.0) == (s > 0.0) {
        bits + 1
    } else {
        bits - 1
    };
    narrow(f32::from_bits(odd))
}

/// One element in fp16 or bf16 with all flags.
#[inline(always)]
fn element(a: u32, b: u32, c: u32, flags: u32) -> u32 {
    let (mut a, mut b, mut c) = (a, b, c);
    if flags & (FTZ | FMZ) != 0 {
        (a, b, c) = (flush_half(a), flush_half(b), flush_half(c));
    }
    if flags & FMZ != 0 && (a & 0x7fff == 0 || b & 0x7fff == 0) {
        (a, b) = (0, 0);
    }
    let mut r = if flags & BF != 0 {
        fma_bf16(a, b, c, flags & PRODUCT != 0)
    } else if flags & PRODUCT != 0 {
        narrow(widen(a) * widen(b))
    } else {
        fma_f16(widen(a), widen(b), widen(c))
    };
    if flags & (FTZ | FMZ) != 0 && flags & BF == 0 {
        r = flush_result(r, a, b, c, flags);
    }
    let infinity = if flags & BF != 0 { 0x7f80 } else { 0x7c00 };
    let one = if flags & BF != 0 { 0x3f80 } else { 0x3c00 };
    let nan = r & 0x7fff > infinity;
    if flags & RELU != 0 && !nan && r & 0x8000 != 0 {
        r = 0;
    }
    if flags & SAT != 0 {
        r = if nan || r & 0x8000 != 0 { 0 } else { r.min(one) };
    }
    r
}

/// Below the normal range a result becomes zero, also where rounding with a bounded exponent lifted it to the
/// smallest normal number.
#[inline(always)]
fn flush_result(r: u32, a: u32, b: u32, c: u32, flags: u32) -> u32 {
    match r & 0x7fff {
        0..0x400 => r & 0x8000,
        0x400 => exact(F16, a, b, c, flags & PRODUCT != 0)
            .map_or(r, |x| F16.round(x, Rounding::Nearest, true) as u32),
        _ => r,
    }
}

/// The exact value of a * b (+ c) of finite numbers.
fn exact(format: Format, a: u32, b: u32, c: u32, product: bool) -> Option<Exact> {
    let special = |x: u32| u64::from(x) & format.infinity() == format.infinity();
    if special(a) || special(b) || (special(c) && !product) {
        return None;
    }
    let p = format.unpack(a.into()).mul(format.unpack(b.into()));
    Some(if product { p } else { p.add(format.unpack(c.into()), Rounding::Nearest) })
}

fn fma_bf16(a: u32, b: u32, c: u32, product: bool) -> u32 {
    match exact(BF16, a, b, c, product) {
        Some(x) => BF16.round(x, Rounding::Nearest, false) as u32,
        None => {
            let f = |x: u32| f32::from_bits(x << 16);
            let r = if product { f(a) * f(b) } else { f(a).mul_add(f(b), f(c)) };
            if r.is_nan() { NAN } else { r.to_bits() >> 16 }
        }
    }
}

/// The sum of two bf16.
pub(super) fn add_bf16(a: u32, b: u32) -> u32 {
    fma_bf16(a, 0x3f80, b, false)
}

#[inline(always)]
fn pair(a: u32, b: u32, c: u32, flags: u32) -> u32 {
    element(a & 0xffff, b & 0xffff, c & 0xffff, flags) | element(a >> 16, b >> 16, c >> 16, flags) << 16
}

/// a * b + c in pairs without flags.
struct FmaPlain<const MODS: bool>;

impl<const MODS: bool> LaneFn for FmaPlain<MODS> {
    #[inline(always)]
    fn f(a: u32, b: u32, c: u32, op: &MicroOp) -> u32 {
        let (a, b, c) =
            if MODS { (source(a, op.k[0]), source(b, op.k[1]), source(c, op.k[2])) } else { (a, b, c) };
        let f = |x: u32| widen(x & 0xffff);
        let g = |x: u32| widen(x >> 16);
        fma_f16(f(a), f(b), f(c)) | fma_f16(g(a), g(b), g(c)) << 16
    }
}

lane_ops! {
    FmaFlags(a, b, c, op) {
        let (a, c) = (source(a, op.k[0]), source(c, op.k[2]));
        let b = if op.k[3] & COMPLEX != 0 { b.rotate_left(16) ^ 0x8000 } else { source(b, op.k[1]) };
        pair(a, b, c, op.k[3])
    };
    /// Sums and products need no exact form: in fp32 they are exact or round twice without harm.
    AddPlain(a, b, _, op) {
        let (a, b) = (source(a, op.k[0]), source(b, op.k[1]));
        narrow(widen(a & 0xffff) + widen(b & 0xffff)) | narrow(widen(a >> 16) + widen(b >> 16)) << 16
    };
    MulPlain(a, b, _, op) {
        let (a, b) = (source(a, op.k[0]), source(b, op.k[1]));
        narrow(widen(a & 0xffff) * widen(b & 0xffff)) | narrow(widen(a >> 16) * widen(b >> 16)) << 16
    };
    /// HADD2.F32: the value of a half.
    Widen(_, b, _, op) {
        let x = widen(source(b, op.k[1]) & 0xffff);
        if x.is_nan() { 0x7fff_ffff } else { x.to_bits() }
    };
    Copy(_, _, c, _) c;
}

/// HMNMX2 of one element; the mode is that of FMNMX, 8 for bf16; so are the signs.
#[inline(always)]
fn min_max(a: u32, b: u32, take_min: bool, mode: u32, signs: u32) -> u32 {
    let infinity = if mode & 8 != 0 { 0x7f80 } else { 0x7c00 };
    let (a, b) = if mode & 1 != 0 { (flush_half(a), flush_half(b)) } else { (a, b) };
    let nan = |x: u32| x & 0x7fff > infinity;
    let order = |x: u32| {
        let x = (x << 16) as i32;
        x ^ ((x >> 31) as u32 >> 1) as i32
    };
    let r = if (nan(a) && nan(b)) || (mode & 2 != 0 && (nan(a) || nan(b))) {
        NAN
    } else if nan(a) {
        b
    } else if nan(b) || (order(a) < order(b)) == take_min {
        a
    } else {
        b
    };
    if mode & 4 != 0 && !nan(r) { (r & 0x7fff) | (signs & 0x8000) } else { r }
}

#[inline(always)]
fn compare_half(a: u32, b: u32, op: &MicroOp) -> bool {
    let f = |x: u32| widen(if op.k[4] & FTZ != 0 { flush_half(x) } else { x });
    compare(f(a), f(b), op.k[3])
}

warp_ops! {
    MinMax(core, op) {
        let p = core.pred(op.ps[0]);
        let (a, b) = (core.src(op.a), core.src(op.b));
        let mut t = [0u32; 32];
        for i in 0..32 {
            let (x, y, min) = (source(a[i], op.k[0]), source(b[i], op.k[1]), p >> i & 1 != 0);
            let own = |x: u32, k: u32| source(x, k & !4);
            let signs = own(a[i], op.k[0]) ^ own(b[i], op.k[1]);
            t[i] = min_max(x & 0xffff, y & 0xffff, min, op.k[3], signs & 0xffff)
                | min_max(x >> 16, y >> 16, min, op.k[3], signs >> 16) << 16;
        }
        core.put(op.d, &t);
        Flow::Next
    }

    /// Comparison per half; k: 3 code, 4 flags, 5 what "true" is; ps[1] the boolean function, ps[2] H_AND, pd or d take the result.
    Compare(core, op) {
        let p = core.pred(op.ps[0]);
        let (a, b) = (core.src(op.a), core.src(op.b));
        let (mut low, mut high) = (0u32, 0u32);
        for i in 0..32 {
            let (x, y) = (source(a[i], op.k[0]), source(b[i], op.k[1]));
            low |= u32::from(compare_half(x & 0xffff, y & 0xffff, op)) << i;
            high |= u32::from(compare_half(x >> 16, y >> 16, op)) << i;
        }
        let function = u32::from(op.ps[1]);
        if op.k[5] != 0 {
            let (low, high) = (combine(function, low, p), combine(function, high, p));
            let t = each(|i| (spread(low, i) & op.k[5]) | (spread(high, i) & op.k[5]) << 16);
            core.put(op.d, &t);
        } else if op.ps[2] != 0 {
            core.put_pred(op.pd[0], combine(function, low & high, p));
            core.put_pred(op.pd[1], combine(function, !(low & high), p));
        } else {
            core.put_pred(op.pd[0], combine(function, low, p));
            core.put_pred(op.pd[1], combine(function, high, p));
        }
        Flow::Next
    }
}

/// Sets A and the second source of an operation that takes it as B in form 1 and as C in the others; it is in
/// slot32 always.
fn two_sources(l: &mut Lower<'_>) -> Result<(), Refusal> {
    let a = l.a(1)?;
    let b = l.b_or_c(1)?;
    set_source(l, 0, a, true);
    set_source(l, 1, b, true);
    Ok(())
}

fn flags(l: &Lower<'_>) -> u32 {
    let flag = |bit: u32, value: u32| if l.bit(bit) { value } else { 0 };
    flag(80, FTZ) | flag(76, FMZ) | flag(77, SAT)
}

pub(super) fn hadd2(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.dst(1)?;
    two_sources(l)?;
    if l.bit(78) {
        if l.op.a != ZERO {
            return Err(esr::ILLEGAL_INSTR_PARAM);
        }
        l.run::<Map<Widen>>();
        return Ok(());
    }
    let bf = l.bit(85);
    if flags(l) == 0 && !bf {
        l.run::<Map<AddPlain>>();
        return Ok(());
    }
    // a * 1 + b
    (l.op.c, l.op.k[2]) = (l.op.b, l.op.k[1]);
    l.op.b = l.imm(if bf { 0x3f80_3f80 } else { 0x3c00_3c00 });
    (l.op.k[1], l.op.k[3]) = (0, flags(l) & (FTZ | SAT) | if bf { BF } else { 0 });
    l.run::<Map<FmaFlags>>();
    Ok(())
}

pub(super) fn hmul2(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.dst(1)?;
    let a = l.a(1)?;
    let b = l.b(1)?;
    set_source(l, 0, a, true);
    set_source(l, 1, b, true);
    let bf = if l.bit(85) { BF } else { 0 };
    if flags(l) | bf == 0 {
        l.run::<Map<MulPlain>>();
    } else {
        l.op.k[3] = flags(l) | PRODUCT | bf;
        l.run::<Map<FmaFlags>>();
    }
    Ok(())
}

pub(super) fn hfma2(l: &mut Lower<'_>, swizzles: bool) -> Result<(), Refusal> {
    l.dst(1)?;
    let form = l.w.form();
    let a = l.a(1)?;
    let b = l.b(1)?;
    let c = l.c(1)?;
    let b = slot64(l, b, matches!(form, 2 | 3 | 7));
    let c = slot64(l, c, !matches!(form, 2 | 3 | 7));
    set_source(l, 0, a, swizzles);
    set_source(l, 1, b, swizzles);
    set_source(l, 2, c, swizzles);
    let bits = flags(l) | if l.bit(79) { RELU } else { 0 } | if l.bit(85) { BF } else { 0 };
    l.op.k[3] = bits | if swizzles && l.bit(86) { COMPLEX } else { 0 };
    if l.op.k[3] != 0 {
        l.run::<Map<FmaFlags>>();
    } else if l.op.a == ZERO && l.op.b == ZERO && form == 2 && a.neg && !b.neg {
        // -0 * 0 + constant: the way to load one.
        l.run::<Map<Copy>>();
    } else if l.op.k[..3] == [0; 3] {
        l.run::<Map<FmaPlain<false>>>();
    } else {
        l.run::<Map<FmaPlain<true>>>();
    }
    Ok(())
}

pub(super) fn hmnmx2(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.dst(1)?;
    let a = l.a(1)?;
    let b = l.b(1)?;
    set_source(l, 0, a, true);
    set_source(l, 1, b, true);
    l.op.ps[0] = l.ps();
    l.op.k[3] = l.bits(80, 3) | l.flag(85) << 3;
    l.run::<MinMax>();
    Ok(())
}

fn comparison(l: &mut Lower<'_>) -> Result<(), Refusal> {
    two_sources(l)?;
    l.op.k[3] = l.bits(76, 4);
    l.op.k[4] = if l.bit(80) { FTZ } else { 0 };
    l.op.ps = [l.ps(), l.bits(69, 2) as u8, 0];
    l.run::<Compare>();
    Ok(())
}

pub(super) fn hset2(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.dst(1)?;
    comparison(l)?;
    l.op.k[5] = if l.bit(71) { 0x3c00 } else { 0xffff };
    Ok(())
}

pub(super) fn hsetp2(l: &mut Lower<'_>) -> Result<(), Refusal> {
    comparison(l)?;
    l.pds();
    l.op.ps[2] = l.flag(71) as u8;
    Ok(())
}

/// fp32 to fp16 or bf16 with any rounding; NaN gives 0x7fff.
pub(super) fn narrow_with(x: u32, format: Format, rounding: Rounding, flush: bool) -> u32 {
    let bits = u64::from(x);
    if F32.is_nan(bits) {
        return NAN;
    }
    if F32.is_inf(bits) {
        return (if x >> 31 != 0 { format.sign_bit() } else { 0 } | format.infinity()) as u32;
    }
    format.round(F32.unpack(bits), rounding, flush) as u32
}
