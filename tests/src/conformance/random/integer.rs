//! Integer operations.

use ptxgen::{Kernel, Reg, Word};

use crate::conformance::random::operation::LaneOp;

/// The word as signed.
fn s(k: &Kernel, a: Reg<u32>) -> Reg<i32> {
    k.bits(a)
}

/// A signed word as bits.
fn u(k: &Kernel, a: Reg<i32>) -> Reg<u32> {
    k.bits(a)
}

/// Two words as one of 64 bits.
pub(super) fn wide(k: &Kernel, lo: Reg<u32>, hi: Reg<u32>) -> Reg<u64> {
    let hi = k.shl(k.convert::<u32, u64>(hi), 32);
    k.or(hi, k.convert::<u32, u64>(lo))
}

/// Both halves of a 64-bit word in one.
pub(super) fn fold(k: &Kernel, a: Reg<u64>) -> Reg<u32> {
    k.xor(k.convert::<u64, u32>(a), k.convert::<u64, u32>(k.shr(a, 32)))
}

pub(super) fn wide_of(lo: u32, hi: u32) -> u64 {
    u64::from(hi) << 32 | u64::from(lo)
}

pub(super) fn folded(a: u64) -> u32 {
    a as u32 ^ (a >> 32) as u32
}

/// A divisor that is positive whether signed or not.
fn divisor(k: &Kernel, b: Reg<u32>) -> Reg<u32> {
    k.mask_or(b, 0x7fff_ffff, 1)
}

fn lop3(a: u32, b: u32, c: u32, table: u8) -> u32 {
    (0..8).filter(|i| table >> i & 1 == 1).fold(0, |d, i| {
        let pick = |x: u32, bit: u8| if i & bit != 0 { x } else { !x };
        d | pick(a, 4) & pick(b, 2) & pick(c, 1)
    })
}

fn prmt(a: u32, b: u32, selector: u32) -> u32 {
    let bytes = wide_of(a, b).to_le_bytes();
    u32::from_le_bytes([0, 4, 8, 12].map(|at| {
        let nibble = selector >> at & 15;
        let byte = bytes[(nibble & 7) as usize];
        if nibble & 8 == 0 { byte } else { (byte as i8 >> 7) as u8 }
    }))
}

fn bfe(a: u32, from: u32, len: u32, signed: bool) -> u32 {
    let (from, len) = (from & 0xff, len & 0xff);
    let fill = signed && len > 0 && a >> (from + len - 1).min(31) & 1 == 1;
    (0..32).fold(0, |d, i| {
        let bit = if i < len && from + i < 32 { a >> (from + i) & 1 } else { u32::from(fill) };
        d | bit << i
    })
}

fn bfi(a: u32, into: u32, from: u32, len: u32) -> u32 {
    let (from, len) = (from & 0xff, len & 0xff);
    (0..len.min(32))
        .filter(|i| from + i < 32)
        .fold(into, |d, i| d & !(1 << (from + i)) | (a >> i & 1) << (from + i))
}

fn dp4a(a: u32, b: u32, c: u32, signed: [bool; 2]) -> u32 {
    let byte = |x: u8, signed: bool| if signed { i32::from(x as i8) } else { i32::from(x) };
    let products = a.to_le_bytes().into_iter().zip(b.to_le_bytes());
    products.fold(c as i32, |sum, (x, y)| sum.wrapping_add(byte(x, signed[0]) * byte(y, signed[1]))) as u32
}

fn emit_dp4a<A: Word, B: Word>(
    k: &Kernel,
    [a, b, c, _]: crate::conformance::random::operation::Regs,
    _: u32,
) -> Reg<u32> {
    u(k, k.dp4a(k.bits::<u32, A>(a), k.bits::<u32, B>(b), s(k, c)))
}

macro_rules! ops {
    ($($name:literal: |$k:ident, $regs:pat, $rc:pat_param| $emit:expr, |$words:pat, $wc:pat_param| $eval:expr;)*) => {
        &[$(LaneOp { name: $name, emit: |$k, $regs, $rc| $emit, eval: |$words, $wc| Some($eval) }),*]
    };
}

