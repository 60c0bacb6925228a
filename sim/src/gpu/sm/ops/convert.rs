//! Conversions between integers and floating point.

use crate::gpu::sm::core::{Core, Flow};
use crate::gpu::sm::fault::esr;
use crate::gpu::sm::lanes::each;
use crate::gpu::sm::lower::{Lower, Refusal, Src};
use crate::gpu::sm::micro_op::MicroOp;
use crate::gpu::sm::micro_op::{LaneFn, Map, lane_ops, warp_ops};
use crate::gpu::sm::soft::{BF16, Exact, F16, F32, F64, Format, Rounding};

use crate::gpu::sm::ops::float::{NAN, flush, is_nan};
use crate::gpu::sm::ops::half::{narrow, narrow_with, widen};

/// Rounds an fp64 value to an integer value.
#[inline(always)]
fn integral(x: f64, rounding: u32) -> f64 {
    match rounding {
        0 => x.round_ties_even(),
        1 => x.floor(),
        2 => x.ceil(),
        _ => x.trunc(),
    }
}

/// The words that apply a source's modifiers to the word with the sign: k[4] keeps, k[5] flips.
fn set_modifiers(l: &mut Lower<'_>, src: Src, sign: u32) {
    l.op.k[4] = if src.abs { !sign } else { u32::MAX };
    l.op.k[5] = if src.neg { sign } else { 0 };
}

/// F2I of a number; signed results fill the register with their sign, except for the result of a NaN; k: 0
/// log2 of the bytes, 1 signed, 2 rounding, 3 flags (1 NTZ, 2 FTZ).
#[inline(always)]
fn to_integer(x: f64, op: &MicroOp) -> u64 {
    let bits = 8u32 << (op.k[0] & 3);
    if x.is_nan() {
        return if op.k[3] & 1 != 0 { 0 } else { 1 << (bits - 1) };
    }
    let x = integral(x, op.k[2]);
    if op.k[1] != 0 {
        let max = (u64::MAX >> (65 - bits)) as i64;
        // The cast saturates to 64 bits.
        (x as i64).clamp(!max, max) as u64
    } else {
        (x as u64).min(u64::MAX >> (64 - bits))
    }
}

#[inline(always)]
fn modified(x: u32, op: &MicroOp) -> u32 {
    (x & op.k[4]) ^ op.k[5]
}

/// The half of a register that bit 8 of k[3] names.
#[inline(always)]
fn half_of(x: u32, op: &MicroOp) -> u32 {
    if op.k[3] & 0x100 != 0 { x >> 16 } else { x & 0xffff }
}

lane_ops! {
    F32ToInt(_, b, _, op) {
        let x = modified(b, op);
        let x = if op.k[3] & 2 != 0 { flush(x) } else { x };
        to_integer(f64::from(f32::from_bits(x)), op) as u32
    };
    F16ToInt(_, b, _, op) to_integer(f64::from(widen(modified(half_of(b, op), op))), op) as u32;
    /// I2F to any format and rounding; k: 0 signed, 1 shift left, 2 shift right that isolate the field, 3
    /// destination (1 fp16, 2 fp32), 4 rounding.
    IntToFloat(_, b, _, op) {
        let up = b << (op.k[1] & 31);
        let x = if op.k[0] != 0 { i64::from((up as i32) >> (op.k[2] & 31)) } else { i64::from(up >> (op.k[2] & 31)) };
        from_integer(x < 0, x.unsigned_abs(), format(op.k[3]), op.k[4]) as u32
    };
    /// FRND; k: 0 format, 2 rounding, 3 flags.
    RoundF32(_, b, _, op) {
        let x = modified(b, op);
        let x = if op.k[3] & 2 != 0 { flush(x) } else { x };
        if is_nan(x) { NAN } else { (integral(f64::from(f32::from_bits(x)), op.k[2]) as f32).to_bits() }
    };
    RoundF16(_, b, _, op) {
        let x = widen(modified(half_of(b, op), op));
        narrow(integral(f64::from(x), op.k[2]) as f32)
    };
    /// F2F between formats of at most 32 bits; k: 0 destination, 1 source, 2 rounding.
    Narrow(_, b, _, op) {
        let rounding = Rounding::from_field(op.k[2]);
        match (op.k[1], op.k[0]) {
            (1, 2) => {
                let x = widen(modified(half_of(b, op), op));
                if x.is_nan() { NAN } else { x.to_bits() }
            }
            (1, _) => {
                let x = modified(half_of(b, op), op);
                if x & 0x7fff > 0x7c00 { 0x7fff } else { x }
            }
            (_, 2) => {
                let x = modified(b, op);
                let x = if op.k[3] & 2 != 0 { flush(x) } else { x };
                if is_nan(x) { NAN } else { x }
            }
            (_, to) => {
                let x = modified(b, op);
                let ftz = op.k[3] & 2 != 0;
                narrow_with(if ftz { flush(x) } else { x }, format(to), rounding, ftz && to == 1)
            }
        }
    };
    /// F2FP; k: 0 flags (1 bf16, 2 saturate to finite, 4 ReLU, 8 merge, 16 upper half of C), 1 rounding.
    Pack(a, b, c, op) {
        let convert = |x: u32| pack_one(x, op);
        if op.k[0] & 8 != 0 {
            let kept = if op.k[0] & 16 != 0 { c >> 16 } else { c & 0xffff };
            kept << 16 | convert(modified(b, op))
        } else {
            convert((a & op.k[2]) ^ op.k[3]) << 16 | convert(modified(b, op))
        }
    };
    /// F2FP.PACK_AB to fp16, to nearest.
    PackHalves(a, b, _, op) narrow(f32::from_bits((a & op.k[2]) ^ op.k[3])) << 16 | narrow(f32::from_bits(modified(b, op)));
    /// F2IP; k: 0 signed, 1 ReLU, 2 NaN gives zero, 3 rounding, 4 upper half of C.
    PackBytes(a, b, c, op) {
        let convert = |x: u32| -> u32 {
            let x = f32::from_bits(x);
            if x.is_nan() {
                return if op.k[2] != 0 || op.k[1] != 0 { 0 } else { 0x80 };
            }
            let x = integral(f64::from(x), op.k[3]);
            let x = if op.k[1] != 0 { x.max(0.0) } else { x };
            if op.k[0] != 0 { x.clamp(-128.0, 127.0) as i32 as u32 & 0xff } else { x.clamp(0.0, 255.0) as u32 }
        };
        let kept = if op.k[4] != 0 { c >> 16 } else { c & 0xffff };
        kept << 16 | convert(a) << 8 | convert(b)
    };
}

