//! Arrivals at barrier objects, waits for them, and copies to shared memory that go on beside the threads.

use crate::findings::Checks;
use crate::gpu::sm::block::Block;
use crate::gpu::sm::check::access::{Place, WarpAccess, lanes};
use crate::gpu::sm::check::init::shared_word;
use crate::gpu::sm::check::registers::Group;
use crate::gpu::sm::check::unfinished::{bulk_copies_of, copies_of};
use crate::gpu::sm::check::{Watch, act, event, finding};
use crate::gpu::sm::core::Core;
use crate::gpu::sm::mbarrier::ends_phase;
use crate::gpu::sm::micro_op::MicroOp;
use crate::gpu::sm::ops::bulk::BulkCopy;
use crate::gpu::sm::ops::memory::{addresses, offsets};
use crate::gpu::sm::ops::object::{arrived, is_over};
use crate::gpu::sm::ops::tile::filled_bytes;

use sass::{Access, Space};

/// Text for a block that ends too early.
const ENDS: &str =
    "ends while a bulk copy to its shared memory is under way: no thread waits for its barrier object";

/// Bytes of a bulk copy that are checked together.
const PIECE: u32 = 16;

/// An access to a barrier object.
fn of_object(access: Access) -> act::Memory {
    act::Memory { bytes: 8, object: true, ..act::Memory::shared(access) }
}

/// The state of a barrier object.
pub(super) fn state(block: &Block, offset: u32) -> Option<u64> {
    let word = |at: u64| shared_word(block, at).map(u64::from);
    let offset = u64::from(offset);
    Some(word(offset)? | word(offset + 4)? << 32)
}

impl Watch {
    /// LDGSTS: a load from global memory and a store to shared memory.
    pub(super) fn copy_to_shared(&mut self, core: &mut Core<'_>, op: &MicroOp) {
        let (executing, bytes) = (core.mask, op.k[4]);
        let copies = executing & core.pred(op.ps[0]);
        let (loaded, warp) = (Group::default(), core.warp.index);
        let at = addresses(core, op);
        let filled = filled_bytes(op, &at);
        let places = std::array::from_fn(|lane| Place::Global(at[lane] - u64::from(filled[lane])));
        for zeros in 0..bytes {
            let lanes = lanes(copies)
                .filter(|&lane| filled[lane as usize] == zeros)
                .fold(0, |all, lane| all | 1 << lane);
            if lanes != 0 {
                let memory = act::Memory {
                    space: Space::Global,
                    bytes: bytes - zeros,
                    ..act::Memory::shared(Access::Load)
                };
                self.access(core, &WarpAccess { lanes, places, memory, data: None, loaded, by: warp });
            }
        }
        let base = core.src(op.d)[0].wrapping_add(op.k[3]);
        let places = core.src(op.c).map(|x| Place::Shared(x.wrapping_add(base)));
        let memory = act::Memory { bytes, ..act::Memory::shared(Access::Store) };
        let by = self.begin_copies(core, copies_of(warp));
        self.access(core, &WarpAccess { lanes: executing, places, memory, data: None, loaded, by });
    }

    /// Copies or products by `by` come after the warp's accesses so far.
    pub(super) fn begin_copies(&mut self, core: &Core<'_>, by: u32) -> u32 {
        if self.checks.contains(Checks::RACE) {
            let warp = core.warp.index;
            let block = self.block(core);
            block.resume(warp);
            let passed = block.clocks.release(warp);
            block.clocks.acquire(by, &passed);
        }
        by
    }

    /// The warp ends a group of asynchronous copies.
    pub(super) fn commit_copies(&mut self, core: &Core<'_>) {
        let warp = core.warp.index;
        let block = self.block(core);
        let copies = block.clocks.release(copies_of(warp));
        block.unfinished.commit(warp, copies);
    }

    /// The warp waits until no more than `left` groups are unfinished.
    pub(super) fn wait_for_copies(&mut self, core: &Core<'_>, left: u32) {
        let warp = core.warp.index;
        let block = self.block(core);
        if let Some(copies) = block.unfinished.wait(warp, left) {
            block.clocks.acquire(warp, &copies);
        }
    }

    /// SYNCS.EXCH: the object begins.
    pub(super) fn init_object(&mut self, core: &mut Core<'_>, op: &MicroOp) {
        let offset = offsets(core, op)[0];
        let (places, loaded) = ([Place::Shared(offset); 32], Group::default());
        let (lanes, by) = (core.active & core.active.wrapping_neg(), core.warp.index);
        let memory = of_object(Access::Store);
        self.access(core, &WarpAccess { lanes, places, memory, data: None, loaded, by });
        self.block(core).objects.forget(u64::from(offset) / 8);
    }

