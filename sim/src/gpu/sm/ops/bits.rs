//! Logic, shifts, byte gathers and bit fields.

use std::array::from_fn;

use crate::gpu::sm::core::Flow;
use crate::gpu::sm::lower::{Lower, Refusal};
use crate::gpu::sm::micro_op::{LaneFn, Map, lane_ops, warp_ops};
use crate::gpu::sm::slots::ZERO;

lane_ops! {
    BitReverse(_, b, _, _) b.reverse_bits();
    PopCount(_, b, _, op) (b ^ op.k[0]).count_ones();
    And(a, b, _, _) a & b;
    Or(a, b, _, _) a | b;
    Xor(a, b, _, _) a ^ b;
    AndOr(a, b, c, _) (a & b) | c;
    AndC(a, _, c, _) a & c;
    OrC(a, _, c, _) a | c;
    Or3(a, b, c, _) a | b | c;
    Xor3(a, b, c, _) a ^ b ^ c;
    OrAnd(a, b, c, _) a | (b & c);
    /// A's bits choose between B and C.
    Choose(a, b, c, _) (a & b) | (!a & c);
    /// Any function of three bits, as an exclusive or of products.
    Logic(a, b, c, op) {
        let k = &op.k;
        let low = (k[0] & a) ^ (k[1] & b) ^ (k[2] & c);
        let both = (a & ((k[3] & b) ^ (k[4] & c))) ^ (k[5] & b & c);
        let all = a & b & c & 0u32.wrapping_sub(u32::from(op.ps[1]));
        low ^ both ^ all ^ 0u32.wrapping_sub(u32::from(op.ps[2]))
    };
    ShiftLeft(a, b, _, _) if b > 31 { 0 } else { a << b };
    ShiftRightHigh(_, b, c, _) if b > 31 { 0 } else { c >> b };
    ShiftRightHighSigned(_, b, c, _) ((c as i32) >> b.min(31)) as u32;
    SignExtend(a, b, _, op) {
        let n = if op.k[1] != 0 { b & 31 } else { b.min(32) };
        let kept = if n == 0 { 0 } else { a << (32 - n) };
        if n == 0 { 0 } else if op.k[0] != 0 { ((kept as i32) >> (32 - n)) as u32 } else { kept >> (32 - n) }
    };
    BitMask(a, b, _, op) {
        let (at, n) = if op.k[1] != 0 { (a & 31, b & 31) } else { (a.min(32), b.min(32)) };
        (((1u64 << n) - 1) << at) as u32
    };
    /// The low or high word of a shift of {C:A}; k: 0 width, 1 arithmetic, 2 wraps, 3 right, 4 high.
    Funnel(a, b, c, op) {
        let [width, arithmetic, wraps, right, high, _] = op.k;
        let n = if wraps != 0 { b & (width - 1) } else { b.min(width) };
        let x = u64::from(c) << 32 | u64::from(a);
        if right == 0 {
            let y = if n > 63 { 0 } else { x << n };
            if high != 0 { (y >> 32) as u32 } else { y as u32 }
        } else if width == 32 && high != 0 {
            if arithmetic != 0 { ((c as i32) >> n.min(31)) as u32 } else if n > 31 { 0 } else { c >> n }
        } else {
            let y = if arithmetic != 0 { ((x as i64) >> n.min(63)) as u64 } else if n > 63 { 0 } else { x >> n };
            if high != 0 { (y >> 32) as u32 } else { y as u32 }
        }
    };
    /// Bytes of A that keep their distances; k: 0 rotation to the right, 1 mask.
    PermuteOne(a, _, _, op) a.rotate_right(op.k[0] & 31) & op.k[1];
    /// The same of A and B.
    PermuteTwo(a, b, _, op) (a.rotate_right(op.k[0] & 31) & op.k[1]) | (b.rotate_right(op.k[2] & 31) & op.k[3]);
    /// A byte of A as a signed number; k[0] shifts it to the top.
    SignByte(a, _, _, op) ((a << (op.k[0] & 31)) as i32 >> 24) as u32;
    /// Byte gather from {C:A} by the selector B; k[0] is the mode.
    Permute(a, b, c, op) {
        let x = u64::from(c) << 32 | u64::from(a);
        let byte = |i: u32| (x >> (8 * (i & 7))) as u32 & 0xff;
        let k = b & 3;
        let at = |i: u32| match op.k[0] {
            1 => k + i,
            2 => k.wrapping_sub(i),
            3 => k,
            4 => k.max(i),
            5 => k.min(i),
            _ => 2 * (k & 1) + (i & 1),
        };
        let mut d = 0;
        for i in 0..4 {
            d |= if op.k[0] == 0 {
                let s = b >> (4 * i);
                let v = byte(s);
                if s & 8 != 0 { 0xff * (v >> 7) } else { v }
            } else {
                byte(at(i))
            } << (8 * i);
        }
        d
    };
}

