//! Graphs: launches and copies encoded once into GPU memory, replayed with one doorbell.
//!
//! Nothing in a graph's commands depends on the replay; each replay adds a release of the queue's timeline behind them.
//! Only arguments change, when [`Graph::patch_args`] is called.

use std::fmt;
use std::sync::{Arc, Mutex};

use crate::address::{Bytes, GpuVa};
use crate::backend::MemoryKind;
use crate::buffer::Buffer;
use crate::context::{Context, lock};
use crate::error::Error;
use crate::gpfifo::{MAX_DWORDS, Segment};
use crate::launch::{self, Args, LaunchConfig};
use crate::memory::Piece;
use crate::program::Kernel;
use crate::queue::LaunchTarget;
use crate::recorder::Recorder;
use crate::timeline::{LastReplay, Slot, Timeline, Timestamp, Uses};

/// Alignment of a QMD, and of a bank after it.
const ALIGN: u64 = 256;

/// A node of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodeId(usize);

enum Node {
    Launch { kernel: Kernel, config: LaunchConfig, args: Args, qmd: Box<qmd::Qmd> },
    Barrier,
    Copy { source: Buffer, from: GpuVa, destination: Buffer, to: GpuVa, len: u64 },
    Timestamp(Arc<Slot>),
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
        launch::check(self.context.backend().info(), kernel, &config, args)?;
        let target = LaunchTarget::of(&self.context)?;
        let mut qmd = kernel.template(target.qmd, config.block, config.dynamic_shared)?;
        qmd.set_grid(config.grid)
            .map_err(|source| Error::Qmd { kernel: kernel.name().to_owned(), source })?;
        let (kernel, args, qmd) = (kernel.clone(), args.clone(), Box::new(qmd));
        Ok(self.push(Node::Launch { kernel, config, args, qmd }))
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
        let last = LastReplay::default();
        let memory = match self.launch_bytes(&target) {
            0 => None,
            len => Some(self.context.alloc(len, MemoryKind::Command, "graph")?),
        };
        // From here on the graph owns what is allocated, and an error gives it back.
        let mut graph = Graph {
            context: self.context.clone(),
            memory,
            commands: None,
            segments: Vec::new(),
            banks: Vec::new(),
            slots: Vec::new(),
            local_per_thread: 0,
            last,
            kept: Vec::new(),
        };
        let mut recorder = Recorder::new(self.context.options.chain_launches);
        let mut offset = 0;
        let mut bytes = Vec::new();
        for (number, node) in self.nodes.iter().enumerate() {
            match node {
                Node::Launch { kernel, config, args, qmd } => {
                    let piece = graph.memory.as_ref().ok_or(Error::Discarded)?;
                    let base = kernel.info().param_base;
                    let bank_at = offset + target.qmd_stride();
                    target.bank.fill(&mut bytes, config, number as u64, base, args.as_bytes());
                    let bank_len = (bytes.len() as u64).next_multiple_of(16);
                    piece.write(bank_at, &bytes)?;
                    let bank =
                        qmd::ConstantBuffer::new(piece.at(bank_at).raw(), bank_len as u32).invalidated();
                    let mut qmd = qmd.as_ref().clone();
                    qmd.set_constant_buffer(0, &bank)
                        .map_err(|source| Error::Qmd { kernel: kernel.name().to_owned(), source })?;
                    let start = piece.va().raw();
                    let mut sink = |va: GpuVa, qmd: &qmd::Qmd| piece.write(va.raw() - start, qmd.as_bytes());
                    recorder.launch(piece.at(offset), qmd, &mut sink)?;
                    graph.banks.push((number, bank_at + u64::from(base), args.as_bytes().len() as u64));
                    graph.local_per_thread = graph.local_per_thread.max(kernel.local_per_thread());
                    kernel.image.uses.mark_graph(&graph.last);
                    offset = bank_at + bank_len.next_multiple_of(ALIGN);
                }
                Node::Barrier => recorder.barrier(),
                Node::Copy { from, to, len, .. } => recorder.copy(*from, *to, *len),
                Node::Timestamp(slot) => {
                    recorder.timestamp(slot.va());
                    graph.slots.push(slot.clone());
                }
            }
        }
        graph.place(recorder.words().words())?;
        for node in self.nodes {
            graph.keep(node);
        }
        Ok(graph)
    }

    /// Bytes that QMDs and banks take.
    fn launch_bytes(&self, target: &LaunchTarget) -> u64 {
        let of = |node: &Node| match node {
            Node::Launch { kernel, args, .. } => {
                let bank = u64::from(kernel.info().param_base) + args.as_bytes().len() as u64;
                target.qmd_stride() + bank.next_multiple_of(ALIGN)
            }
            Node::Barrier | Node::Copy { .. } | Node::Timestamp(_) => 0,
        };
        self.nodes.iter().map(of).sum()
    }
}

