//! Barriers of a block, and collective operations of a warp's lanes.

use crate::findings::Checks;
use crate::gpu::sm::barrier::Arrival;
use crate::gpu::sm::block::Block;
use crate::gpu::sm::check::access::{Place, lanes};
use crate::gpu::sm::check::act::Act;
use crate::gpu::sm::check::asynchronous::state;
use crate::gpu::sm::check::{Watch, event, finding_of};
use crate::gpu::sm::core::Core;
use crate::gpu::sm::mbarrier::Phase;
use crate::gpu::sm::micro_op::MicroOp;
use crate::gpu::sm::ops::control::arrival;
use crate::gpu::sm::ops::special::exchange;
use crate::gpu::sm::warp::{Wait, Waiting};

use sass::Encoding;

/// Text for lanes that never meet.
const ELSEWHERE: &str = "waits for lanes of its warp that wait elsewhere";

impl Watch {
    /// BAR: operands as the operation takes them.
    pub(super) fn barrier(&mut self, core: &Core<'_>, op: &MicroOp) {
        let Arrival { id, count, waits, .. } = arrival(core, op);
        let barrier = &core.block.barriers[id as usize];
        if self.checks.contains(Checks::SYNC) {
            let lane = core.mask.trailing_zeros() & 31;
            self.divided(core, id, lane);
            if !barrier.takes(count, waits) {
                let (wanted, begun) = (barrier.wanted, barrier.has_begun());
                let text = match (begun && wanted != count, count) {
                    (true, _) => {
                        format!("comes to barrier {id} with a count of {count} after threads with {wanted}")
                    }
                    (false, 0) => format!("arrives at barrier {id} without a count"),
                    (false, _) => {
                        format!("comes to barrier {id} with a count of {count}: not that of whole warps")
                    }
                };
                self.report(core, Checks::SYNC, lane, &text, None, None);
            }
        }
        if self.checks.contains(Checks::RACE) {
            let first = !barrier.has_begun();
            let block = self.blocks.of(core.block.index);
            block.resume(core.warp.index);
            block.arrive(core.warp.index, id as usize, first, waits);
        }
    }

    /// The lanes of a warp must come to a barrier together.
    fn divided(&mut self, core: &Core<'_>, id: u32, lane: u32) {
        let away = core.warp.live & !core.mask;
        if away == 0 {
            return;
        }
        let elsewhere = core.warp.waiting.iter().find_map(|w| match w.on {
            Wait::Block(other) if w.mask & away != 0 => Some((u32::from(other), *w)),
            _ => None,
        });
        let (text, earlier) = match elsewhere {
            Some((other, w)) if other != id => (
                format!("comes to barrier {id} while lanes of its warp wait at barrier {other}"),
                Some(event(core, w.pc - 1, core.block.id, 32 * core.warp.index + w.mask.trailing_zeros())),
            ),
            _ => (format!("comes to barrier {id} without all lanes of its warp"), None),
        };
        self.report(core, Checks::SYNC, lane, &text, None, earlier);
    }

    /// No warp of the block can go on: barriers that wait for more threads than can come.
    pub fn stuck(&mut self, core: &Core<'_>) {
        if !self.checks.contains(Checks::SYNC) {
            return;
        }
        self.stuck_lanes(core);
        for (id, barrier) in core.block.barriers.iter().enumerate() {
            let on = Wait::Block(id as u8);
            let waits = core.block.warps.iter().find_map(|warp| {
                let w = warp.waiting.iter().find(|w| w.on == on)?;
                Some((w.pc - 1, 32 * warp.index + w.mask.trailing_zeros()))
            });
            let Some((pc, thread)) = waits else { continue };
            let elsewhere = core.block.warps.iter().find_map(|warp| {
                let w = warp.waiting.iter().find(|w| w.on != on)?;
                Some(event(core, w.pc - 1, core.block.id, 32 * warp.index + w.mask.trailing_zeros()))
            });
            let come = barrier.arrived;
            let wanted = match barrier.wanted {
                0 => "all".to_owned(),
                count => count.to_string(),
            };
            let rest = if elsewhere.is_some() { "the others wait elsewhere" } else { "no other is left" };
            let text =
                format!("waits at barrier {id} for {wanted} threads, of which {come} have come and {rest}");
            self.findings.record(finding_of(core, pc, thread, Checks::SYNC, &text, None, elsewhere));
        }
    }

    /// No warp of the block can go on: lanes that wait for lanes of their warp that wait elsewhere.
    fn stuck_lanes(&self, core: &Core<'_>) {
        for warp in &core.block.warps {
            let lanes_of = |w: &Waiting| 32 * warp.index + w.mask.trailing_zeros();
            let stuck = warp.waiting.iter().find_map(|w| {
                let Wait::WarpSync(named) = w.on else { return None };
                let others = warp.waiting.iter().find(|o| o.pc != w.pc && o.mask & named != 0)?;
                Some((w, others))
            });
            let Some((w, others)) = stuck else { continue };
            let at = |w: &Waiting| self.site(core, lanes_of(w), w.pc - 1);
            let earlier = event(core, at(others), core.block.id, lanes_of(others));
            let (pc, thread) = (at(w), lanes_of(w));
            self.findings.record(finding_of(core, pc, thread, Checks::SYNC, ELSEWHERE, None, Some(earlier)));
        }
    }

    /// The op at which a thread that waits at op `pc` has left for the routine that this op is in, or `pc`.
    fn site(&self, core: &Core<'_>, thread: u32, pc: u32) -> u32 {
        let gone = self.blocks.get(core.block.index).and_then(|block| block.gone.get(&thread));
        gone.filter(|(_, to)| *to == Some(pc)).map_or(pc, |(from, _)| *from)
    }

