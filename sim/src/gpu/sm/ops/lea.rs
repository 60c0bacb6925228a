//! LEA: a shifted value plus another.

use crate::gpu::sm::core::Flow;
use crate::gpu::sm::lower::{Lower, Refusal};
use crate::gpu::sm::micro_op::warp_ops;

warp_ops! {
    /// LEA in all its forms; k: 0 shift, 1 high, 2 arithmetic, 3 inverts the shifted value, 4 inverts B, 5 is added unless extended.
    LeaGeneral(core, op) {
        let extra = if op.ps[1] != 0 { core.pred(op.ps[0]) } else { 0 };
        let (a, b, c) = (core.src(op.a), core.src(op.b), core.src(op.c));
        let [s, high, arithmetic, not_a, not_b, add] = op.k;
        let mut x = [0u32; 32];
        for i in 0..32 {
            // The word above A in a wide shift.
            let above = if arithmetic != 0 { (a[i] as i32 >> 31) as u32 } else { c[i] };
            let shifted = if high == 0 { a[i] << (s & 31) } else { above << (s & 31) | a[i] >> 1 >> (31 - (s & 31)) };
            x[i] = shifted ^ not_a;
        }
        let (mut t, mut carry) = ([0u32; 32], 0u32);
        for i in 0..32 {
            let sum = x[i].wrapping_add(b[i] ^ not_b);
            t[i] = sum.wrapping_add(add + (extra >> i & 1));
            carry |= (u32::from(sum < x[i]) | u32::from(t[i] < sum)) << i;
        }
        core.put(op.d, &t);
        core.put_pred(op.pd[0], carry);
        Flow::Next
    }
}

pub(super) fn lea(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.dst(1)?;
    let a = l.a(1)?;
    let b = l.b(1)?;
    let (shift, high, extended) = (l.bits(75, 5), l.bit(80), l.bit(74));
    let arithmetic = high && l.bit(73);
    if high && !arithmetic {
        l.c(1)?;
    }
    let add = if extended { 0 } else { u32::from(a.neg) + u32::from(b.neg) };
    let not = |neg: bool| if neg { u32::MAX } else { 0 };
    l.op.k = [shift, u32::from(high), u32::from(arithmetic), not(a.neg), not(b.neg), add];
    l.op.ps = [l.ps(), u8::from(extended), 7];
    l.pd();
    l.run::<LeaGeneral>();
    Ok(())
}
