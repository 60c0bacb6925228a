//! Matrix instructions: fragments of small matrices spread over the lanes of a warp.
//!
//! In what follows g = lane / 4 and t = lane % 4. Every lane must take part; with less, the hardware's result
//! is undefined and the instruction is reported.

use crate::gpu::sm::core::{Core, Flow};
use crate::gpu::sm::fault::esr;
use crate::gpu::sm::lower::{Lower, Refusal};
use crate::gpu::sm::micro_op::MicroOp;
use crate::gpu::sm::micro_op::warp_ops;
use crate::gpu::sm::soft::{Exact, F16, F32, Rounding};

use crate::gpu::sm::ops::half::widen;

/// Rows, columns and depth of the largest floating-point product.
const M: usize = 16;
const N: usize = 8;
const K: usize = 16;

/// The exponent of a zero: far below every other, so that it never is the largest and its terms shift away.
const ZERO_EXPONENT: i32 = -100_000;

/// Element types of HMMA, as the field [82,84) counts them.
const HALF: u32 = 0;
const BRAIN: u32 = 1;
const TF32: u32 = 2;

/// A matrix of numbers split into signed significand and exponent, and the same as fp32.
struct Split<const R: usize, const C: usize> {
    sig: [[i64; C]; R],
    exp: [[i32; C]; R],
    value: [[f32; C]; R],
    /// Whether all numbers are finite.
    finite: bool,
}

impl<const R: usize, const C: usize> Split<R, C> {
    fn new() -> Self {
        Split { sig: [[0; C]; R], exp: [[ZERO_EXPONENT; C]; R], value: [[0.0; C]; R], finite: true }
    }

    /// Stores an fp32 bit pattern of which the upper `1 + 8 + fraction` bits count.
    fn set(&mut self, r: usize, c: usize, x: f32, fraction: u32) {
        let (sig, exp) = split(x, fraction);
        self.sig[r][c] = sig;
        self.exp[r][c] = exp;
        self.value[r][c] = x;
        self.finite &= x.is_finite();
    }
}

/// Significand with `fraction` bits below the point, and exponent. Subnormal numbers of the narrow formats
/// are normal fp32 numbers, so the caller's choice of `fraction` and [`HALF_MINIMUM`] returns them to the smallest
/// exponent of their format.
fn split(x: f32, fraction: u32) -> (i64, i32) {
    let bits = x.to_bits();
    let field = (bits >> 23 & 0xff) as i32;
    let sig = i64::from(bits & 0x7f_ffff | if field == 0 { 0 } else { 0x80_0000 }) >> (23 - fraction);
    if sig == 0 {
        return (0, ZERO_EXPONENT);
    }
    (if bits >> 31 != 0 { -sig } else { sig }, field.max(1) - 127)
}

/// The smallest exponent of fp16; subnormal numbers keep it, with a significand below one.
const HALF_MINIMUM: i32 = -14;

/// The operands of one HMMA.
struct Product {
    a: Split<M, K>,
    b: Split<K, N>,
    /// Fraction bits of an element.
    fraction: u32,
    /// Depth.
    k: usize,
}

impl Product {
    fn new(kind: u32, k: usize) -> Self {
        let fraction = if kind == BRAIN { 7 } else { 10 };
        Product { a: Split::new(), b: Split::new(), fraction, k }
    }

    fn element(&self, kind: u32, register: u32, upper: bool) -> f32 {
        match kind {
            HALF => widen(if upper { register >> 16 } else { register & 0xffff }),
            BRAIN => f32::from_bits(if upper { register & 0xffff_0000 } else { register << 16 }),
            _ => f32::from_bits(register & !0x1fff),
        }
    }

    fn set_a(&mut self, kind: u32, r: usize, c: usize, x: f32) {
        self.a.set(r, c, x, self.fraction);
        if kind == HALF {
            at_half_minimum(&mut self.a.sig[r][c], &mut self.a.exp[r][c]);
        }
    }

    fn set_b(&mut self, kind: u32, r: usize, c: usize, x: f32) {
        self.b.set(r, c, x, self.fraction);
        if kind == HALF {
            at_half_minimum(&mut self.b.sig[r][c], &mut self.b.exp[r][c]);
        }
    }
}

