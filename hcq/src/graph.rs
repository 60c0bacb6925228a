//! Graphs: launches and copies encoded once into GPU memory, replayed with one doorbell.
//!
//! Nothing in a graph's commands depends on the replay; each replay adds a release of the queue's timeline behind them.
//! Only arguments change, when [`Graph::patch_args`] is called: what is in flight keeps its arguments, since the next replay
//! then uses another encoding of the same graph.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::address::{Bytes, GpuVa};
use crate::backend::MemoryKind;
use crate::buffer::Buffer;
use crate::context::{Context, lock};
use crate::error::Error;
use crate::gpfifo::{MAX_DWORDS, Segment};
use crate::launch::{self, Args, LaunchConfig};
use crate::memory::Piece;
use crate::mover;
use crate::program::Kernel;
use crate::queue::LaunchTarget;
use crate::recorder::Recorder;
use crate::timeline::{LastReplay, Slot, Timeline, Timestamp, Uses};

/// Alignment of a QMD, and of a bank after it.
const ALIGN: u64 = 256;
/// Encodings of a graph: replays with different arguments that can be in flight at once.
const ENCODINGS: usize = 3;
/// Commands up to this many dwords go into the queue's own with each replay: one ring entry less for the GPU to fetch.
const INLINE_DWORDS: usize = 512;

/// A node of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodeId(usize);

enum Node {
    Launch {
        kernel: Kernel,
        config: LaunchConfig,
        args: Args,
        qmd: Box<qmd::Qmd>,
    },
    Barrier,
    Copy {
        source: Buffer,
        from: GpuVa,
        destination: Buffer,
        to: GpuVa,
        len: u64,
    },
    /// A copy by a kernel.
    Move {
        launch: mover::Move,
        qmd: Box<qmd::Qmd>,
        source: Buffer,
        destination: Buffer,
    },
    Timestamp(Arc<Slot>),
}

impl Node {
    /// A launch's kernel, shape, parameters and descriptor; whether it is a copy.
    fn as_launch(&self) -> Option<(&Kernel, &LaunchConfig, &[u8], &qmd::Qmd, bool)> {
        match self {
            Self::Launch { kernel, config, args, qmd } => Some((kernel, config, args.as_bytes(), qmd, false)),
            Self::Move { launch, qmd, .. } => {
                Some((&launch.kernel, &launch.config, &launch.parameters, qmd, true))
            }
            Self::Barrier | Self::Copy { .. } | Self::Timestamp(_) => None,
        }
    }

    fn buffers(&self) -> &[Buffer] {
        match self {
            Self::Launch { args, .. } => args.buffers(),
            _ => &[],
        }
    }

    /// Source and destination of a copy.
    fn ends(&self) -> Option<[&Buffer; 2]> {
        match self {
            Self::Copy { source, destination, .. } | Self::Move { source, destination, .. } => {
                Some([source, destination])
            }
            Self::Launch { .. } | Self::Barrier | Self::Timestamp(_) => None,
        }
    }
}

/// A graph under construction. Nodes without a [`barrier`](Self::barrier) between them may overlap.
pub struct GraphBuilder {
    context: Arc<Context>,
    nodes: Vec<Node>,
}

impl fmt::Debug for GraphBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GraphBuilder").field("nodes", &self.nodes.len()).finish_non_exhaustive()
    }
}

impl GraphBuilder {
    pub(crate) fn new(context: &Arc<Context>) -> Self {
        Self { context: context.clone(), nodes: Vec::new() }
    }

    fn push(&mut self, node: Node) -> NodeId {
        self.nodes.push(node);
        NodeId(self.nodes.len() - 1)
    }

    fn check_buffers(&self, buffers: &[Buffer]) -> Result<(), Error> {
        match buffers.iter().all(|b| Arc::ptr_eq(b.context(), &self.context)) {
            true => Ok(()),
            false => Err(Error::ForeignDevice { what: "buffer" }),
        }
    }

    /// Adds a launch.
    ///
    /// # Errors
    /// [`Error::Arguments`], [`Error::LaunchLimit`] and [`Error::Qmd`] name what does not fit.
    ///
    /// # Safety
    /// As for [`Queue::launch`](crate::Queue::launch), for every replay and with every patch of the arguments.
    pub unsafe fn launch(
        &mut self,
        kernel: &Kernel,
        config: LaunchConfig,
        args: &Args,
    ) -> Result<NodeId, Error> {
        self.check_buffers(args.buffers())?;
        launch::check(self.context.backend().info(), kernel, &config, args.as_bytes().len())?;
        let qmd = self.descriptor(kernel, &config)?;
        let (kernel, args) = (kernel.clone(), args.clone());
        Ok(self.push(Node::Launch { kernel, config, args, qmd }))
    }

