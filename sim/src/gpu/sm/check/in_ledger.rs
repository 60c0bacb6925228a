//! A launch in the ledger of its machine.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::order::ledger::Ledger;
use crate::order::work::{Parts, WorkId};

/// A launch, its ledger, and its parts where it begins before the one it follows has ended.
pub(crate) type Watched = (Arc<Ledger>, WorkId, Option<Parts>);

/// A launch in a ledger.
#[derive(Debug)]
pub(super) struct InLedger {
    pub ledger: Arc<Ledger>,
    work: WorkId,
    parts: Option<Parts>,
    /// The lanes that have waited, of each block and warp.
    waited: FxHashMap<(u64, u32), u32>,
    /// The ledger's numbers of the ops, as far as they were looked up.
    pub sites: Vec<Option<u32>>,
}

/// The work that the accesses of a warp's lanes belong to.
#[derive(Clone, Copy, Debug)]
pub(super) struct OfLanes {
    pub launch: WorkId,
    /// Where the launch begins early: the work of lanes that have not waited, and those that have.
    pub early: Option<(WorkId, u32)>,
}

impl InLedger {
    pub fn new((ledger, work, parts): Watched) -> Self {
        InLedger { ledger, work, parts, waited: FxHashMap::default(), sites: Vec::new() }
    }

    /// Returns the work that the accesses of a warp belong to.
    pub fn work(&self, block: u64, warp: u32) -> OfLanes {
        let waited = || self.waited.get(&(block, warp)).copied().unwrap_or_default();
        OfLanes { launch: self.work, early: self.parts.map(|parts| (parts.early, waited())) }
    }

    /// Lanes of a warp go on after `griddepcontrol.wait`.
    pub fn pass_wait(&mut self, block: u64, warp: u32, lanes: u32) {
        if let Some(parts) = self.parts {
            *self.waited.entry((block, warp)).or_default() |= lanes;
            self.ledger.state().pass_wait(parts);
        }
    }

    /// The grid has ended.
    pub fn end(&self) {
        if let Some(parts) = self.parts.filter(|_| self.waited.is_empty()) {
            self.ledger.state().end_early(parts);
        }
    }
}
