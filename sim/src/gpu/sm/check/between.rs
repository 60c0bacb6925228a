//! Accesses of a launch against those of other launches, of copies and of the program, by the machine's
//! ledger.

use crate::findings::{Checks, Finding};
use crate::gpu::sm::check::access::{Place, WarpAccess};
use crate::gpu::sm::check::in_ledger::InLedger;
use crate::gpu::sm::check::pieces::{LINE, Piece, cut};
use crate::gpu::sm::check::race::changes_nothing;
use crate::gpu::sm::check::{Watch, finding};
use crate::gpu::sm::core::Core;
use crate::gpu::sm::launch::Access as Translate;
use crate::order::access::Access as OfLaunch;
use crate::order::work::WorkId;

use sass::Access;

impl Watch {
    /// The accesses of a warp to global memory.
    pub(super) fn check_between(&mut self, core: &mut Core<'_>, access: &WarpAccess) {
        let Some(in_ledger) = &mut self.in_ledger else { return };
        let mut pieces = std::mem::take(&mut in_ledger.pieces);
        cut(access, core.env.launch.shared_bytes, &mut pieces);
        let work = in_ledger.work(core.block.index, core.warp.index);
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
            for (work, mask) in by_work(piece, &work) {
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
        in_ledger.pieces = pieces;
        let Some((lane, word, conflict)) = found else { return };
        let earlier = Some(conflict.earlier);
        let text = finding(core, Checks::ORDER, lane, conflict.text, Some(Place::Global(word * 4)), earlier);
        self.findings.record(Finding { detail: conflict.detail, ..text });
    }
}

/// The words of a piece by the work of their lanes, of which there are two at most.
fn by_work(piece: &Piece, work: impl Fn(u32) -> WorkId) -> impl Iterator<Item = (WorkId, u32)> {
    let of = |word: u32| work(piece.owners.of(word).0.into());
    let first = of(piece.mask.trailing_zeros());
    let mut other = None;
    let mut masks = [0u32; 2];
    for word in (0..32).filter(|word| piece.mask >> word & 1 != 0) {
        let work = of(word);
        masks[usize::from(work != first)] |= 1 << word;
        other = other.or(Some(work).filter(|work| *work != first));
    }
    [(Some(first), masks[0]), (other, masks[1])].into_iter().filter_map(|(work, mask)| Some((work?, mask)))
}
