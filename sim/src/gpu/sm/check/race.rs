//! Accesses that nothing orders.

use crate::findings::Checks;
use crate::gpu::sm::check::access::{Place, WarpAccess, lanes};
use crate::gpu::sm::check::act::Act;
use crate::gpu::sm::check::atomics::Atomics;
use crate::gpu::sm::check::block::BlockWatch;
use crate::gpu::sm::check::conflict::{self, Accesses};
use crate::gpu::sm::check::early::EarlyLoad;
use crate::gpu::sm::check::init::{global_word, shared_word};
use crate::gpu::sm::check::mark::{Kind, Mark};
use crate::gpu::sm::check::pieces::{LINE, Owners, Piece, Pieces};
use crate::gpu::sm::check::races::{GLOBAL, Races, line_of};
use crate::gpu::sm::check::roles::Role;
use crate::gpu::sm::check::shadow::{Conflict, Orders};
use crate::gpu::sm::check::step::Meeting;
use crate::gpu::sm::check::{Watch, block_id, event, finding};
use crate::gpu::sm::core::Core;

use sass::Access;

/// Words of a store that may be a message: a flag, not data.
const MESSAGE: u32 = 4;

/// Kind of an access, but for its role.
pub(super) fn kind_of(access: &WarpAccess) -> Kind {
    let memory = &access.memory;
    let mut kind = match memory.access {
        Access::Load => Kind::empty(),
        Access::Store => Kind::WRITES,
        Access::Atomic if memory.object => Kind::WRITES | Kind::STRONG | Kind::ARRIVAL,
        Access::Atomic => Kind::WRITES | Kind::STRONG | Kind::ATOMIC,
    };
    kind.set(
        Kind::STRONG,
        memory.strong || kind.contains(Kind::STRONG) || memory.object && memory.access == Access::Load,
    );
    kind.set(Kind::OF_BLOCK, memory.of_block);
    kind.set(Kind::CONSTANT, memory.constant);
    kind
}

impl Watch {
    /// The lanes of `core.mask` are about to execute an op.
    pub(super) fn before_race(&mut self, core: &Core<'_>) {
        let Watch { steps, blocks, findings, .. } = self;
        let (warp, step, block) = (core.warp.index, steps.at(core, core.pc), blocks.of(core.block.index));
        // Loads count once an instruction uses their values.
        if block.early.touches(warp, &step.touches) {
            let BlockWatch { early, shadow, .. } = block;
            early.execute(warp, core.mask, &step.registers, shadow, |race| findings.record(race));
        }
        if step.meeting != Meeting::None || step.act == Act::Barrier {
            let (mask, live, now) = (core.mask, core.warp.live, block.clocks.now(warp));
            let order = block.lanes(warp);
            order.run(mask, live, now);
            match step.meeting {
                Meeting::Waits => order.arrive(core.pc, mask, now),
                Meeting::Here => order.pass(mask, mask, live, now),
                // Lanes that come later are let go together with these.
                Meeting::None => order.pass(mask, live, live, now),
            }
        }
        if !block.products.is_empty(warp) {
            let (act, registers) = (step.act, step.registers);
            self.use_sums(core, act, &registers);
        }
    }

    /// A fence, of the block's scope or a wider one: the warp's next store to shared memory may be a message.
    pub(super) fn fence(&mut self, core: &Core<'_>, of_block: bool) {
        let id = core.block.index as u32;
        self.block(core).fenced |= 1 << core.warp.index;
        match of_block {
            true => self.fences.fence_block(id),
            false => self.fences.fence(id),
        }
    }

    pub(super) fn check_race(&mut self, core: &mut Core<'_>, access: &WarpAccess, pieces: &Pieces) {
        if access.memory.access == Access::Store && !pieces.apart() {
            self.check_one_store(core, access);
        }
        if !pieces.is_empty() {
            self.note(core, access, pieces);
        }
    }

