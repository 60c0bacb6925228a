//! A channel with all it takes to submit: GPFIFO, command memory, timeline. Queues and staged copies are
//! built on it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::address::GpuVa;
use crate::backend::{ChannelRequest, Engine, MemoryKind};
use crate::core::Core;
use crate::error::{Error, QueueError};
use crate::memory::manager::{Piece, Reservation};
use crate::serial::reached;
use crate::submission::gpfifo::{Gpfifo, MAX_DWORDS, Segment};
use crate::submission::limbo::Limbo;
use crate::submission::pushbuffer::Pushbuffer;
use crate::submission::ring::Ring;
use crate::submission::timeline::{Slot, Timeline};

/// Entries of a channel's GPFIFO: 8 KiB.
const ENTRIES: u32 = 1024;
/// Bytes of command memory.
const COMMANDS: u64 = 1 << 20;
/// Commands start on, and are written in, whole lines of the CPU's write-combining buffers.
const LINE: u64 = 64;
/// Dwords of a line.
const LINE_DWORDS: usize = LINE as usize / 4;

/// A channel that takes submissions. Dropping it waits for what was submitted, at most the device's patience,
/// and removes it.
pub(crate) struct Channel {
    core: Arc<Core>,
    limbo: Arc<Limbo>,
    fifo: Gpfifo,
    ring: Ring,
    timeline: Arc<Timeline>,
    /// Value of the last submission.
    value: u64,
    /// The timeline when it was last read: reading it costs a cache miss.
    seen: u64,
    /// Reused.
    segments: Vec<Segment>,
    /// Time for which submissions wait for room.
    patience: Duration,
    // Dropped after `drop` has removed the channel, which reads them until then.
    commands: Piece,
    _ring_va: Option<Reservation>,
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "timeline {} submitted up to {}", self.timeline.va(), self.value)
    }
}

impl Channel {
    /// A channel of its own. Its end collects the deferred frees of `limbo`.
    pub fn new(core: &Arc<Core>, limbo: &Arc<Limbo>, engine: Engine) -> Result<Self, Error> {
        core.alive()?;
        let backend = core.backend();
        let commands = core.alloc(COMMANDS, MemoryKind::Command, "command ring")?;
        let slot = Slot::starting_at(core, core.options.timeline_start)?;
        let ring_va = match backend.layout().channel_va {
            0 => None,
            len => Some(core.memory().reserve(len, "channel")?),
        };
        let va = ring_va.as_ref().map(Reservation::va);
        let request = ChannelRequest { engine, entries: ENTRIES, va };
        let mut fifo = limbo.make_room(core.patience(), || Gpfifo::new(backend, &request))?;
        fifo.subroutines = core.options.is_conservative();
        let timeline = Arc::new(Timeline::new(core, fifo.id(), slot));
        let start = timeline.submitted();
        if backend.shares_group() {
            limbo.enter(&timeline);
        }
        Ok(Self {
            core: core.clone(),
            limbo: limbo.clone(),
            ring: Ring::new(COMMANDS),
            timeline,
            fifo,
            value: start,
            seen: start,
            segments: Vec::new(),
            patience: core.patience(),
            commands,
            _ring_va: ring_va,
        })
    }

    /// Its progress.
    pub fn timeline(&self) -> &Arc<Timeline> {
        &self.timeline
    }

    /// Address and value with which the next submission signals its end.
    pub fn signal(&self) -> (GpuVa, u64) {
        (self.timeline.va(), self.next())
    }

    /// The value the next submission will signal.
    pub fn next(&self) -> u64 {
        self.value.wrapping_add(1)
    }

    /// Whether everything that was submitted has ended.
    pub fn is_idle(&self) -> bool {
        reached(self.timeline.completed(), self.value)
    }

    /// Time for which submissions wait for room.
    pub fn patience(&self) -> Duration {
        self.patience
    }

    /// Sets how long submissions wait for room, in place of the device's patience.
    pub fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// Waits until the GPU has reached `value`, as long as submissions wait for room.
    pub fn wait(&self, value: u64) -> Result<(), Error> {
        self.timeline.wait(value, self.patience)
    }

