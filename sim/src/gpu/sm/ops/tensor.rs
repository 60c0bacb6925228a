//! HMMA: products of matrices of fp16, bf16 and tf32, summed as the tensor cores do: terms are cut off below
//! the largest exponent, added exactly, and the sum is cut to fp32 or rounded to fp16.
//!
//! Everything stays where its lane has it: with g = lane / 4 and t = lane % 4, a lane has columns 2t and 2t +
//! 1 of rows g and g + 8 of the result. Its factors of A are in the four lanes of its g, those of B in the
//! four lanes of its columns.

use crate::gpu::sm::core::{Core, Flow, Room};
use crate::gpu::sm::fault::esr;
use crate::gpu::sm::lanes::{Lanes, each};
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

/// Exponents of factors and sums with which the arithmetic of [`sum`] is exact: products and the powers of two
/// that they are scaled by are normal numbers of fp32.
const TAME: std::ops::RangeInclusive<i32> = -50..=50;
/// The smallest exponent of a number to which products are added by [`sum`].
const TAME_SUM: i32 = -100;

/// A number's exponent, as the tensor cores take it. With `half`, numbers below the normal range of fp16 have its
/// smallest one: they are normal fp32 numbers.
#[inline(always)]
fn exponent(x: f32, half: bool) -> i32 {
    let normal = ((x.to_bits() >> 23 & 0xff) as i32).max(1) - 127;
    let least = if half { HALF_MINIMUM } else { -126 };
    if x.to_bits() << 1 == 0 { ZERO_EXPONENT } else { normal.max(least) }
}

/// 2 to the power of an exponent of sums.
#[inline(always)]
fn power(exp: i32) -> f64 {
    f64::from_bits(((exp.clamp(-1000, 1000) + 1023) as u64) << 52)
}

/// Registers of an operand: a lane's elements, in groups of the depth.
pub(super) const ELEMENTS: usize = 4;
/// Terms of a sum.
const TERMS: usize = 4 * ELEMENTS;

/// Factors of the lanes: term 4 e + T is element e of lane T of the four that have the lane's row or columns.
struct Factors<'a> {
    /// Values, as their bits, and exponents.
    value: &'a [Lanes; TERMS],
    exp: &'a [Lanes; TERMS],
    /// Whether all are zeros or [`TAME`].
    tame: bool,
}

impl<'a> Factors<'a> {
    /// Takes the terms of `elements` into `place`; `spread` gives each of four lanes' values to those that need
    /// it.
    #[inline(always)]
    fn new(
        place: &'a mut [[Lanes; TERMS]; 2],
        elements: &[[f32; 32]; ELEMENTS],
        half: bool,
        spread: impl Fn(&[u32; 32]) -> [[u32; 32]; 4],
    ) -> Self {
        let [value, exp] = place;
        let mut tame = true;
        for e in 0..ELEMENTS {
            let exps = each(|i| exponent(elements[e][i], half));
            for exp in exps {
                tame &= (exp == ZERO_EXPONENT) | (*TAME.start() <= exp) & (exp <= *TAME.end());
            }
            let values = spread(&each(|i| elements[e][i].to_bits()));
            let exps = spread(&each(|i| exps[i] as u32));
            for t in 0..4 {
                (value[4 * e + t].0, exp[4 * e + t].0) = (values[t], exps[t]);
            }
        }
        Self { value, exp, tame }
    }

    /// Term `k` of a lane.
    #[inline(always)]
    fn value(&self, k: usize, lane: usize) -> f32 {
        f32::from_bits(self.value[k].0[lane])
    }

