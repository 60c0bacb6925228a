//! Barriers of a block, and collective operations of a warp's lanes.

use crate::findings::Checks;
use crate::gpu::sm::check::act::Act;
use crate::gpu::sm::check::{Watch, event, lanes};
use crate::gpu::sm::core::Core;
use crate::gpu::sm::micro_op::MicroOp;
use crate::gpu::sm::ops::special::exchange;
use crate::gpu::sm::warp::Wait;

impl Watch {
    /// BAR: operands as the operation takes them.
    pub(super) fn barrier(&mut self, core: &Core<'_>, op: &MicroOp) {
        let lane = core.mask.trailing_zeros() & 31;
        let a = core.src(op.a)[lane as usize];
        let id = if op.k[3] != 0 { a & 15 } else { a };
        if id >= 16 {
            return;
        }
        if self.checks.contains(Checks::SYNC) {
            self.divided(core, id, lane);
        }
        if self.checks.contains(Checks::RACE) {
            let barrier = &core.block.barriers[id as usize];
            let first = barrier.arrived == 0 && barrier.partial.is_empty();
            let block = self.blocks.of(core.block.index);
            block.resume(core.warp.index);
            block.arrive(core.warp.index, id as usize, first, op.k[0] != 0);
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
        let masks = core.src(op.a);
        let named = lanes(core.mask).fold(0, |all, lane| all | masks[lane as usize]);
        self.exited(core, named);
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
        let event = event(core, w.pc - 1, core.block.id, other);
        let text = "waits for lanes of its warp that wait elsewhere";
        self.report(core, Checks::SYNC, core.mask.trailing_zeros(), text, None, Some(event));
    }

    /// BRA.DIV: the code behind it is for all lanes of a mask.
    pub(super) fn branch_diverged(&mut self, core: &Core<'_>, op: &MicroOp) {
        self.exited(core, core.uniform(op.a) ^ op.k[2]);
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
