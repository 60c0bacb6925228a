//! Reads of memory that nothing wrote, and stores of registers that nothing wrote.
//!
//! Shared memory, local memory and registers are written by the kernel alone, so what it writes is noted, byte by
//! byte. Global memory others write too, and not all of them are seen. The model fills what is fresh with a
//! pattern: a word that still holds it was written by no one, unless something was seen to write just that
//! value. Of a word of which something was seen to write some bytes, the others count as long as they hold theirs.

use crate::findings::{Checks, Finding};
use crate::gpu::sm::block::Block;
use crate::gpu::sm::check::access::{Place, WarpAccess, lanes, words};
use crate::gpu::sm::check::reach::{Extent, Reach};
use crate::gpu::sm::check::{Watch, finding};
use crate::gpu::sm::core::Core;
use crate::gpu::sm::guest;
use crate::gpu::sm::launch::{Access as Translate, Windows};
use crate::pieces::Pieces;
use crate::pieces::seen::SeenWrites;
use crate::poison::POISON;

use sass::Access;

/// Bytes of shared memory that are looked through at once.
const AT_ONCE: u64 = 4096;

impl Watch {
    pub(super) fn check_init(&mut self, core: &mut Core<'_>, access: &WarpAccess, reach: &Reach) {
        // Other accesses fault.
        let Some(end) = reach.end.filter(|end| end.checked_add(16).is_some()) else { return };
        if access.memory.access == Access::Store {
            self.check_stored(core, access);
        } else if !self.is_written(core, reach, end) {
            self.check_loaded(core, access);
        }
        if access.memory.access != Access::Load {
            self.note_written(core, access, reach, end);
        }
    }

    fn seen<'s>(&'s self, core: &Core<'s>) -> &'s SeenWrites {
        core.env.memory.pieces().map_or(&self.seen, Pieces::seen)
    }

    /// Whether everything between the lowest and the highest address was written; often it is.
    fn is_written(&self, core: &mut Core<'_>, reach: &Reach, end: u64) -> bool {
        match reach.extent {
            Extent::Shared => {
                end - reach.start <= AT_ONCE && core.block.written.holds(reach.start as usize, end as usize)
            }
            Extent::Global if reach.dense => {
                let seen = self.seen(core);
                let shows = seen.is_empty() || {
                    let pages = seen.pages();
                    !pages.holds(reach.start) && !pages.holds(end - 1)
                };
                shows && has_no_fresh_word(core, reach.start, end)
            }
            _ => false,
        }
    }

    /// Looks for bytes that nothing wrote; one finding at most, of the first lane that reads such.
    fn check_loaded(&mut self, core: &mut Core<'_>, access: &WarpAccess) {
        let bytes = access.memory.bytes;
        for lane in lanes(access.lanes) {
            let place = access.places[lane as usize];
            let (missing, text) = match place {
                Place::Global(va) => {
                    (self.missing_global(core, va, bytes), "reads global memory that nothing wrote")
                }
                Place::Shared(at) => {
                    let inside = u64::from(at) + u64::from(bytes) <= core.env.launch.shared_bytes.into();
                    let missing = core.block.written.missing(at as usize, bytes as usize);
                    (if inside { missing } else { 0 }, "reads shared memory that nothing wrote")
                }
                Place::Local(at) => {
                    let missing = |at| core.warp.written.missing(at, bytes as usize);
                    (
                        local_index(core, at.into(), bytes, lane).map_or(0, missing),
                        "reads local memory that nothing wrote",
                    )
                }
            };
            if missing != 0 {
                let first = place.moved_to(place.offset() + u64::from(missing.trailing_zeros()));
                let found = finding(core, Checks::INIT, lane, text, Some(first), None);
                self.findings.record(Finding { detail: detail(missing, bytes), ..found });
                return;
            }
        }
    }

    /// Of the bytes at a guest address, those that nothing wrote.
    fn missing_global(&self, core: &mut Core<'_>, va: u64, bytes: u32) -> u32 {
        let mut missing = 0;
        for (word, touched) in words(va, bytes) {
            let Some(value) = global_word(core, 4 * word) else { continue };
            let seen = self.seen(core);
            let lacks = match seen.is_empty() {
                true if value == POISON => touched,
                true => 0,
                false => seen.pages().missing(4 * word, value, touched),
            };
            let bits = u64::from(lacks) << (4 * word - (va & !3)) >> (va & 3);
            missing |= bits as u32;
        }
        missing
    }

    /// Notes what an access writes.
    fn note_written(&mut self, core: &mut Core<'_>, access: &WarpAccess, reach: &Reach, end: u64) {
        let bytes = access.memory.bytes;
        match reach.extent {
            Extent::Shared if end > core.env.launch.shared_bytes.into() => return,
            Extent::Shared if reach.dense => {
                core.block.written.write(reach.start as usize, end as usize);
                return;
            }
            Extent::Global if self.shows(core, access, reach, end) => return,
            _ => {}
        }
        for lane in lanes(access.lanes) {
            match access.places[lane as usize] {
                Place::Global(va) => {
                    let data = stored(core, access, lane);
                    let seen = self.seen(core);
                    seen.store(va, &data[..bytes.min(16) as usize], |word| global_word(core, word));
                }
                Place::Shared(at) => core.block.written.write(at as usize, at as usize + bytes as usize),
                Place::Local(at) => {
                    if let Some(at) = local_index(core, at.into(), bytes, lane) {
                        core.warp.written.write(at, at + bytes as usize);
                    }
                }
            }
        }
    }

