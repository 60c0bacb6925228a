//! Atomic operations on global, generic and shared memory.

use std::sync::atomic::Ordering::SeqCst;

use crate::gpu::sm::core::{Core, Flow};
use crate::gpu::sm::fault::esr;
use crate::gpu::sm::guest;
use crate::gpu::sm::lanes::each;
use crate::gpu::sm::launch::Access;
use crate::gpu::sm::lower::{Lower, Refusal};
use crate::gpu::sm::micro_op::MicroOp;
use crate::gpu::sm::micro_op::warp_ops;
use crate::gpu::sm::slots::NO_PREDICATE;
use crate::gpu::sm::soft::F64 as F64_FORMAT;

use crate::gpu::sm::ops::address::{self, Checked, Space};
use crate::gpu::sm::ops::float::flush;
use crate::gpu::sm::ops::half::{add_bf16, narrow, widen};
use crate::gpu::sm::ops::memory::{addresses, narrow_address, offsets, wide_address};

/// Operation field [87,91).
const ADD: u32 = 0;
const EXCH: u32 = 8;
const SAFE_ADD: u32 = 9;

/// Type field [73,76).
const U32: u32 = 0;
const S32: u32 = 1;
const U64: u32 = 2;
const F32: u32 = 3;
const F16X2: u32 = 4;
const S64: u32 = 5;
const F64: u32 = 6;
/// f32 that keeps subnormal numbers, and pairs of bf16: sm_90 has them, in a separate field.
const F32_FULL: u32 = 7;
const BF16X2: u32 = 8;

fn width(ty: u32) -> u64 {
    if matches!(ty, U64 | S64 | F64) { 8 } else { 4 }
}

/// The new value of a 32-bit word, or of a 64-bit one; `None` if the type has no such operation.
fn combine(op: u32, ty: u32, old: u64, b: u64) -> Option<u64> {
    let (x, y) = (old as u32, b as u32);
    let new = match (op, ty) {
        (EXCH, _) => b,
        (ADD | SAFE_ADD, U32 | S32) => x.wrapping_add(y).into(),
        (ADD | SAFE_ADD, U64 | S64) => old.wrapping_add(b),
        (ADD, F32) => {
            let r = f32::from_bits(flush(x)) + f32::from_bits(flush(y));
            if r.is_nan() { 0x7fff_ffff } else { flush(r.to_bits()).into() }
        }
        (ADD, F32_FULL) => {
            let r = f32::from_bits(x) + f32::from_bits(y);
            if r.is_nan() { 0x7fff_ffff } else { r.to_bits().into() }
        }
        (ADD, BF16X2) => {
            let sum = |s: u32| add_bf16(x >> s & 0xffff, y >> s & 0xffff) << s;
            (sum(0) | sum(16)).into()
        }
        (ADD, F16X2) => {
            let sum = |s: u32| narrow(widen(x >> s & 0xffff) + widen(y >> s & 0xffff)) << s;
            (sum(0) | sum(16)).into()
        }
        (ADD, F64) => {
            let r = f64::from_bits(old) + f64::from_bits(b);
            // The payload of a NaN operand stays (Hopper); which one's, if both are, is assumed.
            match [b, old].iter().find(|&&x| F64_FORMAT.is_nan(x)) {
                Some(nan) => nan | 1 << 51,
                None if r.is_nan() => 0xfff8_0000_0000_0000,
                None => r.to_bits(),
            }
        }
        (1, U32) => x.min(y).into(),
        (1, S32) => ((x as i32).min(y as i32) as u32).into(),
        (1, U64) => old.min(b),
        (1, S64) => (old as i64).min(b as i64) as u64,
        (1, F16X2) => half_pairs(x, y, |p, q| if p < q { p } else { q }),
        (2, U32) => x.max(y).into(),
        (2, S32) => ((x as i32).max(y as i32) as u32).into(),
        (2, U64) => old.max(b),
        (2, S64) => (old as i64).max(b as i64) as u64,
        (2, F16X2) => half_pairs(x, y, |p, q| if p > q { p } else { q }),
        (3, U32) => if x >= y { 0 } else { x + 1 }.into(),
        (4, U32) => if x == 0 || x > y { y } else { x - 1 }.into(),
        (5, U32 | S32 | U64 | S64) => old & b,
        (6, U32 | S32 | U64 | S64) => old | b,
        (7, U32 | S32 | U64 | S64) => old ^ b,
        _ => return None,
    };
    Some(new)
}