pub(super) const OPS: &[LaneOp] = ops! {
    "add.u32": |k, [a, b, ..], _| k.add(a, b), |[a, b, ..], _| a.wrapping_add(b);
    "add.u32 immediate": |k, [a, ..], n| k.add(a, n), |[a, ..], n| a.wrapping_add(n);
    "sub.u32": |k, [a, b, ..], _| k.sub(a, b), |[a, b, ..], _| a.wrapping_sub(b);
    "mul.lo.u32": |k, [a, b, ..], _| k.mul(a, b), |[a, b, ..], _| a.wrapping_mul(b);
    "mul.lo.u32 immediate": |k, [a, ..], n| k.mul(a, n), |[a, ..], n| a.wrapping_mul(n);
    "mul.hi.u32": |k, [a, b, ..], _| k.mul_hi(a, b), |[a, b, ..], _| ((u64::from(a) * u64::from(b)) >> 32) as u32;
    "mul.hi.s32": |k, [a, b, ..], _| u(k, k.mul_hi(s(k, a), s(k, b))),
        |[a, b, ..], _| ((i64::from(a as i32) * i64::from(b as i32)) >> 32) as u32;
    "mul.wide.u32": |k, [a, b, ..], _| fold(k, k.mul_wide(a, b)), |[a, b, ..], _| folded(u64::from(a) * u64::from(b));
    "mul.wide.s32": |k, [a, b, ..], _| fold(k, k.bits(k.mul_wide(s(k, a), s(k, b)))),
        |[a, b, ..], _| folded((i64::from(a as i32) * i64::from(b as i32)) as u64);
    "mad.lo.u32": |k, [a, b, c, _], _| k.mad(a, b, c), |[a, b, c, _], _| a.wrapping_mul(b).wrapping_add(c);
    "mad.wide.u32": |k, [a, b, c, d], _| fold(k, k.mad_wide(a, b, wide(k, c, d))),
        |[a, b, c, d], _| folded((u64::from(a) * u64::from(b)).wrapping_add(wide_of(c, d)));
    "mad.wide.s32": |k, [a, b, c, d], _| fold(k, k.bits(k.mad_wide(s(k, a), s(k, b), k.bits::<u64, i64>(wide(k, c, d))))),
        |[a, b, c, d], _| folded((i64::from(a as i32) * i64::from(b as i32)).wrapping_add(wide_of(c, d) as i64) as u64);
    "add.u64": |k, [a, b, c, d], _| fold(k, k.add(wide(k, a, b), wide(k, c, d))),
        |[a, b, c, d], _| folded(wide_of(a, b).wrapping_add(wide_of(c, d)));
    "sub.u64": |k, [a, b, c, d], _| fold(k, k.sub(wide(k, a, b), wide(k, c, d))),
        |[a, b, c, d], _| folded(wide_of(a, b).wrapping_sub(wide_of(c, d)));
    "mul.lo.u64": |k, [a, b, c, d], _| fold(k, k.mul(wide(k, a, b), wide(k, c, d))),
        |[a, b, c, d], _| folded(wide_of(a, b).wrapping_mul(wide_of(c, d)));
    "mul.hi.u64": |k, [a, b, c, d], _| fold(k, k.mul_hi(wide(k, a, b), wide(k, c, d))),
        |[a, b, c, d], _| folded(((u128::from(wide_of(a, b)) * u128::from(wide_of(c, d))) >> 64) as u64);
    "min.s64": |k, [a, b, c, d], _| {
        fold(k, k.bits(k.min(k.bits::<u64, i64>(wide(k, a, b)), k.bits::<u64, i64>(wide(k, c, d)))))
    }, |[a, b, c, d], _| folded((wide_of(a, b) as i64).min(wide_of(c, d) as i64) as u64);
    "max.u64": |k, [a, b, c, d], _| fold(k, k.max(wide(k, a, b), wide(k, c, d))),
        |[a, b, c, d], _| folded(wide_of(a, b).max(wide_of(c, d)));
    "shl.b64": |k, [a, b, c, _], _| fold(k, k.shl(wide(k, a, b), k.and(c, 0x7f))),
        |[a, b, c, _], _| folded(wide_of(a, b).checked_shl(c & 0x7f).unwrap_or(0));
    "shr.u64": |k, [a, b, c, _], _| fold(k, k.shr(wide(k, a, b), k.and(c, 0x7f))),
        |[a, b, c, _], _| folded(wide_of(a, b).checked_shr(c & 0x7f).unwrap_or(0));
    "shr.s64": |k, [a, b, c, _], _| fold(k, k.bits(k.shr(k.bits::<u64, i64>(wide(k, a, b)), k.and(c, 0x7f)))),
        |[a, b, c, _], _| folded((wide_of(a, b) as i64 >> (c & 0x7f).min(63)) as u64);
    "and.b32": |k, [a, b, ..], _| k.and(a, b), |[a, b, ..], _| a & b;
    "or.b32": |k, [a, b, ..], _| k.or(a, b), |[a, b, ..], _| a | b;
    "xor.b32": |k, [a, b, ..], _| k.xor(a, b), |[a, b, ..], _| a ^ b;
    "not.b32": |k, [a, ..], _| k.not(a), |[a, ..], _| !a;
    "lop3.b32": |k, [a, b, c, _], n| k.lop3(a, b, c, n as u8), |[a, b, c, _], n| lop3(a, b, c, n as u8);
    "lop3.b32 immediate": |k, [a, b, ..], n| k.lop3(a, n, b, (n >> 3) as u8), |[a, b, ..], n| lop3(a, n, b, (n >> 3) as u8);
    "shl.b32": |k, [a, b, ..], _| k.shl(a, k.and(b, 0x3f)), |[a, b, ..], _| a.checked_shl(b & 0x3f).unwrap_or(0);
    "shr.u32": |k, [a, b, ..], _| k.shr(a, k.and(b, 0x3f)), |[a, b, ..], _| a.checked_shr(b & 0x3f).unwrap_or(0);
    "shr.s32": |k, [a, b, ..], _| u(k, k.shr(s(k, a), k.and(b, 0x3f))), |[a, b, ..], _| (a as i32 >> (b & 0x3f).min(31)) as u32;
    "shf.l.wrap.b32": |k, [a, b, c, _], _| k.funnel_left(a, b, c), |[a, b, c, _], _| (wide_of(a, b) << (c & 31) >> 32) as u32;
    "shf.r.wrap.b32": |k, [a, b, c, _], _| k.funnel_right(a, b, c), |[a, b, c, _], _| (wide_of(a, b) >> (c & 31)) as u32;
    "prmt.b32": |k, [a, b, c, _], _| k.prmt(a, b, c), |[a, b, c, _], _| prmt(a, b, c);
    "prmt.b32 immediate": |k, [a, b, ..], n| k.prmt(a, b, n & 0xffff), |[a, b, ..], n| prmt(a, b, n);
    "bfe.u32": |k, [a, b, c, _], _| k.bfe(a, k.and(b, 0x3f), k.and(c, 0x3f)), |[a, b, c, _], _| bfe(a, b & 0x3f, c & 0x3f, false);
    "bfe.s32": |k, [a, b, c, _], _| u(k, k.bfe(s(k, a), k.and(b, 0x3f), k.and(c, 0x3f))),
        |[a, b, c, _], _| bfe(a, b & 0x3f, c & 0x3f, true);
    "bfe.u32 whole bytes": |k, [a, b, c, _], _| k.bfe(a, b, c), |[a, b, c, _], _| bfe(a, b, c, false);
    "bfi.b32": |k, [a, b, c, d], _| k.bfi(a, b, k.and(c, 0x3f), k.and(d, 0x3f)), |[a, b, c, d], _| bfi(a, b, c & 0x3f, d & 0x3f);
    "popc.b32": |k, [a, ..], _| k.popc(a), |[a, ..], _| a.count_ones();
    "clz.b32": |k, [a, ..], _| k.clz(a), |[a, ..], _| a.leading_zeros();
    "min.u32": |k, [a, b, ..], _| k.min(a, b), |[a, b, ..], _| a.min(b);
    "max.u32": |k, [a, b, ..], _| k.max(a, b), |[a, b, ..], _| a.max(b);
    "min.s32": |k, [a, b, ..], _| u(k, k.min(s(k, a), s(k, b))), |[a, b, ..], _| (a as i32).min(b as i32) as u32;
    "max.s32": |k, [a, b, ..], _| u(k, k.max(s(k, a), s(k, b))), |[a, b, ..], _| (a as i32).max(b as i32) as u32;
    "dp4a.u32.u32": |k, regs, n| emit_dp4a::<u32, u32>(k, regs, n), |[a, b, c, _], _| dp4a(a, b, c, [false, false]);
    "dp4a.u32.s32": |k, regs, n| emit_dp4a::<u32, i32>(k, regs, n), |[a, b, c, _], _| dp4a(a, b, c, [false, true]);
    "dp4a.s32.u32": |k, regs, n| emit_dp4a::<i32, u32>(k, regs, n), |[a, b, c, _], _| dp4a(a, b, c, [true, false]);
    "dp4a.s32.s32": |k, regs, n| emit_dp4a::<i32, i32>(k, regs, n), |[a, b, c, _], _| dp4a(a, b, c, [true, true]);
    "div.u32": |k, [a, b, ..], _| k.div(a, divisor(k, b)), |[a, b, ..], _| a / (b & 0x7fff_ffff | 1);
    "rem.u32": |k, [a, b, ..], _| k.rem(a, divisor(k, b)), |[a, b, ..], _| a % (b & 0x7fff_ffff | 1);
    "div.s32": |k, [a, b, ..], _| u(k, k.div(s(k, a), s(k, divisor(k, b)))),
        |[a, b, ..], _| (a as i32 / (b & 0x7fff_ffff | 1) as i32) as u32;
    "rem.s32": |k, [a, b, ..], _| u(k, k.rem(s(k, a), s(k, divisor(k, b)))),
        |[a, b, ..], _| (a as i32 % (b & 0x7fff_ffff | 1) as i32) as u32;
    "div.u32 by a constant": |k, [a, ..], n| k.div(a, n >> 12 | 3), |[a, ..], n| a / (n >> 12 | 3);
    "div.u64": |k, [a, b, c, d], _| fold(k, k.div(wide(k, a, b), wide(k, divisor(k, c), k.and(d, 0xff)))),
        |[a, b, c, d], _| folded(wide_of(a, b) / wide_of(c & 0x7fff_ffff | 1, d & 0xff));
    "selp setp.lt.u32": |k, [a, b, c, d], _| k.select(k.lt(a, b), c, d), |[a, b, c, d], _| if a < b { c } else { d };
    "selp setp.le.s32": |k, [a, b, c, d], _| k.select(k.le(s(k, a), s(k, b)), c, d),
        |[a, b, c, d], _| if a as i32 <= b as i32 { c } else { d };
    "selp setp.eq.u32": |k, [a, b, c, d], _| k.select(k.eq(k.and(a, 3), k.and(b, 3)), c, d),
        |[a, b, c, d], _| if a & 3 == b & 3 { c } else { d };
    "selp setp.gt.s64": |k, [a, b, c, d], _| {
        k.select(k.gt(k.bits::<u64, i64>(wide(k, a, b)), k.bits::<u64, i64>(wide(k, c, d))), a, d)
    }, |[a, b, c, d], _| if wide_of(a, b) as i64 > wide_of(c, d) as i64 { a } else { d };
    "selp of two conditions": |k, [a, b, c, d], n| k.select(k.either(k.lt(a, n), k.both(k.ge(b, c), k.unless(k.ne(k.and(d, 1), 0)))), c, d),
        |[a, b, c, d], n| if a < n || b >= c && d & 1 == 0 { c } else { d };
};