    /// No block has ended for long: the barrier objects that this one may wait for, if there are any.
    /// Whether it is told.
    pub fn stalled(&mut self, core: &Core<'_>, block: &Block) -> bool {
        if !self.checks.contains(Checks::SYNC) {
            return false;
        }
        let met = self.blocks.get(block.index).map(|watch| watch.met.clone()).unwrap_or_default();
        let spinning = block.warps.iter().find_map(|warp| warp.paths.first().map(|path| (warp.index, *path)));
        let Some((warp, path)) = spinning else { return false };
        let thread = 32 * warp + path.mask.trailing_zeros();
        if met.is_empty() {
            let text = "goes on and on, and no block ends: a loop, or a wait for what no thread does";
            let mut found = finding_of(core, path.pc, thread, Checks::SYNC, text, None, None);
            found.event.block = block.id;
            self.findings.record(found);
        }
        for offset in met {
            let Some(state) = state(block, offset) else { continue };
            let Phase { parity, expected, missing } = match core.env.launch.arch.encoding() {
                Encoding::Sm8x => Phase::of_8x(state),
                Encoding::Sm9x => Phase::of_9x(state),
            };
            let text = format!(
                "goes on and on while {missing} of {expected} arrivals at a barrier object are missing, in its phase of \
                 parity {parity}: a wait for the wrong parity, or a missing arrival"
            );
            let mut found =
                finding_of(core, path.pc, thread, Checks::SYNC, &text, Some(Place::Shared(offset)), None);
            found.event.block = block.id;
            self.findings.record(found);
        }
        true
    }

    /// SHFL: the lane that is read must take part.
    pub(super) fn shuffle(&mut self, core: &Core<'_>, op: &MicroOp) {
        let (by, c) = (core.src(op.b), core.src(op.c));
        let absent = lanes(core.mask).find_map(|lane| {
            let (from, ok) = exchange(op.k[0], lane, by[lane as usize], c[lane as usize]);
            (ok && core.mask >> from & 1 == 0).then_some((lane, from))
        });
        let Some((lane, from)) = absent else { return };
        let state = if core.warp.threads >> from & 1 == 0 {
            "does not exist"
        } else if core.warp.live >> from & 1 == 0 {
            "has exited"
        } else {
            "does not take part"
        };
        self.report(core, Checks::SYNC, lane, &format!("takes a value from a lane that {state}"), None, None);
    }

    /// WARPSYNC: the lanes it names must come here. Those that have exited do not, nor do those that wait
    /// elsewhere. ptxas has lanes wait so before a barrier of the block too, which exited lanes may miss.
    pub(super) fn warpsync(&mut self, core: &Core<'_>, op: &MicroOp) {
        let (first, pc, block) = (32 * core.warp.index, core.pc, self.block(core));
        for thread in lanes(core.mask).map(|lane| first + lane) {
            match block.gone.get_mut(&thread) {
                Some((_, to)) if to.is_none_or(|to| to == pc) => *to = Some(pc),
                _ => _ = block.gone.remove(&thread),
            }
        }
        let masks = core.src(op.a);
        let named = lanes(core.mask).fold(0, |all, lane| all | masks[lane as usize]);
        self.exited(core, named);
        self.passed_over(core, named);
        let missing = named & core.warp.live & !core.mask;
        let elsewhere = core.warp.waiting.iter().find(|w| {
            let stays = match w.on {
                Wait::Block(_) => true,
                Wait::WarpSync(_) => w.pc != core.pc + 1,
                Wait::Converge(_) => false,
            };
            stays && w.mask & missing != 0
        });
        let Some(w) = elsewhere else { return };
        let other = 32 * core.warp.index + w.mask.trailing_zeros();
        let thread = 32 * core.warp.index + core.mask.trailing_zeros();
        let earlier = event(core, self.site(core, other, w.pc - 1), core.block.id, other);
        let pc = self.site(core, thread, core.pc);
        self.findings.record(finding_of(core, pc, thread, Checks::SYNC, ELSEWHERE, None, Some(earlier)));
    }

    /// Lanes that pass over a WARPSYNC that names them, and over the barrier behind it, by the same guard.
    fn passed_over(&self, core: &Core<'_>, named: u32) {
        let away = named & core.active & !core.mask;
        if away == 0 || Act::of(core.env.launch.arch, core.map.word(core.pc + 1)) != Act::Barrier {
            return;
        }
        let (other, lane) = (32 * core.warp.index + away.trailing_zeros(), core.mask.trailing_zeros());
        let event = event(core, core.pc, core.block.id, other);
        let text = "comes to a barrier of the block that lanes of its warp pass over";
        self.report(core, Checks::SYNC, lane, text, None, Some(event));
    }

    /// BRA.DIV: the code behind it is for all lanes of a mask.
    pub(super) fn branch_diverged(&mut self, core: &Core<'_>, op: &MicroOp) {
        let named = core.uniform(op.a) ^ op.k[2];
        self.exited(core, named);
        if core.mask != named & core.warp.threads {
            let (pc, first, block) = (core.pc, 32 * core.warp.index, self.block(core));
            block.gone.extend(lanes(core.mask).map(|lane| (first + lane, (pc, None))));
        }
    }

    fn exited(&self, core: &Core<'_>, named: u32) {
        let exited = core.warp.threads & !core.warp.live;
        let follows = Act::of(core.env.launch.arch, core.map.word(core.pc + 1));
        if named & exited != 0 && follows != Act::Barrier {
            let text = "waits for lanes of its warp that have exited";
            self.report(core, Checks::SYNC, core.mask.trailing_zeros(), text, None, None);
        }
    }
}