    /// Notes the pieces of an access, and reports those that nothing orders with earlier ones.
    fn note(&mut self, core: &mut Core<'_>, access: &WarpAccess, pieces: &Pieces) {
        let (by, warp, id) = (access.by, core.warp.index, core.block.index as u32);
        let mut kind = kind_of(access);
        let waits = access.memory.access == Access::Load && access.loaded.count > 0;
        let role = if waits { self.steps.role(core) } else { Role::Plain };
        match role {
            Role::Guess => kind |= Kind::STRONG,
            Role::Update(_) if kind.contains(Kind::STRONG) => kind |= Kind::UPDATE,
            _ => {}
        }
        if self.steps.at(core, core.pc).updates && kind.contains(Kind::STRONG) {
            kind |= Kind::UPDATE;
        }
        let block = self.blocks.of(core.block.index);
        block.resume(warp);
        let step = block.clocks.now(warp);
        block.lanes(warp).run(core.mask, core.warp.live, step);
        let (global, inside) = (pieces.global(), pieces.iter().any(|piece| !piece.global));
        let message = inside && block.is_message(warp, access, pieces, MESSAGE);
        if message {
            kind |= Kind::STRONG;
        }
        if kind.contains(Kind::STRONG) {
            self.races.lines.fill(pieces);
        }
        let learns =
            kind.contains(Kind::STRONG) && access.memory.access != Access::Store && role != Role::Guess;
        // A change in two steps is one if the other's change is not known before its first.
        if learns && !kind.contains(Kind::UPDATE) {
            self.learn(core, access);
        }
        let block = self.blocks.of(core.block.index);
        let block_clock = if global { self.order.now(id) } else { 0 };
        let clock = block.clocks.tick(by);
        let polls = role == Role::Poll;
        if waits && inside && block.waits(warp, pieces, polls) {
            kind |= Kind::STRONG;
        }
        let mut early = (waits && inside && !polls).then(|| block.early.begin(access.loaded, access.lanes));
        let new = Mark {
            id: by,
            clock,
            block: id,
            block_clock,
            pc: core.pc,
            warp: warp as u8,
            kind,
            bytes: 15,
            owners: Owners::all(0, 31),
        };
        if Atomics::take(kind) && !global && access.memory.bytes >= 4 {
            self.note_atomics(core, &new, pieces);
        } else {
            let (known, shadow) = block.parts(by, warp);
            let orders = Orders { blocks: self.order.known(id), inside: Some(known) };
            for piece in pieces.iter() {
                let Piece { global, line, mask, bytes, owners } = *piece;
                let mark = Mark { bytes, owners, ..new };
                let found = |conflict| self.races.conflicts.push((*piece, conflict));
                if global {
                    self.global.access(&orders, (line, mask), mark, 0, found);
                } else if !polls {
                    let load = early.as_mut().map_or(0, |early| early.reads(line));
                    shadow.access(&orders, (line, mask), mark, load, found);
                }
            }
        }
        if !self.races.conflicts.is_empty() || kind.contains(Kind::UPDATE | Kind::WRITES) {
            self.judge(core, access, Accesses { kind, by, block: id }, &mut early);
        }
        if let Some(early) = early {
            self.block(core).early.add(warp, early);
        }
        if learns && kind.contains(Kind::UPDATE) {
            self.learn(core, access);
        }
        if kind.contains(Kind::STRONG | Kind::WRITES) && !kind.contains(Kind::ARRIVAL) {
            self.publish(core, kind, pieces);
        }
    }

    /// Notes atomic operations on shared memory, line by line.
    fn note_atomics(&mut self, core: &Core<'_>, new: &Mark, pieces: &Pieces) {
        let block = self.blocks.of(core.block.index);
        let Races { conflicts, lines, .. } = &mut self.races;
        let (known, shadow) = block.parts(new.id, core.warp.index);
        let orders = Orders { blocks: None, inside: Some(known) };
        for (at, place) in lines.all.iter().enumerate() {
            if shadow.may_conflict(&orders, *place, new) {
                for piece in pieces.iter().filter(|piece| line_of(piece) == place.0) {
                    let mark = Mark { owners: piece.owners, ..*new };
                    let mut found = |conflict| conflicts.push((*piece, conflict));
                    shadow.look(&orders, (piece.line, piece.mask), mark, &mut found);
                }
            }
            shadow.atomics(place.0).of(new).note(new, place.1, |word| lines.lanes(at, word));
        }
    }

    /// A strong read learns of what was published where it reads.
    fn learn(&mut self, core: &Core<'_>, access: &WarpAccess) {
        // Phases of barrier objects order otherwise.
        if access.memory.object {
            return;
        }
        let (id, block) = (core.block.index as u32, self.blocks.of(core.block.index));
        let lines = &self.races.lines;
        for (at, (line, mask)) in lines.all.iter().enumerate() {
            block.acquire_at(access.by, (*line, *mask), |word| lines.lanes(at, word));
            let of_grid = line & GLOBAL != 0 && !access.memory.of_block;
            if of_grid && self.order.acquire_at(id, (line & !GLOBAL, *mask), |_, _, _| {}).others {
                block.join_lanes(access.by);
            }
        }
    }