    fn descriptor(&self, kernel: &Kernel, config: &LaunchConfig) -> Result<Box<qmd::Qmd>, Error> {
        let target = LaunchTarget::of(&self.context)?;
        let mut qmd = kernel.template(target.qmd, *config)?;
        qmd.set_grid(config.grid)
            .map_err(|source| Error::Qmd { kernel: kernel.name().to_owned(), source })?;
        Ok(Box::new(qmd))
    }

    /// What is added next starts after everything added so far has ended, and sees what it wrote.
    pub fn barrier(&mut self) {
        self.push(Node::Barrier);
    }

    /// Adds a copy of `len` bytes from `src_off` in `src` to `dst_off` in `dst`; the ranges must not overlap.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] and [`Error::ForeignDevice`].
    pub fn copy(
        &mut self,
        src: &Buffer,
        src_off: u64,
        dst: &Buffer,
        dst_off: u64,
        len: u64,
    ) -> Result<NodeId, Error> {
        self.check_buffers(&[src.clone(), dst.clone()])?;
        src.check(src_off, len)?;
        dst.check(dst_off, len)?;
        if let Some(launch) = mover::for_copy(&self.context, (src, src_off), (dst, dst_off), len)? {
            let qmd = self.descriptor(&launch.kernel, &launch.config)?;
            let (source, destination) = (src.clone(), dst.clone());
            return Ok(self.push(Node::Move { launch, qmd, source, destination }));
        }
        let at = |b: &Buffer, offset: u64| GpuVa::inside(b.va().raw() + offset);
        let (from, to) = (at(src, src_off), at(dst, dst_off));
        Ok(self.push(Node::Copy { source: src.clone(), from, destination: dst.clone(), to, len }))
    }

    /// Adds the taking of a timestamp when everything added so far has ended; each replay takes it anew.
    ///
    /// # Errors
    /// Those of allocating 16 bytes.
    pub fn timestamp(&mut self) -> Result<Timestamp, Error> {
        let slot = Arc::new(Slot::new(&self.context, 0)?);
        self.push(Node::Timestamp(slot.clone()));
        Ok(Timestamp { context: self.context.clone(), slot })
    }

    /// Encodes the graph into GPU memory.
    ///
    /// # Errors
    /// Those of allocating its memory.
    pub fn build(self) -> Result<Graph, Error> {
        self.context.alive()?;
        let target = LaunchTarget::of(&self.context)?;
        let parameters =
            self.nodes.iter().filter_map(Node::as_launch).map(|(_, _, bytes, ..)| bytes.to_vec()).collect();
        let local = self.nodes.iter().filter_map(Node::as_launch).map(|(k, ..)| k.local_per_thread()).max();
        // From here on the graph owns what is allocated, and an error gives it back.
        let graph = Graph {
            context: self.context,
            target,
            nodes: self.nodes,
            state: Mutex::new(State { encodings: Vec::new(), current: 0, parameters }),
            local_per_thread: local.unwrap_or(0),
            last: LastReplay::default(),
        };
        for node in &graph.nodes {
            if let Some((kernel, ..)) = node.as_launch() {
                kernel.uses().mark_graph(&graph.last);
            }
            for buffer in node.buffers().iter().chain(node.ends().into_iter().flatten()) {
                buffer.mark_graph(&graph.last);
            }
        }
        graph.add_encoding(&mut lock(&graph.state))?;
        Ok(graph)
    }
}

/// A graph's commands, descriptors and banks in GPU memory.
#[derive(Debug)]
struct Encoding {
    /// QMDs and constant banks.
    memory: Option<Piece>,
    /// Of each launch: offset of its parameters in `memory`.
    banks: Vec<u64>,
    /// Commands that are too many to be repeated with each replay, and where they lie.
    commands: Option<Piece>,
    segments: Vec<Segment>,
    /// All other commands.
    words: Vec<u32>,
    /// The last replay that used it.
    last: Option<(Arc<Timeline>, u64)>,
    /// Launches whose parameters have changed since they were written.
    stale: Vec<usize>,
}

impl Encoding {
    fn is_over(&self, context: &Context) -> bool {
        self.last.as_ref().is_none_or(|(timeline, value)| timeline.is_over(context, *value))
    }

