//! Accesses whose lanes lie in one page that the worker's TLB holds: one translation for all of them. Others
//! (several pages, memory windows, faults) go by [`address`](crate::gpu::sm::ops::address).

use crate::gpu::sm::core::Core;
use crate::gpu::sm::guest;
use crate::gpu::sm::lanes::{Isa, spread};
use crate::gpu::sm::launch::Access;
use crate::gpu::sm::micro_op::MicroOp;
use crate::gpu::sm::ops::address::count;
use crate::gpu::sm::slots::ZERO;

/// Pattern of the addresses of the executing lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pattern {
    /// Each at its neighbour's end, and the page holds the addresses of the other lanes of the row.
    Row,
    /// All at one place.
    One,
    Each,
}

/// A checked access: every executing lane's address is valid for it and aligned to its width.
pub(super) struct Page {
    pattern: Pattern,
    /// Host address of lane 0 in a row, else of the lowest address.
    host: *mut u8,
    /// Offsets of the lanes from the lowest address; those that do not execute repeat one that does.
    rel: [u32; 32],
}

/// Checks and translates a global or generic access of `W` bytes a lane, and counts it. `None`: it takes the
/// slow way, and nothing was counted.
#[inline(always)]
pub(super) fn find<const W: usize>(core: &mut Core<'_>, op: &MicroOp, access: Access) -> Option<Page> {
    let (mask, width) = (core.mask, W as u64);
    let first = mask.trailing_zeros() as usize & 31;
    let wide = op.k[2] == 0;
    let high = if wide { op.a + 1 } else { ZERO };
    let (lead, lead_high) = (core.lane(op.a, first), core.lane(high, first));
    let (lo, hi) = (core.src(op.a), core.src(high));
    let (mut rel, mut apart, mut step, mut bits) = ([0u32; 32], 0u32, 0u32, 0u32);
    let (mut least, mut most) = (u32::MAX, 0u32);
    for i in 0..32 {
        let runs = spread(mask, i);
        let differs = (lo[i] ^ lead) & runs;
        let low = lead ^ differs;
        rel[i] = low;
        bits |= differs;
        apart |= (hi[i] ^ lead_high) & runs;
        step |=
            (lo[i].wrapping_sub(lead) ^ (i as u32).wrapping_sub(first as u32).wrapping_mul(W as u32)) & runs;
        (least, most) = (least.min(low), most.max(low));
    }
    let mut offset = u64::from(op.k[0]) | u64::from(op.k[1]) << 32;
    if op.b != ZERO {
        offset = offset.wrapping_add(u64::from(core.uniform(op.b)) | u64::from(core.uniform(op.b + 1)) << 32);
    }
    let start = (u64::from(lead_high) << 32 | u64::from(least)).wrapping_add(offset);
    let span = u64::from(most - least);
    let entry = core.tlb.hit(start, access)?;
    let (at, unaligned) = (start - entry.va, (u64::from(bits) | start) & (width - 1));
    if apart != 0 || unaligned != 0 || span > 1 << 30 || at + span + width > entry.len {
        return None;
    }
    for low in &mut rel {
        *low -= least;
    }
    let run = mask >> first;
    let before = first as u64 * width;
    let mut pattern = Pattern::Each;
    let sectors = if span == 0 {
        pattern = Pattern::One;
        1
    } else if step == 0 && run & run.wrapping_add(1) == 0 {
        if at >= before && at - before + 32 * width <= entry.len {
            pattern = Pattern::Row;
        }
        ((start + span + width - 1) >> 5) - (start >> 5) + 1
    } else if span < 2000 {
        let (mut seen, within) = (0u64, start as u32 & 31);
        for r in rel {
            seen |= 1 << ((r + within) >> 5 & 63);
        }
        seen.count_ones().into()
    } else {
        distinct(start, &rel)
    };
    count(core, sectors, access, |i| start + u64::from(rel[i]));
    let host = entry.host.wrapping_add(at as usize);
    let host = if pattern == Pattern::Row { host.wrapping_sub(before as usize) } else { host };
    Some(Page { pattern, host, rel })
}

/// Returns the number of sectors of offsets that lie far from each other.
#[inline(never)]
fn distinct(start: u64, rel: &[u32; 32]) -> u64 {
    let mut sectors = rel.map(|r| (start + u64::from(r)) >> 5);
    sectors.sort_unstable();
    1 + sectors.windows(2).filter(|w| w[0] != w[1]).count() as u64
}

