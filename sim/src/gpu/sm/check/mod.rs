//! Checks of a kernel while it runs: memory that is not its own, memory that nothing wrote, accesses that
//! nothing orders, barriers that some lanes miss.
//!
//! [`Watch`] sees every operation before it runs, with the registers that it will read. It belongs to one
//! launch and to its only worker. Without checks there is none, and the interpreter's loop is compiled without
//! a call to it.
//!
//! Two accesses of a block are ordered by a block barrier, a phase of a barrier object, an atomic operation on
//! the same word, or a flag that a warp polls. Of two blocks: by atomic or strong (volatile, relaxed, acquire,
//! release) accesses to the same word of global memory, with or without a fence. Of two lanes of a warp: by
//! `__syncwarp` and all operations that lanes do together.

mod access;
mod act;
mod arrays;
mod asynchronous;
mod atomics;
mod between;
mod block;
mod bounds;
mod conflict;
pub(crate) mod copies;
mod early;
mod faulted;
mod fences;
pub(crate) mod in_ledger;
mod init;
mod knowledge;
mod lane_order;
mod late;
mod mark;
mod memory;
mod message;
mod multiply;
mod objects;
mod order;
mod pieces;
mod products;
mod published;
mod race;
mod races;
mod reach;
mod registers;
mod roles;
mod shadow;
mod step;
mod sync;
mod unfinished;

use std::sync::Arc;

use crate::findings::{Checks, Event, Finding, Findings};
use crate::gpu::sm::check::access::{Place, WarpAccess, lanes, words};
use crate::gpu::sm::check::act::Act;
use crate::gpu::sm::check::arrays::SharedBounds;
use crate::gpu::sm::check::block::{BlockWatch, Blocks};
use crate::gpu::sm::check::bounds::Bounds;
use crate::gpu::sm::check::fences::Fences;
use crate::gpu::sm::check::in_ledger::{InLedger, Watched};
use crate::gpu::sm::check::late::LateStores;
use crate::gpu::sm::check::order::Clocks;
use crate::gpu::sm::check::pieces::Pieces;
use crate::gpu::sm::check::races::Races;
use crate::gpu::sm::check::reach::{Extent, Reach};
use crate::gpu::sm::check::registers::Group;
use crate::gpu::sm::check::shadow::Shadow;
use crate::gpu::sm::check::step::{Needs, Steps};
use crate::gpu::sm::core::Core;
use crate::gpu::sm::lanes::each;
use crate::gpu::sm::launch::{Config, Launch, Schedule};
use crate::gpu::sm::micro_op::MicroOp;
use crate::gpu::sm::ops::memory::{addresses, offsets};
use crate::gpu::sm::slots::ZERO;
use crate::gpu::sm::tlb::Miss;
use crate::pieces::seen::SeenWrites;

use sass::{Access, Space};

/// The checks of one launch.
#[derive(Debug)]
pub(crate) struct Watch {
    checks: Checks,
    findings: Arc<Findings>,
    steps: Steps,
    blocks: Blocks,
    /// Of the current access.
    pieces: Pieces,
    /// Last accesses to global memory, and the order of the blocks.
    global: Shadow,
    order: Clocks,
    races: Races,
    bounds: Bounds,
    /// Of the kernel's shared memory, once they were looked up.
    shared: Option<SharedBounds>,
    /// The op, block and warp of the last finding about its memory.
    reported: Option<(u32, u64, u32)>,
    /// Writes to memory of which the program can say nothing.
    seen: SeenWrites,
    /// The order of the blocks, where every message needs a fence.
    fences: Fences,
    /// Stores that others do not see yet, where they become visible late.
    late: Option<LateStores>,
    /// The launch in the ledger of a machine.
    in_ledger: Option<InLedger>,
}