    #[inline(always)]
    fn exp(&self, k: usize, lane: usize) -> i32 {
        self.exp[k].0[lane] as i32
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
}

/// C plus the terms `first` to `last`.
///
/// A term is cut off to a multiple of the smallest unit that is kept. It is below 2^27 units and 16 of them below
/// 2^31, so the sum of the products is one of 32 bits.
#[inline(always)]
fn sum(
    a: &Factors<'_>,
    b: &Factors<'_>,
    (first, last): (usize, usize),
    c: &[f32; 32],
    rules: Rules,
) -> [f32; 32] {
    let (mut largest, mut tame) = ([0; 32], a.tame & b.tame);
    for i in 0..32 {
        largest[i] = exponent(c[i], rules.half);
        tame &= (largest[i] >= TAME_SUM) & (largest[i] <= 127) | (c[i] == 0.0);
    }
    if !tame {
        return sum_any(a, b, (first, last), c, rules);
    }
    // Four terms at a time, which is what lanes have of an element: the loop over the lanes is then the one that
    // becomes vectors.
    for k in (first..last).step_by(4) {
        for i in 0..32 {
            let exp = |k| a.exp(k, i) + b.exp(k, i);
            largest[i] = largest[i].max(exp(k).max(exp(k + 1))).max(exp(k + 2).max(exp(k + 3)));
        }
    }
    let mut units = [0f32; 32];
    let mut products = [0i32; 32];
    let mut exp = [0; 32];
    for i in 0..32 {
        exp[i] = largest[i] - rules.kept;
        units[i] = f32::from_bits((((-exp[i]).min(127) + 127) << 23) as u32);
    }
    // SAFETY: a factor is below 2 to its exponent plus one and no exponent of a product is above the largest, so
    // that every number of units is finite and below 2^(kept + 2), at most 2^27.
    let whole = |units: f32| unsafe { units.to_int_unchecked::<i32>() };
    for k in (first..last).step_by(4) {
        for i in 0..32 {
            let term = |k| whole(a.value(k, i) * b.value(k, i) * units[i]);
            products[i] += term(k) + term(k + 1) + term(k + 2) + term(k + 3);
        }
    }
    let mut total = [0f64; 32];
    for i in 0..32 {
        total[i] = f64::from(products[i]) + f64::from(whole(c[i] * units[i]));
    }
    rounded(&total, &exp, rules.half)
}

/// The same for numbers of any size. An operand that is not finite makes an infinity or NaN; finite products
/// count as numbers, however large.
#[cold]
#[inline(never)]
fn sum_any(
    a: &Factors<'_>,
    b: &Factors<'_>,
    (first, last): (usize, usize),
    c: &[f32; 32],
    rules: Rules,
) -> [f32; 32] {
    let (mut total, mut exp, mut special) = ([0f64; 32], [0; 32], [None; 32]);
    for i in 0..32 {
        let factors = (first..last).map(|k| (a.value(k, i), b.value(k, i)));
        let infinite = factors.clone().filter(|(a, b)| !a.is_finite() || !b.is_finite()).map(|(a, b)| a * b);
        // Infinities of both signs make a NaN.
        special[i] = std::iter::once(c[i]).chain(infinite).filter(|x| !x.is_finite()).reduce(|a, b| a + b);
        let exps = (first..last).map(|k| a.exp(k, i) + b.exp(k, i));
        exp[i] = exps.fold(exponent(c[i], rules.half), i32::max) - rules.kept;
        let products = factors.map(|(a, b)| f64::from(a) * f64::from(b)).chain([f64::from(c[i])]);
        total[i] = products.map(|x| (x * power(-exp[i])).trunc()).sum();
    }
    let sums = rounded(&total, &exp, rules.half);
    each(|i| special[i].unwrap_or(sums[i]))
}

/// `sum * 2^exp` cut to fp32, or rounded to fp16 and widened. The sums are integers below 2^40 in magnitude.
#[inline(always)]
fn rounded(sum: &[f64; 32], exp: &[i32; 32], half: bool) -> [f32; 32] {
    /// Bits of a double that fp32 has no place for.
    const DROPPED: u64 = (1 << 29) - 1;
    let (mut t, mut outside) = ([0f32; 32], false);
    for n in 0..32 {
        let bits = sum[n].to_bits();
        // For fp16 the lowest of 24 bits records that others were cut off: the second rounding sees on which
        // side of the middle the sum lies.
        let odd = if half && bits & DROPPED != 0 { DROPPED + 1 } else { 0 };
        // A zero has any exponent.
        let x = (f64::from_bits(bits & !DROPPED | odd) * power(exp[n])) as f32;
        let normal = (x.to_bits() & 0x7fff_ffff).wrapping_sub(0x80_0000) < 0x7f00_0000;
        outside |= (sum[n] != 0.0) & !normal;
        t[n] = x;
    }
    if half {
        for x in &mut t {
            *x = widen(narrow(*x));
        }
        return t;
    }
    if outside { cut_all(sum, exp) } else { t }
}

/// The same, cut, for sums of any size.
#[cold]
#[inline(never)]
fn cut_all(sum: &[f64; 32], exp: &[i32; 32]) -> [f32; 32] {
    each(|n| cut_exactly(sum[n] as i64, exp[n]))
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
pub(super) fn exact(room: &mut Room, f: &Fragments, kind: u32, rules: Rules, depth: usize) -> [[f32; 32]; 4] {
    let half = kind == HALF;
    let [upper, lower, even, odd] = room;
    let a = [Factors::new(upper, &f.a[0], half, rows), Factors::new(lower, &f.a[1], half, rows)];
    let b = [Factors::new(even, &f.b, half, columns::<0>), Factors::new(odd, &f.b, half, columns::<1>)];
    let (mut acc, last) = (f.acc, 4 * f.count);
    let step = depth.min(last).max(1);
    for r in 0..4 {
        let mut first = 0;
        while first < last {
            acc[r] = sum(&a[r / 2], &b[r % 2], (first, (first + step).min(TERMS)), &acc[r], rules);
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
            exact(&mut core.room, &f, op.k[0], Rules { kept: op.k[4] as i32, half }, op.k[5] as usize)
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
    use crate::gpu::sm::core::EMPTY_ROOM;
    use crate::gpu::sm::soft::F16;
    use proptest::prelude::*;

    /// A finite number as an integer of `fraction` bits below the point, and its exponent.
    fn split(x: f32, fraction: u32, least: i32) -> (i128, i32) {
        let exact = (f64::from(x).to_bits() >> 52 & 0x7ff) as i32 - 1023;
        let exp = if x == 0.0 { ZERO_EXPONENT } else { exact.max(least) };
        let sig = f64::from(x) * power(fraction as i32 - exp.max(least));
        (sig as i128, exp)
    }

    /// The sum of one lane in integers; NaN or an infinity as soon as an operand is one.
    fn in_integers(terms: &[(f32, f32)], c: f32, least: i32, rules: Rules) -> f32 {
        let special = terms.iter().filter(|(a, b)| !(a.is_finite() && b.is_finite())).map(|(a, b)| a * b);
        let special: Vec<f32> = special.chain(Some(c).filter(|c| !c.is_finite())).collect();
        if !special.is_empty() {
            return special.iter().sum();
        }
        let mut terms: Vec<(i128, i32)> = terms
            .iter()
            .map(|(a, b)| (split(*a, 10, least), split(*b, 10, least)))
            .map(|((a, ea), (b, eb))| ((a * b) << (rules.kept - 20), ea + eb))
            .collect();
        let (sig, exp) = split(c, 23, if rules.half { HALF_MINIMUM } else { -126 });
        terms.push((sig << (rules.kept - 23), exp));
        let largest = terms.iter().map(|(_, exp)| *exp).max().unwrap();
        let sum: i128 = terms.iter().map(|(sig, exp)| sig / (1 << (largest - exp).min(100))).sum();
        let exact = Exact { negative: sum < 0, sig: sum.unsigned_abs(), exp: largest - rules.kept };
        match (sum, rules.half) {
            (0, _) => 0.0,
            (_, true) => widen(F16.round(exact, Rounding::Nearest, false) as u32),
            (_, false) => f32::from_bits(F32.round(exact, Rounding::Zero, false) as u32),
        }
    }

    /// Elements of a type: zeros, numbers about `2^at`, and with `wild` a few of any size, infinite or NaN.
    fn an_element(kind: u32, at: i32, wild: bool) -> impl Strategy<Value = f32> {
        let near = (any::<u32>(), -6..7i32).prop_map(move |(bits, exp)| {
            let at = if kind == HALF { at / 8 } else { at };
            let bits = bits & 0x807f_e000 | ((at + exp + 127) as u32) << 23;
            match kind {
                HALF => widen(narrow(f32::from_bits(bits))),
                _ => element(kind, bits, true),
            }
        });
        let any = (any::<u32>(), 0..50u32).prop_map(move |(bits, n)| {
            let x = element(kind, bits, true);
            if x.is_finite() || n == 0 { x } else { 0.5 }
        });
        prop_oneof![if wild { 2 } else { 0 } => any, 40 => near, 10 => Just(0.0)]
    }

    /// A type, elements of A and B, and sums so far, of the size of the products or not.
    fn a_product() -> impl Strategy<Value = (u32, Vec<f32>, Vec<f32>)> {
        let kinds = prop_oneof![2 => Just(HALF), 1 => Just(BRAIN), 1 => Just(TF32)];
        (kinds, -75..75i32, -75..75i32, -30..30i32, prop::bool::weighted(0.2)).prop_flat_map(
            |(kind, a, b, off, wild)| {
                let all =
                    |at: i32, count: usize| proptest::collection::vec(an_element(kind, at, wild), count);
                let elements = (all(a, 256), all(b, 128)).prop_map(|(a, b)| [a, b].concat());
                let exp = if kind == HALF { off } else { (a + b + off).clamp(-126, 120) };
                let c = (any::<u32>(), 0..4u32).prop_map(move |(bits, n)| match n {
                    0 => 0.0,
                    _ => f32::from_bits(bits & 0x807f_ffff | ((exp + 127) as u32) << 23),
                });
                (Just(kind), elements, proptest::collection::vec(c, 128))
            },
        )
    }

    /// Sums that are too small to be scaled in fp32, with products of zero.
    #[test]
    fn zeros_leave_the_smallest_sums() {
        let zeros = [[0.0; 32]; ELEMENTS];
        for exp in [-126, -120, -103, -99] {
            let acc = [[f32::from_bits((((exp + 127) as u32) << 23) | 0x12_3456); 32]; 4];
            let f = Fragments { a: [zeros; 2], b: zeros, count: ELEMENTS, per: 2, acc };
            let room = &mut { EMPTY_ROOM };
            assert_eq!(exact(room, &f, HALF, Rules { kept: 24, half: false }, 8), acc, "2^{exp}");
        }
    }

    proptest! {
        #[test]
        fn products_are_those_of_integers((kind, x, c) in a_product(), depth in 0..3usize, half: bool) {
            let half = half && kind == HALF;
            let rules = Rules { kept: if depth == 2 { 25 } else { 24 }, half };
            let depth = 4 << depth;
            let four = |from: usize| std::array::from_fn(|e| std::array::from_fn(|lane| x[from + 32 * e + lane]));
            let acc: [[f32; 32]; 4] = std::array::from_fn(|r| {
                let wide = |lane| c[32 * r + lane];
                each(|lane| if half { widen(narrow(wide(lane) % 60000.0)) } else { wide(lane) })
            });
            let f = Fragments { a: [four(0), four(128)], b: four(256), count: ELEMENTS, per: 2, acc };
            let sums = exact(&mut { EMPTY_ROOM }, &f, kind, rules, depth);
            let least = if kind == HALF { HALF_MINIMUM } else { -126 };
            for (r, lane) in (0..4).flat_map(|r| (0..32).map(move |lane| (r, lane))) {
                let (row, column) = (lane / 4 * 4, 4 * (2 * (lane % 4) + r % 2));
                let terms: Vec<(f32, f32)> = (0..TERMS)
                    .map(|k| (f.a[r / 2][k / 4][row + k % 4], f.b[k / 4][column + k % 4]))
                    .collect();
                let expected = terms.chunks(depth).fold(acc[r][lane], |c, terms| in_integers(terms, c, least, rules));
                prop_assert_eq!(result(sums[r][lane]), result(expected), "{} {}: {:?}", r, lane, terms);
            }
        }

        #[test]
        fn sums_are_cut_and_rounded_as_by_exact_arithmetic(
            bits in 0u32..40, low: u64, negative: bool, exp in prop_oneof![-60..40, -330..330],
        ) {
            let magnitude = (low & ((1 << bits) - 1)) as i64;
            let sum = if negative { -magnitude } else { magnitude };
            let cut = rounded(&[sum as f64; 32], &[exp; 32], false)[3];
            prop_assert_eq!(cut.to_bits(), cut_exactly(sum, exp).to_bits());
            let half = rounded(&[sum as f64; 32], &[exp; 32], true)[5];
            let exact = Exact { negative: sum < 0, sig: sum.unsigned_abs().into(), exp };
            let expected = if sum == 0 { 0.0 } else { widen(F16.round(exact, Rounding::Nearest, false) as u32) };
            prop_assert_eq!(half.to_bits(), expected.to_bits());
        }
    }
}
