//! Which threads are the model's own.

use std::cell::Cell;

thread_local! {
    static IS_OWN: Cell<bool> = const { Cell::new(false) };
}

/// Says that the calling thread is one of the machine's own.
pub(crate) fn mark_own_thread() {
    IS_OWN.set(true);
}

/// Whether the caller runs on a thread of a simulated machine: its GPU's, or the one that serves visitors.
///
/// Whoever puts a [`Sim`](crate::Sim) in front of the C library's own functions must let that thread's calls
/// through to the kernel.
pub fn is_gpu_thread() -> bool {
    IS_OWN.get()
}
