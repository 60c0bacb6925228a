//! HMMA: products of matrices of fp16, bf16 and tf32, summed as the tensor cores do: terms are cut off below
//! the largest exponent, added exactly, and the sum is cut to fp32 or rounded to fp16.
//!
//! Everything stays where its lane has it: with g = lane / 4 and t = lane % 4, a lane has columns 2t and 2t +
//! 1 of rows g and g + 8 of the result. Its factors of A are in the four lanes of its g, those of B in the
//! four lanes of its columns.

use crate::gpu::sm::core::{Core, Flow};
use crate::gpu::sm::fault::esr;
use crate::gpu::sm::lanes::each;
use crate::gpu::sm::lower::{Lower, Refusal};
use crate::gpu::sm::micro_op::{MicroOp, warp_ops};
use crate::gpu::sm::soft::{Exact, F32, Rounding};

use crate::gpu::sm::ops::half::{narrow, widen};
use crate::gpu::sm::ops::matrix::{groups, of_column, of_row};

/// The exponent of a zero: far below every other, so that it never is the largest and its terms shift away.
const ZERO_EXPONENT: i32 = -100_000;
/// The smallest exponent of fp16; subnormal numbers keep it, with a significand below one.
const HALF_MINIMUM: i32 = -14;

/// Element types, as the field [82,84) counts them.
pub(super) const HALF: u32 = 0;
const BRAIN: u32 = 1;
const TF32: u32 = 2;

/// Numbers of a warp split into signed significand and exponent.
struct Split {
    sig: [i32; 32],
    exp: [i32; 32],
    /// Whether all are finite.
    finite: bool,
}

impl Split {
    /// Significands have `fraction` bits below the point. With `half`, numbers below the normal range of fp16
    /// have its smallest exponent: they are normal fp32 numbers.
    #[inline(always)]
    fn new(x: &[f32; 32], fraction: u32, half: bool) -> Self {
        let (mut sig, mut exp, mut largest) = ([0; 32], [0; 32], 0);
        let least = if half { HALF_MINIMUM } else { -126 };
        for i in 0..32 {
            let bits = x[i].to_bits();
            let field = (bits >> 23 & 0xff) as i32;
            let hidden = if field == 0 { 0 } else { 0x80_0000 };
            let normal = field.max(1) - 127;
            let magnitude = (bits & 0x7f_ffff | hidden) >> (23 - fraction);
            let magnitude = (magnitude >> (least - normal).clamp(0, 31)) as i32;
            let sign = (bits as i32) >> 31;
            sig[i] = (magnitude ^ sign) - sign;
            exp[i] = if magnitude == 0 { ZERO_EXPONENT } else { normal.max(least) };
            largest = largest.max(field);
        }
        Split { sig, exp, finite: largest != 0xff }
    }
}

/// Registers of an operand: a lane's elements, in groups of the depth.
pub(super) const ELEMENTS: usize = 4;
/// Terms of a sum.
const TERMS: usize = 4 * ELEMENTS;

/// Factors of the lanes: term 4 e + T is element e of lane T of the four that have the lane's row or columns.
struct Factors {
    sig: [[i32; 32]; TERMS],
    exp: [[i32; 32]; TERMS],
    /// Whether any is not finite.
    special: bool,
}

impl Factors {
    /// No terms, to be filled in place: copies of these arrays cost more than the sums. All of it is zero, which
    /// is written and not copied.
    const EMPTY: Self = Self { sig: [[0; 32]; TERMS], exp: [[0; 32]; TERMS], special: false };

    /// Takes the terms of `elements`; `spread` gives each of four lanes' values to those that need it.
    #[inline(always)]
    fn fill(
        &mut self,
        elements: &[[f32; 32]; ELEMENTS],
        count: usize,
        format: (u32, bool),
        spread: impl Fn(&[u32; 32]) -> [[u32; 32]; 4],
    ) {
        for e in 0..count.min(ELEMENTS) {
            let split = Split::new(&elements[e], format.0, format.1);
            let sig = spread(&each(|i| split.sig[i] as u32));
            let exp = spread(&each(|i| split.exp[i] as u32));
            for n in 0..4 {
                self.sig[4 * e + n] = each(|i| sig[n][i] as i32);
                self.exp[4 * e + n] = each(|i| exp[n][i] as i32);
            }
            self.special |= !split.finite;
        }
    }
}

