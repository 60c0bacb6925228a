//! Queues: launches, copies, waits and timestamps, handed to the GPU in submissions.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::Engine;
use crate::error::Error;
use crate::launch::qmd_cache::{Launch, QmdCache};
use crate::objects::args::Args;
use crate::objects::buffer::Buffer;
use crate::objects::shared::Shared;
use crate::program::kernel::Kernel;
use crate::queue::graph::Graph;
use crate::queue::submitter::Submitter;
use crate::shape::LaunchConfig;
use crate::submission::timeline::{Slot, SyncPoint, Timestamp};

pub(crate) mod copy_kernel;
pub(crate) mod encoding;
pub(crate) mod graph;
pub(crate) mod named;
pub(crate) mod submitter;

/// Kernels in blocks of one shape that a queue remembers.
const TEMPLATES: usize = 64;
/// Buffers whose last use is remembered, so that it is noted once for each submission.
const MARKS: usize = 16;

/// A channel to the GPU. Recorded work runs when [`submit`](Self::submit) hands it over (or earlier, when
/// much has been recorded), in the order of recording as far as [`barrier`](Self::barrier) asks for it.
///
/// Dropping a queue discards what was not submitted, and waits for what was.
pub struct Queue {
    engine: Engine,
    submitter: Submitter,
    qmds: QmdCache,
    /// Launches so far, the grid id.
    count: u64,
    /// Buffer and submission, by the buffer's number.
    marks: [(u64, u64); MARKS],
    shared: Arc<Shared>,
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Queue({:?}, {:?})", self.engine, self.submitter.channel())
    }
}

impl Queue {
    pub(crate) fn new(shared: &Arc<Shared>, engine: Engine) -> Result<Self, Error> {
        Ok(Self {
            engine,
            submitter: Submitter::new(shared, engine)?,
            qmds: QmdCache::new(shared.target, TEMPLATES),
            count: 0,
            marks: [(0, 0); MARKS],
            shared: shared.clone(),
        })
    }

    /// Sets how long the queue's calls wait for room in its rings, in place of the device's
    /// [`patience`](crate::DeviceOptions::patience). A call that ends with
    /// [`QueueError::Timeout`](crate::QueueError::Timeout) has recorded and handed over nothing new, and may be made
    /// again. The end of the queue still takes the device's patience.
    pub fn set_patience(&mut self, patience: Duration) {
        self.submitter.set_patience(patience);
    }

    /// Records a launch. Launches without a [`barrier`](Self::barrier) between them may overlap.
    ///
    /// # Errors
    /// [`LaunchError::Arguments`](crate::LaunchError::Arguments),
    /// [`LaunchError::ArgumentCount`](crate::LaunchError::ArgumentCount),
    /// [`LaunchError::ArgumentWidth`](crate::LaunchError::ArgumentWidth),
    /// [`LaunchError::ArgumentPlace`](crate::LaunchError::ArgumentPlace),
    /// [`LaunchError::Alignment`](crate::LaunchError::Alignment),
    /// [`LaunchError::Limit`](crate::LaunchError::Limit),
    /// [`LaunchError::BlockShape`](crate::LaunchError::BlockShape) and
    /// [`LaunchError::Qmd`](crate::LaunchError::Qmd) name what does not fit; [`Error::ForeignDevice`] for a
    /// kernel or a buffer of another device; [`QueueError::WrongQueue`](crate::QueueError::WrongQueue) on a
    /// copy queue; [`QueueError::Timeout`](crate::QueueError::Timeout) if ring memory does not become free.
    ///
    /// # Safety
    /// The kernel must be sound for these arguments: everything it reads and writes must lie in memory it was
    /// meant to reach, which stays allocated (buffers named in `args` do), and must not be used by other work
    /// at the same time in a way the program does not expect. The GPU can write everything in the device's
    /// address space.
    pub unsafe fn launch(&mut self, kernel: &Kernel, config: LaunchConfig, args: &Args) -> Result<(), Error> {
        args.check(&self.shared)?;
        self.submitter.check_launches()?;
        args.fit(kernel)?;
        self.record(Launch { kernel, config, parameters: args.as_bytes() }, false)?;
        let channel = self.submitter.channel();
        let (timeline, next) = (channel.timeline(), channel.next());
        for buffer in args.buffers() {
            let mark = &mut self.marks[buffer.id() as usize % MARKS];
            if *mark != (buffer.id(), next) {
                *mark = (buffer.id(), next);
                buffer.mark(timeline, next);
            }
        }
        Ok(())
    }

    /// Records a launch; one that `copies` follows earlier copies.
    fn record(&mut self, launch: Launch<'_>, copies: bool) -> Result<(), Error> {
        let Self { shared, submitter, qmds, count, .. } = self;
        shared.core.here()?;
        submitter.check_launches()?;
        submitter.flush()?;
        let template = qmds.template(&shared.core, &launch)?;
        submitter.prepare(template.local_per_thread)?;
        *count += 1;
        submitter.launch(template.len(), copies, |memory, offset| {
            template.encode(&launch, *count, memory, offset)
        })?;
        let channel = submitter.channel();
        if template.marked.replace(channel.next()) != Some(channel.next()) {
            launch.kernel.uses().mark(channel.timeline(), channel.next());
        }
        Ok(())
    }

