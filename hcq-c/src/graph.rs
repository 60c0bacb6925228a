//! Graphs: launches and copies that are recorded once and replayed with one doorbell.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use hcq::{Graph, GraphBuilder, NodeId};

use crate::args::{self, hcq_args};
use crate::buffer::hcq_buffer;
use crate::call::{array, call, put};
use crate::device::hcq_device;
use crate::failure::Failure;
use crate::handle::{Handle, exclusive, free, get, hand_out, take};
use crate::launch::{hcq_launch_config, shape};
use crate::point::hcq_timestamp;
use crate::program::hcq_kernel;
use crate::registry::{Kind, Registry};
use crate::status::hcq_status;

/// A graph that is being recorded. One thread uses it at a time.
#[allow(non_camel_case_types, reason = "the name is that of the header")]
#[derive(Debug)]
pub struct hcq_graph_builder {
    _private: (),
}

impl Handle for hcq_graph_builder {
    type Object = Mutex<Option<Building>>;

    fn registry() -> &'static Registry<Self::Object> {
        static ALL: Registry<Mutex<Option<Building>>> = Registry::new(Kind::Builder);
        &ALL
    }
}

/// A recorded list of launches, copies and barriers.
#[allow(non_camel_case_types, reason = "the name is that of the header")]
#[derive(Debug)]
pub struct hcq_graph {
    _private: (),
}

impl Handle for hcq_graph {
    type Object = Built;

    fn registry() -> &'static Registry<Built> {
        static ALL: Registry<Built> = Registry::new(Kind::Graph);
        &ALL
    }
}

/// A node of a graph. A value, which nothing frees.
#[allow(non_camel_case_types, reason = "the name is that of the header")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct hcq_node {
    /// The graph's number.
    pub graph: u64,
    /// The node's number among its nodes.
    pub index: u64,
}

/// The nodes of a graph by their numbers in C.
#[derive(Debug)]
struct Nodes {
    graph: u64,
    ids: Vec<NodeId>,
}

impl Nodes {
    fn find(&self, node: hcq_node) -> Result<NodeId, Failure> {
        let at = usize::try_from(node.index).ok().filter(|_| node.graph == self.graph);
        at.and_then(|at| self.ids.get(at)).copied().ok_or_else(|| {
            let hcq_node { graph, index } = node;
            let text = format!("node {index} of graph {graph} is not part of graph {}", self.graph);
            Failure::new(hcq_status::HCQ_ERROR_LAUNCH_FOREIGN_NODE, text)
        })
    }

    fn add(&mut self, id: NodeId) -> hcq_node {
        self.ids.push(id);
        hcq_node { graph: self.graph, index: self.ids.len() as u64 - 1 }
    }
}

/// A graph under construction.
#[derive(Debug)]
pub(crate) struct Building {
    builder: GraphBuilder,
    nodes: Nodes,
}

/// A graph, ready to be replayed.
#[derive(Debug)]
pub(crate) struct Built {
    graph: Graph,
    nodes: Nodes,
}

impl Built {
    pub fn graph(&self) -> &Graph {
        &self.graph
    }
}

/// The answer for a builder that was built meanwhile, by another thread.
fn built() -> Failure {
    Failure::new(hcq_status::HCQ_ERROR_HANDLE_FREED, "the graph builder was freed before")
}

fn with<R>(
    builder: *const hcq_graph_builder,
    use_it: impl FnOnce(&mut Building) -> Result<R, Failure>,
) -> Result<R, Failure> {
    let builder = get(builder)?;
    let mut building = exclusive(&builder, "graph builder")?;
    use_it(building.as_mut().ok_or_else(built)?)
}

/// Adds a node, and writes its number where that is wanted.
///
/// # Safety
/// `node` is null, or valid for the write of a node.
unsafe fn add(
    builder: *const hcq_graph_builder,
    node: *mut hcq_node,
    add: impl FnOnce(&mut Building) -> Result<NodeId, Failure>,
) -> Result<(), Failure> {
    let added = with(builder, |building| {
        let id = add(building)?;
        Ok(building.nodes.add(id))
    })?;
    match node.is_null() {
        true => Ok(()),
        // SAFETY: the caller's promise.
        false => unsafe { put(node, "node", added) },
    }
}

/// Starts to record a graph.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hcq_graph_begin(
    device: *const hcq_device,
    builder: *mut *mut hcq_graph_builder,
) -> hcq_status {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    // SAFETY: the caller's promise.
    call(|| unsafe {
        hand_out(builder, || {
            let builder = get(device)?.graph();
            let nodes = Nodes { graph: NEXT.fetch_add(1, Ordering::Relaxed), ids: Vec::new() };
            Ok(Mutex::new(Some(Building { builder, nodes })))
        })
    })
}

/// Frees a graph that is not to be built. `NULL` is no error.
#[unsafe(no_mangle)]
pub extern "C" fn hcq_graph_builder_free(builder: *mut hcq_graph_builder) -> hcq_status {
    free(builder)
}

/// Adds a launch, which every replay makes. `args` may be `NULL` for none, `node` where it is not wanted. Buffers in
/// `args` stay as long as the graph, or until a patch replaces their addresses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hcq_graph_launch(
    builder: *mut hcq_graph_builder,
    kernel: *const hcq_kernel,
    config: *const hcq_launch_config,
    args: *const hcq_args,
    node: *mut hcq_node,
) -> hcq_status {
    // SAFETY: the caller's promise, for the pointers and for the launch.
    call(|| unsafe {
        add(builder, node, |building| {
            let (kernel, config) = (get(kernel)?, shape(config)?);
            args::with(args, |args| Ok(building.builder.launch(&kernel, config, args)?))
        })
    })
}