#[inline(always)]
fn pack_one(x: u32, op: &MicroOp) -> u32 {
    let format = if op.k[0] & 1 != 0 { BF16 } else { F16 };
    let mut r = narrow_with(x, format, Rounding::from_field(op.k[1]), false);
    let nan = format.is_nan(r.into());
    if op.k[0] & 4 != 0 && !nan && r & 0x8000 != 0 {
        r = 0;
    }
    if op.k[0] & 2 != 0 && format.is_inf(r.into()) {
        r -= 1;
    }
    r
}

fn format(field: u32) -> Format {
    match field {
        1 => F16,
        2 => F32,
        3 => F64,
        _ => BF16,
    }
}

fn from_integer(negative: bool, magnitude: u64, format: Format, rounding: u32) -> u64 {
    if magnitude == 0 {
        return 0;
    }
    let x = Exact { negative, sig: magnitude.into(), exp: 0 };
    format.round(x, Rounding::from_field(rounding), false)
}

/// I2F to fp32 from up to 32 bits, to nearest; k: 1 shift left, 2 shift right that isolate the field.
struct IntToF32<const SIGNED: bool>;

impl<const SIGNED: bool> LaneFn for IntToF32<SIGNED> {
    #[inline(always)]
    fn f(_: u32, b: u32, _: u32, op: &MicroOp) -> u32 {
        let up = b << (op.k[1] & 31);
        if SIGNED {
            (((up as i32) >> (op.k[2] & 31)) as f32).to_bits()
        } else {
            ((up >> (op.k[2] & 31)) as f32).to_bits()
        }
    }
}

/// Like `IntToF32` for one whole register.
struct PackedIntToF32<const SIGNED: bool>;

impl<const SIGNED: bool> LaneFn for PackedIntToF32<SIGNED> {
    #[inline(always)]
    fn f(_: u32, b: u32, _: u32, _: &MicroOp) -> u32 {
        if SIGNED { (b as i32 as f32).to_bits() } else { (b as f32).to_bits() }
    }
}

/// Source B, one register, in words of 64 bits.
#[inline(always)]
fn wide_source(core: &Core<'_>, op: &MicroOp) -> [u64; 32] {
    let b = core.src(op.b);
    each(|i| u64::from(b[i]))
}

