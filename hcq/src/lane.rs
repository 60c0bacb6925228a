//! A channel with all it takes to submit: ring, command memory, timeline. Queues and transfers are built on it.

use std::sync::Arc;

use crate::address::Bytes;
use crate::backend::{Channel, ChannelRequest, Engine, MemoryKind};
use crate::context::Context;
use crate::error::Error;
use crate::gpfifo::{Gpfifo, MAX_DWORDS, Segment};
use crate::memory::Piece;
use crate::pushbuffer::Pushbuffer;
use crate::ring::Ring;
use crate::timeline::Timeline;
use crate::va_space::Place;

/// Entries of a channel's ring: 8 KiB.
const ENTRIES: u32 = 1024;
/// Bytes of command memory.
const COMMANDS: u64 = 1 << 20;
/// Commands start on, and are written in, whole lines of the CPU's write-combining buffers.
const LINE: u64 = 64;
/// Dwords of a line.
const LINE_DWORDS: usize = LINE as usize / 4;
/// Dwords after which recorded commands are handed over without being asked to, so that the GPU starts on the first
/// few hundred launches while the CPU records the next.
pub(crate) const FLUSH_DWORDS: usize = 1 << 10;

/// A channel that takes submissions.
#[derive(Debug)]
pub(crate) struct Lane {
    channel: Channel,
    channel_va: Option<Place>,
    fifo: Gpfifo,
    /// `Some` until the lane is closed.
    commands: Option<Piece>,
    ring: Ring,
    timeline: Arc<Timeline>,
    /// Value of the last submission.
    value: u64,
    /// The timeline when it was last looked at: looking costs a cache miss.
    seen: u64,
    /// Reused.
    segments: Vec<Segment>,
}

impl Lane {
    /// A channel of its own.
    pub fn new(context: &Arc<Context>, engine: Engine) -> Result<Self, Error> {
        context.alive()?;
        let commands = context.alloc(COMMANDS, MemoryKind::Command, "command ring")?;
        match Self::with_commands(context, engine) {
            Ok(lane) => Ok(Self { commands: Some(commands), ..lane }),
            Err(error) => {
                context.free(commands);
                Err(error)
            }
        }
    }

    fn with_commands(context: &Arc<Context>, engine: Engine) -> Result<Self, Error> {
        let backend = context.backend();
        let channel_va = match backend.layout().channel_va {
            0 => None,
            len => Some(context.memory().reserve(len, "channel")?),
        };
        let give_back = |place: &Option<Place>| {
            if let Some(place) = place {
                context.memory().unreserve(place.clone());
            }
        };
        let va = channel_va.as_ref().map(|place| place.va);
        let request = ChannelRequest { engine, entries: ENTRIES, va };
        let channel = backend.create_channel(&request).inspect_err(|_| give_back(&channel_va))?;
        let start = context.options.timeline_start;
        let timeline = Timeline::new(context, channel.id, start).inspect_err(|_| {
            backend.destroy_channel(channel.id);
            give_back(&channel_va);
        })?;
        Ok(Self {
            channel,
            channel_va,
            fifo: Gpfifo::new(channel, ENTRIES),
            commands: None,
            ring: Ring::new(COMMANDS),
            timeline: Arc::new(timeline),
            value: start,
            seen: start,
            segments: Vec::new(),
        })
    }

    /// The lane's progress.
    pub fn timeline(&self) -> &Arc<Timeline> {
        &self.timeline
    }

    /// The value the next submission will signal.
    pub fn next(&self) -> u64 {
        self.value.wrapping_add(1)
    }

    /// The value of the last submission.
    pub fn last(&self) -> u64 {
        self.value
    }

    /// The value the GPU has reached.
    pub fn completed(&self, context: &Context) -> u64 {
        self.timeline.completed(context)
    }