fn half_pairs(x: u32, y: u32, pick: impl Fn(f32, f32) -> f32) -> u64 {
    let one = |s: u32| narrow(pick(widen(x >> s & 0xffff), widen(y >> s & 0xffff))) << s;
    (one(0) | one(16)).into()
}

/// Replaces a word by a function of it; the old value.
pub(super) fn update(host: u64, wide: bool, f: impl Fn(u64) -> u64) -> u64 {
    let p = host as *mut u8;
    // SAFETY: the address comes from a `Checked` access of this width.
    unsafe {
        if wide {
            let word = guest::atomic_u64(p);
            let mut old = word.load(SeqCst);
            loop {
                match word.compare_exchange_weak(old, f(old), SeqCst, SeqCst) {
                    Ok(_) => return old,
                    Err(now) => old = now,
                }
            }
        } else {
            let word = guest::atomic_u32(p);
            let mut old = word.load(SeqCst);
            loop {
                match word.compare_exchange_weak(old, f(old.into()) as u32, SeqCst, SeqCst) {
                    Ok(_) => return old.into(),
                    Err(now) => old = now,
                }
            }
        }
    }
}

/// Does the operation k[3] of type k[4] lane by lane, from lane 0 on; the old values.
fn each_lane(core: &Core<'_>, op: &MicroOp, at: &Checked) -> Option<[u64; 32]> {
    let (operation, ty) = (op.k[3], op.k[4]);
    let wide = width(ty) == 8;
    let data = operands(core, op.c, wide);
    combine(operation, ty, 0, 0)?;
    let mut old = [0u64; 32];
    for i in lanes(core.mask) {
        old[i] = update(at.host[i], wide, |x| combine(operation, ty, x, data[i]).unwrap_or(x));
    }
    Some(old)
}

pub(super) fn lanes(mask: u32) -> impl Iterator<Item = usize> {
    (0..32).filter(move |i| mask >> i & 1 != 0)
}

/// A source of 32 or 64 bits.
#[inline(always)]
pub(super) fn operands(core: &Core<'_>, slot: u16, wide: bool) -> [u64; 32] {
    if wide {
        return core.src_pair(slot);
    }
    let t = core.src(slot);
    each(|i| u64::from(t[i]))
}

#[inline(always)]
pub(super) fn put_old(core: &mut Core<'_>, op: &MicroOp, old: &[u64; 32], wide: bool) {
    if wide { core.put_pair(op.d, old) } else { core.put(op.d, &each(|i| old[i] as u32)) }
}

fn space(op: &MicroOp) -> Space {
    if op.k[5] != 0 { Space::Generic } else { Space::Global }
}

/// Whether an executing lane's address lies in a memory window.
fn in_window(core: &Core<'_>, address: &[u64; 32]) -> bool {
    lanes(core.mask).any(|i| core.tlb.window(address[i]).is_some())
}