    /// An atomic or strong store publishes the accesses before it, of all its lanes.
    fn publish(&mut self, core: &Core<'_>, kind: Kind, pieces: &Pieces) {
        let (id, warp) = (core.block.index as u32, core.warp.index);
        let lines = &self.races.lines;
        if pieces.global() && !kind.contains(Kind::OF_BLOCK) {
            let global = lines.all.iter().filter(|(line, _)| line & GLOBAL != 0);
            self.order.release_at(id, global.map(|(line, mask)| (line & !GLOBAL, *mask)), |_, _| (0, 31));
        }
        let lanes_at = |at, word| lines.lanes(at, word);
        self.blocks.of(core.block.index).clocks.release_at(warp, lines.all.iter().copied(), lanes_at);
    }

    /// Reports the conflicts of an access: the first at once, others when a load's value is used.
    fn judge(
        &mut self,
        core: &mut Core<'_>,
        access: &WarpAccess,
        new: Accesses,
        early: &mut Option<EarlyLoad>,
    ) {
        let mut conflicts = std::mem::take(&mut self.races.conflicts);
        let warp = core.warp.index;
        let is_load = access.memory.access == Access::Load;
        let updates = new.kind.contains(Kind::UPDATE);
        if updates && !is_load {
            self.lost_before(core, access, &mut conflicts);
        }
        let mut reported = false;
        for (piece, conflict) in conflicts.drain(..) {
            let word = piece.line * LINE + u64::from(conflict.word);
            if updates && is_load && conflict::is_lost(&new, &conflict) {
                self.races.lost.insert((new.block, warp, word), (piece, conflict));
                continue;
            }
            if changes_nothing(core, access, conflict.lane.into(), word, piece.global) {
                continue;
            }
            let clocks = &self.blocks.of(core.block.index).clocks;
            let text = conflict::text(piece.global, &new, &conflict, clocks);
            // Of the bytes that both access, the first.
            let at = 4 * word + u64::from((piece.bytes & conflict.earlier.bytes).trailing_zeros() & 3);
            let place = if piece.global { Place::Global(at) } else { Place::Shared(at as u32) };
            let build = || {
                let Mark { pc, block, warp, .. } = conflict.earlier;
                let thread = 32 * u32::from(warp) + u32::from(conflict.earlier_lane);
                let earlier = event(core, pc, block_id(core.env.launch, block), thread);
                finding(core, Checks::RACE, conflict.lane.into(), text, Some(place), Some(earlier))
            };
            let between_lanes = conflict.earlier.id == new.by && conflict.earlier.block == new.block;
            let only = |lane: u8| if between_lanes { 1 << lane } else { u32::MAX };
            if let (Some(early), false) = (early.as_mut(), piece.global) {
                early.race(only(conflict.lane), build);
                continue;
            }
            let block = self.blocks.of(core.block.index);
            match block.early.unused(conflict.earlier.warp.into(), conflict.load) {
                Some(load) => load.race(only(conflict.earlier_lane), build),
                None if reported => {}
                None => {
                    reported = true;
                    self.findings.record(build());
                }
            }
        }
        self.races.conflicts = conflicts;
    }

    /// The conflicts that the loads of changes in two steps had.
    fn lost_before(&mut self, core: &Core<'_>, access: &WarpAccess, conflicts: &mut Vec<(Piece, Conflict)>) {
        for lane in lanes(access.lanes) {
            if let Place::Global(va) = access.places[lane as usize]
                && let Some(lost) =
                    self.races.lost.remove(&(core.block.index as u32, core.warp.index, va / 4))
            {
                conflicts.push(lost);
            }
        }
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
                if (i as u32) < count { core.lane(data + i as u16, lane as usize) & keep } else { 0 }
            })
        };
        let differ = |pair: &&[u32]| key(pair[0]) == key(pair[1]) && value(pair[0]) != value(pair[1]);
        let Some(pair) = at.windows(2).find(differ) else { return };
        let event = event(core, core.pc, core.block.id, 32 * core.warp.index + pair[0]);
        let text = "lanes of a warp store different values to the same place";
        self.report(core, Checks::RACE, pair[1], text, Some(access.places[pair[1] as usize]), Some(event));
    }
}

/// Whether a store does not change a word: flags that all set. Copies change it, and new barrier objects.
pub(super) fn changes_nothing(
    core: &mut Core<'_>,
    access: &WarpAccess,
    lane: u32,
    word: u64,
    global: bool,
) -> bool {
    let plain =
        access.memory.access == Access::Store && access.by == core.warp.index && !access.memory.object;
    if !plain {
        return false;
    }
    let now = if global { global_word(core, word * 4) } else { shared_word(&core.block, word * 4) };
    let Some(now) = now else { return false };
    match access.data {
        Some(data) if access.memory.bytes >= 4 => {
            let first = access.places[lane as usize].offset() / 4;
            core.lane(data + word.wrapping_sub(first) as u16 % 4, lane as usize) == now
        }
        Some(_) => false,
        None => now == 0,
    }
}
