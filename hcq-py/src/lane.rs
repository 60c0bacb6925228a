//! A queue that threads of Python share.

use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::Duration;

use hcq::Error;
use pyo3::prelude::*;

use crate::away::away;
use crate::failure::Failure;

/// An open device, with the queue of launches that name none.
#[derive(Debug)]
pub(crate) struct Gpu {
    pub device: hcq::Device,
    lane: Mutex<Option<Arc<Lane>>>,
}

impl Gpu {
    pub fn new(device: hcq::Device) -> Self {
        Self { device, lane: Mutex::new(None) }
    }

    /// The queue of launches that name none. Held by the interpreter's lock from the first look to the last.
    pub fn lane(&self, _py: Python<'_>) -> Result<Arc<Lane>, Failure> {
        let mut lane = self.lane.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lane) = &*lane {
            return Ok(lane.clone());
        }
        Ok(lane.insert(Arc::new(Lane::new(self.device.queue()?))).clone())
    }
}

/// A queue, which one thread uses at a time; another one waits.
#[derive(Debug)]
pub(crate) struct Lane {
    /// The process that opened it.
    owner: u32,
    /// Taken when it is dropped.
    queue: Mutex<Option<hcq::Queue>>,
}

impl Lane {
    pub fn new(queue: hcq::Queue) -> Self {
        Self { owner: std::process::id(), queue: Mutex::new(Some(queue)) }
    }

    /// Shows the queue to `work`, without the interpreter.
    pub fn with<R: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut hcq::Queue) -> Result<R, Error> + Send,
    ) -> Result<R, Failure> {
        Ok(away(py, || self.exclusive(work))?)
    }

    fn exclusive<R>(&self, work: impl FnOnce(&mut hcq::Queue) -> Result<R, Error>) -> Result<R, Error> {
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
                    std::thread::sleep(Duration::from_micros(20));
                    continue;
                }
            };
            return match &mut *queue {
                Some(queue) => work(queue),
                None => Err(Error::Queue(hcq::QueueError::Discarded)),
            };
        }
    }
}

impl Drop for Lane {
    /// Waits for the work, at most the device's patience: without the interpreter.
    fn drop(&mut self) {
        let queue = self.queue.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        // While the interpreter ends nothing can be asked of it.
        let queue = Mutex::new(queue);
        let end = || drop(queue.lock().map(|mut queue| queue.take()));
        if Python::try_attach(|py| away(py, end)).is_none() {
            end();
        }
    }
}

/// Hands work to the GPU. Of `Device.queue` and `Device.copy_queue`.
#[pyclass(frozen, weakref, module = "hcq._hcq")]
#[derive(Debug)]
pub(crate) struct Queue {
    pub lane: Arc<Lane>,
}

impl Queue {
    pub fn new(queue: hcq::Queue) -> Self {
        Self { lane: Arc::new(Lane::new(queue)) }
    }
}

/// The queue that is named, or the device's own.
pub(crate) fn lane(
    py: Python<'_>,
    gpu: &Gpu,
    queue: Option<&Bound<'_, Queue>>,
) -> Result<Arc<Lane>, Failure> {
    match queue {
        Some(queue) => Ok(queue.get().lane.clone()),
        None => gpu.lane(py),
    }
}
