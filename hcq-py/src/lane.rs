//! A queue that threads of Python share.

use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use hcq::Error;
use pyo3::prelude::*;

use crate::away::{away, patiently};
use crate::failure::Failure;

/// A queue, which one thread uses at a time; another one waits.
#[derive(Debug)]
pub(crate) struct Lane {
    /// The process that opened it.
    owner: u32,
    /// Time for which its calls wait for room.
    patience: Duration,
    /// Taken when it is dropped.
    queue: Mutex<Option<hcq::Queue>>,
    /// Where the drop leaves why the work did not end.
    unseen: Arc<Unseen>,
}

/// Why work did not end that no call has waited for. Locked while the interpreter is held or ends, and not longer.
#[derive(Debug, Default)]
pub(crate) struct Unseen(Mutex<Option<Error>>);

impl Unseen {
    /// The failure that has not been said yet, as an error.
    pub fn say(&self) -> Result<(), Failure> {
        match self.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }
}

impl Lane {
    pub fn new(queue: hcq::Queue, patience: Duration, unseen: &Arc<Unseen>) -> Self {
        Self { owner: std::process::id(), patience, queue: Mutex::new(Some(queue)), unseen: unseen.clone() }
    }

    /// Shows the queue to `work`, without the interpreter. Where it ends with a time-out, as there is no room, signals
    /// are looked at, and it is done again.
    pub fn with<R: Send>(
        &self,
        py: Python<'_>,
        mut work: impl FnMut(&mut hcq::Queue) -> Result<R, Error> + Send,
    ) -> Result<R, Failure> {
        patiently(py, self.patience, |part| self.exclusive(part, &mut work))
    }

    /// Shows the queue to `work`, whose waits take at most `part`; none where another thread has it for longer.
    fn exclusive<R>(
        &self,
        part: Duration,
        work: &mut impl FnMut(&mut hcq::Queue) -> Result<R, Error>,
    ) -> Result<Option<R>, Error> {
        let began = Instant::now();
        loop {
            let mut queue = match self.queue.try_lock() {
                Ok(queue) => queue,
                // A panic in the library: the queue is as it was left.
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => {
                    // In a fork the thread that holds it may be none of this process.
                    let process = std::process::id();
                    if process != self.owner {
                        return Err(Error::Forked { owner: self.owner, process });
                    }
                    if began.elapsed() > part {
                        return Ok(None);
                    }
                    std::thread::sleep(Duration::from_micros(20));
                    continue;
                }
            };
            let queue = queue.as_mut().ok_or(Error::Queue(hcq::QueueError::Discarded))?;
            queue.set_patience(part);
            return work(queue).map(Some);
        }
    }
}

impl Drop for Lane {
    /// Waits for the work, at most the device's patience: without the interpreter.
    fn drop(&mut self) {
        let queue = self.queue.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        // While the interpreter ends nothing can be asked of it.
        let queue = Mutex::new(queue);
        let end = || queue.lock().ok().and_then(|mut queue| queue.take()).map_or(Ok(()), hcq::Queue::close);
        let keep = |ended: Result<(), Error>| {
            if let Err(error) = ended {
                self.unseen.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            }
        };
        if Python::try_attach(|py| keep(away(py, end))).is_none() {
            keep(end());
        }
    }
}
