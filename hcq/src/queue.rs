//! Queues: launches, copies, waits and timestamps, handed to the GPU in submissions.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use crate::address::{Bytes, GpuVa};
use crate::backend::{Engine, MemoryKind};
use crate::buffer::Buffer;
use crate::constant_bank::{BankContext, BankLayout};
use crate::context::Context;
use crate::error::Error;
use crate::graph::Graph;
use crate::lane::{FLUSH_DWORDS, Lane};
use crate::launch::{self, Args, LaunchConfig};
use crate::memory::Piece;
use crate::mover;
use crate::prepared::{Kept, Prepared};
use crate::program::Kernel;
use crate::recorder::Recorder;
use crate::ring::Ring;
use crate::timeline::{Slot, SyncPoint, Timeline, Timestamp, reached};

/// Bytes for QMDs and constant banks in flight.
const LAUNCHES: u64 = 4 << 20;
/// Alignment of a QMD, and of a bank after it.
const ALIGN: u64 = 256;
/// Launches after which what was recorded is handed over without being asked for, so that the GPU starts while the CPU
/// goes on recording. A line of linked launches ends there, which costs as much as two or three of its links.
const FLUSH_LAUNCHES: usize = 128;

/// Buffers whose last use is remembered, so that it is noted once for each submission.
const MARKS: usize = 16;
/// A copy queue's answer to a launch.
const NO_LAUNCHES: Error = Error::WrongQueue { queue: "copy", operation: "launch kernels" };

/// What a launch is encoded with, besides the launch itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaunchTarget {
    pub qmd: qmd::Target,
    pub bank: BankContext,
}

impl LaunchTarget {
    /// The tables for a device.
    pub fn of(context: &Context) -> Result<Self, Error> {
        let (info, layout) = (context.backend().info(), context.backend().layout());
        let sm = info.sm_number();
        let (Some(target), Some(bank)) = (qmd::Target::from_sm(sm), BankLayout::of_sm(sm)) else {
            let supported = "sm_80, sm_86, sm_87, sm_89, sm_90";
            return Err(Error::Unsupported { what: "SM version", value: info.sm.into(), supported });
        };
        let (shared_window, local_window) = (layout.shared_window, layout.local_window);
        let bank = BankContext { layout: bank, shared_window, local_window, sm_count: info.sm_count };
        Ok(Self { qmd: target, bank })
    }

    /// Names the constant bank of a launch: its lines are dropped before, since its memory was another launch's, and, where
    /// the hardware does that, fetched while the launch before ends.
    pub fn set_bank(&self, qmd: &mut qmd::Qmd, va: GpuVa, len: u32) -> Result<(), qmd::Error> {
        let bank = qmd::ConstantBuffer::new(va.raw(), len).invalidated();
        match self.qmd.version() {
            qmd::Version::V04 => {
                let limit = qmd::v04::CONSTANT_BUFFER_PREFETCH_PRE_MAX_SIZE_SHIFTED8;
                qmd.set(limit, len.div_ceil(256).min(limit.max()))?;
                qmd.set_constant_buffer(0, &bank.prefetched(qmd::ConstantPrefetch::Pre))
            }
            _ => qmd.set_constant_buffer(0, &bank),
        }
    }

    /// Bytes from the start of a QMD to the bank that lies behind it.
    pub fn qmd_stride(&self) -> u64 {
        self.qmd.version().stride() as u64
    }
}

/// Memory that launches in flight read.
#[derive(Debug)]
struct LaunchMemory {
    target: LaunchTarget,
    piece: Piece,
    ring: Ring,
    kept: Kept,
    /// Launches so far, the grid id.
    count: u64,
    /// Bytes per thread of the scratch memory the channel knows.
    scratch: u32,
    /// Programs loaded when caches of code were last dropped.
    code_generation: u64,
    /// The timeline when it was last looked at: looking costs a cache miss.
    completed: u64,
}

impl LaunchMemory {
    /// Encodes a launch into memory at `offset`: its bank, and all of its QMD but what the recorder decides.
    fn encode(
        &mut self,
        number: usize,
        offset: u64,
        launch: &Encoded<'_>,
    ) -> Result<(GpuVa, qmd::Qmd), Error> {
        let prepared = self.kept.get(number).ok_or(Error::Discarded)?;
        let bank_at = offset + self.target.qmd_stride();
        self.count += 1;
        self.piece.write(bank_at, prepared.bank(self.count, launch.parameters))?;
        let mut qmd = prepared.qmd.clone();
        self.target
            .set_bank(&mut qmd, self.piece.at(bank_at), prepared.bank_len())
            .map_err(|source| Error::Qmd { kernel: launch.kernel.name().to_owned(), source })?;
        Ok((self.piece.at(offset), qmd))
    }
}

