//! Accesses of a launch against those of other launches, of copies and of the program, by the machine's
//! ledger.

use crate::findings::{Checks, Finding};
use crate::gpu::sm::check::access::{Place, WarpAccess, lanes as bits};
use crate::gpu::sm::check::in_ledger::{InLedger, OfLanes};
use crate::gpu::sm::check::pieces::{LINE, Piece, Pieces};
use crate::gpu::sm::check::race::changes_nothing;
use crate::gpu::sm::check::{Watch, finding};
use crate::gpu::sm::core::Core;
use crate::gpu::sm::launch::Access as Translate;
use crate::order::access::Access as OfLaunch;
use crate::order::work::WorkId;

use sass::Access;

impl Watch {
    /// The accesses of a warp to global memory.
    pub(super) fn check_between(&mut self, core: &mut Core<'_>, access: &WarpAccess, pieces: &Pieces) {
        let Some(in_ledger) = &mut self.in_ledger else { return };
        let of_lanes = in_ledger.work(core.block.index, core.warp.index);
        let InLedger { ledger, sites, .. } = in_ledger;
        let at = core.pc as usize;
        if sites.len() <= at {
            sites.resize(at + 1, None);
        }
        let mut state = ledger.state();
        let site = *sites[at].get_or_insert_with(|| {
            let (pc, word) = (core.map.va(core.pc), core.map.word(core.pc));
            state.site(pc, word, || core.env.text(word, pc))
        });
        let mut found = None;
        for piece in pieces.iter().filter(|piece| piece.global) {
            let va = piece.line * LINE * 4;
            // Unmapped addresses fault. Pages have whole lines.
            let first = va + 4 * u64::from(piece.mask.trailing_zeros());
            let Ok(entry) = core.tlb.find(first, Translate::Read) else { continue };
            let host = (entry.host.addr() as u64).wrapping_add(va).wrapping_sub(entry.va);
            let Piece { bytes, owners, .. } = *piece;
            // Lanes before and after `griddepcontrol.wait` differ in their work.
            for (work, mask) in by_work(piece, &of_lanes) {
                let conflict = state.access(
                    work,
                    &OfLaunch {
                        line: host / 4 / LINE,
                        mask,
                        bytes,
                        reads: access.memory.access != Access::Store,
                        writes: access.memory.access != Access::Load,
                        strong: access.memory.strong,
                        site,
                        block: core.block.index as u32,
                        threads: owners.threads(32 * core.warp.index, mask),
                    },
                    |word| {
                        let lane = u32::from(owners.of(word).0);
                        !changes_nothing(core, access, lane, piece.line * LINE + u64::from(word), true)
                    },
                );
                if let (None, Some(conflict)) = (&found, conflict) {
                    let word = piece.line * LINE + u64::from(conflict.word);
                    found = Some((u32::from(owners.of(conflict.word).0), word, conflict));
                }
            }
        }
        drop(state);
        let Some((lane, word, conflict)) = found else { return };
        let earlier = Some(conflict.earlier);
        let text = finding(core, Checks::ORDER, lane, conflict.text, Some(Place::Global(word * 4)), earlier);
        self.findings.record(Finding { detail: conflict.detail, ..text });
    }
}

/// The words of a piece by the work of their lanes.
fn by_work(piece: &Piece, lanes: &OfLanes) -> impl Iterator<Item = (WorkId, u32)> + use<> {
    let Piece { mask, owners, .. } = *piece;
    let (early, waited) = match lanes.early {
        None => (lanes.launch, mask),
        Some((early, waited)) => {
            let has_waited = |word: &u32| waited >> owners.of(*word).0 & 1 != 0;
            (early, bits(mask).filter(has_waited).fold(0, |words, word| words | 1 << word))
        }
    };
    [(lanes.launch, waited), (early, mask & !waited)].into_iter().filter(|(_, mask)| *mask != 0)
}
