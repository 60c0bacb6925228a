//! Work without the interpreter.
//!
//! A thread that takes an interpreter which ends is ended by it (before Python 3.14), through frames of Rust, which
//! ends the process badly. So threads that come back from such work then stay away for good, as 3.14 has them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use hcq::{Error, QueueError};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::failure::Failure;

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

/// Does `work`, which has no deadline of its caller's, on a thread of its own. A signal may end the call meanwhile; the
/// work goes on then, and what it makes is dropped there.
pub(crate) fn apart<R: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<R, Error> + Send + 'static,
) -> Result<R, Failure> {
    let (made, taken) = mpsc::channel();
    thread::Builder::new()
        .name("hcq".to_owned())
        .spawn(move || drop(made.send(work())))
        .map_err(PyErr::from)?;
    // A receiver is for one thread at a time.
    let taken = Mutex::new(taken);
    let wait = || taken.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(LOOK_EVERY);
    loop {
        match away(py, wait) {
            Ok(result) => return Ok(result?),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(PyRuntimeError::new_err("a mistake of hcq: its thread panicked").into());
            }
        }
    }
}

/// Longest time for which a wait does not look for signals, Ctrl-C among them.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Does `work` without the interpreter in parts, of at most the time that each is given, until it ends with something
/// else than a time-out or none: at most `limit` of time-outs. Signals are looked at in between, when no lock is held,
/// as handlers of the program may call this library.
pub(crate) fn patiently<R: Send>(
    py: Python<'_>,
    limit: Duration,
    mut work: impl FnMut(Duration) -> Result<Option<R>, Error> + Send,
) -> Result<R, Failure> {
    let began = Instant::now();
    loop {
        let rest = limit.saturating_sub(began.elapsed());
        match away(py, || work(rest.min(LOOK_EVERY))) {
            Ok(Some(done)) => return Ok(done),
            Ok(None) => py.check_signals()?,
            Err(Error::Queue(QueueError::Timeout { wanted, reached, explanation, .. })) => {
                py.check_signals()?;
                if began.elapsed() >= limit {
                    let error = QueueError::Timeout { limit, wanted, reached, explanation };
                    return Err(Error::Queue(error).into());
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Seconds, as an argument of that name has them.
pub(crate) fn seconds(value: f64, name: &str) -> Result<Duration, Failure> {
    Duration::try_from_secs_f64(value).map_err(|_| {
        Failure::value(format!("{name}: {value} s; expected seconds that are finite and not negative"))
    })
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
