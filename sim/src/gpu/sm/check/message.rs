//! Messages between blocks without a fence.

use crate::findings::Checks;
use crate::gpu::sm::check::access::{Place, WarpAccess};
use crate::gpu::sm::check::act::Act;
use crate::gpu::sm::check::mark::{Kind, Mark};
use crate::gpu::sm::check::pieces::{LINE, Piece, Pieces, words_of};
use crate::gpu::sm::check::race::{changes_nothing, kind_of};
use crate::gpu::sm::check::roles::Role;
use crate::gpu::sm::check::{Watch, block_id, event};
use crate::gpu::sm::core::Core;

use sass::Access;

/// LDGSTS without this bit is `.BYPASS`: past the level-1 cache.
const THROUGH_L1: u32 = 81;

impl Watch {
    /// Whether the current op is a copy to shared memory that goes past the level-1 cache.
    fn bypasses_l1(&mut self, core: &Core<'_>) -> bool {
        self.steps.at(core, core.pc).act == Act::CopyToShared && core.map.word(core.pc) >> THROUGH_L1 & 1 == 0
    }

    /// The accesses of a warp to global memory, against those of other blocks.
    pub(super) fn check_fences(&mut self, core: &mut Core<'_>, access: &WarpAccess, pieces: &Pieces) {
        let (id, warp) = (core.block.index as u32, core.warp.index as u8);
        let kind = kind_of(access).intersection(Kind::WRITES | Kind::STRONG | Kind::OF_BLOCK | Kind::ATOMIC);
        let strong = kind.contains(Kind::STRONG) && !kind.contains(Kind::OF_BLOCK);
        // An atomic operation finds out whether a guess was old.
        let guesses = access.loaded.count > 0 && self.steps.role(core) == Role::Guess;
        let past_l1 = strong || guesses || self.bypasses_l1(core);
        let global = || pieces.iter().filter(|piece| piece.global);
        if strong && access.memory.access != Access::Store {
            global().flat_map(words_of).for_each(|word| self.fences.acquire_at(id, word));
        }
        let block_clock = self.fences.now(id);
        let mut found = None;
        for Piece { line, mask, bytes, owners, .. } in global() {
            let mark = Mark {
                id: 0,
                clock: 0,
                block: id,
                block_clock,
                pc: core.pc,
                warp,
                kind,
                bytes: *bytes,
                owners: *owners,
            };
            let conflict = self.fences.access((*line, *mask), mark, past_l1);
            found = found
                .or(conflict
                    .map(|(conflict, narrow)| (line * LINE + u64::from(conflict.word), conflict, narrow)));
        }
        if let Some((word, conflict, narrow)) = found
            && !changes_nothing(core, access, conflict.lane.into(), word, true)
        {
            let text = match (kind.contains(Kind::WRITES), narrow) {
                (false, false) => {
                    "reads global memory that another block of the launch writes, without fences"
                }
                (true, false) => {
                    "writes global memory that another block of the launch accesses, without fences"
                }
                (false, true) => {
                    "reads global memory that another block of the launch writes, with a fence of the scope of a block \
                     alone (.cta)"
                }
                (true, true) => {
                    "writes global memory that another block of the launch accesses, with a fence of the scope of a \
                     block alone (.cta)"
                }
            };
            let earlier = conflict.earlier;
            let thread = 32 * u32::from(earlier.warp) + u32::from(conflict.earlier_lane);
            let event = event(core, earlier.pc, block_id(core.env.launch, earlier.block), thread);
            let place = Place::Global(word * 4);
            self.report(core, Checks::ORDER, conflict.lane.into(), text, Some(place), Some(event));
        }
        if strong && access.memory.access != Access::Load {
            global().flat_map(words_of).for_each(|word| self.fences.release_at(id, word));
        }
    }
}