impl Watch {
    pub fn new(config: &Config, findings: Arc<Findings>, work: Option<Watched>) -> Self {
        let checks = config.checks;
        let shuffled = matches!(config.schedule, Schedule::Shuffled(_));
        Watch {
            late: (shuffled && checks.contains(Checks::ORDER)).then(LateStores::default),
            fences: Fences::default(),
            in_ledger: work.map(InLedger::new),
            checks,
            findings,
            steps: Steps::new(checks),
            blocks: Blocks::default(),
            pieces: Pieces::default(),
            global: Shadow::of_grid(),
            order: Clocks::default(),
            races: Races::default(),
            bounds: Bounds::default(),
            shared: None,
            reported: None,
            seen: SeenWrites::default(),
        }
    }

    /// Sees an operation that is about to run for the lanes of `core.mask`.
    #[inline(always)]
    pub fn before(&mut self, core: &mut Core<'_>, op: &MicroOp) {
        let step = self.steps.at(core, core.pc);
        let needs = step.needs;
        if needs.contains(Needs::DEFINES) {
            core.warp.defines(step.defines.first, step.defines.count, core.mask);
        }
        if needs.intersects(Needs::ACT | Needs::RACE) {
            self.check(core, op, needs);
        }
    }

    #[inline(never)]
    fn check(&mut self, core: &mut Core<'_>, op: &MicroOp, needs: Needs) {
        if needs.contains(Needs::RACE) {
            self.before_race(core);
        }
        if needs.contains(Needs::ACT) {
            self.check_act(core, op);
        }
    }

    fn check_act(&mut self, core: &mut Core<'_>, op: &MicroOp) {
        let step = self.steps.at(core, core.pc);
        match step.act {
            Act::Other => {}
            Act::Memory(memory) => {
                let loaded = step.registers.written;
                if let (access, Some(reach)) = plain(core, op, memory, loaded) {
                    self.access_at(core, &access, &reach);
                }
            }
            Act::LoadMatrix => {
                let lanes = ((1u64 << (8 * op.k[3].min(4))) - 1) as u32;
                let memory = act::Memory { bytes: 16, ..act::Memory::shared(Access::Load) };
                let places = offsets(core, op).map(Place::Shared);
                let (loaded, by) = (Group::default(), core.warp.index);
                let access = WarpAccess { lanes, places, memory, data: None, loaded, by };
                self.access(core, &access);
            }
            Act::CopyToShared => self.copy_to_shared(core, op),
            Act::CopyBulk => self.copy_bulk(core, op),
            Act::InitObject => self.init_object(core, op),
            Act::Arrive => self.arrive(core, op, false),
            Act::ArriveAfterCopies => self.arrive(core, op, true),
            Act::CheckPhase => self.check_phase(core, op),
            Act::CommitCopies => self.commit_copies(core),
            Act::WaitForCopies(left) => self.wait_for_copies(core, left),
            Act::MultiplyShared(closes) => self.multiply_shared(core, op, closes),
            Act::WaitForProducts(left) => self.wait_for_products(core, left),
            Act::Barrier => self.barrier(core, op),
            Act::Fence => {
                self.fence(core, false);
                self.show(core);
            }
            Act::BlockFence => self.fence(core, true),
            Act::EmptyCache => self.fences.learn(core.block.index as u32),
            Act::WaitForGrid => {
                if let Some(in_ledger) = &mut self.in_ledger {
                    in_ledger.pass_wait(core.block.index, core.warp.index, core.mask);
                }
            }
            Act::WarpSync => self.warpsync(core, op),
            Act::Shuffle => self.shuffle(core, op),
            Act::BranchDiverged => self.branch_diverged(core, op),
        }
    }

    /// A block has ended.
    pub fn end_block(&mut self, index: u64) {
        self.order.end(index as u32);
        self.fences.end(index as u32);
        self.blocks.end(index).unfinished.end().for_each(|finding| self.findings.record(finding));
        if let Some(late) = &mut self.late {
            late.end_block(index);
        }
    }

    /// Whether a block has ended of which others have not seen all stores.
    pub fn hides_ended_block(&self) -> bool {
        self.late.as_ref().is_some_and(LateStores::hides_ended_block)
    }

    /// Everyone sees the stores of the blocks that have ended.
    pub fn show_ended_blocks(&mut self, core: &mut Core<'_>) {
        if let Some(late) = &mut self.late {
            late.show_ended_blocks(core);
        }
    }

