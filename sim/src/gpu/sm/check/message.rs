//! Messages between blocks without a fence.

use crate::findings::Checks;
use crate::gpu::sm::check::act::Act;
use crate::gpu::sm::check::race::global_kind;
use crate::gpu::sm::check::shadow::{Kind, Mark};
use crate::gpu::sm::check::step::Step;
use crate::gpu::sm::check::{Place, WarpAccess, Watch, block_id, event, lanes, words};
use crate::gpu::sm::core::Core;

use sass::Access;

/// LDGSTS without this bit is `.BYPASS`: past the level-1 cache.
const THROUGH_L1: u32 = 81;

impl Watch {
    /// Whether the current op is a copy to shared memory that goes past the level-1 cache.
    fn bypasses_l1(&self, core: &Core<'_>) -> bool {
        let copies =
            matches!(self.steps.get(core.pc as usize), Some(Some(Step { act: Act::CopyToShared, .. })));
        copies && core.map.word(core.pc) >> THROUGH_L1 & 1 == 0
    }

    /// The accesses of a warp to global memory, against those of other blocks.
    pub(super) fn check_fences(&mut self, core: &mut Core<'_>, access: &WarpAccess) {
        let (id, strong) = (core.block.index as u32, access.memory.strong);
        let (reads, writes) = (access.memory.access != Access::Store, access.memory.access != Access::Load);
        let past_l1 = strong || self.bypasses_l1(core);
        let mut released = Vec::new();
        for lane in lanes(access.lanes) {
            let Place::Global(va) = access.places[lane as usize] else { continue };
            if va.checked_add(16).is_none() {
                continue;
            }
            let mut found = None;
            for (i, (word, bytes)) in words(va, access.memory.bytes).enumerate() {
                if strong && reads {
                    self.fences.acquire_at(id, word);
                }
                let kind = global_kind(core, access, lane, i, word);
                let clock = self.fences.now(id);
                let thread = 32 * core.warp.index + lane;
                let mark = Mark { id, clock, pc: core.pc, thread, bytes, atomic: strong };
                let earlier = self.fences.access(word, mark, kind, past_l1);
                found = found.or(earlier.map(|earlier| (word, earlier, kind)));
                if strong && writes {
                    released.push(word);
                }
            }
            if let Some((word, earlier, kind)) = found {
                let text = match kind {
                    Kind::Load => {
                        "reads global memory that another block of the launch writes, without fences"
                    }
                    _ => "writes global memory that another block of the launch accesses, without fences",
                };
                let event = event(core, earlier.pc, block_id(core.env.launch, earlier.id), earlier.thread);
                self.report(core, Checks::ORDER, lane, text, Some(Place::Global(word * 4)), Some(event));
            }
        }
        released.sort_unstable();
        released.dedup();
        released.into_iter().for_each(|word| self.fences.release_at(id, word));
    }
}