#[inline(always)]
fn rows(a: &[u32; 32]) -> [[u32; 32]; 4] {
    [of_row::<0>(a), of_row::<1>(a), of_row::<2>(a), of_row::<3>(a)]
}

#[inline(always)]
fn columns<const E: usize>(b: &[u32; 32]) -> [[u32; 32]; 4] {
    [of_column::<0, E>(b), of_column::<1, E>(b), of_column::<2, E>(b), of_column::<3, E>(b)]
}

/// Summation rules of an architecture's tensor core.
#[derive(Clone, Copy)]
pub(super) struct Rules {
    /// Bits kept below the largest exponent.
    pub kept: i32,
    /// Accumulators are fp16.
    pub half: bool,
    /// Fraction bits of an element.
    pub fraction: i32,
}

/// C plus the terms `first` to `last`.
///
/// A term is below 2^27 and 16 of them below 2^31, so the sum of the products is one of 32 bits.
#[inline(always)]
fn sum(a: &Factors, b: &Factors, first: usize, last: usize, c: &Split, rules: Rules) -> [f32; 32] {
    let up = rules.kept - 2 * rules.fraction;
    let mut largest = c.exp;
    for k in first..last {
        for i in 0..32 {
            largest[i] = largest[i].max(a.exp[k][i] + b.exp[k][i]);
        }
    }
    let mut products = [0i32; 32];
    for k in first..last {
        for i in 0..32 {
            let term = a.sig[k][i] * b.sig[k][i];
            let sign = term >> 31;
            let shift = (largest[i] - a.exp[k][i] - b.exp[k][i]).min(31);
            let cut = ((term ^ sign) - sign) << up >> shift;
            products[i] += (cut ^ sign) - sign;
        }
    }
    let mut total = [0i64; 32];
    for i in 0..32 {
        let sign = c.sig[i] >> 31;
        let cut = ((c.sig[i] ^ sign) - sign) << (rules.kept - 23) >> (largest[i] - c.exp[i]).min(31);
        total[i] = i64::from(products[i]) + i64::from((cut ^ sign) - sign);
    }
    let exp = each(|i| largest[i] - rules.kept);
    rounded(&total, &exp, rules.half)
}

/// The infinity or NaN that results from the operands of one sum, if any is one. Finite products count as
/// numbers, however large.
fn special(products: impl Iterator<Item = (f32, f32)>, c: f32) -> Option<f32> {
    let products = products.filter_map(|(a, b)| (!a.is_finite() || !b.is_finite()).then_some(a * b));
    let terms = std::iter::once(c).chain(products).filter(|x| !x.is_finite());
    // Infinities of both signs make a NaN.
    terms.reduce(|a, b| a + b)
}

/// `sum * 2^exp` cut to fp32, or rounded to fp16 and widened. The sums are below 2^40 in magnitude.
#[inline(always)]
fn rounded(sum: &[i64; 32], exp: &[i32; 32], half: bool) -> [f32; 32] {
    let (mut t, mut outside) = ([0f32; 32], 0u32);
    for n in 0..32 {
        let magnitude = sum[n].unsigned_abs();
        let drop = (64 - magnitude.leading_zeros()).max(24) - 24;
        let cut = magnitude >> drop << drop;
        // For fp16 the lowest of 24 bits records that others were cut off: the second rounding sees on which
        // side of the middle the sum lies.
        let odd = if half && cut != magnitude { cut | 1 << drop } else { cut };
        // A zero has any exponent.
        let scale = f64::from_bits(((exp[n].clamp(-1000, 1000) + 1023) as u64) << 52);
        let x = (odd as i64 as f64 * scale) as f32;
        let normal = x.to_bits().wrapping_sub(0x80_0000) < 0x7f00_0000;
        outside |= u32::from(magnitude != 0) & u32::from(!normal);
        t[n] = if sum[n] < 0 { -x } else { x };
    }
    if half {
        return each(|n| widen(narrow(t[n])));
    }
    if outside != 0 { cut_all(sum, exp) } else { t }
}

