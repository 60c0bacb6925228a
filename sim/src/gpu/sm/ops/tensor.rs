//! HMMA: products of matrices of fp16, bf16 and tf32, summed as the tensor cores do: terms are cut off below the
//! largest exponent, added exactly, and the sum is cut to fp32 or rounded to fp16.
//!
//! In what follows g = lane / 4 and t = lane % 4.

use crate::gpu::sm::core::{Core, Flow};
use crate::gpu::sm::fault::esr;
use crate::gpu::sm::lanes::each;
use crate::gpu::sm::lower::{Lower, Refusal};
use crate::gpu::sm::micro_op::{MicroOp, warp_ops};
use crate::gpu::sm::soft::{Exact, F32, Rounding};

use crate::gpu::sm::ops::half::{narrow, widen};
use crate::gpu::sm::ops::matrix::{groups, result_place};

/// Rows, columns and depth of the largest product.
const M: usize = 16;
const N: usize = 8;
const K: usize = 16;

/// The exponent of a zero: far below every other, so that it never is the largest and its terms shift away.
const ZERO_EXPONENT: i32 = -100_000;
/// The smallest exponent of fp16; subnormal numbers keep it, with a significand below one.
const HALF_MINIMUM: i32 = -14;

/// Element types, as the field [82,84) counts them.
const HALF: u32 = 0;
const BRAIN: u32 = 1;
const TF32: u32 = 2;

/// A number as significand, with `fraction` bits below the point, and exponent. With `half`, numbers below the
/// normal range of fp16 have its smallest exponent: they are normal fp32 numbers.
#[inline(always)]
fn split(x: f32, fraction: u32, half: bool) -> (i32, i32) {
    let bits = x.to_bits();
    let field = (bits >> 23 & 0xff) as i32;
    let hidden = if field == 0 { 0 } else { 0x80_0000 };
    let mut sig = ((bits & 0x7f_ffff | hidden) >> (23 - fraction)) as i32;
    let mut exp = field.max(1) - 127;
    if half {
        sig >>= (HALF_MINIMUM - exp).clamp(0, 31);
        exp = exp.max(HALF_MINIMUM);
    }
    (if bits >> 31 != 0 { -sig } else { sig }, if sig == 0 { ZERO_EXPONENT } else { exp })
}

/// A matrix of numbers, also split into signed significand and exponent.
struct Split<const R: usize, const C: usize> {
    value: [[f32; C]; R],
    sig: [[i32; C]; R],
    exp: [[i32; C]; R],
    /// Whether all numbers are finite.
    finite: bool,
}

impl<const R: usize, const C: usize> Split<R, C> {
    #[inline(always)]
    fn new(value: [[f32; C]; R], fraction: u32, half: bool) -> Self {
        let (mut sig, mut exp, mut finite) = ([[0; C]; R], [[0; C]; R], true);
        for r in 0..R {
            for c in 0..C {
                (sig[r][c], exp[r][c]) = split(value[r][c], fraction, half);
                finite &= value[r][c].to_bits() & 0x7f80_0000 != 0x7f80_0000;
            }
        }
        Split { value, sig, exp, finite }
    }
}

/// How the tensor core of an architecture sums.
#[derive(Clone, Copy)]
struct Rules {
    /// Bits kept below the largest exponent.
    kept: i32,
    /// Depth that is summed at once; deeper products go through the accumulator. 0 for fp32 arithmetic.
    depth: usize,
    /// Accumulators are fp16.
    half: bool,
}

/// The operands of one HMMA.
struct Product {
    a: Split<M, K>,
    b: Split<K, N>,
    /// Fraction bits of an element.
    fraction: i32,
}

