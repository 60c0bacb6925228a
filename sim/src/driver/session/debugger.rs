//! A debugger's session.

use crate::driver::channel::Channel;
use nix::errno::Errno;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A session.
#[derive(Debug)]
pub(crate) struct DebugSession {
    /// Opened through the legacy profiler node.
    pub(crate) profiler: bool,
    state: Mutex<DebugState>,
}

#[derive(Debug, Default)]
pub(crate) struct DebugState {
    /// Bound channels, each with the descriptor it was bound by.
    pub(crate) channels: Vec<(i32, Arc<Channel>)>,
    /// Number of times that MMU debug mode was enabled and not disabled.
    pub(crate) mmu_debug: u32,
    /// Time-outs are switched off.
    pub(crate) timeouts_off: bool,
}

impl DebugSession {
    /// A session without channels; `profiler` for the legacy profiler node.
    pub(crate) fn new(profiler: bool) -> Self {
        Self { profiler, state: Mutex::default() }
    }

    /// Its state.
    pub(crate) fn state(&self) -> MutexGuard<'_, DebugState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the session keeps a channel's file open.
    pub(crate) fn holds(&self, channel: &Arc<Channel>) -> bool {
        self.state().channels.iter().any(|(_, c)| Arc::ptr_eq(c, channel))
    }

    /// Ends the session's hold on its channels.
    pub(crate) fn take_channels(&self) -> Vec<Arc<Channel>> {
        std::mem::take(&mut self.state().channels).into_iter().map(|(_, c)| c).collect()
    }

    /// The channel that calls without one use: the first bound.
    pub(crate) fn channel(&self) -> Result<Arc<Channel>, Errno> {
        self.state().channels.first().map(|(_, c)| Arc::clone(c)).ok_or(Errno::EINVAL)
    }
}
