//! Matrix instructions of integers, bits and doubles: fragments of small matrices spread over the lanes of a
//! warp. Those of narrow floating-point numbers are in [`tensor`](crate::gpu::sm::ops::tensor).
//!
//! Below, g = lane / 4 and t = lane % 4. Every lane must take part; with less, the hardware's result is
//! undefined and the instruction is reported.

use crate::gpu::sm::core::{Core, Flow};
use crate::gpu::sm::fault::esr;
use crate::gpu::sm::lanes::each;
use crate::gpu::sm::lower::{Lower, Refusal};
use crate::gpu::sm::micro_op::{MicroOp, Op, warp_ops};

/// Row and column of register `r` of an fp32 or s32 result, for a lane.
#[inline(always)]
fn result_place(lane: usize, r: usize) -> (usize, usize) {
    (lane / 4 + 8 * (r >> 1), 2 * (lane % 4) + (r & 1))
}

warp_ops! {
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
        let t = each(|lane| {
            let (g, t) = (lane / 4, lane % 4);
            element(2 * t, g) | element(2 * t + 1, g) << 16
        });
        core.put(op.d, &t);
        Flow::Next
    }
}

/// Element `e` of a register of elements of `WIDTH` bits.
#[inline(always)]
fn element<const WIDTH: u32, const SIGNED: bool>(x: u32, e: u32) -> i32 {
    let up = x << (32 - WIDTH - WIDTH * e);
    if SIGNED { (up as i32) >> (32 - WIDTH) } else { (up >> (32 - WIDTH)) as i32 }
}

/// Adds, lane by lane, the dot product of two registers of elements of `WIDTH` bits.
#[inline(always)]
fn add_dot<const WIDTH: u32, const A_SIGNED: bool, const B_SIGNED: bool>(
    sum: &mut [i32; 32],
    a: &[u32; 32],
    b: &[u32; 32],
) {
    for i in 0..32 {
        for e in 0..32 / WIDTH {
            sum[i] += element::<WIDTH, A_SIGNED>(a[i], e) * element::<WIDTH, B_SIGNED>(b[i], e);
        }
    }
}

/// The lanes' values of A that meet column group `T` of the depth: a row's from the lane of its four that has
/// it.
#[inline(always)]
pub(super) fn of_row<const T: usize>(a: &[u32; 32]) -> [u32; 32] {
    each(|lane| a[lane / 4 * 4 + T])
}

/// The same of B: a lane has columns 2t and 2t + 1 of the result, `E` says which.
#[inline(always)]
pub(super) fn of_column<const T: usize, const E: usize>(b: &[u32; 32]) -> [u32; 32] {
    each(|lane| b[4 * (2 * (lane % 4) + E) + T])
}

/// IMMA; k: 0 rows, 2 depth, 5 saturates. The sums of the products fit in 32 bits.
struct Imma<const WIDTH: u32, const A_SIGNED: bool, const B_SIGNED: bool>;

impl<const WIDTH: u32, const A_SIGNED: bool, const B_SIGNED: bool> Op for Imma<WIDTH, A_SIGNED, B_SIGNED> {
    #[inline(always)]
    fn run(core: &mut Core<'_>, op: &MicroOp) -> Flow {
        if core.mask != u32::MAX {
            return core.unsupported("a matrix instruction with inactive lanes");
        }
        let halves = (op.k[0] / 8) as u16;
        let blocks = (op.k[2] * WIDTH / 128) as u16;
        let mut sums = [[0i32; 32]; 4];
        for block in 0..blocks {
            let b = core.src(op.b + block);
            let even =
                [of_column::<0, 0>(&b), of_column::<1, 0>(&b), of_column::<2, 0>(&b), of_column::<3, 0>(&b)];
            let odd =
                [of_column::<0, 1>(&b), of_column::<1, 1>(&b), of_column::<2, 1>(&b), of_column::<3, 1>(&b)];
            for half in 0..halves {
                let a = core.src(op.a + halves * block + half);
                let rows = [of_row::<0>(&a), of_row::<1>(&a), of_row::<2>(&a), of_row::<3>(&a)];
                let at = 2 * usize::from(half & 1);
                for t in 0..4 {
                    add_dot::<WIDTH, A_SIGNED, B_SIGNED>(&mut sums[at], &rows[t], &even[t]);
                    add_dot::<WIDTH, A_SIGNED, B_SIGNED>(&mut sums[at + 1], &rows[t], &odd[t]);
                }
            }
        }
        // All of C is read before D is written: they may be the same registers.
        let mut sources = [[0u32; 32]; 4];
        for r in 0..2 * halves {
            sources[usize::from(r & 3)] = core.src(op.c + r);
        }
        for r in 0..2 * halves {
            let (sum, c) = (&sums[usize::from(r & 3)], &sources[usize::from(r & 3)]);
            let t = if op.k[5] != 0 {
                each(|i| (c[i] as i32).saturating_add(sum[i]) as u32)
            } else {
                each(|i| c[i].wrapping_add(sum[i] as u32))
            };
            core.put(op.d + r, &t);
        }
        Flow::Next
    }
}

#[inline(always)]
fn bmma(core: &mut Core<'_>, op: &MicroOp) {
    let (rows, depth) = (op.k[0] as usize, op.k[2] as usize);
    let mut a = [[0u32; 8]; 16];
    let mut b = [[0u32; 8]; 8];
    for lane in 0..32 {
        let (g, t) = (lane / 4, lane % 4);
        for r in 0..rows / 8 * depth / 128 {
            let (row, block) = if rows == 16 { (g + 8 * (r & 1), r >> 1) } else { (g, r) };
            a[row][t + 4 * block] = core.lane(op.a + r as u16, lane);
        }
        for r in 0..depth / 128 {
            b[g][t + 4 * r] = core.lane(op.b + r as u16, lane);
        }
    }
    let and = op.k[3] != 0;
    let mut results = [[0u32; 32]; 4];
    for (r, result) in results[..rows / 4].iter_mut().enumerate() {
        let c = core.src(op.c + r as u16);
        for lane in 0..32 {
            let (row, col) = result_place(lane, r);
            let mut sum = c[lane];
            for k in 0..8 {
                // Words beyond the depth are zero on both sides.
                let both = if and { a[row][k] & b[col][k] } else { a[row][k] ^ b[col][k] };
                sum = sum.wrapping_add(both.count_ones());
            }
            result[lane] = sum;
        }
    }
    for (r, result) in results[..rows / 4].iter().enumerate() {
        core.put(op.d + r as u16, result);
    }
}

/// Sets the register groups of a matrix instruction.
pub(super) fn groups(l: &mut Lower<'_>, a: u32, b: u32, c: u32) -> Result<(), Refusal> {
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
    l.op.k = [rows, 0, depth, 0, 0, l.flag(82)];
    match (width, l.bit(76), l.bit(78)) {
        (4, false, false) => l.run::<Imma<4, false, false>>(),
        (4, false, true) => l.run::<Imma<4, false, true>>(),
        (4, true, false) => l.run::<Imma<4, true, false>>(),
        (4, true, true) => l.run::<Imma<4, true, true>>(),
        (_, false, false) => l.run::<Imma<8, false, false>>(),
        (_, false, true) => l.run::<Imma<8, false, true>>(),
        (_, true, false) => l.run::<Imma<8, true, false>>(),
        (_, true, true) => l.run::<Imma<8, true, true>>(),
    }
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
