//! Graphs: launches and copies encoded once into GPU memory, replayed with one doorbell.
//!
//! Nothing in a graph's commands depends on the replay; each replay adds a release of the queue's timeline
//! after them. Only arguments change, when [`Graph::patch_args`] is called: what is in flight keeps its
//! arguments, since the next replay then uses another encoding of the same graph. A graph keeps every buffer
//! whose address its next replay reads; one that was patched out stays in use until the replays so far have
//! ended.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use crate::error::{Error, LaunchError};
use crate::launch::qmd_cache::{Launch, QmdCache};
use crate::objects::args::Args;
use crate::objects::buffer::Buffer;
use crate::objects::shared::Shared;
use crate::program::kernel::Kernel;
use crate::queue::copy_kernel;
use crate::queue::encoding::{Action, Encoding, LaunchNode, Node};
use crate::queue::named::Named;
use crate::shape::LaunchConfig;
use crate::submission::gpfifo::Segment;
use crate::submission::limbo::Keep;
use crate::submission::timeline::{Slot, Timeline, Timestamp};
use crate::submission::uses::{Replays, Submission, Uses};
use crate::sync::lock;

/// Encodings of a graph: replays with different arguments that can be in flight at once.
const ENCODINGS: usize = 3;

/// A node of one graph: no other graph of the process takes it for one of its own. `Display` gives the numbers
/// of both, which errors name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodeId {
    graph: u64,
    node: usize,
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {} of graph {}", self.node, self.graph)
    }
}

/// A graph under construction. Nodes without a [`barrier`](Self::barrier) between them may overlap, unless
/// one names the other ([`launch_after`](Self::launch_after)).
pub struct GraphBuilder {
    shared: Arc<Shared>,
    /// A number no other graph of the process has.
    number: u64,
    nodes: Vec<Node>,
    qmds: QmdCache,
    /// Of each launch.
    parameters: Vec<Vec<u8>>,
    named: Named,
}

impl fmt::Debug for GraphBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GraphBuilder({} nodes)", self.nodes.len())
    }
}