/// A launch.
#[derive(Clone, Copy)]
pub(crate) struct Encoded<'a> {
    pub kernel: &'a Kernel,
    pub config: LaunchConfig,
    pub parameters: &'a [u8],
}

/// Things that must live until a submission is over.
#[derive(Debug)]
#[expect(dead_code, reason = "held, not used")]
enum Held {
    Slot(Arc<Slot>),
    Timeline(Arc<Timeline>),
}

/// A channel to the GPU. What is recorded runs when [`submit`](Self::submit) hands it over (or earlier, when much has
/// been recorded), in the order of recording as far as [`barrier`](Self::barrier) asks for it.
///
/// Dropping a queue discards what was not submitted, and waits for what was.
pub struct Queue {
    context: Arc<Context>,
    engine: Engine,
    /// `Some` until the queue is dropped.
    lane: Option<Lane>,
    recorder: Recorder,
    launches: Option<LaunchMemory>,
    held: VecDeque<(u64, Held)>,
    /// Buffer and submission, by the buffer's number.
    marks: [(u64, u64); MARKS],
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("engine", &self.engine)
            .field("lane", &self.lane)
            .finish_non_exhaustive()
    }
}

impl Queue {
    pub(crate) fn new(context: &Arc<Context>, engine: Engine) -> Result<Self, Error> {
        let mut recorder = match engine {
            Engine::Compute => Recorder::new(context.options.chain_launches),
            Engine::Copy => Recorder::for_copies(),
        };
        let (info, layout) = (context.backend().info(), context.backend().layout());
        let target = match engine {
            Engine::Compute => Some(LaunchTarget::of(context)?),
            Engine::Copy => None,
        };
        match engine {
            Engine::Compute => {
                recorder.words().set_up_compute(&info.classes, layout.shared_window, layout.local_window);
            }
            Engine::Copy => recorder.words().set_up_copy(&info.classes),
        }
        let lane = Lane::new(context, engine)?;
        let mut queue = Self {
            context: context.clone(),
            engine,
            lane: Some(lane),
            recorder,
            launches: None,
            held: VecDeque::new(),
            marks: [(0, 0); MARKS],
        };
        if let Some(target) = target {
            queue.launches = Some(LaunchMemory {
                target,
                piece: context.alloc(LAUNCHES, MemoryKind::Command, "launch ring")?,
                ring: Ring::new(LAUNCHES),
                kept: Kept::default(),
                count: 0,
                scratch: 0,
                code_generation: 0,
                completed: context.options.timeline_start,
            });
        }
        Ok(queue)
    }

    fn lane(&self) -> Result<&Lane, Error> {
        self.lane.as_ref().ok_or(Error::Discarded)
    }

    fn launch_memory(&mut self) -> Result<&mut LaunchMemory, Error> {
        self.launches.as_mut().ok_or(NO_LAUNCHES)
    }

    /// Records a launch. Launches without a [`barrier`](Self::barrier) between them may overlap.
    ///
    /// # Errors
    /// [`Error::Arguments`], [`Error::LaunchLimit`] and [`Error::Qmd`] name what does not fit; [`Error::WrongQueue`] on
    /// a copy queue; [`Error::Timeout`] if ring memory does not become free.
    ///
    /// # Safety
    /// The kernel must be sound for these arguments: everything it reads and writes must lie in memory it was meant
    /// to reach, which stays allocated (buffers named in `args` do), and must not be used by other work at the same
    /// time in a way the program does not expect. The GPU can write everything in the device's address space.
    pub unsafe fn launch(&mut self, kernel: &Kernel, config: LaunchConfig, args: &Args) -> Result<(), Error> {
        self.check_buffers(args.buffers())?;
        self.record(Encoded { kernel, config, parameters: args.as_bytes() }, false)?;
        let lane = self.lane.as_ref().ok_or(Error::Discarded)?;
        let (timeline, next) = (lane.timeline(), lane.next());
        for buffer in args.buffers() {
            let mark = &mut self.marks[buffer.id() as usize % MARKS];
            if *mark != (buffer.id(), next) {
                *mark = (buffer.id(), next);
                buffer.mark(timeline, next);
            }
        }
        Ok(())
    }

    /// The number of a launch's kernel and shape among those that are kept; they are checked where they are new.
    fn number(&mut self, launch: &Encoded<'_>) -> Result<usize, Error> {
        let Encoded { kernel, config, parameters } = launch;
        let memory = self.launches.as_mut().ok_or(NO_LAUNCHES)?;
        let number = memory.kept.find(kernel, config);
        if let Some(number) = number
            && memory.kept.get(number).is_some_and(|p| p.parameter_bytes == parameters.len())
        {
            return Ok(number);
        }
        launch::check(self.context.backend().info(), kernel, config, parameters.len())?;
        let prepared = Prepared::new(&memory.target, kernel, *config)?;
        Ok(memory.kept.add(prepared))
    }