/// The same, cut, for sums of any size.
#[cold]
#[inline(never)]
fn cut_all(sum: &[i64; 32], exp: &[i32; 32]) -> [f32; 32] {
    each(|n| cut_exactly(sum[n], exp[n]))
}

/// `sum * 2^exp` cut to fp32, whatever its size.
fn cut_exactly(sum: i64, exp: i32) -> f32 {
    if sum == 0 {
        return 0.0;
    }
    let exact = Exact { negative: sum < 0, sig: sum.unsigned_abs().into(), exp };
    f32::from_bits(F32.round(exact, Rounding::Zero, false) as u32)
}

/// An element of a register as fp32.
#[inline(always)]
fn element(kind: u32, register: u32, upper: bool) -> f32 {
    match kind {
        HALF => widen(if upper { register >> 16 } else { register & 0xffff }),
        BRAIN => f32::from_bits(if upper { register & 0xffff_0000 } else { register << 16 }),
        _ => f32::from_bits(register & !0x1fff),
    }
}

/// The elements of a register, with their signs changed or not.
#[inline(always)]
fn elements(core: &Core<'_>, op: &MicroOp, slot: u16, upper: bool, sign: u32) -> [f32; 32] {
    let register = core.src(slot);
    let flip = if op.k[3] & sign != 0 { 1 << 31 } else { 0 };
    match op.k[0] {
        HALF => each(|i| f32::from_bits(element(HALF, register[i], upper).to_bits() ^ flip)),
        BRAIN => each(|i| f32::from_bits(element(BRAIN, register[i], upper).to_bits() ^ flip)),
        _ => each(|i| f32::from_bits(element(TF32, register[i], upper).to_bits() ^ flip)),
    }
}

/// HMMA's operands and results in the lanes.
pub(super) struct Fragments {
    /// Rows g and g + 8 of A.
    pub a: [[[f32; 32]; ELEMENTS]; 2],
    pub b: [[f32; 32]; ELEMENTS],
    /// Elements of a lane: those of a register, for each register of B.
    pub count: usize,
    /// Elements of a register.
    pub per: usize,
    /// Columns 2t and 2t + 1 of row g, then of row g + 8.
    pub acc: [[f32; 32]; 4],
}

#[inline(always)]
fn fragments(core: &Core<'_>, op: &MicroOp, half: bool) -> Fragments {
    let per = if op.k[0] == TF32 { 1 } else { 2 };
    let blocks = op.k[1] as usize / (4 * per);
    let (mut a, mut b) = ([[[0f32; 32]; ELEMENTS]; 2], [[0f32; 32]; ELEMENTS]);
    for block in 0..blocks.min(2) {
        for e in 0..per {
            let n = (per * block + e) % ELEMENTS;
            for h in 0..2 {
                a[h][n] = elements(core, op, op.a + (2 * block + h) as u16, e == 1, 1);
            }
            b[n] = elements(core, op, op.b + block as u16, e == 1, 2);
        }
    }
    let mut acc = [[0f32; 32]; 4];
    for r in 0..4 {
        acc[r] = if half {
            let c = core.src(op.c + (r / 2) as u16);
            if r % 2 == 0 { each(|i| widen(c[i] & 0xffff)) } else { each(|i| widen(c[i] >> 16)) }
        } else {
            let c = core.src(op.c + r as u16);
            each(|i| f32::from_bits(c[i]))
        };
    }
    Fragments { a, b, count: per * blocks.min(2), per, acc }
}

/// The four accumulators after all terms of elements of type `kind`; `depth` is the number of terms summed at
/// once.
#[inline(always)]
pub(super) fn exact(f: &Fragments, kind: u32, rules: Rules, depth: usize) -> [[f32; 32]; 4] {
    let format = (rules.fraction as u32, kind == HALF);
    let (mut a, mut b) = ([Factors::EMPTY; 2], [Factors::EMPTY; 2]);
    for (factors, elements) in a.iter_mut().zip(&f.a) {
        factors.fill(elements, f.count, format, rows);
    }
    b[0].fill(&f.b, f.count, format, columns::<0>);
    b[1].fill(&f.b, f.count, format, columns::<1>);
    let (mut acc, last) = (f.acc, 4 * f.count);
    let step = depth.min(last).max(1);
    for r in 0..4 {
        let (h, e) = (r / 2, r % 2);
        let mut first = 0;
        while first < last {
            let c = Split::new(&acc[r], 23, rules.half);
            let before = acc[r];
            acc[r] = sum(&a[h], &b[e], first, first + step, &c, rules);
            if a[h].special || b[e].special || !c.finite {
                put_specials(f, (h, e), (first, first + step), &before, &mut acc[r]);
            }
            first += step;
        }
    }
    acc
}

