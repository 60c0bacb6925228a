//! An open of the device-scope profiler.

use crate::driver::tsg::Tsg;
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};

/// One open of `prof-dev`.
#[derive(Debug, Default)]
pub(crate) struct ProfilerFile {
    state: Mutex<ProfilerState>,
}

/// Its state under its lock.
#[derive(Debug, Default)]
pub(crate) struct ProfilerState {
    /// A context is bound: the device's, or that of `group`.
    pub(crate) has_context: bool,
    /// The group whose context is bound.
    pub(crate) group: Option<Weak<Tsg>>,
    /// Reserved resources, one bit each.
    pub(crate) reserved: u32,
    /// Resources that are reserved as parts of the context.
    pub(crate) switched: u32,
    /// The reserved ones are bound.
    pub(crate) bound: bool,
}

impl ProfilerFile {
    /// Its state. A group that has ended took its binding and everything that was reserved with it.
    pub(crate) fn state(&self) -> MutexGuard<'_, ProfilerState> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.group.as_ref().is_some_and(|group| group.strong_count() == 0) {
            *state = ProfilerState::default();
        }
        state
    }
}
