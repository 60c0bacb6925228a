//! The blocks that faults stopped last.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use crate::gpu::sm;

/// Blocks that are kept.
const KEPT: usize = 4;

/// A block that a fault stopped.
#[derive(Debug)]
struct Stop {
    channel: u32,
    /// Number of the fault.
    fault: usize,
    state: Arc<sm::BlockState>,
}

/// The last blocks that faults stopped, the latest first.
#[derive(Debug, Default)]
pub(crate) struct Stops(Mutex<VecDeque<Stop>>);

impl Stops {
    /// A launch of a channel failed; `number` is that of the fault.
    pub(crate) fn add(&self, channel: u32, number: usize, fault: &sm::Fault) {
        let Some(state) = &fault.state else { return };
        let mut stops = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        stops.truncate(KEPT - 1);
        stops.push_front(Stop { channel, fault: number, state: Arc::clone(state) });
    }

    /// The last block of a channel, of the faults from number `since` on.
    pub(crate) fn last(&self, channel: u32, since: usize) -> Option<Arc<sm::BlockState>> {
        let stops = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let stop = stops.iter().find(|stop| stop.channel == channel && stop.fault >= since)?;
        Some(Arc::clone(&stop.state))
    }
}