fn at_half_minimum(sig: &mut i64, exp: &mut i32) {
    if *sig != 0 && *exp < HALF_MINIMUM {
        *sig >>= HALF_MINIMUM - *exp;
        *exp = HALF_MINIMUM;
    }
}

/// How the tensor core of an architecture sums.
#[derive(Clone, Copy)]
struct Rules {
    /// Bits kept below the largest exponent.
    kept: i32,
    /// Depth that is summed at once; deeper products go through the accumulator.
    depth: usize,
}

impl Product {
    /// Adds the products of `ks` to the accumulators: terms are cut off below the largest exponent, summed
    /// exactly, and the sum is cut to fp32 or rounded to fp16.
    fn accumulate(&self, ks: std::ops::Range<usize>, acc: &mut [[f32; N]; M], half: bool, kept: i32) {
        for (row, acc) in acc.iter_mut().enumerate() {
            let mut c = Split::<1, N>::new();
            for (n, x) in acc.iter().enumerate() {
                c.set(0, n, *x, 23);
                if half {
                    c.exp[0][n] =
                        if c.sig[0][n] != 0 { c.exp[0][n].max(HALF_MINIMUM) } else { ZERO_EXPONENT };
                    let (sig, exp) = split(*x, 23);
                    if sig != 0 && exp < HALF_MINIMUM {
                        c.sig[0][n] = sig >> (HALF_MINIMUM - exp);
                    }
                }
            }
            let mut largest = c.exp[0];
            for k in ks.clone() {
                for n in 0..N {
                    largest[n] = largest[n].max(self.a.exp[row][k] + self.b.exp[k][n]);
                }
            }
            let mut sum = [0i64; N];
            let up = kept - 2 * self.fraction as i32;
            for k in ks.clone() {
                for n in 0..N {
                    let shift = (largest[n] - self.a.exp[row][k] - self.b.exp[k][n]).clamp(0, 62);
                    let term = self.a.sig[row][k] * self.b.sig[k][n];
                    let cut = (term.abs() << up) >> shift;
                    sum[n] += if term < 0 { -cut } else { cut };
                }
            }
            for n in 0..N {
                let term = c.sig[0][n];
                let shift = (largest[n] - c.exp[0][n]).clamp(0, 62);
                let cut = (term.abs() << (kept - 23)) >> shift;
                sum[n] += if term < 0 { -cut } else { cut };
            }
            let finite = self.a.finite && self.b.finite && c.finite;
            for n in 0..N {
                let special = if finite { None } else { self.special(row, n, ks.clone(), acc[n]) };
                acc[n] = special.unwrap_or_else(|| {
                    let exact = Exact {
                        negative: sum[n] < 0,
                        sig: sum[n].unsigned_abs().into(),
                        exp: largest[n] - kept,
                    };
                    rounded(exact, half)
                });
            }
        }
    }

    /// The infinity or NaN that operands of one output lead to, if any is one. Finite products count as
    /// numbers, however large.
    fn special(&self, row: usize, col: usize, ks: std::ops::Range<usize>, c: f32) -> Option<f32> {
        let products = ks.filter_map(|k| {
            let (a, b) = (self.a.value[row][k], self.b.value[k][col]);
            (!a.is_finite() || !b.is_finite()).then_some(a * b)
        });
        let terms = std::iter::once(c).chain(products).filter(|x| !x.is_finite());
        // Infinities of both signs make a NaN.
        terms.reduce(|a, b| a + b)
    }

    /// The same in fp32 arithmetic.
    fn accumulate_fast(&self, acc: &mut [[f32; N]; M], half: bool) {
        for (row, acc) in acc.iter_mut().enumerate() {
            for k in 0..self.k {
                let a = self.a.value[row][k];
                for n in 0..N {
                    acc[n] = a.mul_add(self.b.value[k][n], acc[n]);
                }
            }
            if half {
                for x in acc.iter_mut() {
                    *x = widen(crate::gpu::sm::ops::half::narrow(*x));
                }
            }
        }
    }
}

fn rounded(x: Exact, half: bool) -> f32 {
    if x.sig == 0 {
        0.0
    } else if half {
        widen(F16.round(x, Rounding::Nearest, false) as u32)
    } else {
        f32::from_bits(F32.round(x, Rounding::Zero, false) as u32)
    }
}