    /// Waits for everything that was submitted, at most the device's patience.
    pub fn wait_idle(&self) -> Result<(), Error> {
        self.timeline.wait(self.value, self.core.patience())
    }

    /// Hands the first `body` words to the GPU, then `recorded`, then the rest of the words. Something in
    /// them releases the next value, which is returned.
    ///
    /// After an error nothing was handed over, and the words are as before.
    pub fn submit(
        &mut self,
        words: &mut Pushbuffer,
        body: usize,
        recorded: &[Segment],
    ) -> Result<u64, Error> {
        let dwords = words.len();
        // No-operations after the end, which no entry names, make whole lines of what is written.
        words.pad(LINE_DWORDS);
        let placed = self.place(words, body, recorded.len());
        words.truncate(dwords);
        let offset = placed?;
        let commands = &self.commands;
        let at = |dword: usize| commands.at(offset + 4 * dword as u64);
        self.segments.clear();
        if recorded.is_empty() && dwords <= MAX_DWORDS {
            self.segments.push(Segment { va: at(0), dwords: dwords as u32 });
        } else {
            for start in (0..body).step_by(MAX_DWORDS) {
                let len = (body - start).min(MAX_DWORDS);
                self.segments.push(Segment { va: at(start), dwords: len as u32 });
            }
            self.segments.extend_from_slice(recorded);
            if dwords > body {
                self.segments.push(Segment { va: at(body), dwords: (dwords - body) as u32 });
            }
        }
        let value = self.next();
        self.ring.seal(value);
        self.value = value;
        self.timeline.set_submitted(value);
        self.fifo.publish(&self.segments, value, self.core.observer());
        Ok(value)
    }

    /// Writes `words` into command memory, once that and the GPFIFO have room; their offset.
    fn place(&mut self, words: &Pushbuffer, body: usize, recorded: usize) -> Result<u64, Error> {
        self.core.alive()?;
        let offset = self.take(words.len())?;
        // The words may straddle entries: an entry ends where the recorded segments go, or where it is full.
        let entries = body.div_ceil(MAX_DWORDS) + recorded + 1;
        self.wait_for_entries(entries as u32)?;
        self.commands.write_words(offset, words.words())?;
        Ok(offset)
    }

    fn take(&mut self, dwords: usize) -> Result<u64, Error> {
        let len = 4 * dwords as u64;
        loop {
            if let Some(offset) = self.ring.alloc(len, LINE, self.seen) {
                return Ok(offset);
            }
            self.seen = self.timeline.completed();
            if let Some(offset) = self.ring.alloc(len, LINE, self.seen) {
                return Ok(offset);
            }
            let oldest = self.ring.oldest().ok_or(Error::Queue(QueueError::RingTooSmall {
                what: "a submission",
                len,
                capacity: self.ring.capacity(),
            }))?;
            self.wait(oldest)?;
        }
    }

    fn wait_for_entries(&mut self, count: u32) -> Result<(), Error> {
        loop {
            if self.fifo.slots().has_room(count, self.seen) {
                return Ok(());
            }
            self.seen = self.timeline.completed();
            if self.fifo.slots().has_room(count, self.seen) {
                return Ok(());
            }
            let oldest = self.fifo.slots().oldest().ok_or(Error::Queue(QueueError::RingTooSmall {
                what: "a submission's entries",
                len: 8 * u64::from(count),
                capacity: 8 * u64::from(ENTRIES),
            }))?;
            self.wait(oldest)?;
        }
    }

