//! Work without the interpreter.
//!
//! A thread that takes an interpreter which ends is ended by it (before Python 3.14), through frames of Rust, which
//! ends the process badly. So threads that come back from such work then stay away for good, as 3.14 has them.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use pyo3::prelude::*;

/// The thread that ends the interpreter, once it does.
static ENDING: OnceLock<ThreadId> = OnceLock::new();
/// Threads that are about to take the interpreter.
static COMING: AtomicUsize = AtomicUsize::new(0);
/// The longest time that the end waits for them.
const PATIENCE: Duration = Duration::from_secs(1);

/// Does `work` while other threads have the interpreter.
pub(crate) fn away<R: Send>(py: Python<'_>, work: impl Send + FnOnce() -> R) -> R {
    let result = py.detach(|| {
        let result = work();
        COMING.fetch_add(1, Ordering::SeqCst);
        if ENDING.get().is_some_and(|ends| *ends != thread::current().id()) {
            COMING.fetch_sub(1, Ordering::SeqCst);
            loop {
                thread::park();
            }
        }
        result
    });
    COMING.fetch_sub(1, Ordering::SeqCst);
    result
}

/// For `atexit`: from here on no other thread comes back.
#[pyfunction]
pub(crate) fn end(py: Python<'_>) {
    ENDING.get_or_init(|| thread::current().id());
    let start = Instant::now();
    py.detach(|| {
        while COMING.load(Ordering::SeqCst) > 0 && start.elapsed() < PATIENCE {
            thread::yield_now();
        }
    });
}
