//! The submitter of a queue: its channel, the commands recorded for it, and the memory that launches in
//! flight read.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

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

    /// Sets how long calls wait for room in the rings.
    pub fn set_patience(&mut self, patience: Duration) {
        self.channel.set_patience(patience);
    }

    /// Waits for what was submitted, and removes the channel.
    pub fn close(&mut self) -> Result<(), Error> {
        self.channel.close()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::tests::Books;
    use crate::objects::program::Program;
    use crate::observer::Unobserved;
    use crate::options::DeviceOptions;

    const VECADD: &[u8] = include_bytes!("../../tests/data/01_vecadd.sm_87.cubin");
    /// Drops code, data and constants.
    const DROP_CACHES: [u32; 2] = [0x2001_25a6, 0x1011];

    fn submitter() -> (Arc<Books>, Arc<Shared>, Submitter) {
        let books = Books::new(usize::MAX);
        let patience = std::time::Duration::from_millis(2);
        let options = DeviceOptions { patience, ..DeviceOptions::default() };
        let shared = Shared::new(books.clone(), Arc::new(Unobserved), options).unwrap();
        let submitter = Submitter::new(&shared, Engine::Compute).unwrap();
        (books, shared, submitter)
    }

    /// Records a launch that takes `len` bytes; its offset in the ring.
    fn launch(submitter: &mut Submitter, len: u64) -> Result<u64, Error> {
        let mut taken = 0;
        submitter.launch(len, false, |memory, offset| {
            taken = offset;
            Ok(Encoded { va: memory.at(offset), qmd: qmd::Qmd::new(qmd::Version::V03), parameters_at: 0 })
        })?;
        Ok(taken)
    }

    #[test]
    fn caches_of_code_are_dropped_once_for_what_was_loaded() {
        let (_books, shared, mut submitter) = submitter();
        let mut recorded = |load: bool| {
            let _program = load.then(|| Program::load(&shared, VECADD.into()).unwrap());
            let before = submitter.recorder().words().len();
            submitter.prepare(0).unwrap();
            submitter.recorder().words().words()[before..].to_vec()
        };
        assert_eq!(recorded(true), DROP_CACHES);
        assert!(recorded(false).is_empty(), "nothing was loaded since");
        assert_eq!(recorded(true), DROP_CACHES);
    }

    #[test]
    fn scratch_memory_grows_and_never_shrinks() {
        let (_books, _shared, mut submitter) = submitter();
        let mut recorded = |bytes| {
            let before = submitter.recorder().words().len();
            submitter.prepare(bytes).unwrap();
            submitter.recorder().words().len() > before
        };
        assert_eq!([0, 256, 256, 128, 512, 0].map(&mut recorded), [false, true, false, false, true, false]);
    }

    #[test]
    fn memory_of_launches_in_flight_is_not_taken_and_what_was_recorded_is_handed_over_for_more() {
        let (books, _shared, mut submitter) = submitter();
        assert_eq!(launch(&mut submitter, 3 << 20).unwrap(), 0);
        assert_eq!(submitter.channel().timeline().submitted(), 0);
        // The next does not fit beside it: it is submitted, and does not end.
        let error = launch(&mut submitter, 2 << 20).unwrap_err();
        assert!(matches!(error, Error::Queue(QueueError::Timeout { wanted: 1, .. })), "{error}");
        assert_eq!(submitter.channel().timeline().submitted(), 1);
        assert_eq!(launch(&mut submitter, 1 << 20).unwrap(), 3 << 20, "there is room for this one");
        books.poke(submitter.channel().timeline().va(), 1);
        assert_eq!(launch(&mut submitter, 2 << 20).unwrap(), 0);
        submitter.submit(&[]).unwrap();
        let error = launch(&mut submitter, LAUNCHES + 1).unwrap_err();
        assert!(matches!(error, Error::Queue(QueueError::Timeout { wanted: 2, .. })), "{error}");
        books.poke(submitter.channel().timeline().va(), 2);
        let error = launch(&mut submitter, LAUNCHES + 1).unwrap_err();
        assert!(
            matches!(error, Error::Queue(QueueError::RingTooSmall { capacity: LAUNCHES, .. })),
            "{error}"
        );
    }

    #[test]
    fn much_that_is_recorded_is_handed_over_without_being_asked_to() {
        let (_books, _shared, mut submitter) = submitter();
        let handed_over = |s: &Submitter| s.channel().timeline().submitted();
        for _ in 0..FLUSH_LAUNCHES {
            submitter.flush().unwrap();
            assert_eq!(handed_over(&submitter), 0);
            launch(&mut submitter, 256).unwrap();
        }
        submitter.flush().unwrap();
        assert_eq!(handed_over(&submitter), 1);
        submitter.recorder().words().extend(&[0; FLUSH_DWORDS - 1]);
        submitter.flush().unwrap();
        assert_eq!(handed_over(&submitter), 1);
        submitter.recorder().words().extend(&[0]);
        submitter.flush().unwrap();
        assert_eq!(handed_over(&submitter), 2);
    }

    #[test]
    fn what_is_held_goes_when_the_submission_that_was_recorded_with_it_has_ended() {
        let (books, _shared, mut submitter) = submitter();
        let (first, second) = (Arc::new(()), Arc::new(()));
        submitter.hold(first.clone());
        submitter.submit(&[]).unwrap();
        submitter.hold(second.clone());
        submitter.submit(&[]).unwrap();
        let held = || [&first, &second].map(|kept| Arc::strong_count(kept) > 1);
        assert_eq!(held(), [true, true], "neither has ended");
        books.poke(submitter.channel().timeline().va(), 1);
        submitter.submit(&[]).unwrap();
        assert_eq!(held(), [false, true]);
        books.poke(submitter.channel().timeline().va(), 3);
        submitter.submit(&[]).unwrap();
        assert_eq!(held(), [false, false]);
    }

    #[test]
    fn only_what_another_queue_has_yet_to_reach_is_waited_for_in_the_pushbuffer() {
        let (books, shared, mut submitter) = submitter();
        let other = Submitter::new(&shared, Engine::Copy).unwrap();
        let (own, theirs) = (submitter.channel().timeline().clone(), other.channel().timeline().clone());
        let mut recorded = |timeline: &Arc<Timeline>, value| {
            let before = submitter.recorder().words().len();
            submitter.wait_for(timeline, value).unwrap();
            submitter.recorder().words().words()[before..].to_vec()
        };
        assert!(recorded(&own, 1).is_empty(), "submissions of a queue follow each other");
        assert_eq!(recorded(&theirs, 1)[1], theirs.va().lower(), "an acquire");
        books.poke(theirs.va(), 1);
        assert!(recorded(&theirs, 1).is_empty());
        assert!(matches!(other.check_launches(), Err(Error::Queue(QueueError::WrongQueue { .. }))));
    }
}
