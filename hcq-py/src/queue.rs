//! Recording work on queues, and handing it over.

use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::failure::{Failure, leave};
use crate::gpu::Queue;
use crate::memory::Buffer;
use crate::point::{SyncPoint, Timestamp};
use crate::program::{Kernel, config};

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
        let kernel = parts.kernel.get()?;
        // SAFETY: as the crate's documentation says.
        self.lane.get()?.with(py, |queue| unsafe { queue.launch(&kernel, shape, &args) })
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
        self.lane
            .get()?
            .with(py, |queue| queue.copy(&copy.source, copy.from, &copy.target, copy.to, copy.size))
    }

    /// Records a barrier: work recorded later starts after everything recorded so far, and sees its writes.
    fn barrier(&self, py: Python<'_>) -> Result<(), Failure> {
        self.lane.get()?.with(py, |queue| {
            queue.barrier();
            Ok(())
        })
    }

    /// Records the taking of a time when everything recorded so far has ended.
    fn timestamp(&self, py: Python<'_>) -> Result<Timestamp, Failure> {
        let time = self.lane.get()?.with(py, hcq::Queue::timestamp)?;
        Ok(Timestamp(self.gpu.hold("timestamp", time)?))
    }

    /// Work recorded later starts after `point`, which may be another queue's.
    fn wait_for(&self, py: Python<'_>, point: &Bound<'_, SyncPoint>) -> Result<(), Failure> {
        let point = point.get().0.get()?;
        self.lane.get()?.with(py, |queue| queue.wait_for(&point))
    }

    /// Hands everything recorded to the GPU. Returns a point to wait for.
    fn submit(&self, py: Python<'_>) -> Result<SyncPoint, Failure> {
        let point = self.lane.get()?.with(py, hcq::Queue::submit)?;
        Ok(SyncPoint(self.gpu.hold("point", point)?))
    }

    /// Discards what was not submitted, and waits for what was, at most the device's patience; later uses are errors. A
    /// fault or a time-out of work that no call has waited for is raised; it is closed then too. Closing twice is no
    /// error.
    fn close(&self) -> Result<(), Failure> {
        drop(self.lane.take());
        self.gpu.unseen.say()
    }

    /// Whether it, or its device, is closed.
    #[getter]
    fn closed(&self) -> bool {
        self.lane.is_closed()
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// Closes it, as `close` does. Where an exception ends the block, that is the one that is seen.
    #[pyo3(signature = (*ended))]
    fn __exit__(&self, ended: &Bound<'_, PyTuple>) -> Result<(), Failure> {
        leave(ended, self.close())
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