warp_ops! {
    /// ATOMG, ATOM and RED; k: 0 to 2 the address, 3 operation, 4 type, 5 generic.
    Atomic(core, op) {
        let address = addresses(core, op);
        let wide = width(op.k[4]) == 8;
        // In a window some operations are not done; Pd reports it, and the program does them another way.
        let refused = op.k[5] != 0
            && (matches!(op.k[4], F32 | F16X2 | F64 | F32_FULL | BF16X2) || (wide && matches!(op.k[3], 1 | 2)))
            && in_window(core, &address);
        if refused {
            core.put_pred(op.pd[0], 0);
            return Flow::Next;
        }
        let at = match address::global(core, address, width(op.k[4]), Access::Atomic, space(op)) {
            Ok(at) => at,
            Err(flow) => return flow,
        };
        let Some(old) = each_lane(core, op, &at) else {
            return core.unsupported("atomic operation for this type");
        };
        put_old(core, op, &old, wide);
        core.put_pred(op.pd[0], u32::MAX);
        Flow::Next
    }

    /// ATOMG.CAS and ATOM.CAS, with k[3] CAST; the comparand in C, the new value in ps[1] and ps[2] as a slot.
    AtomicCompare(core, op) {
        let address = addresses(core, op);
        let wide = width(op.k[4]) == 8;
        if op.k[5] != 0 && in_window(core, &address) {
            core.put_pred(op.pd[0], 0);
            return Flow::Next;
        }
        let at = match address::global(core, address, width(op.k[4]), Access::Atomic, space(op)) {
            Ok(at) => at,
            Err(flow) => return flow,
        };
        let mut old = compare_exchange(core, op, &at, wide);
        if op.k[3] != 0 {
            stored(core, op, &mut old, wide);
        }
        put_old(core, op, &old, wide);
        core.put_pred(op.pd[0], u32::MAX);
        Flow::Next
    }

    /// ATOMS; k: 0 to 2 the address, 3 operation, 4 type.
    SharedAtomic(core, op) {
        let wide = width(op.k[4]) == 8;
        let at = match address::shared(core, &offsets(core, op), width(op.k[4])) {
            Ok(at) => at,
            Err(flow) => return flow,
        };
        let Some(old) = each_lane(core, op, &at) else {
            return core.unsupported("atomic operation for this type");
        };
        put_old(core, op, &old, wide);
        Flow::Next
    }

    /// ATOMS.CAS and, k[3], CAST, which returns whether it stored.
    SharedCompare(core, op) {
        let wide = width(op.k[4]) == 8;
        let at = match address::shared(core, &offsets(core, op), width(op.k[4])) {
            Ok(at) => at,
            Err(flow) => return flow,
        };
        let mut old = compare_exchange(core, op, &at, wide);
        if op.k[3] != 0 {
            stored(core, op, &mut old, wide);
        }
        put_old(core, op, &old, wide);
        Flow::Next
    }

    /// ATOMS.POPC.INC.32: counts the executing lanes.
    SharedCount(core, op) {
        let at = match address::shared(core, &offsets(core, op), 4) {
            Ok(at) => at,
            Err(flow) => return flow,
        };
        let mut old = [0u64; 32];
        for i in lanes(core.mask) {
            old[i] = update(at.host[i], false, |x| u64::from((x as u32).wrapping_add(1)));
        }
        put_old(core, op, &old, false);
        Flow::Next
    }
}

/// The slot of the new value of a compare-and-swap, kept in two predicate fields that these operations do not
/// use.
fn new_value(op: &MicroOp) -> u16 {
    u16::from_le_bytes([op.ps[1], op.ps[2]])
}

fn compare_exchange(core: &Core<'_>, op: &MicroOp, at: &Checked, wide: bool) -> [u64; 32] {
    let compare = operands(core, op.c, wide);
    let new = operands(core, new_value(op), wide);
    let mut old = [0u64; 32];
    for i in lanes(core.mask) {
        old[i] = update(at.host[i], wide, |x| if x == compare[i] { new[i] } else { x });
    }
    old
}

/// Turns the old values of a compare-and-swap into whether it stored.
fn stored(core: &Core<'_>, op: &MicroOp, old: &mut [u64; 32], wide: bool) {
    let compare = operands(core, op.c, wide);
    for i in 0..32 {
        old[i] = u64::from(old[i] == compare[i]);
    }
}

/// The type field [73,76). On sm_90 the floats have operations of their own, and 64-bit signed integers
/// another number.
fn type_of(l: &Lower<'_>) -> Result<u32, Refusal> {
    match (l.target.arch.encoding(), l.bits(73, 3)) {
        (sass::Encoding::Sm8x, ty) => Ok(ty),
        (sass::Encoding::Sm9x, ty @ 0..=2) => Ok(ty),
        (sass::Encoding::Sm9x, 3) => Ok(S64),
        (sass::Encoding::Sm9x, _) => Err(esr::ILLEGAL_INSTR_PARAM),
    }
}

/// ATOMG and ATOM.
pub(super) fn atom(l: &mut Lower<'_>, generic: bool) -> Result<(), Refusal> {
    let ty = type_of(l)?;
    with_result(l, l.bits(87, 4), ty, generic)
}

