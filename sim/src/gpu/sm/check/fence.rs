//! What orders the accesses of blocks if every message needs its fence: a strong store or an atomic operation
//! publishes what its block did before its last fence, and a strong load learns it at the next fence, or when
//! its SM's level-1 cache is emptied. What strong accesses do not order even without fences is a race, and the
//! other check's.

use std::collections::HashMap;

use crate::findings::Checks;
use crate::gpu::sm::check::act::Act;
use crate::gpu::sm::check::order::{Clocks, Knowledge};
use crate::gpu::sm::check::race::global_kind;
use crate::gpu::sm::check::shadow::{Kind, Mark, Shadow};
use crate::gpu::sm::check::{Place, WarpAccess, Watch, block_id, event, lanes, words};
use crate::gpu::sm::core::Core;

use sass::Access;

/// The clocks of blocks, and what they know of each other.
#[derive(Debug, Default)]
pub(super) struct Fences {
    clocks: Clocks,
    shadow: Shadow,
    /// What each block did before its last fence.
    fenced: HashMap<u32, Knowledge>,
    /// What each has read since.
    pending: HashMap<u32, Knowledge>,
    /// By the address of what was accessed strongly.
    released: HashMap<u64, Knowledge>,
    /// What blocks would know if no message needed a fence, and what they would have published.
    unfenced: HashMap<u32, Knowledge>,
    unfenced_released: HashMap<u64, Knowledge>,
}

impl Fences {
    /// A fence of a block.
    pub fn fence(&mut self, id: u32) {
        self.learn(id);
        let passed = self.clocks.release(id);
        self.fenced.insert(id, passed);
    }

    /// Later loads of a block see what others published before what it has read.
    pub fn learn(&mut self, id: u32) {
        if let Some(pending) = self.pending.remove(&id) {
            self.clocks.acquire(id, &pending);
        }
    }

    fn release_at(&mut self, id: u32, address: u64) {
        if let Some(passed) = self.fenced.get(&id) {
            self.released.entry(address).or_default().join(passed);
        }
        let own = self.unfenced.entry(id).or_default();
        own.raise(id, self.clocks.now(id));
        self.unfenced_released.entry(address).or_default().join(own);
        // What follows is not part of the message.
        self.clocks.release(id);
    }

    fn acquire_at(&mut self, id: u32, address: u64) {
        if let Some(passed) = self.released.get(&address) {
            self.pending.entry(id).or_default().join(passed);
        }
        if let Some(passed) = self.unfenced_released.get(&address) {
            self.unfenced.entry(id).or_default().join(passed);
        }
    }

    /// The write that comes before an access if messages need no fence, and may come after it because they
    /// do.
    ///
    /// A load has ended when its value is used, so what follows a read needs none. Nor does a strong store that
    /// someone has seen: it has reached the level-2 cache, and who reads past its level-1 cache sees it too.
    fn needs_fence(&mut self, word: u64, mark: &Mark, past_l1: bool) -> Option<Mark> {
        let writer = self.shadow.unordered_write(&self.clocks, word, mark)?;
        let seen = self.unfenced.get(&mark.id).is_some_and(|known| known.has(writer.id, writer.clock));
        (seen && !(writer.atomic && past_l1)).then_some(writer)
    }
}

/// LDGSTS without this bit is `.BYPASS`: past the level-1 cache.
const THROUGH_L1: u32 = 81;

impl Watch {
    /// Whether the current op is a copy to shared memory that goes past the level-1 cache.
    fn bypasses_l1(&self, core: &Core<'_>) -> bool {
        let copies = matches!(self.acts.get(core.pc as usize), Some(Some((Act::CopyToShared, _))));
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
                let clock = self.fences.clocks.now(id);
                let thread = 32 * core.warp.index + lane;
                let mark = Mark { id, clock, pc: core.pc, thread, bytes, atomic: strong };
                let earlier = self.fences.needs_fence(word, &mark, past_l1);
                let earlier = earlier.filter(|_| kind != Kind::Store { changes: false });
                self.fences.shadow.access(&self.fences.clocks, word, mark, kind);
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
                self.report(core, Checks::ORDER, lane, text, Some(word * 4), Some(event));
            }
        }
        released.sort_unstable();
        released.dedup();
        released.into_iter().for_each(|word| self.fences.release_at(id, word));
    }
}