    /// A barrier: work recorded later starts after everything recorded so far has ended, and sees its writes.
    pub fn barrier(&mut self) {
        self.submitter.recorder().barrier();
    }

    /// Records a copy of `len` bytes from `src_off` in `src` to `dst_off` in `dst`; the ranges must not
    /// overlap. Copies of one queue follow each other; launches and copies need a [`barrier`](Self::barrier)
    /// between them.
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
    ) -> Result<(), Error> {
        self.shared.core.here()?;
        Buffer::check_copy(&self.shared, (src, src_off), (dst, dst_off), len)?;
        let by_kernel = match self.engine {
            Engine::Compute => copy_kernel::for_copy(&self.shared, (src, src_off), (dst, dst_off), len)?,
            Engine::Copy => None,
        };
        match by_kernel {
            Some(copy) => self.record(copy.launch(), true)?,
            None => {
                self.submitter.flush()?;
                self.submitter.recorder().copy(src.va_at(src_off), dst.va_at(dst_off), len);
            }
        }
        let channel = self.submitter.channel();
        src.mark(channel.timeline(), channel.next());
        dst.mark(channel.timeline(), channel.next());
        Ok(())
    }

    /// Records the taking of a timestamp when everything recorded so far has ended.
    ///
    /// # Errors
    /// Those of allocating 16 bytes.
    pub fn timestamp(&mut self) -> Result<Timestamp, Error> {
        self.shared.core.here()?;
        self.shared.limbo.collect();
        let slot = Arc::new(Slot::new(&self.shared.core)?);
        self.submitter.recorder().timestamp(slot.va());
        self.submitter.hold(slot.clone());
        Ok(Timestamp { slot })
    }

    /// Work recorded later starts after `point`, which may belong to another queue of the device. If that
    /// queue is dropped and its work does not end, this queue's does not start: waits for it are
    /// [`QueueError::Starved`](crate::QueueError::Starved).
    ///
    /// # Errors
    /// [`Error::ForeignDevice`]; [`QueueError::Starved`](crate::QueueError::Starved) if that has happened
    /// already; [`Error::Forked`].
    pub fn wait_for(&mut self, point: &SyncPoint) -> Result<(), Error> {
        if !Arc::ptr_eq(point.timeline.core(), &self.shared.core) {
            return Err(Error::ForeignDevice { what: "sync point" });
        }
        self.shared.core.here()?;
        self.submitter.wait_for(&point.timeline, point.value)
    }

    /// Drops the queue, and says whether its work ended: discards what was not submitted, and waits for what was, at
    /// most the device's [`patience`](crate::DeviceOptions::patience).
    ///
    /// # Errors
    /// [`QueueError::Timeout`](crate::QueueError::Timeout) if the work did not end, and was stopped; [`Error::Fault`]
    /// for a fault, [`QueueError::Starved`](crate::QueueError::Starved) and
    /// [`QueueError::Stopped`](crate::QueueError::Stopped), but nothing where another call has said before that the
    /// device is lost.
    pub fn close(mut self) -> Result<(), Error> {
        let known = self.shared.core.alive().is_err();
        self.submitter.close().or_else(|error| if known { Ok(()) } else { Err(error) })
    }

    /// Hands everything recorded to the GPU.
    ///
    /// # Errors
    /// [`Error::Lost`] after a fault; [`QueueError::Timeout`](crate::QueueError::Timeout) if the ring does
    /// not become free; [`Error::Forked`] in a fork of the process that opened the device.
    pub fn submit(&mut self) -> Result<SyncPoint, Error> {
        self.shared.core.here()?;
        self.submitter.submit(&[])
    }

    /// Runs a graph after everything recorded so far, and hands both to the GPU.
    ///
    /// Replays of one graph follow each other, whatever queues they are on. A replay is safe, because who
    /// recorded or patched the graph's launches has vouched for every replay ([`GraphBuilder::launch`],
    /// [`Graph::patch_args`]), and the graph keeps the buffers that they name.
    ///
    /// [`GraphBuilder::launch`]: crate::GraphBuilder::launch
    ///
    /// # Errors
    /// As [`submit`](Self::submit); [`Error::ForeignDevice`];
    /// [`QueueError::WrongQueue`](crate::QueueError::WrongQueue) on a copy queue.
    pub fn replay(&mut self, graph: &Graph) -> Result<SyncPoint, Error> {
        if !Arc::ptr_eq(graph.shared(), &self.shared) {
            return Err(Error::ForeignDevice { what: "graph" });
        }
        self.shared.core.here()?;
        self.submitter.check_launches()?;
        self.submitter.prepare(graph.local_per_thread())?;
        self.submitter.recorder().settle();
        // From here on no other queue replays it.
        let mut replay = graph.replay(self.submitter.channel().patience())?;
        let before = self.submitter.recorder().words().len();
        for (timeline, value) in replay.earlier() {
            self.submitter.wait_for(&timeline, value)?;
        }
        let words = self.submitter.recorder().words();
        words.extend(replay.words());
        match self.submitter.submit(replay.segments()) {
            Ok(point) => {
                replay.submitted(&point.timeline, point.value);
                Ok(point)
            }
            Err(error) => {
                // The graph did not run, and must not run with what is submitted later.
                self.submitter.recorder().words().truncate(before);
                Err(error)
            }
        }
    }
}
