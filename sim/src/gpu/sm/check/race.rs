//! Accesses that nothing orders.

use crate::findings::Checks;
use crate::gpu::sm::check::early::EarlyLoad;
use crate::gpu::sm::check::init::{global_word, shared_word};
use crate::gpu::sm::check::objects::object_of;
use crate::gpu::sm::check::registers::Registers;
use crate::gpu::sm::check::shadow::{Kind, Mark};
use crate::gpu::sm::check::unfinished::Writer;
use crate::gpu::sm::check::{Place, WarpAccess, Watch, block_id, event, finding, lanes, words};
use crate::gpu::sm::core::Core;

use sass::Access;

/// Text for a read that nothing orders with a write.
fn reads(writer: Writer) -> &'static str {
    match writer {
        Writer::Warp | Writer::Product => {
            "reads shared memory that another warp writes, without a barrier between"
        }
        Writer::Copy => "reads shared memory that an asynchronous copy writes, without waiting for the copy",
        Writer::Bulk => "reads shared memory that a bulk copy writes, without waiting for its barrier object",
    }
}

/// Text for a write that nothing orders with an access.
fn writes(other: Writer) -> &'static str {
    match other {
        Writer::Warp => "writes shared memory that another warp accesses, without a barrier between",
        Writer::Copy => "writes shared memory that an asynchronous copy writes, without waiting for the copy",
        Writer::Product => "writes shared memory that a product reads, without waiting for the product",
        Writer::Bulk => {
            "writes shared memory that a bulk copy writes, without waiting for its barrier object"
        }
    }
}

impl Watch {
    /// Loads count once an instruction uses their values.
    pub(super) fn use_loads(&mut self, core: &Core<'_>, registers: &Registers) {
        let Some(block) = self.blocks.get_mut(&core.block.index) else { return };
        if block.early.any(core.warp.index) {
            let races = block.early.execute(core.warp.index, core.mask, registers, &mut block.shadow);
            races.into_iter().for_each(|race| self.findings.record(race));
        }
    }

    pub(super) fn check_race(&mut self, core: &mut Core<'_>, access: &WarpAccess) {
        self.blocks.entry(core.block.index).or_default().resume(core.warp.index);
        if access.memory.access == Access::Store {
            self.check_one_store(core, access);
        }
        let mut released = Vec::new();
        let waits = access.memory.access == Access::Load && access.loaded.count > 0;
        let mut early = waits.then(|| EarlyLoad::new(access.loaded, access.lanes));
        for lane in lanes(access.lanes) {
            match access.places[lane as usize] {
                Place::Global(va) => self.global_access(core, access, lane, va, &mut released),
                Place::Shared(offset) => match &mut early {
                    Some(early) => self.shared_load(core, access, lane, offset.into(), early),
                    None => self.shared_access(core, access, lane, offset.into(), &mut released),
                },
                Place::Local(_) => {}
            }
        }
        if let Some(early) = early.filter(EarlyLoad::is_of_shared) {
            self.blocks.entry(core.block.index).or_default().early.add(core.warp.index, early);
        }
        // An atomic or strong store publishes the accesses before it, of all its lanes.
        released.sort_unstable();
        released.dedup();
        for place in released {
            match place {
                (true, word) => self.order.release_at(core.block.index as u32, word),
                (false, word) => {
                    let block = self.blocks.entry(core.block.index).or_default();
                    block.clocks.release_at(core.warp.index, word);
                }
            }
        }
    }

    /// A load to registers: it counts when these are used.
    fn shared_load(
        &mut self,
        core: &Core<'_>,
        access: &WarpAccess,
        lane: u32,
        offset: u64,
        early: &mut EarlyLoad,
    ) {
        if offset + u64::from(access.memory.bytes) > u64::from(core.env.launch.shared_bytes) {
            return;
        }
        let warp = core.warp.index;
        let block = self.blocks.entry(core.block.index).or_default();
        for (word, bytes) in words(offset, access.memory.bytes) {
            // A plain read of an atomically accessed word is a wait, and so on SM 8.x is one of a barrier
            // object.
            block.clocks.acquire_at(warp, word);
            let atomic = block.learn(warp, object_of(word));
            let clock = block.clocks.now(warp);
            let mark = Mark { id: warp, clock, pc: core.pc, thread: 32 * warp + lane, bytes, atomic };
            early.reads(word, mark);
            if let Some(earlier) = block.shadow.unordered_write(&block.clocks, word, &mark) {
                let text = reads(Writer::of(&block.clocks, earlier.id, earlier.clock));
                early.race(|| {
                    let event = event(core, earlier.pc, core.block.id, earlier.thread);
                    finding(core, Checks::RACE, lane, text, Some(shared(word)), Some(event))
                });
            }
        }
    }