impl GraphBuilder {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let qmds = QmdCache::new(shared.target, usize::MAX);
        let (nodes, parameters, named) = (Vec::new(), Vec::new(), Named::default());
        Self { shared: shared.clone(), number, nodes, qmds, parameters, named }
    }

    fn push(&mut self, action: Action) -> NodeId {
        self.nodes.push(Node { action, after: Vec::new(), early: false });
        NodeId { graph: self.number, node: self.nodes.len() - 1 }
    }

    fn push_launch(
        &mut self,
        launch: &Launch<'_>,
        places: &[Range<usize>],
        copies: bool,
    ) -> Result<NodeId, Error> {
        let template = self.qmds.number(&self.shared.core, launch)?;
        let (kernel, config, number) = (launch.kernel.clone(), launch.config, self.parameters.len());
        self.parameters.push(launch.parameters.to_vec());
        let node = LaunchNode { kernel, config, template, number, places: places.to_vec(), copies };
        Ok(self.push(Action::Launch(node)))
    }

    /// Adds a launch.
    ///
    /// # Errors
    /// [`LaunchError::Arguments`], [`LaunchError::ArgumentCount`], [`LaunchError::ArgumentWidth`],
    /// [`LaunchError::ArgumentPlace`], [`LaunchError::Alignment`], [`LaunchError::Limit`],
    /// [`LaunchError::BlockShape`] and [`LaunchError::Qmd`] name what does not fit; [`Error::ForeignDevice`]
    /// for a kernel or a buffer of another device.
    ///
    /// # Safety
    /// As for [`Queue::launch`](crate::Queue::launch), for every replay of the graph, which safe code may
    /// start at any time. Buffers named in `args` live as long as the graph, or until a patch replaces their
    /// addresses; memory that is named in another way, by [`Args::u64`] or through a pointer in memory, is the
    /// caller's to keep.
    pub unsafe fn launch(
        &mut self,
        kernel: &Kernel,
        config: LaunchConfig,
        args: &Args,
    ) -> Result<NodeId, Error> {
        args.check(&self.shared)?;
        args.fit(kernel)?;
        let launch = Launch { kernel, config, parameters: args.as_bytes() };
        let (number, count) = (self.parameters.len(), args.places().len());
        let node = self.push_launch(&launch, args.places(), false)?;
        self.named.replace(number, 0..count, args.addresses());
        Ok(node)
    }

    /// Adds a launch that starts when the nodes `after`, and everything before the last barrier, have ended,
    /// and sees what they wrote. It may overlap all others.
    ///
    /// The GPU's scheduler starts it where descriptors can say so: after several launches by a counter, and
    /// one or (on sm_90) two launches after another. Where they cannot, the launch waits for everything added
    /// before it.
    ///
    /// # Errors
    /// As [`launch`](Self::launch); [`LaunchError::ForeignNode`] for a node of another graph.
    ///
    /// # Safety
    /// As for [`launch`](Self::launch).
    pub unsafe fn launch_after(
        &mut self,
        kernel: &Kernel,
        config: LaunchConfig,
        args: &Args,
        after: &[NodeId],
    ) -> Result<NodeId, Error> {
        let graph = self.number;
        if let Some(foreign) = after.iter().find(|node| node.graph != graph) {
            return Err(Error::Launch(LaunchError::ForeignNode {
                node: foreign.node,
                owner: foreign.graph,
                graph,
            }));
        }
        // SAFETY: the caller's promise is the same.
        let id = unsafe { self.launch(kernel, config, args) }?;
        self.nodes[id.node].after = after.iter().map(|node| node.node).collect();
        Ok(id)
    }

    /// Adds a launch that may begin while the launch `after` still runs (programmatic dependent launch): as
    /// soon as each block of that one has executed `griddepcontrol.launch_dependents` or has ended. At
    /// `griddepcontrol.wait` it stands until that one has ended, and sees what it wrote.
    ///
    /// This saves a part of the time of a link. GPUs before sm_90 have no such links, and neither has a
    /// launch that others follow: the launch then begins when the other has ended, as with
    /// [`launch_after`](Self::launch_after).
    ///
    /// # Errors
    /// As [`launch_after`](Self::launch_after); [`LaunchError::NoGridWait`] for a kernel without
    /// `griddepcontrol.wait` in its own code.
    ///
    /// # Safety
    /// As for [`launch`](Self::launch), and: every thread executes `griddepcontrol.wait`, and before that
    /// touches nothing that work before it in the graph writes, and writes nothing that such work reads.
    pub unsafe fn launch_early(
        &mut self,
        kernel: &Kernel,
        config: LaunchConfig,
        args: &Args,
        after: NodeId,
    ) -> Result<NodeId, Error> {
        // Code for SMs without the instruction has none; its launch waits for the other to end.
        if kernel.image().sm() >= 90 && !kernel.waits_for_grids() {
            return Err(Error::Launch(LaunchError::NoGridWait { kernel: kernel.name().to_owned() }));
        }
        // SAFETY: the caller's promise includes the one that is asked for here.
        let id = unsafe { self.launch_after(kernel, config, args, &[after]) }?;
        self.nodes[id.node].early = kernel.waits_for_grids();
        Ok(id)
    }

    /// A barrier: work added later starts after everything added so far has ended, and sees its writes.
    pub fn barrier(&mut self) {
        self.push(Action::Barrier);
    }

    /// Adds a copy of `len` bytes from `src_off` in `src` to `dst_off` in `dst`; the ranges must not overlap.
    ///
    /// # Errors
    /// [`MemoryError::OutOfBounds`](crate::MemoryError::OutOfBounds),
    /// [`MemoryError::Overlap`](crate::MemoryError::Overlap) and [`Error::ForeignDevice`].
    pub fn copy(
        &mut self,
        src: &Buffer,
        src_off: u64,
        dst: &Buffer,
        dst_off: u64,
        len: u64,
    ) -> Result<NodeId, Error> {
        Buffer::check_copy(&self.shared, (src, src_off), (dst, dst_off), len)?;
        let node = match copy_kernel::for_copy(&self.shared, (src, src_off), (dst, dst_off), len)? {
            Some(copy) => self.push_launch(&copy.launch(), &[], true)?,
            None => self.push(Action::Copy { from: src.va_at(src_off), to: dst.va_at(dst_off), len }),
        };
        [src, dst].into_iter().for_each(|buffer| self.named.keep(buffer));
        Ok(node)
    }

    /// Adds the taking of a timestamp when everything added so far has ended; each replay takes it anew.
    ///
    /// # Errors
    /// Those of allocating 16 bytes.
    pub fn timestamp(&mut self) -> Result<Timestamp, Error> {
        self.shared.core.here()?;
        self.shared.limbo.collect();
        let slot = Arc::new(Slot::new(&self.shared.core)?);
        self.push(Action::Timestamp(slot.clone()));
        Ok(Timestamp { slot })
    }

    /// Encodes the graph into GPU memory.
    ///
    /// # Errors
    /// Those of allocating its memory.
    pub fn build(self) -> Result<Graph, Error> {
        let Self { shared, number, nodes, mut qmds, parameters, named } = self;
        shared.core.alive()?;
        let encodings = vec![Encoding::new(&shared, &nodes, qmds.templates(), &parameters)?];
        let replays = Arc::<Replays>::default();
        let kernels = nodes.iter().filter_map(Node::launch).map(|launch| &launch.kernel);
        kernels.for_each(|kernel| kernel.uses().mark_graph(&replays));
        named.buffers().for_each(|buffer| buffer.mark_graph(&replays));
        let local_per_thread = qmds.templates().iter().map(|t| t.local_per_thread).max().unwrap_or(0);
        let state = Mutex::new(State { qmds, encodings, current: 0, parameters, named });
        Ok(Graph { shared, number, nodes, state, local_per_thread, replays })
    }
}

