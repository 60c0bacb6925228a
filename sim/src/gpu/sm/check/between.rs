//! Accesses of a launch against those of other launches, of copies and of the program, by the machine's
//! ledger.

use crate::findings::{Checks, Finding};
use crate::gpu::sm::check::in_ledger::InLedger;
use crate::gpu::sm::check::race::global_kind;
use crate::gpu::sm::check::shadow::Kind;
use crate::gpu::sm::check::{Place, WarpAccess, Watch, finding, lanes, words};
use crate::gpu::sm::core::Core;
use crate::gpu::sm::launch::Access as Translate;
use crate::order::ledger;

use sass::Access;

impl Watch {
    /// The accesses of a warp to global memory.
    pub(super) fn check_between(&mut self, core: &mut Core<'_>, access: &WarpAccess) {
        let Some(in_ledger) = &mut self.in_ledger else { return };
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
        for lane in lanes(access.lanes) {
            let Place::Global(va) = access.places[lane as usize] else { continue };
            if va.checked_add(16).is_none() {
                continue;
            }
            for (i, (word, bytes)) in words(va, access.memory.bytes).enumerate() {
                // Unmapped addresses fault.
                let Ok(entry) = core.tlb.find(word * 4, Translate::Read) else { continue };
                let host = entry.host.addr() as u64 + (word * 4 - entry.va);
                let kind = global_kind(core, access, lane, i, word);
                let conflict = state.access(
                    work(lane),
                    &ledger::Access {
                        word: host / 4,
                        bytes,
                        reads: access.memory.access != Access::Store,
                        writes: access.memory.access != Access::Load,
                        changes_nothing: kind == Kind::Store { changes: false },
                        strong: access.memory.strong,
                        site,
                        block: core.block.index as u32,
                        thread: 32 * core.warp.index + lane,
                    },
                );
                if let (None, Some(conflict)) = (&found, conflict) {
                    found = Some((lane, word, conflict));
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