/// Row and column of register `r` of an fp32 or s32 result, for a lane.
fn result_place(lane: usize, r: usize) -> (usize, usize) {
    (lane / 4 + 8 * (r >> 1), 2 * (lane % 4) + (r & 1))
}

warp_ops! {
    /// HMMA; k: 0 element type, 1 depth, 2 fp32 accumulators, 3 signs (1 A, 2 B), 4 bits kept, 5 depth at once (0: fp32 arithmetic).
    Hmma(core, op) {
        if core.mask != u32::MAX {
            return core.unsupported("a matrix instruction with inactive lanes");
        }
        hmma(core, op);
        Flow::Next
    }

    /// IMMA; k: 0 rows, 1 bits per element, 2 depth, 3 A signed, 4 B signed, 5 saturates.
    Imma(core, op) {
        if core.mask != u32::MAX {
            return core.unsupported("a matrix instruction with inactive lanes");
        }
        imma(core, op);
        Flow::Next
    }

    /// BMMA; k: 0 rows, 2 depth, 3 AND.
    Bmma(core, op) {
        if core.mask != u32::MAX {
            return core.unsupported("a matrix instruction with inactive lanes");
        }
        bmma(core, op);
        Flow::Next
    }

    /// DMMA.884; k: signs of A, B and C.
    Dmma(core, op) {
        if core.mask != u32::MAX {
            return core.unsupported("a matrix instruction with inactive lanes");
        }
        let (a, b) = (core.src_pair(op.a), core.src_pair(op.b));
        let c = [core.src_pair(op.c), core.src_pair(op.c + 2)];
        let value = |x: u64, sign: u32| f64::from_bits(x ^ u64::from(sign) << 63);
        let mut d = [[0u64; 32]; 2];
        for lane in 0..32 {
            let (g, t) = (lane / 4, lane % 4);
            for e in 0..2 {
                let mut s = value(c[e][lane], op.k[2]);
                for k in 0..4 {
                    s = value(a[4 * g + k], op.k[0]).mul_add(value(b[4 * (2 * t + e) + k], op.k[1]), s);
                }
                d[e][lane] = s.to_bits();
            }
        }
        core.put_pair(op.d, &d[0]);
        core.put_pair(op.d + 2, &d[1]);
        Flow::Next
    }

    /// Transposes an 8 x 8 matrix of 16-bit elements held one row per four lanes.
    Transpose(core, op) {
        let a = core.src(op.a);
        let element = |row: usize, col: usize| a[4 * row + col / 2] >> (16 * (col % 2)) & 0xffff;
        let t = std::array::from_fn(|lane| {
            let (g, t) = (lane / 4, lane % 4);
            element(2 * t, g) | element(2 * t + 1, g) << 16
        });
        core.put(op.d, &t);
        Flow::Next
    }
}

fn hmma(core: &mut Core<'_>, op: &MicroOp) {
    let (kind, k, single) = (op.k[0], op.k[1] as usize, op.k[2] != 0);
    let mut p = Product::new(kind, k);
    let sign = |on: u32| if op.k[3] & on != 0 { -1.0 } else { 1.0 };
    let per = if kind == TF32 { 1 } else { 2 };
    for lane in 0..32 {
        let (g, t) = (lane / 4, lane % 4);
        for r in 0..2 * k / (4 * per) {
            let register = core.src(op.a + r as u16)[lane];
            for e in 0..per {
                let x = p.element(kind, register, e == 1) * sign(1);
                p.set_a(kind, g + 8 * (r & 1), per * t + 4 * per * (r >> 1) + e, x);
            }
        }
        for r in 0..k / (4 * per) {
            let register = core.src(op.b + r as u16)[lane];
            for e in 0..per {
                let x = p.element(kind, register, e == 1) * sign(2);
                p.set_b(kind, per * t + 4 * per * r + e, g, x);
            }
        }
    }
    let mut acc = [[0f32; N]; M];
    for lane in 0..32 {
        if single {
            for r in 0..4 {
                let (row, col) = result_place(lane, r);
                acc[row][col] = f32::from_bits(core.src(op.c + r as u16)[lane]);
            }
        } else {
            for r in 0..2 {
                let register = core.src(op.c + r as u16)[lane];
                let (row, col) = (lane / 4 + 8 * r, 2 * (lane % 4));
                acc[row][col] = widen(register & 0xffff);
                acc[row][col + 1] = widen(register >> 16);
            }
        }
    }
    let rules = Rules { kept: op.k[4] as i32, depth: op.k[5] as usize };
    if rules.depth == 0 {
        p.accumulate_fast(&mut acc, !single);
    } else {
        for first in (0..k).step_by(rules.depth) {
            p.accumulate(first..(first + rules.depth).min(k), &mut acc, !single, rules.kept);
        }
    }
    let bits = |x: f32| if x.is_nan() { 0x7fff_ffff } else { x.to_bits() };
    if single {
        for r in 0..4 {
            let t = std::array::from_fn(|lane| {
                let (row, col) = result_place(lane, r);
                bits(acc[row][col])
            });
            core.put(op.d + r as u16, &t);
        }
    } else {
        for r in 0..2 {
            let t = std::array::from_fn(|lane| {
                let (row, col) = (lane / 4 + 8 * r, 2 * (lane % 4));
                crate::gpu::sm::ops::half::narrow(acc[row][col])
                    | crate::gpu::sm::ops::half::narrow(acc[row][col + 1]) << 16
            });
            core.put(op.d + r as u16, &t);
        }
    }
}