    /// Waits until the GPU has reached `value`, at most the device's patience.
    pub fn wait(&self, context: &Context, value: u64) -> Result<(), Error> {
        context.wait(&self.timeline, value, context.patience())
    }

    /// Hands `words` to the GPU, then `recorded`, then a release of the next value, which is returned. With
    /// `released`, something in the words releases it, and no release is added.
    ///
    /// After an error nothing was handed over, and the words are as before.
    pub fn submit(
        &mut self,
        context: &Context,
        words: &mut Pushbuffer,
        recorded: &[Segment],
        released: bool,
    ) -> Result<u64, Error> {
        let body = words.len();
        if !released {
            words.release(self.timeline.va(), self.next());
        }
        let result = self.submit_all(context, words, body, recorded);
        if result.is_err() {
            words.truncate(body);
        }
        result
    }

    /// Hands over `words`, with `recorded` in between from `body` on.
    fn submit_all(
        &mut self,
        context: &Context,
        words: &mut Pushbuffer,
        body: usize,
        recorded: &[Segment],
    ) -> Result<u64, Error> {
        context.alive()?;
        let value = self.next();
        let dwords = words.len();
        let tail = dwords - body;
        // No-operations behind the end, which no entry names, make whole lines of what is written.
        words.pad(LINE_DWORDS);
        let offset = self.take(context, words.len())?;
        // The words may straddle entries: an entry ends where the recorded segments go, or where it is full.
        let entries = body.div_ceil(MAX_DWORDS) + recorded.len() + 1;
        self.wait_for_entries(context, entries as u32)?;
        let commands = self.commands.as_ref().ok_or(Error::Discarded)?;
        commands.write_words(offset, words.words())?;
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
            self.segments.push(Segment { va: at(body), dwords: tail as u32 });
        }
        self.ring.seal(value);
        self.value = value;
        self.timeline.set_submitted(value);
        self.fifo.publish(&self.segments, value);
        context.backend().ring_doorbell(self.channel.token);
        Ok(value)
    }

    fn take(&mut self, context: &Context, dwords: usize) -> Result<u64, Error> {
        let len = 4 * dwords as u64;
        loop {
            if let Some(offset) = self.ring.alloc(len, LINE, self.seen) {
                return Ok(offset);
            }
            self.seen = self.completed(context);
            if let Some(offset) = self.ring.alloc(len, LINE, self.seen) {
                return Ok(offset);
            }
            let oldest = self.ring.oldest().ok_or(Error::RingTooSmall {
                what: "a submission",
                len: Bytes::new(len),
                capacity: Bytes::new(self.ring.capacity()),
            })?;
            self.wait(context, oldest)?;
        }
    }

    fn wait_for_entries(&mut self, context: &Context, count: u32) -> Result<(), Error> {
        loop {
            if self.fifo.slots().has_room(count, self.seen) {
                return Ok(());
            }
            self.seen = self.completed(context);
            if self.fifo.slots().has_room(count, self.seen) {
                return Ok(());
            }
            let oldest = self.fifo.slots().oldest().ok_or(Error::RingTooSmall {
                what: "a submission's entries",
                len: Bytes::new(8 * u64::from(count)),
                capacity: Bytes::new(8 * u64::from(ENTRIES)),
            })?;
            self.wait(context, oldest)?;
        }
    }

    /// Waits for what was submitted, at most the device's patience, then removes the channel and frees its memory.
    /// Other memory that only this lane's work used may be freed when this returns.
    pub fn close(mut self, context: &Context) {
        let ended = self.wait(context, self.value);
        self.timeline.close();
        let backend = context.backend();
        backend.destroy_channel(self.channel.id);
        if let Err(error) = ended {
            tracing::warn!(%error, "a queue was dropped with work that did not end; its channel was stopped");
            self.timeline.stop();
        }
        if let Some(place) = self.channel_va.take() {
            context.memory().unreserve(place);
        }
        if let Some(commands) = self.commands.take() {
            context.free(commands);
        }
    }
}