    /// Whether memory itself will show that a store to global memory wrote it: whole words get other values than the
    /// pattern's.
    fn shows(&self, core: &Core<'_>, access: &WarpAccess, reach: &Reach, end: u64) -> bool {
        let whole =
            access.memory.bytes >= 4 || reach.dense && reach.start.is_multiple_of(4) && end.is_multiple_of(4);
        if !whole || access.data.is_some_and(|data| may_be_pattern(core, access, data)) {
            return false;
        }
        let seen = self.seen(core);
        seen.is_empty()
            || reach.dense && {
                let pages = seen.pages();
                !pages.holds(reach.start) && !pages.holds(end - 1)
            }
    }

    /// Registers that nothing wrote are only reported where they leave the thread.
    fn check_stored(&mut self, core: &mut Core<'_>, access: &WarpAccess) {
        let Some(data) = access.data else { return };
        for register in data..data + (access.memory.bytes / 4).max(1) as u16 {
            let fresh = access.lanes & !core.warp.defined(register);
            // What the code that decides about writes does not know has another value.
            let found = lanes(fresh).find(|&lane| {
                let leaves = !matches!(access.places[lane as usize], Place::Local(_));
                leaves && core.lane(register, lane as usize) == POISON
            });
            if let Some(lane) = found {
                self.report(core, Checks::INIT, lane, "stores a value that nothing wrote", None, None);
                return;
            }
        }
    }
}

/// Names the bytes, unless nothing wrote all of them.
fn detail(missing: u32, bytes: u32) -> String {
    let which: Vec<String> =
        (0..bytes).filter(|byte| missing >> byte & 1 != 0).map(|byte| byte.to_string()).collect();
    match which.len() as u32 {
        all if all == bytes => String::new(),
        1 => format!("of its {bytes} bytes nothing wrote byte {}", which.join(", ")),
        _ => format!("of its {bytes} bytes nothing wrote bytes {}", which.join(", ")),
    }
}

/// The bytes that a lane stores. An atomic operation, whose result is not known yet, counts as one of zeros.
fn stored(core: &Core<'_>, access: &WarpAccess, lane: u32) -> [u8; 16] {
    let mut bytes = [0; 16];
    if let Some(data) = access.data {
        for (register, part) in
            (data..).zip(bytes.chunks_exact_mut(4)).take(access.memory.bytes.div_ceil(4) as usize)
        {
            part.copy_from_slice(&core.lane(register, lane as usize).to_le_bytes());
        }
    }
    bytes
}

/// Whether a lane stores the pattern, or a part of it from which others make it whole.
fn may_be_pattern(core: &Core<'_>, access: &WarpAccess, data: u16) -> bool {
    let bytes = access.memory.bytes;
    if bytes >= 4 {
        let mut same = 0;
        for register in data..data + (bytes / 4) as u16 {
            let values = core.src(register);
            for lane in 0..32 {
                same |= u32::from(values[lane] == POISON) << lane;
            }
        }
        return same & access.lanes != 0;
    }
    let part = (1u32 << (8 * bytes)) - 1;
    lanes(access.lanes).any(|lane| {
        let at = access.places[lane as usize].offset() & 3;
        (core.lane(data, lane as usize) ^ POISON >> (8 * at)) & part == 0
    })
}

/// Whether no word of `start..end` in global memory holds the pattern; false where that takes longer to say.
fn has_no_fresh_word(core: &mut Core<'_>, start: u64, end: u64) -> bool {
    let first = start & !7;
    let Ok(entry) = core.tlb.find(start, Translate::Read) else { return false };
    let (Some(offset), last) = (first.checked_sub(entry.va), end.next_multiple_of(8)) else { return false };
    if last - entry.va > entry.len {
        return false;
    }
    let mut fresh = false;
    for at in (0..last - first).step_by(8) {
        // SAFETY: the entry covers these addresses, which are multiples of 8.
        let both = unsafe { guest::load_u64(entry.host.add((offset + at) as usize)) };
        fresh |= both as u32 == POISON || (both >> 32) as u32 == POISON;
    }
    !fresh
}

/// The word at a guest address that is a multiple of 4; `None` where nothing is mapped.
pub(super) fn global_word(core: &mut Core<'_>, va: u64) -> Option<u32> {
    let entry = core.tlb.find(va, Translate::Read).ok()?;
    let offset = va - entry.va;
    // SAFETY: the entry covers `va`, which is aligned, and pages have whole words.
    (offset + 4 <= entry.len).then(|| unsafe { guest::load_u32(entry.host.add(offset as usize)) })
}

/// The word at an offset into shared memory.
pub(super) fn shared_word(block: &Block, offset: u64) -> Option<u32> {
    let row = block.shared.get(usize::try_from(offset / 128).ok()?)?;
    Some(row.0[(offset / 4 % 32) as usize])
}

/// The place of `bytes` at an offset into a lane's local memory among those of its warp.
fn local_index(core: &Core<'_>, offset: u64, bytes: u32, lane: u32) -> Option<usize> {
    let size = u64::from(core.env.launch.local_bytes).next_multiple_of(16);
    let top = Windows::LEN - size.min(Windows::LEN);
    let at = if offset >= top { offset - top } else { offset };
    (at + u64::from(bytes) <= size).then(|| (u64::from(lane) * size + at) as usize)
}