warp_ops! {
    /// A byte gather whose selector is the same for all lanes; k: four nibbles of it.
    PermuteConst(core, op) {
        let (a, c) = (core.src(op.a), core.src(op.c));
        let word = |i: usize| if op.k[i] & 4 != 0 { c } else { a };
        let (w0, w1, w2, w3) = (word(0), word(1), word(2), word(3));
        let shift = [8 * (op.k[0] & 3), 8 * (op.k[1] & 3), 8 * (op.k[2] & 3), 8 * (op.k[3] & 3)];
        let mut t = [0u32; 32];
        for i in 0..32 {
            t[i] = (w0[i] >> shift[0] & 0xff)
                | (w1[i] >> shift[1] & 0xff) << 8
                | (w2[i] >> shift[2] & 0xff) << 16
                | (w3[i] >> shift[3]) << 24;
        }
        core.put(op.d, &t);
        Flow::Next
    }

    /// Highest set bit; k: 0 signed, 1 as a shift, 2 inverts.
    FindLeadingOne(core, op) {
        let b = core.src(op.b);
        let (mut t, mut found) = ([0u32; 32], 0u32);
        for i in 0..32 {
            let x = b[i] ^ op.k[2];
            let x = if op.k[0] != 0 && (x as i32) < 0 { !x } else { x };
            t[i] = match (x, op.k[1]) {
                (0, _) => u32::MAX,
                (_, 0) => 31 - x.leading_zeros(),
                _ => x.leading_zeros(),
            };
            found |= u32::from(x != 0) << i;
        }
        core.put(op.d, &t);
        core.put_pred(op.pd[0], found);
        Flow::Next
    }

    /// LOP3 with a predicate result after the logic function has been made; k as for `Logic`, pd[1] = 1 for PAND.
    LogicPredicate(core, op) {
        let input = core.pred(op.ps[0]);
        let (a, b, c) = (core.src(op.a), core.src(op.b), core.src(op.c));
        let (mut t, mut set) = ([0u32; 32], 0u32);
        for i in 0..32 {
            t[i] = Logic::f(a[i], b[i], c[i], op);
            set |= u32::from(t[i] != 0) << i;
        }
        core.put(op.d, &t);
        core.put_pred(op.pd[0], if op.pd[1] == 1 { set & input } else { set | input });
        Flow::Next
    }
}

pub(super) fn lop3(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.dst(1)?;
    l.a(1)?;
    l.b(1)?;
    l.c(1)?;
    let lut = l.bits(72, 8);
    // Reed-Muller form: the coefficient of a product is the parity of the table over the subsets of its
    // variables.
    let coefficient = |product: u32| {
        let parity = (0..8).filter(|i| i & !product == 0).fold(0, |p, i| p ^ (lut >> i & 1));
        0u32.wrapping_sub(parity)
    };
    let one = l.bits(81, 3) == 7;
    l.op.k = [coefficient(4), coefficient(2), coefficient(1), coefficient(6), coefficient(5), coefficient(3)];
    l.op.ps = [l.ps(), (coefficient(7) & 1) as u8, (coefficient(0) & 1) as u8];
    l.op.pd = [l.pred_out(81), l.flag(80) as u8];
    match (one, lut) {
        (false, _) => l.run::<LogicPredicate>(),
        (_, 0xc0) => l.run::<Map<And>>(),
        (_, 0xfc) => l.run::<Map<Or>>(),
        (_, 0x3c) => l.run::<Map<Xor>>(),
        (_, 0xea) => l.run::<Map<AndOr>>(),
        (_, 0xa0) => l.run::<Map<AndC>>(),
        (_, 0xfa) => l.run::<Map<OrC>>(),
        (_, 0xfe) => l.run::<Map<Or3>>(),
        (_, 0x96) => l.run::<Map<Xor3>>(),
        (_, 0xf8) => l.run::<Map<OrAnd>>(),
        (_, 0xca) => l.run::<Map<Choose>>(),
        _ => l.run::<Map<Logic>>(),
    }
    Ok(())
}