    /// Records a launch; one that copies follows earlier copies, as those of the copy engine do.
    fn record(&mut self, launch: Encoded<'_>, copies: bool) -> Result<(), Error> {
        if self.recorder.words().len() >= FLUSH_DWORDS || self.recorder.launches() >= FLUSH_LAUNCHES {
            self.submit()?;
        }
        let number = self.number(&launch)?;
        let memory = self.launch_memory()?;
        let stride = memory.target.qmd_stride();
        let prepared = memory.kept.get(number).ok_or(Error::Discarded)?;
        let (len, local) =
            (stride + u64::from(prepared.bank_len()).next_multiple_of(ALIGN), prepared.local_per_thread);
        self.prepare(local)?;
        let offset = self.take(len)?;
        // By field, so that the recorder stays free to be used beside it.
        let (Some(memory), Some(lane)) = (&mut self.launches, &self.lane) else {
            return Err(Error::Discarded);
        };
        let (va, qmd) = memory.encode(number, offset, &launch)?;
        let piece = &memory.piece;
        let start = piece.va().raw();
        let mut sink = |va: GpuVa, qmd: &qmd::Qmd| piece.write(va.raw() - start, qmd.as_bytes());
        match copies {
            true => self.recorder.copy_by_kernel(va, qmd, &mut sink)?,
            false => self.recorder.launch(va, qmd, &mut sink)?,
        }
        let next = lane.next();
        if let Some(prepared) = memory.kept.get(number)
            && prepared.marked.replace(next) != Some(next)
        {
            launch.kernel.uses().mark(lane.timeline(), next);
        }
        Ok(())
    }

    /// Scratch memory and caches of code as the next launch needs them.
    fn prepare(&mut self, local_per_thread: u32) -> Result<(), Error> {
        let context = &self.context;
        let generation = context.code_generation();
        if self.recorder.is_running()
            && let Some(lane) = &self.lane
            && reached(lane.completed(context), lane.last())
        {
            self.recorder.assume_ended();
        }
        let Some(memory) = &mut self.launches else { return Ok(()) };
        if memory.code_generation != generation {
            memory.code_generation = generation;
            self.recorder.words().invalidate_caches();
        }
        if memory.scratch < local_per_thread {
            let scratch = context.scratch.get(context, local_per_thread)?;
            self.recorder.set_scratch(&scratch);
            memory.scratch = local_per_thread;
        }
        Ok(())
    }

    /// Takes launch memory; hands over what was recorded, and waits, where it has to.
    fn take(&mut self, len: u64) -> Result<u64, Error> {
        loop {
            let memory = self.launch_memory()?;
            if let Some(offset) = memory.ring.alloc(len, ALIGN, memory.completed) {
                return Ok(offset);
            }
            let completed = self.lane()?.completed(&self.context);
            let memory = self.launch_memory()?;
            memory.completed = completed;
            if let Some(offset) = memory.ring.alloc(len, ALIGN, completed) {
                return Ok(offset);
            }
            let (what, capacity) = ("a launch", Bytes::new(memory.ring.capacity()));
            match memory.ring.oldest() {
                Some(oldest) => self.lane()?.wait(&self.context, oldest)?,
                None if self.recorder.words().is_empty() => {
                    return Err(Error::RingTooSmall { what, len: Bytes::new(len), capacity });
                }
                None => drop(self.submit()?),
            }
        }
    }

    fn check_buffers(&self, buffers: &[Buffer]) -> Result<(), Error> {
        match buffers.iter().all(|b| Arc::ptr_eq(b.context(), &self.context)) {
            true => Ok(()),
            false => Err(Error::ForeignDevice { what: "buffer" }),
        }
    }

    /// What is recorded next starts after everything recorded so far has ended, and sees what it wrote.
    ///
    /// # Errors
    /// None at present.
    pub fn barrier(&mut self) -> Result<(), Error> {
        self.recorder.barrier();
        Ok(())
    }

