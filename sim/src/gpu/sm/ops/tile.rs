//! Moves between global memory, shared memory and matrix fragments, and the question which space an address
//! is in.

use crate::gpu::sm::core::Flow;
use crate::gpu::sm::fault::esr;
use crate::gpu::sm::guest;
use crate::gpu::sm::lanes::each;
use crate::gpu::sm::launch::Access;
use crate::gpu::sm::lower::{Lower, Refusal};
use crate::gpu::sm::micro_op::MicroOp;
use crate::gpu::sm::micro_op::warp_ops;
use crate::gpu::sm::slots::{NO_PREDICATE, ZERO};
use crate::gpu::sm::tlb::Miss;

use crate::gpu::sm::ops::address::{self, Space};
use crate::gpu::sm::ops::memory::{addresses, narrow_address, offsets, wide_address};

warp_ops! {
    /// LDSM: 8 x 8 matrices of 16-bit elements, a row address per lane; k: 0 to 2 the address, 3 the count, 4 transposed.
    LoadMatrix(core, op) {
        if core.mask != u32::MAX {
            return core.unsupported("a matrix load with inactive lanes");
        }
        let count = op.k[3] as usize;
        let mut offset = offsets(core, op);
        // Only the lanes of the matrices that are loaded give addresses.
        for i in 8 * count..32 {
            offset[i] = offset[0];
        }
        let at = match address::shared(core, &offset, 16) {
            Ok(at) => at,
            Err(flow) => return flow,
        };
        for m in 0..count {
            let mut rows = [[0u32; 4]; 8];
            for (row, words) in rows.iter_mut().enumerate() {
                // SAFETY: `Checked` states that the 16 bytes of this row are valid and aligned.
                *words = unsafe { guest::load_words::<16>(at.host[8 * m + row] as *const u8) };
            }
            let element = |row: usize, col: usize| rows[row][col / 2] >> (16 * (col % 2)) & 0xffff;
            let t = each(|lane| {
                let (g, t) = (lane / 4, lane % 4);
                if op.k[4] != 0 { element(2 * t, g) | element(2 * t + 1, g) << 16 } else { rows[g][t] }
            });
            core.put(op.d + m as u16, &t);
        }
        Flow::Next
    }

    /// LDGSTS: copies k[4] bytes per lane from global to shared memory, at once; k: 0 to 2 the global address, 3
    /// the shared offset. The shared address is in C, its uniform part in D. With k[5], `.ZFILL`, the low bits of
    /// the global address are the number of bytes at the end that are filled with zeros: what ptxas computes from
    /// the source size of `cp.async`.
    CopyToShared(core, op) {
        let executing = core.mask;
        let width = op.k[4] as usize;
        let copies = executing & core.pred(op.ps[0]);
        let base = core.src(op.d)[0].wrapping_add(op.k[3]);
        let c = core.src(op.c);
        let offset = each(|i| c[i].wrapping_add(base));
        let to = match address::shared(core, &offset, width as u64) {
            Ok(at) => at,
            Err(flow) => return flow,
        };
        let mut data = [[0u32; 4]; 32];
        if copies != 0 {
            core.mask = copies;
            let at = addresses(core, op);
            let filled = filled_bytes(op, &at);
            let at = each(|i| at[i] - u64::from(filled[i]));
            let from = match address::global(core, at, width as u64, Access::Read, Space::Global) {
                Ok(at) => at,
                Err(flow) => return flow,
            };
            for i in (0..32).filter(|i| copies >> i & 1 != 0) {
                let p = from.host[i] as *const u8;
                // SAFETY: `Checked`.
                data[i] = unsafe {
                    match width {
                        4 => guest::load_words::<4>(p),
                        8 => guest::load_words::<8>(p),
                        _ => guest::load_words::<16>(p),
                    }
                };
                keep_first(&mut data[i], op.k[4] - filled[i]);
            }
        }
        for i in (0..32).filter(|i| executing >> i & 1 != 0) {
            let p = to.host[i] as *mut u8;
            // SAFETY: `Checked`.
            unsafe {
                match width {
                    4 => guest::store_words::<4>(p, data[i]),
                    8 => guest::store_words::<8>(p, data[i]),
                    _ => guest::store_words::<16>(p, data[i]),
                }
            }
        }
        Flow::Next
    }

    /// QSPC: whether an address lies in a space; k[3]: 0 global, 1 local, 2 shared.
    QuerySpace(core, op) {
        let address = addresses(core, op);
        let mut t = 0u32;
        for i in 0..32 {
            let space = match core.tlb.window(address[i]) {
                Some(Miss::Local) => 1,
                Some(Miss::Shared) => 2,
                _ => 0,
            };
            t |= u32::from(space == op.k[3]) << i;
        }
        core.put(op.d, &each(|i| t >> i & 1));
        core.put_pred(op.pd[0], t);
        Flow::Next
    }
}

/// The bytes at the end of each lane's copy of LDGSTS that are zeros instead of the source's.
pub(crate) fn filled_bytes(op: &MicroOp, at: &[u64; 32]) -> [u32; 32] {
    let low = if op.k[5] != 0 { op.k[4] - 1 } else { 0 };
    each(|i| at[i] as u32 & low)
}

/// Clears all but the first bytes.
fn keep_first(words: &mut [u32; 4], bytes: u32) {
    for (word, before) in words.iter_mut().zip((0u32..).step_by(4)) {
        let kept = bytes.saturating_sub(before).min(4);
        *word &= 1u32.checked_shl(8 * kept).map_or(u32::MAX, |end| end - 1);
    }
}

pub(super) fn ldsm(l: &mut Lower<'_>) -> Result<(), Refusal> {
    let count = 1 << l.bits(72, 2);
    if count > 4 || l.bits(78, 2) > 1 {
        return Err(esr::ILLEGAL_INSTR_PARAM);
    }
    l.dst(count)?;
    narrow_address(l, 32, false)?;
    l.set_k(3, &[count, l.bits(78, 2)]);
    l.run::<LoadMatrix>();
    Ok(())
}

pub(super) fn ldgsts(l: &mut Lower<'_>) -> Result<(), Refusal> {
    let width = match l.bits(73, 3) {
        4 => 4,
        5 => 8,
        6 => 16,
        _ => return Err(esr::ILLEGAL_INSTR_PARAM),
    };
    wide_address(l, 64, 76, l.w.sbits(32, 12))?;
    l.op.c = l.reg(l.bits(16, 8), 1)?;
    l.op.d = ZERO;
    if l.w.form() == 6 {
        // The uniform register belongs to the shared address here.
        l.op.d = l.ureg(l.bits(64, 6), 1)?;
        l.op.b = ZERO;
    }
    l.op.pd[0] = NO_PREDICATE;
    l.op.ps[0] = l.ps();
    l.set_k(3, &[l.w.sbits(44, 20) as u32, width, l.flag(82)]);
    l.run::<CopyToShared>();
    Ok(())
}

pub(super) fn qspc(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.dst(1)?;
    wide_address(l, 32, 76, l.w.sbits(40, 24))?;
    l.pd();
    l.op.k[3] = l.bits(73, 2);
    l.run::<QuerySpace>();
    Ok(())
}
