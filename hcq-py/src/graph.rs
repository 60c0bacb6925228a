//! Graphs: launches and copies that are recorded once and replayed with one doorbell.

use std::sync::Arc;

use hcq::NodeId;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::args::Signature;
use crate::away::away;
use crate::failure::Failure;
use crate::gpu::{Gpu, Queue};
use crate::held::Held;
use crate::memory::Buffer;
use crate::point::{SyncPoint, Timestamp};
use crate::program::{Kernel, config};
use crate::queue::Copy;

/// A graph that is being recorded. Of `Device.graph`.
#[pyclass(frozen, module = "hcq._hcq")]
#[derive(Debug)]
pub(crate) struct GraphBuilder {
    gpu: Arc<Gpu>,
    /// None in it once it is built.
    builder: Held<Option<hcq::GraphBuilder>>,
}

impl GraphBuilder {
    pub fn new(gpu: &Arc<Gpu>) -> Result<Self, Failure> {
        let builder = gpu.hold("graph builder", Some(gpu.device()?.graph()))?;
        Ok(Self { gpu: gpu.clone(), builder })
    }

    fn with<R>(
        &self,
        record: impl FnOnce(&mut hcq::GraphBuilder) -> Result<R, hcq::Error>,
    ) -> Result<R, Failure> {
        self.builder.with(|builder| Ok(record(builder.as_mut().ok_or_else(built)?)?))
    }
}

fn built() -> Failure {
    Failure::value("the graph is built: record another one")
}

#[pymethods]
impl GraphBuilder {
    /// Adds a launch. It may overlap others, but for those before the last barrier and those in `after`. With `early`
    /// it may begin while that launch still runs, as hcq::GraphBuilder::launch_early describes.
    #[pyo3(signature = (kernel, grid, block, *args, shared = 0, blocks_per_sm = 0, after = None, early = None))]
    #[expect(clippy::too_many_arguments, reason = "those of a launch")]
    fn launch(
        &self,
        kernel: &Bound<'_, Kernel>,
        grid: &Bound<'_, PyAny>,
        block: &Bound<'_, PyAny>,
        args: &Bound<'_, PyTuple>,
        shared: u32,
        blocks_per_sm: u32,
        after: Option<Vec<Bound<'_, Node>>>,
        early: Option<Bound<'_, Node>>,
    ) -> Result<Node, Failure> {
        let parts = &kernel.get().0;
        let (args, shape) = (parts.signature.args(args)?, config(grid, block, shared, blocks_per_sm)?);
        let kernel = parts.kernel.get()?;
        let after = after.unwrap_or_default().iter().map(|node| node.get().id).collect::<Vec<NodeId>>();
        if early.is_some() && !after.is_empty() {
            return Err(Failure::value("a launch has `after` or `early`, not both"));
        }
        // SAFETY: as the crate's documentation says.
        let id = self.with(|builder| unsafe {
            match early {
                Some(node) => builder.launch_early(&kernel, shape, &args, node.get().id),
                None if after.is_empty() => builder.launch(&kernel, shape, &args),
                None => builder.launch_after(&kernel, shape, &args, &after),
            }
        })?;
        Ok(Node { id, signature: Some(parts.signature.clone()) })
    }

    /// Adds a copy of `size` bytes, by default to the end of the shorter rest.
    #[pyo3(signature = (source, target, source_offset = 0, target_offset = 0, size = None))]
    fn copy(
        &self,
        source: &Bound<'_, Buffer>,
        target: &Bound<'_, Buffer>,
        source_offset: u64,
        target_offset: u64,
        size: Option<u64>,
    ) -> Result<Node, Failure> {
        let copy = Copy::new(source, target, source_offset, target_offset, size)?;
        let id =
            self.with(|builder| builder.copy(&copy.source, copy.from, &copy.target, copy.to, copy.size))?;
        Ok(Node { id, signature: None })
    }

    /// Adds a barrier: work added later starts after everything added so far, and sees its writes.
    fn barrier(&self) -> Result<(), Failure> {
        self.with(|builder| {
            builder.barrier();
            Ok(())
        })
    }

    /// Adds the taking of a time when everything added so far has ended; each replay takes it anew.
    fn timestamp(&self) -> Result<Timestamp, Failure> {
        let time = self.with(hcq::GraphBuilder::timestamp)?;
        Ok(Timestamp(self.gpu.hold("timestamp", time)?))
    }

    /// Encodes the graph into GPU memory.
    fn build(&self, py: Python<'_>) -> Result<Graph, Failure> {
        let builder = self.builder.with(|builder| builder.take().ok_or_else(built))?;
        let graph = Arc::new(away(py, || builder.build())?);
        Ok(Graph { launches: graph.launches(), graph: self.gpu.hold("graph", graph)?, gpu: self.gpu.clone() })
    }
}

/// A node of a graph.
#[pyclass(frozen, module = "hcq._hcq")]
#[derive(Debug)]
pub(crate) struct Node {
    id: NodeId,
    /// Of a launch.
    signature: Option<Arc<Signature>>,
}

#[pymethods]
impl Node {
    fn __repr__(&self) -> String {
        format!("<{}>", self.id)
    }
}

/// A recorded list of launches, copies and barriers. Of `GraphBuilder.build`.
#[pyclass(frozen, weakref, module = "hcq._hcq")]
#[derive(Debug)]
pub(crate) struct Graph {
    gpu: Arc<Gpu>,
    graph: Held<Arc<hcq::Graph>>,
    launches: usize,
}

#[pymethods]
impl Graph {
    /// Runs the graph after everything recorded on the queue, by default the device's own. Returns a point to wait for.
    #[pyo3(signature = (queue = None))]
    fn replay(&self, py: Python<'_>, queue: Option<&Bound<'_, Queue>>) -> Result<SyncPoint, Failure> {
        let (lane, graph) = (self.gpu.lane(py, queue)?, self.graph.get()?);
        let point = lane.with(py, |queue| queue.replay(&graph))?;
        Ok(SyncPoint(self.gpu.hold("point", point)?))
    }

    /// Replaces arguments of a launch, from the one of number `index` on, for all later replays.
    #[pyo3(signature = (node, index, *args))]
    fn patch(
        &self,
        py: Python<'_>,
        node: &Bound<'_, Node>,
        index: usize,
        args: &Bound<'_, PyTuple>,
    ) -> Result<(), Failure> {
        let (node, graph) = (node.get(), self.graph.get()?);
        let args = match &node.signature {
            Some(signature) => signature.patch(index, args)?,
            // The library says that it is no launch.
            None => hcq::Args::new(),
        };
        // SAFETY: as the crate's documentation says.
        Ok(away(py, || unsafe { graph.patch_args(node.id, index, &args) })?)
    }

    /// Number of launches.
    #[getter]
    fn launches(&self) -> usize {
        self.launches
    }

    /// Gives the memory back, once the replays have ended; later uses are errors. Closing twice is no error.
    fn close(&self, py: Python<'_>) {
        let graph = self.graph.take();
        away(py, || drop(graph));
    }

    /// Whether it, or its device, is closed.
    #[getter]
    fn closed(&self) -> bool {
        self.graph.is_closed()
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// Closes it.
    #[pyo3(signature = (*_ended))]
    fn __exit__(&self, py: Python<'_>, _ended: &Bound<'_, PyTuple>) {
        self.close(py);
    }
}
