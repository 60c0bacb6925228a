//! What a launch is in the ledger of its machine.

use std::sync::Arc;

use crate::order::ledger::Ledger;
use crate::order::work::WorkId;

/// What a launch is in a ledger.
#[derive(Debug)]
pub(super) struct InLedger {
    pub ledger: Arc<Ledger>,
    pub work: WorkId,
    /// The ledger's numbers of the ops, as far as they were asked for.
    pub sites: Vec<Option<u32>>,
}

impl InLedger {
    pub fn new((ledger, work): (Arc<Ledger>, WorkId)) -> Self {
        InLedger { ledger, work, sites: Vec::new() }
    }
}