fn imma(core: &mut Core<'_>, op: &MicroOp) {
    let (rows, width, depth) = (op.k[0] as usize, op.k[1], op.k[2] as usize);
    let per = 32 / width as usize;
    let element = |x: u32, e: usize, signed: bool| {
        let up = x << (32 - width - width * e as u32);
        if signed { (up as i32) >> (32 - width) } else { (up >> (32 - width)) as i32 }
    };
    let mut a = [[0i32; 64]; 16];
    let mut b = [[0i32; 64]; 8];
    for lane in 0..32 {
        let (g, t) = (lane / 4, lane % 4);
        for r in 0..rows / 8 * depth / (4 * per) {
            let (row, block) = if rows == 16 { (g + 8 * (r & 1), r >> 1) } else { (g, r) };
            let x = core.src(op.a + r as u16)[lane];
            for e in 0..per {
                a[row][per * t + 4 * per * block + e] = element(x, e, op.k[3] != 0);
            }
        }
        for r in 0..depth / (4 * per) {
            let x = core.src(op.b + r as u16)[lane];
            for e in 0..per {
                b[g][per * t + 4 * per * r + e] = element(x, e, op.k[4] != 0);
            }
        }
    }
    integer_results(core, op, rows, |row, col, c| {
        let sum: i64 = i64::from(c as i32)
            + a[row][..depth].iter().zip(&b[col]).map(|(x, y)| i64::from(*x) * i64::from(*y)).sum::<i64>();
        if op.k[5] != 0 { sum.clamp(i32::MIN.into(), i32::MAX.into()) as u32 } else { sum as u32 }
    });
}

fn bmma(core: &mut Core<'_>, op: &MicroOp) {
    let (rows, depth) = (op.k[0] as usize, op.k[2] as usize);
    let mut a = [[0u32; 8]; 16];
    let mut b = [[0u32; 8]; 8];
    for lane in 0..32 {
        let (g, t) = (lane / 4, lane % 4);
        for r in 0..rows / 8 * depth / 128 {
            let (row, block) = if rows == 16 { (g + 8 * (r & 1), r >> 1) } else { (g, r) };
            a[row][t + 4 * block] = core.src(op.a + r as u16)[lane];
        }
        for r in 0..depth / 128 {
            b[g][t + 4 * r] = core.src(op.b + r as u16)[lane];
        }
    }
    let and = op.k[3] != 0;
    integer_results(core, op, rows, |row, col, c| {
        let words = a[row][..depth / 32].iter().zip(&b[col]);
        c.wrapping_add(words.map(|(x, y)| if and { x & y } else { x ^ y }.count_ones()).sum())
    });
}

/// Writes f(row, column, C) to the s32 result fragment.
fn integer_results(core: &mut Core<'_>, op: &MicroOp, rows: usize, f: impl Fn(usize, usize, u32) -> u32) {
    let mut results = [[0u32; 32]; 4];
    for (r, result) in results[..rows / 4].iter_mut().enumerate() {
        let c = core.src(op.c + r as u16);
        for lane in 0..32 {
            let (row, col) = result_place(lane, r);
            result[lane] = f(row, col, c[lane]);
        }
    }
    for (r, result) in results[..rows / 4].iter().enumerate() {
        core.put(op.d + r as u16, result);
    }
}

