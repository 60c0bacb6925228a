//! An open device: what was made of it, and its end.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;

use crate::away::{apart, away};
use crate::failure::Failure;
use crate::held::{Close, Held, closed};
use crate::lane::{Lane, Unseen};

/// An open device, with the queue of launches that name none. Its locks are held while the interpreter is.
#[derive(Debug)]
pub(crate) struct Gpu {
    device: Held<hcq::Device>,
    /// Time for which calls without a deadline wait.
    pub patience: Duration,
    lane: Mutex<Option<Arc<Lane>>>,
    made: Mutex<Made>,
    /// Of queues that are gone.
    pub unseen: Arc<Unseen>,
    /// Views of other objects on its buffers.
    views: AtomicUsize,
}

/// The objects that were made of a device, as far as they live.
#[derive(Default)]
struct Made(Vec<Weak<dyn Close>>);

impl std::fmt::Debug for Made {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} objects", self.0.len())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Gpu {
    pub fn new(device: hcq::Device, patience: Duration) -> Self {
        let (lane, made, views) = (Mutex::default(), Mutex::default(), AtomicUsize::new(0));
        let unseen = Arc::default();
        Self { device: Held::new("device", device), patience, lane, made, unseen, views }
    }

    /// The device of the library.
    pub fn device(&self) -> Result<hcq::Device, Failure> {
        self.device.get()
    }

    /// Whether it is closed.
    pub fn is_closed(&self) -> bool {
        self.device.is_closed()
    }

    /// Holds what was made of the device until that is closed.
    pub fn hold<T: Send + 'static>(&self, what: &'static str, object: T) -> Result<Held<T>, Failure> {
        // It may have been closed by another thread while the object was made.
        if self.device.is_closed() {
            return Err(closed("device"));
        }
        let held = Held::new(what, object);
        let made = &mut lock(&self.made).0;
        if made.len() == made.capacity() {
            made.retain(|made| made.strong_count() > 0);
        }
        made.push(Arc::downgrade(&held.for_device()));
        Ok(held)
    }

    /// One view more of a buffer.
    pub fn view(&self) {
        self.views.fetch_add(1, Ordering::Relaxed);
    }

    /// One view less.
    pub fn end_view(&self) {
        self.views.fetch_sub(1, Ordering::Relaxed);
    }

    /// The queue that is named, or the device's own.
    pub fn lane(&self, py: Python<'_>, queue: Option<&Bound<'_, Queue>>) -> Result<Arc<Lane>, Failure> {
        if let Some(queue) = queue {
            return queue.get().lane.get();
        }
        if let Some(lane) = &*lock(&self.lane) {
            return Ok(lane.clone());
        }
        let device = self.device()?;
        let opened = apart(py, move || device.queue())?;
        if self.device.is_closed() {
            return Err(closed("device"));
        }
        // Another thread may have been faster.
        let opened = || Arc::new(Lane::new(opened, self.patience, &self.unseen));
        Ok(lock(&self.lane).get_or_insert_with(opened).clone())
    }

    /// Closes the device and all that was made of it; refused while there are views. Waits for the work of its queues,
    /// at most the device's patience; an error is why work did not end that no call has said.
    pub fn close(&self, py: Python<'_>) -> Result<(), Failure> {
        let views = self.views.load(Ordering::Relaxed);
        if views > 0 {
            let text = format!(
                "buffers of the device have {views} views (memoryview, numpy, torch): drop them first"
            );
            return Err(PyBufferError::new_err(text).into());
        }
        let device = self.device.take();
        let made = std::mem::take(&mut lock(&self.made).0);
        let lane = lock(&self.lane).take();
        let taken: Vec<Box<dyn Send>> =
            made.iter().filter_map(Weak::upgrade).map(|made| made.take()).collect();
        away(py, || drop((lane, taken, device)));
        self.unseen.say()
    }
}

/// Hands work to the GPU. Of `Device.queue` and `Device.copy_queue`.
#[pyclass(frozen, weakref, module = "hcq._hcq")]
#[derive(Debug)]
pub(crate) struct Queue {
    /// Holds the points and the times of its work.
    pub gpu: Arc<Gpu>,
    pub lane: Held<Arc<Lane>>,
}
