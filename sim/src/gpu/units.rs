//! The units of the GPU that all channels share.

use crate::clock::Clock;
use crate::defects::Defects;
use crate::gpu::chip::Chip;
use crate::gpu::counters::Counters;
use crate::gpu::session::Session;
use crate::gpu::sm;
use crate::gpu::stops::Stops;
use crate::gpu::submissions::Submissions;
use crate::gpu::syncpoint::Syncpoints;
use crate::order::ledger::Ledger;
use crate::violations::Violations;
use crate::what_if::WhatIf;
use std::sync::{Arc, Mutex, PoisonError};

/// The units.
#[derive(Debug)]
pub(crate) struct Units {
    /// Instruction set, limits, floor plan.
    pub(crate) chip: Chip,
    /// Planted defects of the units.
    pub(crate) defects: Defects,
    /// Other users of the GPU.
    pub(crate) session: Session,
    /// Facts that are other than the model has them.
    pub(crate) what_if: WhatIf,
    /// Time.
    pub(crate) clock: Clock,
    /// Runs kernels.
    pub(crate) executor: sm::Executor,
    /// host1x beside the GPU.
    pub(crate) syncpoints: Arc<Syncpoints>,
    /// The blocks that faults stopped last.
    pub(crate) stops: Stops,
    /// Record of violations: work that a real machine does not survive.
    pub(crate) violations: Arc<Violations>,
    /// Order of work, if it is checked.
    pub(crate) ledger: Option<Arc<Ledger>>,
    /// Reports fetched submissions, if there is a tracer.
    pub(crate) submissions: Option<Submissions>,
    counters: Mutex<Counters>,
}

impl Units {
    /// Units that have done nothing yet: of a chip, with its planted defects and other users.
    pub(crate) fn new(
        (chip, defects, session): (Chip, Defects, Session),
        clock: Clock,
        executor: sm::Executor,
        syncpoints: Arc<Syncpoints>,
        violations: Arc<Violations>,
        ledger: Option<Arc<Ledger>>,
    ) -> Self {
        Self {
            chip,
            defects,
            session,
            what_if: WhatIf::empty(),
            clock,
            executor,
            syncpoints,
            stops: Stops::default(),
            violations,
            ledger,
            submissions: None,
            counters: Mutex::default(),
        }
    }

    /// Counters so far.
    pub(crate) fn counters(&self) -> Counters {
        *self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the counters.
    pub(crate) fn count(&self, change: impl FnOnce(&mut Counters)) {
        change(&mut self.counters.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