    /// Records a copy of `len` bytes from `src_off` in `src` to `dst_off` in `dst`; the ranges must not overlap.
    /// Copies of one queue follow each other; launches and copies need a [`barrier`](Self::barrier) between them.
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
    ) -> Result<(), Error> {
        self.check_buffers(&[src.clone(), dst.clone()])?;
        src.check(src_off, len)?;
        dst.check(dst_off, len)?;
        if self.engine == Engine::Compute
            && let Some(mover) = mover::for_copy(&self.context, (src, src_off), (dst, dst_off), len)?
        {
            self.record(mover.launch(), true)?;
            let lane = self.lane()?;
            src.mark(lane.timeline(), lane.next());
            dst.mark(lane.timeline(), lane.next());
            return Ok(());
        }
        if self.recorder.words().len() >= FLUSH_DWORDS {
            self.submit()?;
        }
        let at = |b: &Buffer, offset: u64| GpuVa::inside(b.va().raw() + offset);
        self.recorder.copy(at(src, src_off), at(dst, dst_off), len);
        let lane = self.lane()?;
        src.mark(lane.timeline(), lane.next());
        dst.mark(lane.timeline(), lane.next());
        Ok(())
    }

    /// Records the taking of a timestamp when everything recorded so far has ended.
    ///
    /// # Errors
    /// Those of allocating 16 bytes.
    pub fn timestamp(&mut self) -> Result<Timestamp, Error> {
        let slot = Arc::new(Slot::new(&self.context, 0)?);
        self.recorder.timestamp(slot.va());
        let next = self.lane()?.next();
        self.held.push_back((next, Held::Slot(slot.clone())));
        Ok(Timestamp { context: self.context.clone(), slot })
    }

    /// What is recorded next starts after `point`, which may belong to another queue of the device.
    ///
    /// # Errors
    /// [`Error::ForeignDevice`].
    pub fn wait_for(&mut self, point: &SyncPoint) -> Result<(), Error> {
        if !Arc::ptr_eq(&point.context, &self.context) {
            return Err(Error::ForeignDevice { what: "sync point" });
        }
        self.wait_for_value(&point.timeline, point.value)
    }

    fn wait_for_value(&mut self, timeline: &Arc<Timeline>, value: u64) -> Result<(), Error> {
        let lane = self.lane()?;
        // Submissions of one queue follow each other anyway.
        if Arc::ptr_eq(timeline, lane.timeline()) || reached(timeline.completed(&self.context), value) {
            return Ok(());
        }
        let next = lane.next();
        self.recorder.acquire(timeline.va(), value);
        self.held.push_back((next, Held::Timeline(timeline.clone())));
        Ok(())
    }

    /// Hands everything recorded to the GPU.
    ///
    /// # Errors
    /// [`Error::Lost`] after a fault; [`Error::Timeout`] if the ring does not become free.
    pub fn submit(&mut self) -> Result<SyncPoint, Error> {
        self.submit_with(&[])
    }

    fn submit_with(&mut self, recorded: &[crate::gpfifo::Segment]) -> Result<SyncPoint, Error> {
        let context = self.context.clone();
        let lane = self.lane.as_mut().ok_or(Error::Discarded)?;
        let recorder = &mut self.recorder;
        let released = context.options.release_in_launch
            && recorded.is_empty()
            && recorder.release_in_launch(lane.timeline().va(), lane.next());
        if let Some(memory) = &self.launches {
            let piece = &memory.piece;
            let start = piece.va().raw();
            recorder.finish(&mut |va, qmd| piece.write(va.raw() - start, qmd.as_bytes()))?;
        }
        let value = match lane.submit(&context, recorder.words(), recorded, released) {
            Ok(value) => value,
            Err(error) => {
                if released {
                    recorder.withdraw_release();
                }
                return Err(error);
            }
        };
        match released {
            true => recorder.reset_running(),
            false => recorder.reset(),
        }
        if let Some(memory) = &mut self.launches {
            memory.ring.seal(value);
        }
        let completed = if self.held.is_empty() { value } else { lane.completed(&context) };
        while self.held.front().is_some_and(|(v, _)| reached(completed, *v)) {
            self.held.pop_front();
        }
        Ok(SyncPoint { timeline: lane.timeline().clone(), context, value })
    }

    /// Runs a graph after everything recorded so far, and hands both to the GPU.
    ///
    /// Replays of one graph follow each other, whatever queues they are on.
    ///
    /// # Errors
    /// As [`submit`](Self::submit); [`Error::ForeignDevice`]; [`Error::WrongQueue`] on a copy queue.
    pub fn replay(&mut self, graph: &Graph) -> Result<SyncPoint, Error> {
        if !Arc::ptr_eq(graph.context(), &self.context) {
            return Err(Error::ForeignDevice { what: "graph" });
        }
        self.launch_memory()?;
        self.prepare(graph.local_per_thread())?;
        self.recorder.settle();
        if let Some((timeline, value)) = graph.last() {
            self.wait_for_value(&timeline, value)?;
        }
        let mut replay = graph.replay()?;
        self.recorder.words().extend(replay.words());
        let point = self.submit_with(replay.segments())?;
        replay.submitted(&point.timeline, point.value);
        Ok(point)
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        if let Some(lane) = self.lane.take() {
            lane.close(&self.context);
        }
        if let Some(memory) = self.launches.take() {
            self.context.free(memory.piece);
        }
        self.held.clear();
        self.context.collect();
    }
}
