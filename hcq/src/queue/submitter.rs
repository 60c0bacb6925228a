//! The submitter of a queue: its channel, the commands recorded for it, and the memory that launches in
//! flight read.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::address::GpuVa;
use crate::backend::{Engine, MemoryKind};
use crate::error::{Error, QueueError};
use crate::launch::qmd_cache::{ALIGN, Encoded};
use crate::memory::manager::Piece;
use crate::objects::shared::Shared;
use crate::serial::reached;
use crate::submission::channel::Channel;
use crate::submission::gpfifo::Segment;
use crate::submission::limbo::Keep;
use crate::submission::recorder::Recorder;
use crate::submission::ring::Ring;
use crate::submission::timeline::{SyncPoint, Timeline};

/// Bytes for QMDs and constant banks in flight.
const LAUNCHES: u64 = 4 << 20;
/// Dwords after which recorded commands are handed over without being asked to, so that the GPU starts on the
/// first few hundred launches while the CPU records the next.
const FLUSH_DWORDS: usize = 1 << 10;
/// Launches after which that happens. A line of linked launches ends there, which costs as much as two or
/// three of its links.
const FLUSH_LAUNCHES: usize = 128;

/// A ring of memory for QMDs and constant banks.
struct LaunchRing {
    memory: Piece,
    ring: Ring,
    /// The timeline when it was last read: reading it costs a cache miss.
    completed: u64,
}

impl LaunchRing {
    /// Writes a QMD where the recorder wants it.
    fn write(&self, va: GpuVa, qmd: &qmd::Qmd) -> Result<(), Error> {
        self.memory.write(va.raw() - self.memory.va().raw(), qmd.as_bytes())
    }
}

/// A channel and what is recorded for it.
pub(crate) struct Submitter {
    // Dropped in this order: until the channel is gone, its work uses the memory, and the scratch memory that
    // is shared.
    channel: Channel,
    recorder: Recorder,
    launches: Option<LaunchRing>,
    /// Kept until the submission that signals a value has completed.
    held: VecDeque<(u64, Keep)>,
    /// Bytes per thread of the scratch memory the channel knows.
    scratch: u32,
    /// Programs loaded when caches of code were last dropped.
    code_generation: u64,
    shared: Arc<Shared>,
}

/// A copy queue's answer to a launch.
const NO_LAUNCHES: Error =
    Error::Queue(QueueError::WrongQueue { queue: "copy", operation: "launch kernels" });

impl Submitter {
    /// A channel of its own.
    pub fn new(shared: &Arc<Shared>, engine: Engine) -> Result<Self, Error> {
        let core = &shared.core;
        core.alive()?;
        let (info, layout) = (core.info(), core.backend().layout());
        let mut recorder = match engine {
            Engine::Compute => Recorder::new(core.options.chain_launches),
            Engine::Copy => Recorder::for_copies(),
        };
        recorder.words().plain_launches = core.options.has_conservative_descriptors();
        match engine {
            Engine::Compute => {
                recorder.words().set_up_compute(&info.classes, layout.shared_window, layout.local_window);
            }
            Engine::Copy => recorder.words().set_up_copy(&info.classes),
        }
        shared.limbo.collect();
        let channel = Channel::new(core, &shared.limbo, engine)?;
        let launches = match engine {
            Engine::Compute => Some(LaunchRing {
                memory: core.alloc(LAUNCHES, MemoryKind::Command, "launch ring")?,
                ring: Ring::new(LAUNCHES),
                completed: channel.timeline().submitted(),
            }),
            Engine::Copy => None,
        };
        let (held, shared) = (VecDeque::new(), shared.clone());
        Ok(Self { channel, recorder, launches, held, scratch: 0, code_generation: 0, shared })
    }

    /// Refuses launches on a channel that only copies.
    pub fn check_launches(&self) -> Result<(), Error> {
        self.launches.as_ref().map(drop).ok_or(NO_LAUNCHES)
    }

    /// The channel.
    pub fn channel(&self) -> &Channel {
        &self.channel
    }

    /// The recorder; launches are added by [`launch`](Self::launch).
    pub fn recorder(&mut self) -> &mut Recorder {
        &mut self.recorder
    }

    /// Hands over what was recorded if that is much.
    pub fn flush(&mut self) -> Result<(), Error> {
        if self.recorder.words().len() >= FLUSH_DWORDS || self.recorder.launches() >= FLUSH_LAUNCHES {
            self.submit(&[])?;
        }
        Ok(())
    }