warp_ops! {
    /// F2I with a 64-bit side; k as for the narrow one, pd[0] the source format, pd[1] 1 if the destination
    /// is a pair.
    WideToInt(core, op) {
        let double = op.ps[1] == 3;
        let wide = if double { core.src_pair(op.b) } else { wide_source(core, op) };
        let t: [u64; 32] = each(|i| {
            let x = match op.ps[1] {
                3 => f64::from_bits(u64::from(modified((wide[i] >> 32) as u32, op)) << 32 | wide[i] & 0xffff_ffff),
                2 => {
                    let x = modified(wide[i] as u32, op);
                    f64::from(f32::from_bits(if op.k[3] & 2 != 0 { flush(x) } else { x }))
                }
                _ => f64::from(widen(modified(half_of(wide[i] as u32, op), op))),
            };
            to_integer(x, op)
        });
        if op.k[0] == 3 { core.put_pair(op.d, &t) } else { core.put(op.d, &each(|i| t[i] as u32)) }
        Flow::Next
    }

    /// I2F with a 64-bit side; k as for the narrow one, ps[1] 1 if the source is a pair.
    WideToFloat(core, op) {
        let pair = op.ps[1] == 1;
        let wide = if pair { core.src_pair(op.b) } else { wide_source(core, op) };
        let t: [u64; 32] = each(|i| {
            let x = wide[i];
            let (negative, magnitude) = match (pair, op.k[0] != 0) {
                (true, true) => ((x as i64) < 0, (x as i64).unsigned_abs()),
                (true, false) => (false, x),
                (false, signed) => {
                    let up = (x as u32) << (op.k[1] & 31);
                    let x = if signed { i64::from((up as i32) >> (op.k[2] & 31)) } else { i64::from(up >> (op.k[2] & 31)) };
                    (x < 0, x.unsigned_abs())
                }
            };
            from_integer(negative, magnitude, format(op.k[3]), op.k[4])
        });
        if op.k[3] == 3 { core.put_pair(op.d, &t) } else { core.put(op.d, &each(|i| t[i] as u32)) }
        Flow::Next
    }

    /// F2F and FRND with a 64-bit side; k: 0 destination, 1 source, 2 rounding, 3 flags; ps[1] 1 for FRND.
    WideToWide(core, op) {
        let double = op.k[1] == 3;
        let wide = if double { core.src_pair(op.b) } else { wide_source(core, op) };
        let t: [u64; 32] = each(|i| {
            let bits = if double {
                u64::from(modified((wide[i] >> 32) as u32, op)) << 32 | wide[i] & 0xffff_ffff
            } else if op.k[1] == 1 {
                u64::from(modified(half_of(wide[i] as u32, op), op))
            } else {
                let x = modified(wide[i] as u32, op);
                u64::from(if op.k[3] & 2 != 0 { flush(x) } else { x })
            };
            if op.ps[1] == 1 {
                let x = f64::from_bits(bits);
                return if x.is_nan() { bits | 1 << 51 } else { integral(x, op.k[2]).to_bits() };
            }
            change_format(bits, format(op.k[1]), format(op.k[0]), op)
        });
        if op.k[0] == 3 { core.put_pair(op.d, &t) } else { core.put(op.d, &each(|i| t[i] as u32)) }
        Flow::Next
    }
}

/// A conversion to or from fp64: a NaN keeps its sign and the top of its payload and becomes quiet.
fn change_format(bits: u64, from: Format, to: Format, op: &MicroOp) -> u64 {
    let sign = if bits & from.sign_bit() != 0 { to.sign_bit() } else { 0 };
    let (wide, narrow) = (from.precision - 1, to.precision - 1);
    if from.is_nan(bits) {
        let fraction = bits & ((1 << wide) - 1);
        let fraction = if narrow >= wide { fraction << (narrow - wide) } else { fraction >> (wide - narrow) };
        return sign | to.infinity() | 1 << (narrow - 1) | fraction;
    }
    if from.is_inf(bits) {
        return sign | to.infinity();
    }
    let flush = op.k[3] & 2 != 0 && to.precision == F32.precision;
    to.round(from.unpack(bits), Rounding::from_field(op.k[2]), flush)
}

/// F2I; `wide` for the opcode with a 64-bit side.
pub(super) fn f2i(l: &mut Lower<'_>, wide: bool) -> Result<(), Refusal> {
    let (size, format) = (l.bits(75, 2), l.bits(84, 2));
    l.dst(if size == 3 { 2 } else { 1 })?;
    let src = l.b(if format == 3 { 2 } else { 1 })?;
    let upper = format == 1 && src.swizzle == 1;
    l.set_k(0, &[size, l.flag(72), l.bits(78, 2), l.flag(77) | l.flag(80) << 1 | u32::from(upper) << 8]);
    set_modifiers(l, src, if format == 1 { 0x8000 } else { 0x8000_0000 });
    l.op.ps[1] = format as u8;
    match (wide, format) {
        (true, _) => l.run::<WideToInt>(),
        (_, 1) => l.run::<Map<F16ToInt>>(),
        (_, 2) => l.run::<Map<F32ToInt>>(),
        _ => return Err(esr::ILLEGAL_INSTR_PARAM),
    }
    Ok(())
}