/// Sets the register groups of a matrix instruction.
fn groups(l: &mut Lower<'_>, a: u32, b: u32, c: u32) -> Result<(), Refusal> {
    if l.bits(87, 4) != 0 {
        // A uniform predicate other than UPT.
        return Err(esr::ILLEGAL_INSTR_PARAM);
    }
    l.dst(c)?;
    l.op.a = l.reg(l.bits(24, 8), a)?;
    l.op.b = l.reg(l.bits(32, 8), b)?;
    l.op.c = l.reg(l.bits(64, 8), c)?;
    Ok(())
}

pub(super) fn hmma_op(l: &mut Lower<'_>) -> Result<(), Refusal> {
    let kind = l.bits(82, 2);
    let k = match l.flag(75) | l.flag(78) << 1 {
        0 => 8,
        1 => 16,
        2 => 4,
        _ => return Err(esr::ILLEGAL_INSTR_PARAM),
    };
    if l.bit(73) || kind > TF32 || (kind == TF32) != (k == 4 || (k == 8 && kind == TF32)) {
        return Err(esr::ILLEGAL_INSTR_PARAM);
    }
    let per = if kind == TF32 { 1 } else { 2 };
    let single = l.bit(76);
    groups(l, k / (2 * per), k / (4 * per), if single { 4 } else { 2 })?;
    let (kept, depth) = match l.target.arch.encoding() {
        _ if !l.target.exact_mma => (0, 0),
        sass::Encoding::Sm8x => (24, if kind == TF32 { 4 } else { 8 }),
        sass::Encoding::Sm9x => (25, 16),
    };
    l.op.k = [kind, k, u32::from(single), l.flag(72) | l.flag(63) << 1, kept, depth];
    l.run::<Hmma>();
    Ok(())
}

pub(super) fn imma_op(l: &mut Lower<'_>) -> Result<(), Refusal> {
    let (rows, depth) = match l.flag(75) | l.bits(85, 2) << 1 {
        0 => (8, 16),
        2 => (8, 32),
        4 => (16, 16),
        5 => (16, 32),
        6 => (16, 64),
        _ => return Err(esr::ILLEGAL_INSTR_PARAM),
    };
    let width = if l.bit(83) { 4 } else { 8 };
    if l.bit(72) || l.bit(83) != l.bit(84) || !(128..=256).contains(&(depth * width)) {
        return Err(esr::ILLEGAL_INSTR_PARAM);
    }
    let b = depth * width / 128;
    groups(l, rows / 8 * b, b, rows / 4)?;
    l.op.k = [rows, width, depth, l.flag(76), l.flag(78), l.flag(82)];
    l.run::<Imma>();
    Ok(())
}

pub(super) fn bmma_op(l: &mut Lower<'_>) -> Result<(), Refusal> {
    let (rows, depth) = match l.bits(75, 2) {
        0 => (8, 128),
        1 => (16, 128),
        2 => (16, 256),
        _ => return Err(esr::ILLEGAL_INSTR_PARAM),
    };
    groups(l, rows / 8 * depth / 128, depth / 128, rows / 4)?;
    l.op.k = [rows, 0, depth, l.flag(78), 0, 0];
    l.run::<Bmma>();
    Ok(())
}

pub(super) fn dmma_op(l: &mut Lower<'_>) -> Result<(), Refusal> {
    if l.bits(78, 2) != 0 {
        return Err(esr::ILLEGAL_INSTR_PARAM);
    }
    groups(l, 2, 2, 4)?;
    l.op.k = [l.flag(72), l.flag(63), l.flag(75), 0, 0, 0];
    l.run::<Dmma>();
    Ok(())
}

pub(super) fn movm(l: &mut Lower<'_>) -> Result<(), Refusal> {
    if l.bits(78, 2) != 0 {
        return Err(esr::ILLEGAL_INSTR_PARAM);
    }
    l.dst(1)?;
    l.op.a = l.reg(l.bits(24, 8), 1)?;
    l.run::<Transpose>();
    Ok(())
}