    /// Brings the parameters up to date; no replay that uses this encoding is in flight.
    fn refresh(&mut self, parameters: &[Vec<u8>]) -> Result<(), Error> {
        for launch in self.stale.drain(..) {
            if let (Some(memory), Some(at), Some(bytes)) =
                (&self.memory, self.banks.get(launch), parameters.get(launch))
            {
                memory.write(*at, bytes)?;
            }
        }
        Ok(())
    }
}

/// What changes from replay to replay.
#[derive(Debug)]
pub(crate) struct State {
    encodings: Vec<Encoding>,
    current: usize,
    /// Of each launch, as they shall be in the next replay.
    parameters: Vec<Vec<u8>>,
}

/// An encoding chosen for a replay.
pub(crate) struct Replay<'a> {
    graph: &'a Graph,
    state: MutexGuard<'a, State>,
}

impl Replay<'_> {
    fn encoding(&mut self) -> Option<&mut Encoding> {
        let State { encodings, current, .. } = &mut *self.state;
        encodings.get_mut(*current)
    }

    /// Commands in memory of their own.
    pub fn segments(&mut self) -> &[Segment] {
        self.encoding().map_or(&[], |e| &e.segments)
    }

    /// Commands to repeat.
    pub fn words(&mut self) -> &[u32] {
        self.encoding().map_or(&[], |e| &e.words)
    }

    /// The commands were handed over in the submission that signals `value`.
    pub fn submitted(mut self, timeline: &Arc<Timeline>, value: u64) {
        let graph = self.graph;
        if let Some(encoding) = self.encoding() {
            encoding.last = Some((timeline.clone(), value));
        }
        *lock(&graph.last) = Some((timeline.clone(), value));
    }
}