/// I2F; `wide` for the opcode with a 64-bit side.
pub(super) fn i2f(l: &mut Lower<'_>, wide: bool) -> Result<(), Refusal> {
    let (format, size, rounding) = (l.bits(75, 2), l.bits(84, 2), l.bits(78, 2));
    l.dst(if format == 3 { 2 } else { 1 })?;
    l.b(if size == 3 { 2 } else { 1 })?;
    let part = l.bits(60, 2);
    let width = 8u32 << size.min(2);
    let at = if l.w.form() == 4 { 0 } else { part * width };
    l.op.k = [l.flag(74), (32u32).saturating_sub(width + at), 32 - width, format, rounding, 0];
    l.op.ps[1] = u8::from(size == 3);
    match (wide, format, rounding) {
        (true, _, _) => l.run::<WideToFloat>(),
        (_, 2, 0) if l.bit(74) => l.run::<Map<IntToF32<true>>>(),
        (_, 2, 0) => l.run::<Map<IntToF32<false>>>(),
        _ => l.run::<Map<IntToFloat>>(),
    }
    Ok(())
}

pub(super) fn i2fp(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.dst(1)?;
    l.b(1)?;
    let rounding = l.bits(78, 2);
    if rounding != 0 {
        l.op.k = [l.flag(74), 0, 0, 2, rounding, 0];
        l.run::<Map<IntToFloat>>();
    } else if l.bit(74) {
        l.run::<Map<PackedIntToF32<true>>>();
    } else {
        l.run::<Map<PackedIntToF32<false>>>();
    }
    Ok(())
}

/// F2F; `wide` for the opcode with a 64-bit side.
pub(super) fn f2f(l: &mut Lower<'_>, wide: bool) -> Result<(), Refusal> {
    let (to, from) = (l.bits(75, 3), l.bits(84, 3));
    l.dst(if to == 3 { 2 } else { 1 })?;
    let src = l.b(if from == 3 { 2 } else { 1 })?;
    let upper = from == 1 && src.swizzle == 1;
    l.set_k(0, &[to, from, l.bits(78, 2), l.flag(80) << 1 | u32::from(upper) << 8]);
    set_modifiers(l, src, if from == 1 { 0x8000 } else { 0x8000_0000 });
    if wide {
        l.run::<WideToWide>()
    } else {
        l.run::<Map<Narrow>>()
    }
    Ok(())
}

/// FRND; `wide` for the opcode of fp64.
pub(super) fn frnd(l: &mut Lower<'_>, wide: bool) -> Result<(), Refusal> {
    let format = l.bits(75, 2);
    let registers = if format == 3 { 2 } else { 1 };
    l.dst(registers)?;
    let src = l.b(registers)?;
    let upper = format == 1 && src.swizzle == 1;
    l.set_k(0, &[format, format, l.bits(78, 2), l.flag(80) << 1 | u32::from(upper) << 8]);
    set_modifiers(l, src, if format == 1 { 0x8000 } else { 0x8000_0000 });
    l.op.ps[1] = 1;
    match (wide, format) {
        (true, _) => l.run::<WideToWide>(),
        (_, 1) => l.run::<Map<RoundF16>>(),
        _ => l.run::<Map<RoundF32>>(),
    }
    Ok(())
}

pub(super) fn f2fp(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.dst(1)?;
    let a = l.a(1)?;
    let b = l.b(1)?;
    l.c(1)?;
    let rounding = l.bits(79, 3);
    if !matches!(rounding, 0 | 3) {
        return Err(esr::ILLEGAL_INSTR_PARAM);
    }
    let flags = l.flag(76) | l.flag(77) << 1 | l.flag(75) << 2 | l.flag(78) << 3;
    // Bits 72 and 73 modify A where both sources are packed; with MERGE_C bit 72 picks the half of C.
    let merge = l.bit(78);
    let upper = merge && l.bit(72);
    l.op.k[0] = flags | u32::from(upper) << 4;
    l.op.k[1] = rounding;
    l.op.k[2] = if a.abs && !merge { 0x7fff_ffff } else { u32::MAX };
    l.op.k[3] = if a.neg && !merge { 0x8000_0000 } else { 0 };
    set_modifiers(l, b, 0x8000_0000);
    if l.op.k[0] == 0 && rounding == 0 {
        l.run::<Map<PackHalves>>()
    } else {
        l.run::<Map<Pack>>()
    }
    Ok(())
}

pub(super) fn f2ip(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.dst(1)?;
    l.a(1)?;
    l.b(1)?;
    l.c(1)?;
    l.op.k = [l.flag(76), l.flag(75), l.flag(74), l.bits(78, 2), l.flag(72), 0];
    l.run::<Map<PackBytes>>();
    Ok(())
}