    /// An arrival at a barrier object, after the warp's copies have ended or not.
    pub(super) fn arrive(&mut self, core: &mut Core<'_>, op: &MicroOp, after_copies: bool) {
        let (offsets, warp) = (offsets(core, op), core.warp.index);
        let access = WarpAccess {
            memory: of_object(Access::Atomic),
            lanes: core.mask,
            places: offsets.map(Place::Shared),
            data: None,
            loaded: Group::default(),
            by: warp,
        };
        self.access(core, &access);
        if self.checks.contains(Checks::SYNC) {
            let met = &mut self.block(core).met;
            met.extend(lanes(access.lanes).map(|lane| offsets[lane as usize]));
        }
        if !self.checks.contains(Checks::RACE) {
            return;
        }
        let mut objects: Vec<(u32, u64, bool)> = Vec::new();
        for lane in lanes(core.mask) {
            let offset = offsets[lane as usize];
            if !objects.iter().any(|(known, ..)| *known == offset) {
                let Some(state) = state(&core.block, offset) else { return };
                objects.push((offset, state, false));
            }
            for (_, state, ends) in objects.iter_mut().filter(|(known, ..)| *known == offset) {
                // A count out of its range ends the launch.
                let Ok(next) = arrived(core, op, lane as usize, *state) else { return };
                *ends |= ends_phase(*state, next);
                *state = next;
            }
        }
        let block = self.block(core);
        let mut passed = block.clocks.release(warp);
        if after_copies {
            passed.join(&block.clocks.release(copies_of(warp)));
        }
        for (offset, _, ends) in objects {
            block.objects.arrive(u64::from(offset) / 8, &passed, ends);
        }
    }

    /// SYNCS.PHASECHK: lanes for which the phase is over know the accesses before its arrivals.
    pub(super) fn check_phase(&mut self, core: &mut Core<'_>, op: &MicroOp) {
        let (offsets, warp) = (offsets(core, op), core.warp.index);
        let access = WarpAccess {
            memory: of_object(Access::Load),
            lanes: core.mask,
            places: offsets.map(Place::Shared),
            data: None,
            loaded: Group::default(),
            by: warp,
        };
        self.access(core, &access);
        if !self.checks.contains(Checks::RACE) {
            return;
        }
        for lane in lanes(core.mask) {
            let offset = offsets[lane as usize];
            if state(&core.block, offset).is_some_and(|state| is_over(core, op, lane as usize, state)) {
                self.block(core).learn(warp, u64::from(offset) / 8);
            }
        }
    }

    /// UBLKCP: loads from global memory, stores to shared memory, an arrival at a barrier object.
    pub(super) fn copy_bulk(&mut self, core: &mut Core<'_>, op: &MicroOp) {
        let copy = BulkCopy::of(core, op);
        let size = core.env.launch.shared_bytes;
        let inside = |at: u32, bytes: u32| at.checked_add(bytes).is_some_and(|end| end <= size);
        // Other copies fault.
        if !inside(copy.to, copy.bytes) || !inside(copy.object, 8) {
            return;
        }
        let (object, warp) = (u64::from(copy.object) / 8, core.warp.index);
        let by = self.begin_copies(core, bulk_copies_of(object));
        let lanes = core.active & core.active.wrapping_neg();
        let loaded = Group::default();
        for at in (0..copy.bytes).step_by(PIECE as usize) {
            let memory =
                act::Memory { space: Space::Global, bytes: PIECE, ..act::Memory::shared(Access::Load) };
            let places = [Place::Global(copy.from.wrapping_add(at.into())); 32];
            self.access(core, &WarpAccess { lanes, places, memory, data: None, loaded, by: warp });
            let memory = act::Memory { bytes: PIECE, ..act::Memory::shared(Access::Store) };
            let places = [Place::Shared(copy.to + at); 32];
            self.access(core, &WarpAccess { lanes, places, memory, data: None, loaded, by });
        }
        let (memory, places) = (of_object(Access::Atomic), [Place::Shared(copy.object); 32]);
        self.access(core, &WarpAccess { lanes, places, memory, data: None, loaded, by });
        if !self.checks.contains(Checks::RACE) {
            return;
        }
        let Some(state) = state(&core.block, copy.object) else { return };
        let ends = copy.arrive(state).is_ok_and(|next| ends_phase(state, next));
        let lane = lanes.trailing_zeros() & 31;
        let here = event(core, core.pc, core.block.id, 32 * warp + lane);
        let unless_waited_for =
            finding(core, Checks::RACE, lane, ENDS, Some(Place::Shared(copy.to)), Some(here));
        let block = self.block(core);
        block.unfinished.begin_bulk(object, block.clocks.now(by), unless_waited_for);
        let passed = block.clocks.release(by);
        block.objects.arrive(object, &passed, ends);
    }
}