    /// Returns the state of the core's block.
    fn block(&mut self, core: &Core<'_>) -> &mut BlockWatch {
        self.blocks.of(core.block.index)
    }

    /// The core's block begins or ends a time slice.
    pub fn exchange_block(&mut self, core: &mut Core<'_>) {
        if let Some(late) = &mut self.late {
            late.exchange(core);
        }
    }

    /// Whether stores become visible late.
    pub fn delays_stores(&self) -> bool {
        self.late.is_some()
    }

    /// Everyone sees the stores of the core's block.
    pub fn show(&mut self, core: &Core<'_>) {
        if let Some(late) = &mut self.late {
            late.show_all(core.block.index);
        }
    }

    /// The grid has ended: everyone sees the stores of its blocks.
    pub fn end(&mut self, core: &mut Core<'_>) {
        if let Some(late) = &mut self.late {
            late.end(core);
        }
        if let Some(in_ledger) = &self.in_ledger {
            in_ledger.end();
        }
    }

    fn access(&mut self, core: &mut Core<'_>, access: &WarpAccess) {
        if let Some(reach) = reach(access) {
            self.access_at(core, access, &reach);
        }
    }

    fn access_at(&mut self, core: &mut Core<'_>, access: &WarpAccess, reach: &Reach) {
        // Misaligned accesses fault.
        if !reach.aligned {
            return;
        }
        let right = !self.checks.contains(Checks::MEMORY) || self.check_memory(core, access, reach);
        // What lies outside was not written either: one mistake, one finding.
        if right && self.checks.contains(Checks::INIT) {
            self.check_init(core, access, reach);
        }
        if !self.checks.intersects(Checks::RACE | Checks::ORDER)
            || reach.extent == Extent::Local
            || reach.extent == Extent::Shared && !self.checks.contains(Checks::RACE)
        {
            return;
        }
        let mut pieces = std::mem::take(&mut self.pieces);
        pieces.cut(access, core.env.launch.shared_bytes);
        if self.checks.contains(Checks::RACE) {
            self.check_race(core, access, &pieces);
        }
        if self.checks.contains(Checks::ORDER) && pieces.global() {
            self.check_fences(core, access, &pieces);
            self.check_between(core, access, &pieces);
            self.delay(core, access);
        }
        self.pieces = pieces;
    }

    /// Weak stores to global memory stay with their block for a while.
    fn delay(&mut self, core: &mut Core<'_>, access: &WarpAccess) {
        let Some(late) = &mut self.late else { return };
        for lane in lanes(access.lanes) {
            let Place::Global(va) = access.places[lane as usize] else { continue };
            if va.checked_add(16).is_none() {
                continue;
            }
            for (word, bytes) in words(va, access.memory.bytes) {
                match access.memory.access {
                    Access::Load => {}
                    Access::Store if !access.memory.strong => late.store(core, word * 4, bytes),
                    Access::Store | Access::Atomic => late.show(core.block.index, word * 4),
                }
            }
        }
    }

    /// Records a lane's finding at the current op.
    fn report(
        &self,
        core: &Core<'_>,
        check: Checks,
        lane: u32,
        text: &str,
        place: Option<Place>,
        earlier: Option<Event>,
    ) {
        self.findings.record(finding(core, check, lane, text, place, earlier));
    }
}

/// Builds the finding of a lane at the current op.
fn finding(
    core: &Core<'_>,
    check: Checks,
    lane: u32,
    text: &str,
    place: Option<Place>,
    earlier: Option<Event>,
) -> Finding {
    finding_of(core, core.pc, 32 * core.warp.index + lane, check, text, place, earlier)
}

