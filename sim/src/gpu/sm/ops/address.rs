//! Addresses of a warp-wide memory access, checked and turned into host addresses.

use crate::gpu::sm::core::{Core, Flow};
use crate::gpu::sm::fault::esr;
use crate::gpu::sm::lanes::{each, has, spread};
use crate::gpu::sm::launch::{Access, MemoryFault, Windows};
use crate::gpu::sm::tlb::Miss;

/// Pattern of the addresses of the executing lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pattern {
    /// All lanes execute, each at its neighbour's end.
    Contiguous,
    /// All at one place.
    Broadcast,
    Scattered,
}

/// A checked access: every executing lane's host address is valid for it and aligned to its width. Other
/// lanes repeat one of those.
pub(super) struct Checked {
    pub host: [u64; 32],
    pub pattern: Pattern,
}

/// Address space that an instruction names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Space {
    Global,
    Generic,
}

/// Repeats the first executing lane's address in the others, and finds the pattern.
#[inline(always)]
fn settle(mask: u32, address: &mut [u64; 32], width: u64) -> (Pattern, u64) {
    if mask != u32::MAX {
        let first = address[mask.trailing_zeros() as usize & 31];
        for i in 0..32 {
            let runs = u64::from(has(mask, i)).wrapping_neg();
            address[i] = first ^ ((address[i] ^ first) & runs);
        }
    }
    let base = address[0];
    let (mut same, mut step, mut low) = (0u64, 0u64, 0u64);
    for i in 0..32 {
        same |= address[i] ^ base;
        step |= address[i] ^ base.wrapping_add(i as u64 * width);
        low |= address[i];
    }
    let pattern = if same == 0 {
        Pattern::Broadcast
    } else if step == 0 && mask == u32::MAX {
        Pattern::Contiguous
    } else {
        Pattern::Scattered
    };
    (pattern, low & (width - 1))
}

/// The lanes of `mask` for which `f` holds.
fn lanes_where(mask: u32, f: impl Fn(usize) -> bool) -> u32 {
    (0..32).filter(|&i| mask >> i & 1 != 0 && f(i)).fold(0, |m, i| m | 1u32 << i)
}

#[cold]
#[inline(never)]
fn misaligned(core: &mut Core<'_>, address: &[u64; 32], width: u64) -> Flow {
    let lanes = lanes_where(core.mask, |i| address[i] & (width - 1) != 0);
    core.raise(esr::MISALIGNED_ADDR, lanes, Some(address[lanes.trailing_zeros() as usize]), None)
}

/// Checks and translates a global or generic access.
#[inline(always)]
pub(super) fn global(
    core: &mut Core<'_>,
    mut address: [u64; 32],
    width: u64,
    access: Access,
    space: Space,
) -> Result<Checked, Flow> {
    let (pattern, low) = settle(core.mask, &mut address, width);
    if low != 0 {
        return Err(misaligned(core, &address, width));
    }
    count_sectors(core, &address, width, access, pattern);
    if let Ok(e) = core.tlb.find(address[0], access)
        && e.len >= width
    {
        let limit = e.len - width;
        let delta = (e.host as u64).wrapping_sub(e.va);
        let mut outside = false;
        let mut host = [0u64; 32];
        for i in 0..32 {
            outside |= address[i].wrapping_sub(e.va) > limit;
            host[i] = address[i].wrapping_add(delta);
        }
        if !outside {
            return Ok(Checked { host, pattern });
        }
    }
    each_lane(core, &address, width, access, space)
}

/// The slow way: lanes in several pages or in windows, and faults.
#[inline(never)]
fn each_lane(
    core: &mut Core<'_>,
    address: &[u64; 32],
    width: u64,
    access: Access,
    space: Space,
) -> Result<Checked, Flow> {
    let mut host = [0u64; 32];
    for i in 0..32 {
        let va = address[i];
        host[i] = match core.tlb.find(va, access) {
            Ok(e) => (e.host as u64).wrapping_add(va.wrapping_sub(e.va)),
            Err(Miss::Mmu(fault)) => {
                let tlb = &mut core.tlb;
                let mut lanes = 0;
                for j in 0..32 {
                    if core.mask >> j & 1 != 0 && matches!(tlb.find(address[j], access), Err(Miss::Mmu(_))) {
                        lanes |= 1 << j;
                    }
                }
                let fault = MemoryFault { va, ..fault };
                return Err(core.raise(esr::MMU_FAULT, lanes, Some(va), Some(fault)));
            }
            Err(_) if space == Space::Global => {
                let lanes = lanes_where(core.mask, |j| core.tlb.window(address[j]).is_some());
                return Err(core.raise(esr::INVALID_ADDR_SPACE, lanes, Some(va), None));
            }
            Err(Miss::Shared) => {
                let offset = va.wrapping_sub(core.env.launch.windows.shared_base);
                match shared_host(core, offset, width) {
                    Some(host) => host,
                    None => return Err(core.raise(esr::OOR_ADDR, core.mask, Some(va), None)),
                }
            }
            Err(Miss::Local) => {
                let offset = va.wrapping_sub(core.env.launch.windows.local_base);
                match local_host(core, offset, width, i) {
                    Some(host) => host,
                    None => return Err(core.raise(esr::OOR_ADDR, core.mask, Some(va), None)),
                }
            }
        };
    }
    Ok(Checked { host, pattern: Pattern::Scattered })
}