    /// An access that counts at once.
    fn shared_access(
        &mut self,
        core: &mut Core<'_>,
        access: &WarpAccess,
        lane: u32,
        offset: u64,
        released: &mut Vec<(bool, u64)>,
    ) {
        if offset + u64::from(access.memory.bytes) > u64::from(core.env.launch.shared_bytes) {
            return;
        }
        let (by, thread) = (access.by, 32 * core.warp.index + lane);
        let object = access.memory.object;
        let mut found = None;
        let block = self.blocks.entry(core.block.index).or_default();
        for (i, (word, bytes)) in words(offset, access.memory.bytes).enumerate() {
            // A plain read of an atomically accessed word is a wait. Phases of barrier objects order
            // otherwise.
            if access.memory.access != Access::Store && !object {
                block.clocks.acquire_at(by, word);
            }
            let clock = block.clocks.now(by);
            let atomic =
                access.memory.access == Access::Atomic || object && access.memory.access == Access::Load;
            let mark = Mark { id: by, clock, pc: core.pc, thread, bytes, atomic };
            let kind = access.memory.kind(changes(core, access, lane, i, shared_word(core, word * 4)));
            let earlier = block.shadow.access(&block.clocks, word, mark, kind);
            let writer = earlier.map(|earlier| Writer::of(&block.clocks, earlier.id, earlier.clock));
            found = found.or(earlier.zip(writer).map(|(earlier, writer)| (word, earlier, writer, kind)));
            if !matches!(kind, Kind::Load | Kind::Store { changes: false } | Kind::Arrival) {
                block.early.written(&block.clocks, word, mark, |earlier| {
                    let event = event(core, earlier.pc, core.block.id, earlier.thread);
                    let text = writes(Writer::Warp);
                    finding(core, Checks::RACE, lane, text, Some(shared(word)), Some(event))
                });
            }
            if atomic && !object {
                released.push((false, word));
            }
        }
        let Some((word, earlier, writer, kind)) = found else { return };
        let text = if kind == Kind::Load { reads(writer) } else { writes(writer) };
        let event = event(core, earlier.pc, core.block.id, earlier.thread);
        self.report(core, Checks::RACE, lane, text, Some(shared(word)), Some(event));
    }

    fn global_access(
        &mut self,
        core: &mut Core<'_>,
        access: &WarpAccess,
        lane: u32,
        va: u64,
        released: &mut Vec<(bool, u64)>,
    ) {
        if va.checked_add(16).is_none() {
            return;
        }
        let id = core.block.index as u32;
        let mut found = None;
        for (i, (word, bytes)) in words(va, access.memory.bytes).enumerate() {
            let strong = access.memory.strong;
            if strong && access.memory.access != Access::Store {
                self.order.acquire_at(id, word);
            }
            let clock = self.order.now(id);
            let thread = 32 * core.warp.index + lane;
            // Strong accesses do not race with each other, as atomic ones do not.
            let mark = Mark { id, clock, pc: core.pc, thread, bytes, atomic: strong };
            let kind = global_kind(core, access, lane, i, word);
            let earlier = self.global.access(&self.order, word, mark, kind);
            found = found.or(earlier.map(|earlier| (word, earlier, kind)));
            if strong && access.memory.access != Access::Load {
                released.push((true, word));
            }
        }
        let Some((word, earlier, kind)) = found else { return };
        let text = match kind {
            Kind::Load => {
                "reads global memory that another block of the launch writes, and nothing orders the two"
            }
            _ => "writes global memory that another block of the launch accesses, and nothing orders the two",
        };
        let block = block_id(core.env.launch, earlier.id);
        let event = event(core, earlier.pc, block, earlier.thread);
        self.report(core, Checks::RACE, lane, text, Some(Place::Global(word * 4)), Some(event));
    }

    /// Lanes of one store that write different values to the same place.
    fn check_one_store(&mut self, core: &Core<'_>, access: &WarpAccess) {
        let Some(data) = access.data else { return };
        let mut at: Vec<u32> = lanes(access.lanes).collect();
        let key = |lane: u32| match access.places[lane as usize] {
            Place::Global(va) => (0, va),
            Place::Shared(offset) => (1, offset.into()),
            // Each lane has its own.
            Place::Local(offset) => (2 + lane, offset.into()),
        };
        at.sort_by_key(|&lane| key(lane));
        let value = |lane: u32| -> [u32; 4] {
            let count = (access.memory.bytes / 4).max(1);
            let keep = if access.memory.bytes < 4 { (1 << (8 * access.memory.bytes)) - 1 } else { u32::MAX };
            std::array::from_fn(|i| {
                if (i as u32) < count { core.src(data + i as u16)[lane as usize] & keep } else { 0 }
            })
        };
        let differ = |pair: &&[u32]| key(pair[0]) == key(pair[1]) && value(pair[0]) != value(pair[1]);
        let Some(pair) = at.windows(2).find(differ) else { return };
        let event = event(core, core.pc, core.block.id, 32 * core.warp.index + pair[0]);
        let text = "lanes of a warp store different values to the same place";
        self.report(core, Checks::RACE, pair[1], text, Some(access.places[pair[1] as usize]), Some(event));
    }
}

/// Returns the kind of a lane's access to word `i` of its access to global memory; `word` is the number of
/// that word.
pub(super) fn global_kind(core: &mut Core<'_>, access: &WarpAccess, lane: u32, i: usize, word: u64) -> Kind {
    let now = if access.memory.access == Access::Store { global_word(core, word * 4) } else { None };
    access.memory.kind(changes(core, access, lane, i, now))
}

/// Whether the store of word `i` of a lane's data changes its value. Copies do, and new barrier objects.
fn changes(core: &Core<'_>, access: &WarpAccess, lane: u32, i: usize, now: Option<u32>) -> bool {
    if access.by != core.warp.index || access.memory.object {
        return true;
    }
    match (access.data, now) {
        (Some(data), Some(now)) if access.memory.bytes >= 4 => {
            core.src(data + i as u16)[lane as usize] != now
        }
        (None, Some(now)) if access.memory.access == Access::Store => now != 0,
        _ => true,
    }
}

/// A word of shared memory.
fn shared(word: u64) -> Place {
    Place::Shared(4 * word as u32)
}