/// A recorded list of launches, copies and barriers, ready to be replayed.
pub struct Graph {
    context: Arc<Context>,
    target: LaunchTarget,
    nodes: Vec<Node>,
    state: Mutex<State>,
    local_per_thread: u32,
    last: LastReplay,
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Graph")
            .field("launches", &self.launches())
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl Graph {
    /// Encodes the graph once more, with the present parameters, and makes that encoding the current one.
    fn add_encoding(&self, state: &mut State) -> Result<(), Error> {
        let (context, target) = (&self.context, &self.target);
        let launches = || self.nodes.iter().filter_map(Node::as_launch);
        let bank_len = |(kernel, _, bytes, ..): (&Kernel, &LaunchConfig, &[u8], &qmd::Qmd, bool)| {
            target.qmd_stride()
                + (u64::from(kernel.info().param_base) + bytes.len() as u64).next_multiple_of(ALIGN)
        };
        let memory = match launches().map(bank_len).sum() {
            0 => None,
            len => Some(context.alloc(len, MemoryKind::Command, "graph")?),
        };
        let (banks, segments, words, stale) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let encoding = Encoding { memory, banks, commands: None, segments, words, last: None, stale };
        // Owned by the graph from here on, so that an error gives the memory back.
        state.current = state.encodings.len();
        state.encodings.push(encoding);
        let State { encodings, current, parameters } = state;
        let Some(encoding) = encodings.get_mut(*current) else { return Ok(()) };
        let mut recorder = Recorder::new(context.options.chain_launches);
        let (mut offset, mut bytes) = (0, Vec::new());
        let start = encoding.memory.as_ref().map_or(0, |m| m.va().raw());
        let memory = &encoding.memory;
        let mut sink = |va: GpuVa, qmd: &qmd::Qmd| match memory {
            Some(memory) => memory.write(va.raw() - start, qmd.as_bytes()),
            None => Ok(()),
        };
        for (number, node) in self.nodes.iter().enumerate() {
            match node {
                Node::Launch { .. } | Node::Move { .. } => {
                    let (Some((kernel, config, _, qmd, copies)), Some(piece)) = (node.as_launch(), memory)
                    else {
                        continue;
                    };
                    let base = kernel.info().param_base;
                    let bank_at = offset + target.qmd_stride();
                    let parameters = parameters.get(encoding.banks.len()).map_or(&[][..], Vec::as_slice);
                    target.bank.fill(&mut bytes, config, number as u64, base, parameters);
                    let bank_len = (bytes.len() as u64).next_multiple_of(16);
                    piece.write(bank_at, &bytes)?;
                    let mut qmd = qmd.clone();
                    target
                        .set_bank(&mut qmd, piece.at(bank_at), bank_len as u32)
                        .map_err(|source| Error::Qmd { kernel: kernel.name().to_owned(), source })?;
                    match copies {
                        true => recorder.copy_by_kernel(piece.at(offset), qmd, &mut sink)?,
                        false => recorder.launch(piece.at(offset), qmd, &mut sink)?,
                    }
                    encoding.banks.push(bank_at + u64::from(base));
                    offset = bank_at + bank_len.next_multiple_of(ALIGN);
                }
                Node::Barrier => recorder.barrier(),
                Node::Copy { from, to, len, .. } => recorder.copy(*from, *to, *len),
                Node::Timestamp(slot) => recorder.timestamp(slot.va()),
            }
        }
        recorder.finish(&mut sink)?;
        let words = recorder.words().words();
        if words.len() <= INLINE_DWORDS {
            encoding.words = words.to_vec();
            return Ok(());
        }
        let piece = context.alloc(4 * words.len() as u64, MemoryKind::Command, "graph")?;
        let piece = encoding.commands.insert(piece);
        piece.write_words(0, words)?;
        for start in (0..words.len()).step_by(MAX_DWORDS) {
            let dwords = (words.len() - start).min(MAX_DWORDS) as u32;
            encoding.segments.push(Segment { va: piece.at(4 * start as u64), dwords });
        }
        Ok(())
    }

    /// The commands for the next replay, with the parameters as they are now.
    pub(crate) fn replay(&self) -> Result<Replay<'_>, Error> {
        let mut state = lock(&self.state);
        let current = state.current;
        let stale = state.encodings.get(current).is_some_and(|e| !e.stale.is_empty());
        if stale {
            if !state.encodings[current].is_over(&self.context) {
                if state.encodings.len() < ENCODINGS {
                    self.add_encoding(&mut state)?;
                } else {
                    state.current = (current + 1) % ENCODINGS;
                }
            }
            let State { encodings, current, parameters } = &mut *state;
            if let Some(encoding) = encodings.get_mut(*current) {
                if let Some((timeline, value)) = &encoding.last {
                    self.context.wait(timeline, *value, self.context.patience())?;
                }
                encoding.refresh(parameters)?;
            }
        }
        Ok(Replay { graph: self, state })
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    pub(crate) fn local_per_thread(&self) -> u32 {
        self.local_per_thread
    }

    pub(crate) fn last(&self) -> Option<(Arc<Timeline>, u64)> {
        lock(&self.last).clone()
    }

    /// Number of launches.
    pub fn launches(&self) -> usize {
        self.nodes.iter().filter(|n| matches!(n, Node::Launch { .. })).count()
    }

    /// Replaces bytes of a launch's arguments, `byte_offset` bytes into them, for all later replays; those that were
    /// started before keep theirs. Does not wait: only a replay does, if three with other arguments are still running.
    ///
    /// Buffers whose addresses are patched in are not kept alive by the graph.
    ///
    /// # Errors
    /// [`Error::NotALaunch`]; [`Error::OutOfBounds`].
    pub fn patch_args(&self, node: NodeId, byte_offset: u64, data: &[u8]) -> Result<(), Error> {
        if !matches!(self.nodes.get(node.0), Some(Node::Launch { .. })) {
            return Err(Error::NotALaunch { node: node.0 });
        }
        let launch = self.nodes[..node.0].iter().filter_map(Node::as_launch).count();
        let mut state = lock(&self.state);
        let State { encodings, parameters, .. } = &mut *state;
        let parameters = parameters.get_mut(launch).ok_or(Error::NotALaunch { node: node.0 })?;
        let (len, size) = (data.len() as u64, Bytes::new(parameters.len() as u64));
        let outside = Error::OutOfBounds { what: "arguments", offset: byte_offset, len, size };
        let range = usize::try_from(byte_offset).ok().and_then(|at| Some(at..at.checked_add(data.len())?));
        let Some(place) = range.and_then(|range| parameters.get_mut(range)) else { return Err(outside) };
        place.copy_from_slice(data);
        for encoding in encodings {
            if !encoding.stale.contains(&launch) {
                encoding.stale.push(launch);
            }
        }
        Ok(())
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let uses = Uses::default();
        uses.mark_graph(&self.last);
        let last = std::mem::replace(&mut self.last, Arc::new(Mutex::new(None)));
        drop(last);
        let encodings = std::mem::take(&mut lock(&self.state).encodings);
        let pieces = encodings.into_iter().flat_map(|e| e.memory.into_iter().chain(e.commands)).collect();
        let slots = self.nodes.iter().filter_map(|node| match node {
            Node::Timestamp(slot) => Some(slot.clone()),
            _ => None,
        });
        self.context.retire(pieces, slots.collect(), uses);
    }
}