/// What a graph keeps alive.
#[derive(Debug)]
#[expect(dead_code, reason = "held, not used")]
enum Kept {
    Kernel(Kernel),
    Buffer(Buffer),
}

/// A recorded list of launches, copies and barriers, ready to be replayed.
pub struct Graph {
    context: Arc<Context>,
    /// QMDs and constant banks.
    memory: Option<Piece>,
    commands: Option<Piece>,
    segments: Vec<Segment>,
    /// Of each launch: node number, offset of the parameters in `memory`, their length.
    banks: Vec<(usize, u64, u64)>,
    slots: Vec<Arc<Slot>>,
    local_per_thread: u32,
    last: LastReplay,
    kept: Vec<Kept>,
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Graph")
            .field("launches", &self.banks.len())
            .field("segments", &self.segments)
            .finish_non_exhaustive()
    }
}

impl Graph {
    /// Puts the commands into GPU memory.
    fn place(&mut self, words: &[u32]) -> Result<(), Error> {
        if words.is_empty() {
            return Ok(());
        }
        let piece = self.context.alloc(4 * words.len() as u64, MemoryKind::Command, "graph")?;
        let piece = self.commands.insert(piece);
        piece.write_words(0, words)?;
        for start in (0..words.len()).step_by(MAX_DWORDS) {
            let dwords = (words.len() - start).min(MAX_DWORDS) as u32;
            self.segments.push(Segment { va: piece.at(4 * start as u64), dwords });
        }
        Ok(())
    }

    fn keep(&mut self, node: Node) {
        match node {
            Node::Launch { kernel, args, .. } => {
                for buffer in args.buffers() {
                    buffer.mark_graph(&self.last);
                    self.kept.push(Kept::Buffer(buffer.clone()));
                }
                self.kept.push(Kept::Kernel(kernel));
            }
            Node::Copy { source, destination, .. } => {
                for buffer in [source, destination] {
                    buffer.mark_graph(&self.last);
                    self.kept.push(Kept::Buffer(buffer));
                }
            }
            Node::Barrier | Node::Timestamp(_) => (),
        }
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    pub(crate) fn segments(&self) -> &[Segment] {
        &self.segments
    }

    pub(crate) fn local_per_thread(&self) -> u32 {
        self.local_per_thread
    }

    pub(crate) fn last(&self) -> Option<(Arc<Timeline>, u64)> {
        lock(&self.last).clone()
    }

    pub(crate) fn set_last(&self, timeline: &Arc<Timeline>, value: u64) {
        *lock(&self.last) = Some((timeline.clone(), value));
    }

    /// Number of launches.
    pub fn launches(&self) -> usize {
        self.banks.len()
    }

    /// Replaces bytes of a launch's arguments, `byte_offset` bytes into them, for all later replays. Waits for the
    /// last replay first, at most [`patience`](crate::DeviceOptions::patience).
    ///
    /// Buffers whose addresses are patched in are not kept alive by the graph.
    ///
    /// # Errors
    /// [`Error::NotALaunch`]; [`Error::OutOfBounds`]; [`Error::Timeout`] and [`Error::Fault`] of the last replay.
    pub fn patch_args(&self, node: NodeId, byte_offset: u64, data: &[u8]) -> Result<(), Error> {
        let bank = self.banks.binary_search_by_key(&node.0, |(number, ..)| *number);
        let bank = bank.map_err(|_| Error::NotALaunch { node: node.0 })?;
        let (_, at, size) = self.banks[bank];
        let len = data.len() as u64;
        if byte_offset.checked_add(len).is_none_or(|end| end > size) {
            let size = Bytes::new(size);
            return Err(Error::OutOfBounds { what: "arguments", offset: byte_offset, len, size });
        }
        if let Some((timeline, value)) = self.last() {
            self.context.wait(&timeline, value, self.context.patience())?;
        }
        let memory = self.memory.as_ref().ok_or(Error::NotALaunch { node: node.0 })?;
        memory.write(at + byte_offset, data)
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let uses = Uses::default();
        uses.mark_graph(&self.last);
        let last = std::mem::replace(&mut self.last, Arc::new(Mutex::new(None)));
        drop(last);
        let pieces = self.memory.take().into_iter().chain(self.commands.take()).collect();
        self.context.retire(pieces, std::mem::take(&mut self.slots), uses);
    }
}
