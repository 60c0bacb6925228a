//! Reads of memory that nothing wrote. The model fills fresh memory and registers with a pattern, so a word
//! that still holds it was written by no one: neither a kernel, nor a copy, nor the program on the CPU.

use crate::findings::Checks;
use crate::gpu::sm::check::{Place, WarpAccess, Watch, lanes, words};
use crate::gpu::sm::core::Core;
use crate::gpu::sm::guest;
use crate::gpu::sm::launch::{Access as Translate, Windows};
use crate::poison::POISON;

use sass::Access;

impl Watch {
    pub(super) fn check_init(&mut self, core: &mut Core<'_>, access: &WarpAccess) {
        if access.memory.access == Access::Store {
            self.check_stored(core, access);
            return;
        }
        for lane in lanes(access.lanes) {
            let place = access.places[lane as usize];
            let (at, text) = match place {
                Place::Global(va) => (va, "reads global memory that nothing wrote"),
                Place::Shared(offset) => (u64::from(offset), "reads shared memory that nothing wrote"),
                Place::Local(offset) => (u64::from(offset), "reads local memory that nothing wrote"),
            };
            if at.checked_add(16).is_none() {
                continue;
            }
            let fresh = words(at, access.memory.bytes).find(|(word, _)| {
                let value = match place {
                    Place::Global(_) => global_word(core, word * 4),
                    Place::Shared(_) => shared_word(core, word * 4),
                    Place::Local(_) => local_word(core, word * 4, lane),
                };
                value == Some(POISON)
            });
            if let Some((word, _)) = fresh {
                let first = place.moved_to(at.max(word * 4));
                self.report(core, Checks::INIT, lane, text, Some(first), None);
                return;
            }
        }
    }

    /// Registers that nothing wrote are only reported where they leave the thread.
    fn check_stored(&mut self, core: &mut Core<'_>, access: &WarpAccess) {
        let Some(data) = access.data else { return };
        if access.memory.bytes < 4 {
            return;
        }
        for lane in lanes(access.lanes) {
            let fresh = |word: &u32| core.src(data + *word as u16)[lane as usize] == POISON;
            if (0..access.memory.bytes / 4).any(|word| fresh(&word)) {
                self.report(core, Checks::INIT, lane, "stores a value that nothing wrote", None, None);
                return;
            }
        }
    }
}

/// The word at a guest address that is a multiple of 4; `None` where nothing is mapped.
pub(super) fn global_word(core: &mut Core<'_>, va: u64) -> Option<u32> {
    let entry = core.tlb.find(va, Translate::Read).ok()?;
    let offset = va - entry.va;
    // SAFETY: the entry covers `va`, which is aligned, and pages have whole words.
    (offset + 4 <= entry.len).then(|| unsafe { guest::load_u32(entry.host.add(offset as usize)) })
}

/// The word at an offset into shared memory.
pub(super) fn shared_word(core: &Core<'_>, offset: u64) -> Option<u32> {
    let row = core.block.shared.get(usize::try_from(offset / 128).ok()?)?;
    Some(row.0[(offset / 4 % 32) as usize])
}

/// The word at an offset into a lane's local memory.
fn local_word(core: &Core<'_>, offset: u64, lane: u32) -> Option<u32> {
    let size = u64::from(core.env.launch.local_bytes).next_multiple_of(16);
    let top = Windows::LEN - size.min(Windows::LEN);
    let at = if offset >= top { offset - top } else { offset };
    if at + 4 > size {
        return None;
    }
    if core.warp.local.is_empty() {
        return Some(POISON);
    }
    let at = u64::from(lane) * size + at;
    let row = core.warp.local.get(usize::try_from(at / 128).ok()?)?;
    Some(row.0[(at / 4 % 32) as usize])
}