    /// Keeps something until what is being recorded has completed.
    pub fn hold(&mut self, keep: Keep) {
        self.held.push_back((self.channel.next(), keep));
    }

    /// Scratch memory and caches of code as a launch with `local_per_thread` bytes of local memory needs
    /// them.
    pub fn prepare(&mut self, local_per_thread: u32) -> Result<(), Error> {
        let channel = &self.channel;
        self.recorder.observe_end(|| channel.is_idle());
        let generation = self.shared.programs.generation();
        if self.code_generation != generation {
            self.code_generation = generation;
            self.recorder.words().invalidate_caches();
        }
        if self.scratch < local_per_thread {
            let scratch = self.shared.scratch.get(&self.shared.core, local_per_thread)?;
            self.recorder.set_scratch(&scratch);
            self.scratch = local_per_thread;
        }
        Ok(())
    }

    /// Records a launch that takes `len` bytes of memory and is encoded by `encode` at the offset it gets.
    /// One that `copies` follows earlier copies, as those of the copy engine do.
    pub fn launch(
        &mut self,
        len: u64,
        copies: bool,
        encode: impl FnOnce(&Piece, u64) -> Result<Encoded, Error>,
    ) -> Result<(), Error> {
        let offset = self.take(len)?;
        let Some(launches) = &self.launches else { return Err(NO_LAUNCHES) };
        let Encoded { va, qmd, .. } = encode(&launches.memory, offset)?;
        let mut sink = |va: GpuVa, qmd: &qmd::Qmd| launches.write(va, qmd);
        match copies {
            true => self.recorder.copy_by_kernel(va, qmd, &mut sink),
            false => self.recorder.launch(va, qmd, &mut sink),
        }
    }

    /// Takes launch memory; hands over what was recorded, and waits, where it has to.
    fn take(&mut self, len: u64) -> Result<u64, Error> {
        loop {
            let LaunchRing { ring, completed, .. } = self.launches.as_mut().ok_or(NO_LAUNCHES)?;
            if let Some(offset) = ring.alloc(len, ALIGN, *completed) {
                return Ok(offset);
            }
            *completed = self.channel.timeline().completed();
            if let Some(offset) = ring.alloc(len, ALIGN, *completed) {
                return Ok(offset);
            }
            let (what, capacity) = ("a launch", ring.capacity());
            match ring.oldest() {
                Some(oldest) => self.channel.wait(oldest)?,
                None if self.recorder.words().is_empty() => {
                    return Err(Error::Queue(QueueError::RingTooSmall { what, len, capacity }));
                }
                None => drop(self.submit(&[])?),
            }
        }
    }

    /// Work recorded later starts when `timeline` has reached `value`.
    pub fn wait_for(&mut self, timeline: &Arc<Timeline>, value: u64) -> Result<(), Error> {
        // Submissions of one channel follow each other anyway.
        if Arc::ptr_eq(timeline, self.channel.timeline()) || reached(timeline.completed(), value) {
            return Ok(());
        }
        timeline.add_waiter(value, self.channel.timeline(), self.channel.next())?;
        self.recorder.acquire(timeline.va(), value);
        self.hold(timeline.clone());
        Ok(())
    }

    /// Hands what was recorded to the GPU, then `recorded`.
    pub fn submit(&mut self, recorded: &[Segment]) -> Result<SyncPoint, Error> {
        let in_launch = self.shared.core.options.releases_in_launch() && recorded.is_empty();
        let launches = &self.launches;
        let mut sink = |va: GpuVa, qmd: &qmd::Qmd| match launches {
            Some(launches) => launches.write(va, qmd),
            None => Ok(()),
        };
        let mut closed = self.recorder.close(self.channel.signal(), in_launch, &mut sink)?;
        let body = closed.body();
        let value = self.channel.submit(closed.words(), body, recorded)?;
        closed.submitted();
        if let Some(launches) = &mut self.launches {
            launches.ring.seal(value);
        }
        let timeline = self.channel.timeline();
        let completed = if self.held.is_empty() { value } else { timeline.completed() };
        while self.held.front().is_some_and(|(v, _)| reached(completed, *v)) {
            self.held.pop_front();
        }
        Ok(SyncPoint { timeline: timeline.clone(), value })
    }
}