/// Adds a launch that starts when the `count` nodes at `after`, and everything before the last barrier, have ended.
/// It may overlap all others.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hcq_graph_launch_after(
    builder: *mut hcq_graph_builder,
    kernel: *const hcq_kernel,
    config: *const hcq_launch_config,
    args: *const hcq_args,
    after: *const hcq_node,
    count: usize,
    node: *mut hcq_node,
) -> hcq_status {
    // SAFETY: the caller's promise, for the pointers and for the launch.
    call(|| unsafe {
        add(builder, node, |building| {
            let (kernel, config) = (get(kernel)?, shape(config)?);
            let after = array(after, count, "after")?.iter().map(|node| building.nodes.find(*node));
            let after = after.collect::<Result<Vec<_>, _>>()?;
            args::with(args, |args| Ok(building.builder.launch_after(&kernel, config, args, &after)?))
        })
    })
}

/// Adds a launch that may begin while the launch `after` still runs (programmatic dependent launch), where the GPU
/// can do that. Its kernel waits at `griddepcontrol.wait`, and before that touches nothing that work before it
/// in the graph writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hcq_graph_launch_early(
    builder: *mut hcq_graph_builder,
    kernel: *const hcq_kernel,
    config: *const hcq_launch_config,
    args: *const hcq_args,
    after: hcq_node,
    node: *mut hcq_node,
) -> hcq_status {
    // SAFETY: the caller's promise, for the pointers and for the launch.
    call(|| unsafe {
        add(builder, node, |building| {
            let (kernel, config, after) = (get(kernel)?, shape(config)?, building.nodes.find(after)?);
            args::with(args, |args| Ok(building.builder.launch_early(&kernel, config, args, after)?))
        })
    })
}

/// A barrier: work added later starts after everything added so far has ended, and sees its writes.
#[unsafe(no_mangle)]
pub extern "C" fn hcq_graph_barrier(builder: *mut hcq_graph_builder) -> hcq_status {
    call(|| {
        with(builder, |building| {
            building.builder.barrier();
            Ok(())
        })
    })
}

/// Adds a copy of `len` bytes, as `hcq_queue_copy` records one. `node` may be `NULL`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hcq_graph_copy(
    builder: *mut hcq_graph_builder,
    src: *const hcq_buffer,
    src_offset: u64,
    dst: *const hcq_buffer,
    dst_offset: u64,
    len: u64,
    node: *mut hcq_node,
) -> hcq_status {
    // SAFETY: the caller's promise.
    call(|| unsafe {
        add(builder, node, |building| {
            Ok(building.builder.copy(&*get(src)?, src_offset, &*get(dst)?, dst_offset, len)?)
        })
    })
}

/// Adds the taking of a timestamp when everything added so far has ended; each replay takes it anew.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hcq_graph_timestamp(
    builder: *mut hcq_graph_builder,
    timestamp: *mut *mut hcq_timestamp,
) -> hcq_status {
    call(|| {
        with(builder, |building| {
            // SAFETY: the caller's promise.
            unsafe { hand_out(timestamp, || Ok(building.builder.timestamp()?)) }
        })
    })
}

/// The recording of a builder, whose handle goes.
fn taken(builder: *mut hcq_graph_builder) -> Result<Building, Failure> {
    let object = get(builder)?;
    let building = exclusive(&object, "graph builder")?.take();
    take(builder)?;
    building.ok_or_else(built)
}

/// Encodes a graph into GPU memory. Its builder is freed, whether the call succeeds or not, unless another thread is in
/// a call with it (`HCQ_ERROR_BUSY`).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hcq_graph_build(
    builder: *mut hcq_graph_builder,
    graph: *mut *mut hcq_graph,
) -> hcq_status {
    // SAFETY: the caller's promise.
    call(|| unsafe {
        // Before the place for the graph is looked at: the builder goes in any case.
        let building = taken(builder);
        hand_out(graph, || {
            let Building { builder: recorded, nodes } = building?;
            Ok(Built { graph: recorded.build()?, nodes })
        })
    })
}

/// Frees a graph; replays that were started go on. `NULL` is no error.
#[unsafe(no_mangle)]
pub extern "C" fn hcq_graph_free(graph: *mut hcq_graph) -> hcq_status {
    free(graph)
}

/// The number of launches in a graph.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hcq_graph_launches(graph: *const hcq_graph, count: *mut usize) -> hcq_status {
    // SAFETY: the caller's promise.
    call(|| unsafe { put(count, "count", get(graph)?.graph.launches()) })
}

/// Replaces arguments of a launch by those of `args`, from the one of number `index` on, for all later replays; those
/// that were started keep theirs. Each is replaced by one of its width. What holds for the arguments of
/// `hcq_queue_launch` holds here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hcq_graph_patch_args(
    graph: *const hcq_graph,
    node: hcq_node,
    index: usize,
    args: *const hcq_args,
) -> hcq_status {
    call(|| {
        let built = get(graph)?;
        let node = built.nodes.find(node)?;
        // SAFETY: the caller's promise.
        args::with(args, |args| Ok(unsafe { built.graph.patch_args(node, index, args) }?))
    })
}