/// Builds the finding of a thread of the current block at an op.
fn finding_of(
    core: &Core<'_>,
    pc: u32,
    thread: u32,
    check: Checks,
    text: &str,
    place: Option<Place>,
    earlier: Option<Event>,
) -> Finding {
    let event = event(core, pc, core.block.id, thread);
    let (program, pieces) = (core.env.launch.program, core.env.memory.pieces());
    let kernel = pieces.and_then(|pieces| pieces.kernel_name(program));
    let location = match place {
        Some(Place::Global(va)) => pieces.and_then(|pieces| pieces.locate(va)),
        _ => None,
    };
    let (text, address) = (text.to_owned(), place.map(Place::offset));
    Finding {
        check,
        text,
        program,
        kernel,
        event,
        address,
        location,
        earlier,
        count: 1,
        detail: String::new(),
    }
}

/// The instruction of op `pc`, executed by a thread of a block.
fn event(core: &Core<'_>, pc: u32, block: [u32; 3], thread: u32) -> Event {
    let va = core.map.va(pc);
    let sass = core.env.text(core.map.word(pc), va);
    let source = core.env.memory.pieces().and_then(|pieces| pieces.source(va));
    Event { pc: va, sass, block, thread: coordinates(core.env.launch, thread), source }
}

/// A thread of a block by its three numbers.
fn coordinates(launch: &Launch, thread: u32) -> [u32; 3] {
    let [x, y, _] = launch.block.map(|n| n.max(1));
    [thread % x, thread / x % y, thread / x / y]
}

/// A block of a grid by its three numbers.
fn block_id(launch: &Launch, block: u32) -> [u32; 3] {
    let [x, y, _] = launch.grid.map(|n| n.max(1));
    [block % x, block / x % y, block / x / y]
}

/// The access of a load, a store or an atomic operation.
fn plain(core: &Core<'_>, op: &MicroOp, memory: act::Memory, loaded: Group) -> (WarpAccess, Option<Reach>) {
    let loads = memory.access == Access::Load;
    let lanes = if loads && op.ps[0] != 7 { core.mask & core.pred(op.ps[0]) } else { core.mask };
    let (extent, at) = match memory.space {
        Space::Shared | Space::Local => {
            let (extent, at) = (
                if memory.space == Space::Shared { Extent::Shared } else { Extent::Local },
                offsets(core, op),
            );
            (extent, each(|lane| u64::from(at[lane])))
        }
        Space::Global | Space::Constant => (Extent::Global, addresses(core, op)),
        Space::Generic => {
            let at = addresses(core, op);
            let windows = at.iter().any(|va| core.tlb.window(*va).is_some());
            (if windows { Extent::Mixed } else { Extent::Global }, at)
        }
    };
    let mut places = [Place::Global(0); 32];
    for (place, at) in places.iter_mut().zip(at) {
        *place = match extent {
            Extent::Shared => Place::Shared(at as u32),
            Extent::Local => Place::Local(at as u32),
            Extent::Global => Place::Global(at),
            Extent::Mixed => in_window(core, at),
        };
    }
    let data = (memory.access == Access::Store && op.c != ZERO).then_some(op.c);
    let access = WarpAccess { memory, lanes, places, data, loaded, by: core.warp.index };
    let reach = match extent {
        Extent::Mixed => reach(&access),
        _ => Reach::of(extent, &at, lanes, memory.bytes),
    };
    (access, reach)
}

/// The extent of an access; `None` if no lane makes it.
fn reach(access: &WarpAccess) -> Option<Reach> {
    let extent = |place: Place| match place {
        Place::Global(_) => Extent::Global,
        Place::Shared(_) => Extent::Shared,
        Place::Local(_) => Extent::Local,
    };
    let all = extent(*access.places.get(access.lanes.trailing_zeros() as usize)?);
    let mixed = lanes(access.lanes).any(|lane| extent(access.places[lane as usize]) != all);
    let at = each(|lane| access.places[lane].offset());
    Reach::of(if mixed { Extent::Mixed } else { all }, &at, access.lanes, access.memory.bytes)
}

/// The memory that a generic address names.
fn in_window(core: &Core<'_>, va: u64) -> Place {
    match core.tlb.window(va) {
        Some(Miss::Shared) => Place::Shared((va - core.env.launch.windows.shared_base) as u32),
        Some(Miss::Local) => Place::Local((va - core.env.launch.windows.local_base) as u32),
        _ => Place::Global(va),
    }
}