/// State that changes from replay to replay.
struct State {
    qmds: QmdCache,
    /// One at least.
    encodings: Vec<Encoding>,
    current: usize,
    /// Of each launch, as the next replay takes them.
    parameters: Vec<Vec<u8>>,
    /// The buffers that it names.
    named: Named,
}

impl State {
    fn encoding(&mut self) -> &mut Encoding {
        &mut self.encodings[self.current]
    }
}

/// An encoding chosen for a replay.
pub(crate) struct Replay<'a> {
    replays: &'a Replays,
    state: MutexGuard<'a, State>,
}

impl Replay<'_> {
    /// Commands in memory of their own.
    pub fn segments(&mut self) -> &[Segment] {
        &self.state.encoding().commands.segments
    }

    /// Commands to repeat.
    pub fn words(&mut self) -> &[u32] {
        &self.state.encoding().commands.words
    }

    /// The replays that have not ended: at most one of each queue.
    pub fn earlier(&self) -> Vec<Submission> {
        self.replays.pending()
    }

    /// The commands were handed over, as the submission that signals `value`.
    pub fn submitted(mut self, timeline: &Arc<Timeline>, value: u64) {
        self.state.encoding().replays.mark(timeline, value);
        self.replays.mark(timeline, value);
    }
}

/// A recorded list of launches, copies and barriers, ready to be replayed.
pub struct Graph {
    shared: Arc<Shared>,
    number: u64,
    nodes: Vec<Node>,
    state: Mutex<State>,
    local_per_thread: u32,
    replays: Arc<Replays>,
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Graph({} nodes, {} launches)", self.nodes.len(), self.launches())
    }
}

impl Graph {
    /// The commands for the next replay, with the parameters as they are now; waits at most `patience` for memory to
    /// encode them in.
    pub(crate) fn replay(&self, patience: Duration) -> Result<Replay<'_>, Error> {
        let mut guard = lock(&self.state);
        let state = &mut *guard;
        if !state.encoding().stale.is_empty() {
            if !state.encoding().replays.have_ended() {
                if state.encodings.len() < ENCODINGS {
                    let templates = state.qmds.templates();
                    let new = Encoding::new(&self.shared, &self.nodes, templates, &state.parameters)?;
                    state.encodings.push(new);
                }
                state.current = (state.current + 1) % state.encodings.len();
            }
            let encoding = &mut state.encodings[state.current];
            encoding.replays.wait(patience)?;
            encoding.refresh(&state.parameters)?;
        }
        Ok(Replay { replays: &self.replays, state: guard })
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Most bytes of local memory per thread that a launch needs.
    pub(crate) fn local_per_thread(&self) -> u32 {
        self.local_per_thread
    }

    /// The launches that were added as such.
    fn launch_nodes(&self) -> impl Iterator<Item = &LaunchNode> {
        self.nodes.iter().filter_map(Node::launch).filter(|launch| !launch.copies)
    }

    /// Number of launches.
    pub fn launches(&self) -> usize {
        self.launch_nodes().count()
    }

