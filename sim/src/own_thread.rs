//! Threads that are the model's own.

use std::cell::Cell;

thread_local! {
    static IS_OWN: Cell<bool> = const { Cell::new(false) };
}

/// Marks the calling thread as one of the machine's own.
pub(crate) fn mark_own_thread() {
    IS_OWN.set(true);
}

/// Whether the caller runs on a thread of a simulated machine: its GPU's, or the one that serves visitors.
///
/// A library that interposes the C library's functions with a [`Sim`](crate::Sim) must pass that thread's
/// calls to the kernel.
pub fn is_gpu_thread() -> bool {
    IS_OWN.get()
}