impl Product {
    /// Adds the products of depth `first` to `last` to the accumulators.
    ///
    /// A term is below 2^27 and 16 of them below 2^31, so the sum of the products is one of 32 bits.
    #[inline(always)]
    fn accumulate(&self, first: usize, last: usize, acc: &mut [[f32; N]; M], rules: Rules) {
        let up = rules.kept - 2 * self.fraction;
        for row in 0..M {
            let c = Split::new([acc[row]], 23, rules.half);
            let mut largest = c.exp[0];
            for k in first..last {
                let exp = self.a.exp[row][k];
                for n in 0..N {
                    largest[n] = largest[n].max(exp + self.b.exp[k][n]);
                }
            }
            let mut sum = [0i32; N];
            for k in first..last {
                let (exp, sig) = (self.a.exp[row][k], self.a.sig[row][k]);
                for n in 0..N {
                    let term = sig * self.b.sig[k][n];
                    let shift = (largest[n] - exp - self.b.exp[k][n]).min(31);
                    let cut = (term.abs() << up) >> shift;
                    sum[n] += if term < 0 { -cut } else { cut };
                }
            }
            let mut total = [0i64; N];
            for n in 0..N {
                let term = c.sig[0][n];
                let cut = (term.abs() << (rules.kept - 23)) >> (largest[n] - c.exp[0][n]).min(31);
                total[n] = i64::from(sum[n]) + i64::from(if term < 0 { -cut } else { cut });
                largest[n] -= rules.kept;
            }
            let before = acc[row];
            acc[row] = rounded(&total, &largest, rules.half);
            if !(self.a.finite && self.b.finite && c.finite) {
                for n in 0..N {
                    if let Some(x) = self.special(row, n, first, last, before[n]) {
                        acc[row][n] = x;
                    }
                }
            }
        }
    }

    /// The infinity or NaN that operands of one output lead to, if any is one. Finite products count as
    /// numbers, however large.
    #[cold]
    #[inline(never)]
    fn special(&self, row: usize, col: usize, first: usize, last: usize, c: f32) -> Option<f32> {
        let products = (first..last).filter_map(|k| {
            let (a, b) = (self.a.value[row][k], self.b.value[k][col]);
            (!a.is_finite() || !b.is_finite()).then_some(a * b)
        });
        let terms = std::iter::once(c).chain(products).filter(|x| !x.is_finite());
        // Infinities of both signs make a NaN.
        terms.reduce(|a, b| a + b)
    }

    /// The same in fp32 arithmetic.
    #[inline(always)]
    fn accumulate_fast(&self, depth: usize, acc: &mut [[f32; N]; M], half: bool) {
        for row in 0..M {
            for k in 0..depth {
                let a = self.a.value[row][k];
                for n in 0..N {
                    acc[row][n] = a.mul_add(self.b.value[k][n], acc[row][n]);
                }
            }
            if half {
                for n in 0..N {
                    acc[row][n] = widen(narrow(acc[row][n]));
                }
            }
        }
    }
}

/// `sum * 2^exp` cut to fp32, or rounded to fp16 and widened. The sums are below 2^40 in magnitude.
#[inline(always)]
fn rounded(sum: &[i64; N], exp: &[i32; N], half: bool) -> [f32; N] {
    let (mut t, mut outside) = ([0f32; N], false);
    for n in 0..N {
        let magnitude = sum[n].unsigned_abs();
        let drop = (64 - magnitude.leading_zeros()).max(24) - 24;
        let cut = magnitude >> drop << drop;
        // For fp16 the lowest of 24 bits says that others were cut off: the second rounding sees on which side of
        // the middle the sum lies.
        let odd = if half && cut != magnitude { cut | 1 << drop } else { cut };
        // A zero has any exponent.
        let scale = f64::from_bits(((exp[n].clamp(-1000, 1000) + 1023) as u64) << 52);
        let x = (odd as i64 as f64 * scale) as f32;
        outside |= magnitude != 0 && !(f32::MIN_POSITIVE..f32::INFINITY).contains(&x);
        t[n] = if sum[n] < 0 { -x } else { x };
    }
    if half {
        for n in 0..N {
            t[n] = widen(narrow(t[n]));
        }
    } else if outside {
        for n in 0..N {
            t[n] = cut_exactly(sum[n], exp[n]);
        }
    }
    t
}

/// `sum * 2^exp` cut to fp32, whatever its size.
#[cold]
#[inline(never)]
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