    /// Replaces arguments of a launch by `args`, the one of number `index` and those after it, for all later
    /// replays; those that were started before keep theirs. Arguments are counted from 0, as the launch was
    /// given them, and each is replaced by one of its width. Does not wait: only a replay does, if three with
    /// other arguments are still running.
    ///
    /// The graph keeps the buffers that `args` names until it goes, or until another patch replaces their
    /// addresses. One whose last address is replaced is used by the replays that were started, and by no other.
    ///
    /// ```
    /// # use hcq::{Args, Device, LaunchConfig, Selector};
    /// # let device = Device::open(Selector::Sim)?;
    /// # let cubin = include_bytes!("../../tests/data/01_vecadd.sm_87.cubin");
    /// # let kernel = device.load(cubin)?.kernel("vadd_f32")?;
    /// # let (a, b) = (device.alloc(128)?, device.alloc(128)?);
    /// # let (c, other) = (device.alloc(128)?, device.alloc(128)?);
    /// let mut graph = device.graph();
    /// let args = Args::new().buffer(&a).buffer(&b).buffer(&c).u32(32);
    /// // SAFETY: the kernel reads 32 floats of `a` and `b`, and writes 32 of `c`.
    /// let node = unsafe { graph.launch(&kernel, LaunchConfig::new(1, 32), &args) }?;
    /// let graph = graph.build()?;
    /// // SAFETY: `b` becomes another buffer of 32 floats.
    /// unsafe { graph.patch_args(node, 1, &Args::new().buffer(&other)) }?;
    /// # Ok::<(), hcq::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`LaunchError::ForeignNode`] for a node of another graph; [`LaunchError::NotALaunch`] for a copy;
    /// [`LaunchError::NoArgument`]; [`LaunchError::ArgumentWidth`]; [`LaunchError::Alignment`];
    /// [`Error::ForeignDevice`] for a buffer of another device; [`Error::Forked`].
    ///
    /// # Safety
    /// As for [`GraphBuilder::launch`], with the arguments as they are then: an address or a number of
    /// elements decides what the kernel writes.
    pub unsafe fn patch_args(&self, node: NodeId, index: usize, args: &Args) -> Result<(), Error> {
        self.shared.core.here()?;
        args.check(&self.shared)?;
        let NodeId { graph: owner, node } = node;
        if owner != self.number {
            return Err(Error::Launch(LaunchError::ForeignNode { node, owner, graph: self.number }));
        }
        let launch = self.nodes.get(node).and_then(Node::launch).filter(|launch| !launch.copies);
        let launch = launch.ok_or(Error::Launch(LaunchError::NotALaunch { node, graph: owner }))?;
        let places = replaced(launch, index, args)?;
        let (number, end) = (launch.number, index + places.len());
        let mut state = lock(&self.state);
        let State { encodings, parameters, named, .. } = &mut *state;
        for (place, new) in places.iter().zip(args.places()) {
            parameters[number][place.clone()].copy_from_slice(&args.as_bytes()[new.clone()]);
        }
        for encoding in encodings {
            if !encoding.stale.contains(&number) {
                encoding.stale.push(number);
            }
        }
        args.buffers().for_each(|buffer| buffer.mark_graph(&self.replays));
        let over = named.replace(number, index..end, args.addresses());
        // Under the lock: no replay starts meanwhile.
        over.iter().for_each(|buffer| buffer.unmark_graph(&self.replays));
        drop(state);
        // Outside the lock, because it may free memory.
        drop(over);
        Ok(())
    }
}

/// Where the arguments of a launch are that `args` replace, from the one of number `index` on.
fn replaced<'a>(launch: &'a LaunchNode, index: usize, args: &Args) -> Result<&'a [Range<usize>], Error> {
    let kernel = || launch.kernel.name().to_owned();
    let (count, new) = (launch.places.len(), args.places());
    let places = index.checked_add(new.len()).and_then(|end| launch.places.get(index..end));
    let places = places.ok_or_else(|| {
        Error::Launch(LaunchError::NoArgument { kernel: kernel(), index, given: new.len(), count })
    })?;
    match places.iter().zip(new).position(|(place, new)| place.len() != new.len()) {
        None => Ok(places),
        Some(i) => Err(Error::Launch(LaunchError::ArgumentWidth {
            kernel: kernel(),
            index: index + i,
            expected: places[i].len(),
            given: new[i].len(),
        })),
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if !self.shared.core.is_open_here() {
            return;
        }
        self.replays.close();
        let encodings = std::mem::take(&mut lock(&self.state).encodings);
        let slots = self.nodes.iter().filter_map(|node| match &node.action {
            Action::Timestamp(slot) => Some(slot.clone() as Keep),
            _ => None,
        });
        let kept = encodings.into_iter().flat_map(Encoding::into_memory).chain(slots);
        self.shared.limbo.retire(Uses::of_graph(&self.replays), kept);
    }
}