    /// Waits for everything that was submitted, at most the device's patience, and removes the channel. The error is
    /// why the work did not end.
    pub fn close(&mut self) -> Result<(), Error> {
        if !self.core.is_open_here() || self.timeline.is_closed() {
            return Ok(());
        }
        let ended = self.wait_idle();
        self.timeline.close();
        let channel = self.fifo.close();
        match &ended {
            // Here and now, since its addresses are free afterwards.
            Ok(()) if !self.core.backend().shares_group() => drop(channel),
            Ok(()) => self.limbo.close(channel, self.core.backend().gives_way()),
            Err(_) => {
                self.limbo.close_now(channel);
                self.timeline.stop();
            }
        }
        self.limbo.collect();
        ended
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::warn!(%error, "a queue was dropped with work that did not end; its channel was stopped");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::backend::tests::Books;
    use crate::submission::gpfifo::GP_PUT;
    use crate::sync::lock;
    use crate::sync::tests::with_barriers_watched;

    /// Once `GP_PUT` has moved the GPU may fetch what it names, and once the doorbell rings it looks for it.
    #[test]
    fn commands_and_entries_are_stored_then_gp_put_then_the_doorbell_with_barriers_between() {
        let books = Books::new(usize::MAX);
        let mut channel = Channel::new(&books.core(), &Arc::default(), Engine::Copy).unwrap();
        let (id, at) = (channel.fifo.id(), channel.commands.va());
        let seen = Arc::<Mutex<Vec<_>>>::default();
        let look = |place: &'static str| {
            let (books, seen) = (books.clone(), seen.clone());
            move || {
                let put = books.userd_word(id, GP_PUT);
                lock(&seen).push((place, books.peek(at) as u32, books.ring_entry(id, 0), put));
            }
        };
        *lock(&books.at_doorbell) = Some(Box::new(look("doorbell")));
        let mut words = Pushbuffer::default();
        words.wait_for_engine();
        let (command, dwords) = (words.words()[0], words.len() as u32);
        with_barriers_watched(look("barrier"), || channel.submit(&mut words, 0, &[])).unwrap();
        *lock(&books.at_doorbell) = None;
        let entry = Segment { va: at, dwords }.entry(false);
        assert_ne!((command, entry), (0, 0));
        assert_eq!(
            *lock(&seen),
            [("barrier", command, entry, 0), ("barrier", command, entry, 1), ("doorbell", command, entry, 1)]
        );
    }

    #[test]
    fn what_was_not_handed_over_is_as_before_and_can_be_handed_over_later() {
        let books = Books::new(usize::MAX);
        let core = books.core();
        let mut channel = Channel::new(&core, &Arc::default(), Engine::Copy).unwrap();
        let mut words = Pushbuffer::default();
        words.wait_for_engine();
        let before = words.words().to_vec();
        // One entry of the GPFIFO always stays free.
        for value in 1..u64::from(ENTRIES) {
            assert_eq!(channel.submit(&mut words, 0, &[]).unwrap(), value);
        }
        let error = channel.submit(&mut words, 0, &[]).unwrap_err();
        assert!(matches!(error, Error::Queue(QueueError::Timeout { wanted: 1, reached: 0, .. })), "{error}");
        assert_eq!((words.words(), channel.next()), (&before[..], u64::from(ENTRIES)));
        assert_eq!(channel.timeline().submitted(), u64::from(ENTRIES) - 1);
        let (at, _) = channel.signal();
        books.poke(at, 1);
        assert_eq!(channel.submit(&mut words, 0, &[]).unwrap(), u64::from(ENTRIES));
        assert!(!channel.is_idle());
        books.poke(at, u64::from(ENTRIES));
        assert!(channel.is_idle());
    }

    #[test]
    fn a_dropped_channel_leaves_nothing() {
        let books = Books::new(usize::MAX);
        let (core, limbo) = (books.core(), Arc::<Limbo>::default());
        let mut channel = Channel::new(&core, &limbo, Engine::Compute).unwrap();
        let timeline = channel.timeline().clone();
        let mut words = Pushbuffer::default();
        words.wait_for_engine();
        let value = channel.submit(&mut words, 0, &[]).unwrap();
        // Its work never ends: what it used is free once it is gone.
        assert!(!timeline.has_ended(value));
        drop(channel);
        assert!(timeline.has_ended(value) && timeline.has_ended(value + 1));
        assert!(matches!(
            timeline.wait(value + 1, core.patience()),
            Err(Error::Queue(QueueError::Discarded))
        ));
        drop(timeline);
        assert!(core.memory().mappings().is_empty());
    }