fn shared_host(core: &mut Core<'_>, offset: u64, width: u64) -> Option<u64> {
    let inside = offset.checked_add(width)? <= u64::from(core.env.launch.shared_bytes);
    inside.then(|| core.block.shared.as_mut_ptr() as u64 + offset)
}

/// The host address of a lane's local memory, which lies at the bottom and at the top of the window.
fn local_host(core: &mut Core<'_>, offset: u64, width: u64, lane: usize) -> Option<u64> {
    // In whole units of sixteen bytes, so that alignment in the window is alignment here.
    let size = u64::from(core.env.launch.local_bytes).next_multiple_of(16);
    let top = Windows::LEN - size.min(Windows::LEN);
    let at = if offset >= top { offset - top } else { offset };
    if at + width > size {
        return None;
    }
    if core.warp.local.is_empty() {
        core.warp.local.resize((32 * size).div_ceil(128) as usize, core.env.fresh());
    }
    Some(core.warp.local.as_mut_ptr() as u64 + lane as u64 * size + at)
}

/// Checks a shared-memory access by 32-bit offsets.
#[inline(always)]
pub(super) fn shared(core: &mut Core<'_>, offset: &[u32; 32], width: u64) -> Result<Checked, Flow> {
    let mask = core.mask;
    let lead = offset[mask.trailing_zeros() as usize & 31];
    let at = each(|i| lead ^ ((offset[i] ^ lead) & spread(mask, i)));
    let (mut apart, mut step, mut low, mut top) = (0u32, 0u32, 0u32, 0u32);
    for i in 0..32 {
        apart |= at[i] ^ lead;
        step |= at[i].wrapping_sub(lead) ^ (i as u32 * width as u32);
        low |= at[i];
        top = top.max(at[i]);
    }
    let size = u64::from(core.env.launch.shared_bytes);
    if u64::from(low) & (width - 1) != 0 || u64::from(top) + width > size {
        return Err(refuse_shared(core, &at, width, size));
    }
    let pattern = if apart == 0 {
        Pattern::Broadcast
    } else if step == 0 && mask == u32::MAX {
        Pattern::Contiguous
    } else {
        Pattern::Scattered
    };
    core.counters.shared_accesses += 1;
    if pattern == Pattern::Scattered {
        core.counters.shared_bank_conflicts += bank_conflicts(mask, &at, width as u32);
    }
    let base = core.block.shared.as_mut_ptr() as u64;
    Ok(Checked { host: each(|i| base + u64::from(at[i])), pattern })
}

/// Refuses a shared-memory access with its fault.
#[cold]
#[inline(never)]
fn refuse_shared(core: &mut Core<'_>, at: &[u32; 32], width: u64, size: u64) -> Flow {
    let address = each(|i| u64::from(at[i]));
    if address.iter().any(|a| a & (width - 1) != 0) {
        return misaligned(core, &address, width);
    }
    let lanes = lanes_where(core.mask, |i| address[i] + width > size);
    core.raise(esr::OOR_ADDR, lanes, Some(address[lanes.trailing_zeros() as usize]), None)
}

/// Checks a local-memory access by 32-bit offsets into the window.
#[inline(always)]
pub(super) fn local(core: &mut Core<'_>, offset: &[u32; 32], width: u64) -> Result<Checked, Flow> {
    let mut host = [0u64; 32];
    let mut any = 0;
    for i in 0..32 {
        if core.mask >> i & 1 == 0 {
            continue;
        }
        let at = u64::from(offset[i]);
        if at & (width - 1) != 0 {
            return Err(core.raise(esr::MISALIGNED_ADDR, core.mask, Some(at), None));
        }
        host[i] = match local_host(core, at, width, i) {
            Some(host) => host,
            None => return Err(core.raise(esr::OOR_ADDR, core.mask, Some(at), None)),
        };
        any = host[i];
    }
    for i in 0..32 {
        if host[i] == 0 {
            host[i] = any;
        }
    }
    Ok(Checked { host, pattern: Pattern::Scattered })
}