pub(super) fn shf(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.dst(1)?;
    l.a(1)?;
    l.b(1)?;
    l.c(1)?;
    let ty = l.bits(73, 2);
    let (wraps, right, high) = (l.bit(75), l.bit(76), l.bit(80));
    let signed = ty & 1 == 0;
    l.op.k = [
        if ty < 2 { 64 } else { 32 },
        u32::from(signed),
        u32::from(wraps),
        u32::from(right),
        u32::from(high),
        0,
    ];
    match (ty, wraps, right, high) {
        (2 | 3, false, false, false) => l.run::<Map<ShiftLeft>>(),
        (3, false, true, true) => l.run::<Map<ShiftRightHigh>>(),
        (2, false, true, true) => l.run::<Map<ShiftRightHighSigned>>(),
        _ => l.run::<Map<Funnel>>(),
    }
    Ok(())
}

/// Makes a byte gather with a known selector one or two masked rotations, or the extension of a byte, where it
/// is that.
fn permute_whole(l: &mut Lower<'_>, selector: u32) -> bool {
    let nibbles: [u32; 4] = from_fn(|i| selector >> (4 * i) & 15);
    let [a, c] = [l.op.a, l.op.c];
    let slot = |nibble: u32| if nibble & 4 != 0 { c } else { a };
    if nibbles[0] < 8 && nibbles[1..].iter().all(|n| *n == nibbles[0] | 8) {
        l.op.a = slot(nibbles[0]);
        l.op.k[0] = 24 - 8 * (nibbles[0] & 3);
        l.run::<Map<SignByte>>();
        return true;
    }
    // Slot, rotation and mask of the bytes that go together.
    let mut groups: Vec<(u16, u32, u32)> = Vec::new();
    for (i, nibble) in (0u32..).zip(nibbles).filter(|(_, n)| slot(*n) != ZERO) {
        if nibble & 8 != 0 {
            return false;
        }
        let (from, rotation) = (slot(nibble), 8 * (nibble.wrapping_sub(i) & 3));
        match groups.iter_mut().find(|g| (g.0, g.1) == (from, rotation)) {
            Some(group) => group.2 |= 0xff << (8 * i),
            None => groups.push((from, rotation, 0xff << (8 * i))),
        }
    }
    match groups[..] {
        [] => return false,
        [(from, rotation, mask)] => {
            l.op.a = from;
            l.set_k(0, &[rotation, mask]);
            l.run::<Map<PermuteOne>>();
        }
        [first, second] => {
            (l.op.a, l.op.b) = (first.0, second.0);
            l.set_k(0, &[first.1, first.2, second.1, second.2]);
            l.run::<Map<PermuteTwo>>();
        }
        _ => return false,
    }
    true
}

pub(super) fn prmt(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.dst(1)?;
    l.a(1)?;
    let b = l.b(1)?;
    l.c(1)?;
    let mode = if l.uniform { 0 } else { l.bits(72, 3) };
    let selector = l.bits(32, 16);
    if mode == 0 && b.immediate && permute_whole(l, selector) {
        return Ok(());
    }
    if mode == 0 && b.immediate && selector & 0x8888 == 0 {
        l.op.k = [selector & 7, selector >> 4 & 7, selector >> 8 & 7, selector >> 12 & 7, 0, 0];
        l.run::<PermuteConst>();
    } else {
        l.op.k[0] = mode;
        l.run::<Map<Permute>>();
    }
    Ok(())
}

pub(super) fn sgxt(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.dst(1)?;
    l.a(1)?;
    l.b(1)?;
    l.op.k = [l.flag(73), l.flag(75), 0, 0, 0, 0];
    l.run::<Map<SignExtend>>();
    Ok(())
}

pub(super) fn bmsk(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.dst(1)?;
    l.a(1)?;
    l.b(1)?;
    l.op.k[1] = l.flag(75);
    l.run::<Map<BitMask>>();
    Ok(())
}

pub(super) fn flo(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.dst(1)?;
    l.b(1)?;
    l.op.k = [l.flag(73), l.flag(74), l.mask(63), 0, 0, 0];
    if l.w.form() == 4 {
        l.op.k[2] = 0;
    }
    l.pd();
    l.run::<FindLeadingOne>();
    Ok(())
}

pub(super) fn brev(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.dst(1)?;
    l.b(1)?;
    l.run::<Map<BitReverse>>();
    Ok(())
}

pub(super) fn popc(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.dst(1)?;
    let b = l.b(1)?;
    l.op.k[0] = if b.neg { u32::MAX } else { 0 };
    l.run::<Map<PopCount>>();
    Ok(())
}