    fn words(count: usize) -> Pushbuffer {
        let mut words = Pushbuffer::default();
        words.extend(&vec![0; count]);
        words
    }

    /// Hands `words` over, with `recorded` between the first `body` of them and the rest, until there is no
    /// room while nothing completes; how often there was, and the ring entries that the GPU was told of.
    fn fill(channel: &mut Channel, books: &Books, words: usize, body: usize, recorded: usize) -> (u64, u32) {
        let mut words = self::words(words);
        let recorded = vec![Segment { va: GpuVa::inside(0x1000), dwords: 1 }; recorded];
        let mut count = 0;
        while channel.submit(&mut words, body, &recorded).is_ok() {
            count += 1;
            assert!(count < u64::from(ENTRIES), "the ring has no end");
        }
        (count, books.userd_word(channel.fifo.id(), 0x8c))
    }

    #[test]
    fn entries_that_the_gpu_has_not_read_are_kept() {
        // Words before and after what was recorded have an entry each, and none where there are no words.
        for (len, body, recorded, entries) in
            [(2, 1, 510, 512), (1, 1, 510, 511), (1, 0, 340, 341), (2, 0, 1, 2), (40, 8, 1, 3)]
        {
            let books = Books::new(usize::MAX);
            let core = books.core();
            let mut channel = Channel::new(&core, &Arc::default(), Engine::Copy).unwrap();
            let (count, put) = fill(&mut channel, &books, len, body, recorded);
            assert_eq!(put, count as u32 * entries, "{entries} entries each");
            assert!(put < ENTRIES, "one that is full would look empty");
            assert!(put + entries + 1 >= ENTRIES, "room is left for {} entries", ENTRIES - put);
        }
    }

    #[test]
    fn commands_that_the_gpu_has_not_read_are_kept() {
        let books = Books::new(usize::MAX);
        let core = books.core();
        let mut channel = Channel::new(&core, &Arc::default(), Engine::Copy).unwrap();
        // 1 MiB of command memory holds two of 400 KiB.
        let (count, put) = fill(&mut channel, &books, 100 << 10, 0, 0);
        assert_eq!((count, put), (2, 2));
        let (at, _) = channel.signal();
        books.poke(at, 1);
        assert_eq!(channel.submit(&mut words(100 << 10), 0, &[]).unwrap(), 3);
        let error = channel.submit(&mut words((256 << 10) + 1), 0, &[]).unwrap_err();
        assert!(matches!(error, Error::Queue(QueueError::Timeout { wanted: 2, .. })), "{error}");
        books.poke(at, 3);
        let error = channel.submit(&mut words((256 << 10) + 1), 0, &[]).unwrap_err();
        let small = matches!(error, Error::Queue(QueueError::RingTooSmall { capacity: COMMANDS, .. }));
        assert!(small, "{error}");
        assert_eq!(channel.submit(&mut words(256 << 10), 0, &[]).unwrap(), 4, "all of it");
    }

    #[test]
    fn a_wait_for_a_channel_is_one_for_what_was_submitted() {
        let books = Books::new(usize::MAX);
        let core = books.core();
        let mut channel = Channel::new(&core, &Arc::default(), Engine::Copy).unwrap();
        assert!(channel.is_idle() && channel.wait_idle().is_ok());
        let (at, next) = channel.signal();
        assert_eq!((next, channel.next()), (1, 1));
        assert_eq!(channel.submit(&mut words(1), 0, &[]).unwrap(), next);
        assert!(!channel.is_idle());
        assert!(matches!(channel.wait_idle(), Err(Error::Queue(QueueError::Timeout { wanted: 1, .. }))));
        books.poke(at, 1);
        assert!(channel.is_idle() && channel.wait_idle().is_ok());
        assert!(channel.wait(2).is_err());
    }
}