/// Adds the 32-byte sectors that the executing lanes touch.
#[inline(always)]
fn count_sectors(core: &mut Core<'_>, address: &[u64; 32], width: u64, access: Access, pattern: Pattern) {
    let sectors = match pattern {
        Pattern::Broadcast => 1,
        Pattern::Contiguous => ((address[31] + width - 1) >> 5) - (address[0] >> 5) + 1,
        Pattern::Scattered => {
            let mut low = u64::MAX;
            for a in address {
                low = low.min(*a >> 5);
            }
            let (mut near, mut far) = (0u64, false);
            for a in address {
                let d = (a >> 5) - low;
                far |= d > 63;
                near |= 1 << (d & 63);
            }
            if far { distinct_sectors(address).1 as u64 } else { u64::from(near.count_ones()) }
        }
    };
    count(core, sectors, access, |i| address[i]);
}

/// Counts an access that touches `sectors`, with the addresses of its lanes; those that do not execute repeat
/// one that does.
#[inline(always)]
pub(super) fn count(core: &mut Core<'_>, sectors: u64, access: Access, address: impl Fn(usize) -> u64) {
    match access {
        Access::Write => {
            core.counters.global_stores += 1;
            core.counters.global_store_sectors += sectors;
        }
        Access::Atomic => core.counters.global_atomics += u64::from(core.mask.count_ones()),
        Access::Read | Access::Fetch => {
            core.counters.global_loads += 1;
            core.counters.global_load_sectors += sectors;
        }
    }
    if core.env.l2.is_some() {
        count_dram(core, &std::array::from_fn(address), access);
    }
}

/// The sectors that the lanes touch, without repeats, at the front; no access is wider than a sector or lies
/// in two.
#[inline(never)]
fn distinct_sectors(address: &[u64; 32]) -> ([u64; 32], usize) {
    let mut sectors = address.map(|a| a >> 5);
    sectors.sort_unstable();
    let mut count = 1;
    for i in 1..32 {
        if sectors[i] != sectors[count - 1] {
            sectors[count] = sectors[i];
            count += 1;
        }
    }
    (sectors, count)
}

/// Adds the sectors that the level-2 cache has to take from DRAM or give back. An atomic reads and writes.
#[cold]
#[inline(never)]
fn count_dram(core: &mut Core<'_>, address: &[u64; 32], access: Access) {
    let Some(l2) = core.env.l2 else { return };
    let (sectors, count) = distinct_sectors(address);
    if access != Access::Write {
        l2.touch(&sectors[..count], false, &mut core.counters);
    }
    if matches!(access, Access::Write | Access::Atomic) {
        l2.touch(&sectors[..count], true, &mut core.counters);
    }
}

/// Passes beyond the first that an access needs: 32 banks of a word, wide accesses in halves or quarters of
/// the warp.
fn bank_conflicts(mask: u32, at: &[u32; 32], width: u32) -> u64 {
    let words = (width / 4).max(1);
    let lanes = 32 / words as usize;
    let mut extra = 0;
    for group in 0..words as usize {
        let asks = mask & (u32::MAX >> (32 - lanes)) << (group * lanes);
        let mut banks = 0u32;
        for lane in 0..32 {
            banks |= ((1u32 << words) - 1).rotate_left(at[lane] / 4 % 32) & spread(asks, lane);
        }
        // As many banks as words: no two lanes meet.
        if banks.count_ones() != asks.count_ones() * words {
            extra += group_conflicts(mask, at, words, group * lanes..(group + 1) * lanes);
        }
    }
    extra
}

/// The same of the lanes that take one pass if they do not meet.
fn group_conflicts(mask: u32, at: &[u32; 32], words: u32, lanes: std::ops::Range<usize>) -> u64 {
    // The first words read from each bank; beyond four, repeats are no longer recognised.
    let (mut seen, mut count) = ([[0u32; 4]; 32], [0usize; 32]);
    for lane in lanes {
        if !has(mask, lane) {
            continue;
        }
        for w in 0..words {
            let word = at[lane] / 4 + w;
            let bank = (word % 32) as usize;
            let known = count[bank].min(4);
            if !seen[bank][..known].contains(&word) {
                if known < 4 {
                    seen[bank][known] = word;
                }
                count[bank] += 1;
            }
        }
    }
    count.iter().max().map_or(0, |&n| n.max(1) as u64 - 1)
}