/// RED.
pub(super) fn red(l: &mut Lower<'_>) -> Result<(), Refusal> {
    let ty = type_of(l)?;
    without_result(l, l.bits(87, 3), ty)
}

/// The type of sm_90's float atomics, [73,77).
fn float_type(l: &Lower<'_>) -> Result<u32, Refusal> {
    match l.bits(73, 4) {
        0 => Ok(F16X2),
        3 => Ok(BF16X2),
        9 => Ok(F32),
        12 => Ok(F32_FULL),
        15 => Ok(F64),
        _ => Err(esr::ILLEGAL_INSTR_PARAM),
    }
}

/// ATOMG and ATOM of floats on sm_90.
pub(super) fn float_atom(l: &mut Lower<'_>, generic: bool) -> Result<(), Refusal> {
    let ty = float_type(l)?;
    with_result(l, l.bits(88, 2), ty, generic)
}

/// RED of floats on sm_90.
pub(super) fn float_red(l: &mut Lower<'_>) -> Result<(), Refusal> {
    let ty = float_type(l)?;
    without_result(l, l.bits(88, 2), ty)
}

/// An atomic operation whose old value is kept.
fn with_result(l: &mut Lower<'_>, operation: u32, ty: u32, generic: bool) -> Result<(), Refusal> {
    let registers = (width(ty) / 4) as u32;
    l.dst(registers)?;
    wide_address(l, 64, 71, l.w.sbits(40, 24))?;
    l.op.c = l.reg(l.bits(32, 8), registers)?;
    l.set_k(3, &[operation, ty, u32::from(generic)]);
    l.pd();
    l.run::<Atomic>();
    Ok(())
}

/// An atomic operation that returns nothing.
fn without_result(l: &mut Lower<'_>, operation: u32, ty: u32) -> Result<(), Refusal> {
    wide_address(l, 64, 71, l.w.sbits(40, 24))?;
    l.op.c = l.reg(l.bits(32, 8), (width(ty) / 4) as u32)?;
    l.op.d = l.reg_out(255, 1)?;
    l.set_k(3, &[operation, ty, 0]);
    l.op.pd[0] = NO_PREDICATE;
    l.run::<Atomic>();
    Ok(())
}

/// ATOMG.CAS and ATOM.CAS.
pub(super) fn cas(l: &mut Lower<'_>, generic: bool) -> Result<(), Refusal> {
    let ty = type_of(l)?;
    let registers = (width(ty) / 4) as u32;
    l.dst(registers)?;
    wide_address(l, 64, 71, l.w.sbits(40, 24))?;
    l.op.c = l.reg(l.bits(32, 8), registers)?;
    let new = l.reg(l.bits(64, 8), registers)?.to_le_bytes();
    (l.op.ps[1], l.op.ps[2]) = (new[0], new[1]);
    l.set_k(3, &[u32::from(generic && l.bit(87)), ty, u32::from(generic)]);
    l.pd();
    l.run::<AtomicCompare>();
    Ok(())
}

pub(super) fn atoms(l: &mut Lower<'_>) -> Result<(), Refusal> {
    let ty = l.bits(73, 2);
    let registers = (width(ty) / 4) as u32;
    l.dst(registers)?;
    narrow_address(l, 64, true)?;
    l.op.c = l.reg(l.bits(32, 8), registers)?;
    (l.op.k[3], l.op.k[4]) = (l.bits(87, 4), ty);
    l.run::<SharedAtomic>();
    Ok(())
}

pub(super) fn atoms_cas(l: &mut Lower<'_>) -> Result<(), Refusal> {
    let ty = l.bits(73, 2);
    let registers = (width(ty) / 4) as u32;
    l.dst(registers)?;
    narrow_address(l, 64, true)?;
    l.op.c = l.reg(l.bits(32, 8), registers)?;
    let new = l.reg(l.bits(64, 8), registers)?.to_le_bytes();
    (l.op.ps[1], l.op.ps[2]) = (new[0], new[1]);
    (l.op.k[3], l.op.k[4]) = (l.flag(87), ty);
    l.run::<SharedCompare>();
    Ok(())
}

/// ATOMS.POPC.INC.
pub(super) fn atoms_count(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.dst(1)?;
    narrow_address(l, 64, true)?;
    l.run::<SharedCount>();
    Ok(())
}