/// The words of 32 neighbouring values of `W` bytes, at the front.
///
/// # Safety
/// As [`guest`] requires, for `32 * W` bytes; `p` is aligned to `W` bytes or 16.
#[inline(always)]
unsafe fn load_row<const W: usize>(core: &Core<'_>, p: *const u8) -> [u32; 128] {
    let mut words = [0u32; 128];
    if guest::HAS_VECTOR_ACCESSES && core.env.target.isa != Isa::Baseline {
        for i in 0..2 * W {
            // SAFETY: the caller's; beyond the baseline there is AVX.
            let part = unsafe { guest::load_16(p.add(16 * i)) };
            for (n, word) in part.into_iter().enumerate() {
                words[4 * i + n] = word;
            }
        }
        return words;
    }
    if p.addr().is_multiple_of(8) {
        for i in 0..4 * W {
            // SAFETY: the caller's; aligned as just tested.
            let both = unsafe { guest::load_u64(p.add(8 * i)) };
            (words[2 * i], words[2 * i + 1]) = (both as u32, (both >> 32) as u32);
        }
        return words;
    }
    for i in 0..32 {
        // SAFETY: the caller's, for each value.
        unsafe {
            match W {
                1 => words[i / 4] |= u32::from(guest::load_u8(p.add(i))) << (8 * (i % 4)),
                2 => words[i / 2] |= u32::from(guest::load_u16(p.add(2 * i))) << (16 * (i % 2)),
                _ => words[i] = guest::load_u32(p.add(4 * i)),
            }
        }
    }
    words
}

/// A narrow value in the lowest bits of `x`, extended.
#[inline(always)]
fn extend<const W: usize, const SIGNED: bool>(x: u32) -> u32 {
    match (W, SIGNED) {
        (1, false) => x & 0xff,
        (1, true) => x as i8 as u32,
        (2, false) => x & 0xffff,
        (2, true) => x as i16 as u32,
        _ => x,
    }
}

/// The words of the value at `p`, extended.
///
/// # Safety
/// As [`guest`] requires, for `W` bytes.
#[inline(always)]
unsafe fn load_one<const W: usize, const SIGNED: bool>(p: *const u8) -> [u32; 4] {
    // SAFETY: the caller's.
    unsafe {
        match W {
            1 => [extend::<W, SIGNED>(guest::load_u8(p).into()), 0, 0, 0],
            2 => [extend::<W, SIGNED>(guest::load_u16(p).into()), 0, 0, 0],
            _ => guest::load_words::<W>(p),
        }
    }
}

/// Loads `W` bytes per lane into the registers from `d` on.
#[inline(always)]
pub(super) fn load<const W: usize, const SIGNED: bool>(core: &mut Core<'_>, d: u16, page: &Page) {
    let registers = W.div_ceil(4);
    match page.pattern {
        Pattern::One => {
            // SAFETY: `Page`.
            let words = unsafe { load_one::<W, SIGNED>(page.host) };
            for w in 0..registers {
                core.put(d + w as u16, &[words[w]; 32]);
            }
        }
        Pattern::Row => {
            // SAFETY: `Page`.
            let words = unsafe { load_row::<W>(core, page.host) };
            for w in 0..registers {
                let mut t = [0u32; 32];
                if W >= 4 {
                    for i in 0..32 {
                        t[i] = words[i * registers + w];
                    }
                } else {
                    for word in 0..8 * W {
                        for part in 0..4 / W {
                            t[word * (4 / W) + part] = extend::<W, SIGNED>(words[word] >> (8 * W * part));
                        }
                    }
                }
                core.put(d + w as u16, &t);
            }
        }
        Pattern::Each => {
            let mut left = core.mask;
            while left != 0 {
                let i = left.trailing_zeros() as usize;
                left &= left - 1;
                // SAFETY: `Page`, for the lanes that execute.
                let words = unsafe { load_one::<W, SIGNED>(page.host.add(page.rel[i] as usize)) };
                for w in 0..registers {
                    core.set_lane(d + w as u16, i, words[w]);
                }
            }
        }
    }
}

/// Stores `W` bytes per lane from the registers from `s` on.
#[inline(always)]
pub(super) fn store<const W: usize>(core: &Core<'_>, s: u16, page: &Page) {
    if W >= 4 && page.pattern == Pattern::Row && core.mask == u32::MAX && page.host.addr().is_multiple_of(8) {
        let registers = W / 4;
        for i in 0..4 * W {
            let word = |n: usize| u64::from(core.lane(s + (n % registers) as u16, n / registers));
            // SAFETY: `Page`; aligned as just tested.
            unsafe { guest::store_u64(page.host.add(8 * i), word(2 * i) | word(2 * i + 1) << 32) };
        }
        return;
    }
    let first = core.mask.trailing_zeros() as usize * W;
    let base = if page.pattern == Pattern::Row { page.host.wrapping_add(first) } else { page.host };
    let mut left = core.mask;
    while left != 0 {
        let i = left.trailing_zeros() as usize;
        left &= left - 1;
        let p = base.wrapping_add(page.rel[i] as usize);
        // SAFETY: `Page`, for the lanes that execute.
        unsafe {
            match W {
                1 => guest::store_u8(p, core.lane(s, i) as u8),
                2 => guest::store_u16(p, core.lane(s, i) as u16),
                _ => {
                    let word = |w: usize| if w < W / 4 { core.lane(s + w as u16, i) } else { 0 };
                    guest::store_words::<W>(p, [word(0), word(1), word(2), word(3)]);
                }
            }
        }
    }
}
