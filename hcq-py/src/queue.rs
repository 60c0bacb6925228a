//! Queues, points of their work, and times that the GPU takes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hcq::{Error, QueueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::buffer::Buffer;
use crate::failure::Failure;
use crate::lane::{Gpu, Lane};
use crate::program::{Kernel, config};

/// Longest time for which a wait does not look for signals, Ctrl-C among them.
const LOOK_EVERY: Duration = Duration::from_millis(50);

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

/// Hands work to the GPU. Of `Device.queue` and `Device.copy_queue`.
#[pyclass(frozen, weakref, module = "hcq._hcq")]
#[derive(Debug)]
pub(crate) struct Queue {
    lane: Arc<Lane>,
}

impl Queue {
    pub fn new(queue: hcq::Queue) -> Self {
        Self { lane: Arc::new(Lane::new(queue)) }
    }
}

#[pymethods]
impl Queue {
    /// Records a launch. Launches without a barrier between them may overlap.
    #[pyo3(signature = (kernel, grid, block, *args, shared = 0, blocks_per_sm = 0))]
    #[expect(clippy::too_many_arguments, reason = "those of a launch")]
    fn launch(
        &self,
        py: Python<'_>,
        kernel: &Bound<'_, Kernel>,
        grid: &Bound<'_, PyAny>,
        block: &Bound<'_, PyAny>,
        args: &Bound<'_, PyTuple>,
        shared: u32,
        blocks_per_sm: u32,
    ) -> Result<(), Failure> {
        let parts = &kernel.get().0;
        let (args, shape) = (parts.signature.args(args)?, config(grid, block, shared, blocks_per_sm)?);
        // SAFETY: as the crate's documentation says.
        self.lane.with(py, |queue| unsafe { queue.launch(&parts.kernel, shape, &args) })
    }

    /// Records a copy of `size` bytes, by default to the end of the shorter rest.
    #[pyo3(signature = (source, target, source_offset = 0, target_offset = 0, size = None))]
    fn copy(
        &self,
        py: Python<'_>,
        source: &Bound<'_, Buffer>,
        target: &Bound<'_, Buffer>,
        source_offset: u64,
        target_offset: u64,
        size: Option<u64>,
    ) -> Result<(), Failure> {
        let copy = Copy::new(source, target, source_offset, target_offset, size)?;
        self.lane.with(py, |queue| queue.copy(&copy.source, copy.from, &copy.target, copy.to, copy.size))
    }

    /// Records a barrier: work recorded later starts after everything recorded so far, and sees its writes.
    fn barrier(&self, py: Python<'_>) -> Result<(), Failure> {
        self.lane.with(py, |queue| {
            queue.barrier();
            Ok(())
        })
    }

    /// Records the taking of a time when everything recorded so far has ended.
    fn timestamp(&self, py: Python<'_>) -> Result<Timestamp, Failure> {
        Ok(Timestamp(self.lane.with(py, hcq::Queue::timestamp)?))
    }

    /// Work recorded later starts after `point`, which may be another queue's.
    fn wait_for(&self, py: Python<'_>, point: &Bound<'_, SyncPoint>) -> Result<(), Failure> {
        let point = &point.get().0;
        self.lane.with(py, |queue| queue.wait_for(point))
    }

    /// Hands everything recorded to the GPU. Returns a point to wait for.
    fn submit(&self, py: Python<'_>) -> Result<SyncPoint, Failure> {
        Ok(SyncPoint::new(self.lane.with(py, hcq::Queue::submit)?))
    }
}

/// A copy between buffers.
pub(crate) struct Copy {
    pub source: hcq::Buffer,
    pub from: u64,
    pub target: hcq::Buffer,
    pub to: u64,
    pub size: u64,
}

impl Copy {
    pub fn new(
        source: &Bound<'_, Buffer>,
        target: &Bound<'_, Buffer>,
        from: u64,
        to: u64,
        size: Option<u64>,
    ) -> Result<Self, Failure> {
        let (source, target) = (source.get().get()?, target.get().get()?);
        let rest = source.len().saturating_sub(from).min(target.len().saturating_sub(to));
        Ok(Self { source, from, target, to, size: size.unwrap_or(rest) })
    }
}

/// A point in a queue's work.
#[pyclass(frozen, module = "hcq._hcq")]
#[derive(Debug)]
pub(crate) struct SyncPoint(pub(crate) hcq::SyncPoint);

impl SyncPoint {
    pub fn new(point: hcq::SyncPoint) -> Self {
        Self(point)
    }
}

#[pymethods]
impl SyncPoint {
    /// Waits for everything submitted up to the point, at most `timeout` seconds. Ctrl-C ends the wait.
    #[pyo3(signature = (timeout = 60.0))]
    fn wait(&self, py: Python<'_>, timeout: f64) -> Result<(), Failure> {
        let limit = Duration::try_from_secs_f64(timeout);
        let limit = limit.map_err(|_| {
            Failure::value(format!("the timeout is {timeout} s: every wait has one that is not negative"))
        })?;
        let began = Instant::now();
        loop {
            let rest = limit.saturating_sub(began.elapsed());
            match py.detach(|| self.0.wait(rest.min(LOOK_EVERY))) {
                Err(Error::Queue(QueueError::Timeout { wanted, reached, explanation, .. })) => {
                    py.check_signals()?;
                    let waited = if limit.is_zero() { limit } else { began.elapsed() };
                    if waited >= limit {
                        let error = QueueError::Timeout { waited, wanted, reached, explanation };
                        return Err(Error::Queue(error).into());
                    }
                }
                ended => return Ok(ended?),
            }
        }
    }

    /// Whether everything submitted up to the point is done.
    #[getter]
    fn done(&self) -> Result<bool, Failure> {
        Ok(self.0.is_done()?)
    }
}

/// A time that the GPU takes.
#[pyclass(frozen, module = "hcq._hcq")]
#[derive(Debug)]
pub(crate) struct Timestamp(pub(crate) hcq::Timestamp);

#[pymethods]
impl Timestamp {
    /// The GPU's clock in ns when the work before had ended; None before. Of a timestamp in a graph: of the last
    /// replay that came so far.
    #[getter]
    fn ns(&self) -> Option<u64> {
        self.0.ns()
    }
}