/// The operands A and B, k as for [`Hmma`].
#[inline(always)]
fn operands(core: &Core<'_>, op: &MicroOp) -> Product {
    let (kind, depth) = (op.k[0], op.k[1] as usize);
    let per = if kind == TF32 { 1 } else { 2 };
    let (mut a, mut b) = ([[0f32; K]; M], [[0f32; N]; K]);
    let elements = |slot: u16, e: usize, sign: u32| {
        let register = core.src(slot);
        let flip = if op.k[3] & sign != 0 { 1 << 31 } else { 0 };
        each(|lane| f32::from_bits(element(kind, register[lane], e == 1).to_bits() ^ flip))
    };
    for e in 0..per {
        for r in 0..2 * depth / (4 * per) {
            let x = elements(op.a + r as u16, e, 1);
            for lane in 0..32 {
                let (g, t) = (lane / 4, lane % 4);
                a[g + 8 * (r & 1)][(per * t + 4 * per * (r >> 1) + e) % K] = x[lane];
            }
        }
        for r in 0..depth / (4 * per) {
            let x = elements(op.b + r as u16, e, 2);
            for lane in 0..32 {
                let (g, t) = (lane / 4, lane % 4);
                b[(per * t + 4 * per * r + e) % K][g] = x[lane];
            }
        }
    }
    let fraction = if kind == BRAIN { 7 } else { 10 };
    let half = kind == HALF;
    Product { a: Split::new(a, fraction, half), b: Split::new(b, fraction, half), fraction: fraction as i32 }
}

/// The accumulators, from the registers of C.
#[inline(always)]
fn accumulators(core: &Core<'_>, op: &MicroOp, half: bool) -> [[f32; N]; M] {
    let mut acc = [[0f32; N]; M];
    if half {
        for r in 0..2 {
            let register = core.src(op.c + r as u16);
            for lane in 0..32 {
                let (row, col) = (lane / 4 + 8 * r, 2 * (lane % 4));
                acc[row][col] = widen(register[lane] & 0xffff);
                acc[row][col + 1] = widen(register[lane] >> 16);
            }
        }
        return acc;
    }
    for r in 0..4 {
        let register = core.src(op.c + r as u16);
        for lane in 0..32 {
            let (row, col) = result_place(lane, r);
            acc[row][col] = f32::from_bits(register[lane]);
        }
    }
    acc
}

warp_ops! {
    /// HMMA; k: 0 element type, 1 depth, 2 fp32 accumulators, 3 signs (1 A, 2 B), 4 bits kept, 5 depth at once (0: fp32 arithmetic).
    Hmma(core, op) {
        if core.mask != u32::MAX {
            return core.unsupported("a matrix instruction with inactive lanes");
        }
        let product = operands(core, op);
        let rules = Rules { kept: op.k[4] as i32, depth: op.k[5] as usize, half: op.k[2] == 0 };
        let depth = (op.k[1] as usize).min(K);
        let mut acc = accumulators(core, op, rules.half);
        if rules.depth == 0 {
            product.accumulate_fast(depth, &mut acc, rules.half);
        } else {
            let mut first = 0;
            while first < depth {
                let last = (first + rules.depth).min(depth);
                product.accumulate(first, last, &mut acc, rules);
                first = last;
            }
        }
        if rules.half {
            for r in 0..2 {
                let t = each(|lane| {
                    let (row, col) = (lane / 4 + 8 * r, 2 * (lane % 4));
                    narrow(acc[row][col]) | narrow(acc[row][col + 1]) << 16
                });
                core.put(op.d + r as u16, &t);
            }
        } else {
            for r in 0..4 {
                let t = each(|lane| {
                    let (row, col) = result_place(lane, r);
                    let x = acc[row][col];
                    if x.is_nan() { 0x7fff_ffff } else { x.to_bits() }
                });
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
            let cut = rounded(&[sum; N], &[exp; N], false)[3];
            prop_assert_eq!(cut.to_bits(), cut_exactly(sum, exp).to_bits());
            let half = rounded(&[sum; N], &[exp; N], true)[5];
            let exact = Exact { negative: sum < 0, sig: sum.unsigned_abs().into(), exp };
            let expected = if sum == 0 { 0.0 } else { widen(F16.round(exact, Rounding::Nearest, false) as u32) };
            prop_assert_eq!(half.to_bits(), expected.to_bits());
        }
    }
}