/// A sum as it is written: all NaNs are one.
#[inline(always)]
pub(super) fn result(x: f32) -> u32 {
    if x.is_nan() { 0x7fff_ffff } else { x.to_bits() }
}

/// Replaces the sums of operands that are not finite.
#[cold]
#[inline(never)]
fn put_specials(
    f: &Fragments,
    (h, e): (usize, usize),
    (first, last): (usize, usize),
    c: &[f32; 32],
    acc: &mut [f32; 32],
) {
    for lane in 0..32 {
        let (row, column) = (lane / 4 * 4, 4 * (2 * (lane % 4) + e));
        let products = (first..last).map(|k| (f.a[h][k / 4][row + k % 4], f.b[k / 4][column + k % 4]));
        if let Some(x) = special(products, c[lane]) {
            acc[lane] = x;
        }
    }
}

/// The same in fp32 arithmetic.
pub(super) fn fast(f: &Fragments, half: bool) -> [[f32; 32]; 4] {
    let mut acc = f.acc;
    for r in 0..4 {
        let (h, e) = (r / 2, r % 2);
        for lane in 0..32 {
            let (row, column) = (lane / 4 * 4, 4 * (2 * (lane % 4) + e));
            let mut x = acc[r][lane];
            for block in 0..f.count / f.per {
                for t in 0..4 {
                    for n in f.per * block..f.per * (block + 1) {
                        x = f.a[h][n][row + t].mul_add(f.b[n][column + t], x);
                    }
                }
            }
            acc[r][lane] = if half { widen(narrow(x)) } else { x };
        }
    }
    acc
}

warp_ops! {
    /// HMMA; k: 0 element type, 1 depth, 2 fp32 accumulators, 3 signs (1 A, 2 B), 4 bits kept, 5 depth at
    /// once (0: fp32 arithmetic).
    Hmma(core, op) {
        if core.mask != u32::MAX {
            return core.unsupported("a matrix instruction with inactive lanes");
        }
        let half = op.k[2] == 0;
        let f = fragments(core, op, half);
        let acc = if op.k[5] == 0 {
            fast(&f, half)
        } else {
            let fraction = if op.k[0] == BRAIN { 7 } else { 10 };
            exact(&f, op.k[0], Rules { kept: op.k[4] as i32, half, fraction }, op.k[5] as usize)
        };
        if half {
            for r in 0..2 {
                let (even, odd) = (&acc[2 * r], &acc[2 * r + 1]);
                core.put(op.d + r as u16, &each(|i| narrow(even[i]) | narrow(odd[i]) << 16));
            }
        } else {
            for r in 0..4 {
                let x = &acc[r];
                let t = each(|i| result(x[i]));
                core.put(op.d + r as u16, &t);
            }
        }
        Flow::Next
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::sm::soft::F16;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn sums_are_cut_and_rounded_as_by_exact_arithmetic(
            bits in 0u32..40, low: u64, negative: bool, exp in prop_oneof![-60..40, -330..330],
        ) {
            let magnitude = (low & ((1 << bits) - 1)) as i64;
            let sum = if negative { -magnitude } else { magnitude };
            let cut = rounded(&[sum; 32], &[exp; 32], false)[3];
            prop_assert_eq!(cut.to_bits(), cut_exactly(sum, exp).to_bits());
            let half = rounded(&[sum; 32], &[exp; 32], true)[5];
            let exact = Exact { negative: sum < 0, sig: sum.unsigned_abs().into(), exp };
            let expected = if sum == 0 { 0.0 } else { widen(F16.round(exact, Rounding::Nearest, false) as u32) };
            prop_assert_eq!(half.to_bits(), expected.to_bits());
        }
    }
}
