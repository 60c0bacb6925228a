//! Faults of the MMU that the driver handles after the exception of the SM that they stopped
//! ([`WhatIf::SM_FIRST`](crate::WhatIf::SM_FIRST)).

use crate::gpu::chip::SmPlace;
use crate::gpu::sm::launch::MemoryFault;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time from the SM's exception to the handling of the MMU's fault: the recovery from the exception comes
/// between them, with the resets of the engine and its log lines. Not known: a bound that a reader of the log
/// can wait for.
const DELAY: Duration = Duration::from_millis(50);

/// A fault of an SM's access.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GpcFault {
    /// The MMU's report.
    pub(crate) fault: MemoryFault,
    /// Position of the SM.
    pub(crate) place: SmPlace,
    /// Number of the channel.
    pub(crate) channel: u32,
    /// Number of its group.
    pub(crate) tsg: u32,
    /// Its subcontext.
    pub(crate) veid: u32,
}

/// Faults that are not handled yet. They wait in the host's time, as the doorbell does: nothing in the model
/// waits for them.
#[derive(Debug, Default)]
pub(crate) struct LateFaults(Mutex<Vec<(Instant, GpcFault)>>);

impl LateFaults {
    /// The SM's exception of a fault is handled now.
    pub(crate) fn add(&self, fault: GpcFault) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((Instant::now(), fault));
    }

    /// Those that are handled now.
    pub(crate) fn take_due(&self) -> Vec<GpcFault> {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.extract_if(.., |(since, _)| since.elapsed() >= DELAY).map(|(_, fault)| fault).collect()
    }
}
