//! Staged copies: data that the CPU cannot reach in place goes through staging memory, by the copy engine.
//!
//! One CPU core moves less than the bus does, so large copies are shared out among threads, and copies of the
//! program's own threads run beside each other: each thread takes a slot of staging memory, fills or empties
//! it, while the engine works on others.

use std::collections::VecDeque;
use std::iter::Enumerate;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::address::GpuVa;
use crate::backend::{Engine, MemoryKind};
use crate::core::Core;
use crate::error::Error;
use crate::memory::manager::Piece;
use crate::submission::channel::Channel;
use crate::submission::limbo::Limbo;
use crate::submission::pushbuffer::Pushbuffer;
use crate::submission::timeline::Timeline;
use crate::sync::lock;

/// Bytes of one staging slot.
const SLOT: usize = 1 << 20;
/// Slots that a thread of a large copy uses: the CPU works on one while the engine works on the other.
const SLOTS: usize = 2;
/// Most threads of a copy.
const THREADS: usize = 8;
/// Most slots.
const MOST_SLOTS: usize = SLOTS * THREADS;
/// Copies are shared out from this many bytes for each thread on: starting one takes as long as copying half
/// of it.
const SHARE: usize = 2 << 20;

/// A copy channel with staging memory.
pub(crate) struct Staging {
    // Dropped first, and then nothing uses the memory any more.
    copies: Mutex<CopyChannel>,
    timeline: Arc<Timeline>,
    slots: Slots,
    memory: Piece,
    threads: usize,
    patience: Duration,
}

/// The slots that no thread has.
struct Slots {
    free: Mutex<Vec<Slot>>,
    freed: Condvar,
}

/// Part of the staging memory, and the last copy from or to it.
#[derive(Clone, Copy)]
struct Slot {
    offset: u64,
    busy: Option<u64>,
}

impl Slots {
    fn new(count: usize) -> Self {
        let slot = |i: usize| Slot { offset: (i * SLOT) as u64, busy: None };
        Self { free: Mutex::new((0..count).map(slot).collect()), freed: Condvar::new() }
    }

    /// A slot; waits for one.
    fn take(&self) -> Slot {
        let mut free = lock(&self.free);
        loop {
            match free.pop() {
                Some(slot) => return slot,
                None => free = self.freed.wait(free).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// A slot, if there is one.
    fn try_take(&self) -> Option<Slot> {
        lock(&self.free).pop()
    }

    fn give_back(&self, slot: Slot) {
        lock(&self.free).push(slot);
        self.freed.notify_one();
    }
}

/// The slots of one thread, in the order of their copies; given back when it ends, also by an error.
struct Own<'a> {
    staging: &'a Staging,
    slots: VecDeque<Slot>,
}

impl<'a> Own<'a> {
    fn new(staging: &'a Staging) -> Self {
        Self { staging, slots: VecDeque::with_capacity(SLOTS) }
    }

    /// Whether another copy can start without waiting for one of this thread's. A thread without a slot waits
    /// for one; who has one never waits for others, which might wait for it.
    fn reserve(&mut self) -> bool {
        if self.slots.len() == SLOTS {
            return false;
        }
        let slots = &self.staging.slots;
        let slot = if self.slots.is_empty() { Some(slots.take()) } else { slots.try_take() };
        slot.map(|slot| self.slots.push_back(slot)).is_some()
    }

    /// Waits for the copy of the slot at `at`.
    fn wait(&mut self, at: usize) -> Result<(), Error> {
        if let Some(value) = self.slots[at].busy {
            self.staging.timeline.wait(value, self.staging.patience)?;
            self.slots[at].busy = None;
        }
        Ok(())
    }
}

impl Drop for Own<'_> {
    fn drop(&mut self) {
        // A copy that may still run is waited for by who takes its slot.
        self.slots.drain(..).for_each(|slot| self.staging.slots.give_back(slot));
    }
}

/// A copy channel, and the words of a copy.
struct CopyChannel {
    channel: Channel,
    words: Pushbuffer,
}

impl CopyChannel {
    /// Hands a copy to the engine; the value that signals its end.
    fn copy(&mut self, from: GpuVa, to: GpuVa, len: usize) -> Result<u64, Error> {
        let before = self.words.len();
        self.words.copy(from, to, len as u64);
        let (body, (va, value)) = (self.words.len(), self.channel.signal());
        self.words.release(va, value);
        let submitted = self.channel.submit(&mut self.words, body, &[]);
        // A copy that was not handed over must not go with the next one: its staging slot holds other data
        // then.
        self.words.truncate(if submitted.is_ok() { 0 } else { before });
        submitted
    }
}

/// The parts of a copy that no thread has taken yet.
struct Parts<I>(Mutex<Enumerate<I>>);

impl<I: Iterator> Parts<I> {
    fn new(parts: I) -> Self {
        Self(Mutex::new(parts.enumerate()))
    }

    fn next(&self) -> Option<(usize, I::Item)> {
        lock(&self.0).next()
    }
}

/// Runs `work` on `threads` threads, this one included. It does all there is to do with any number of them,
/// so that one that cannot be started is not missed.
fn share(threads: usize, work: impl Fn(usize) -> Result<(), Error> + Sync) -> Result<(), Error> {
    let result = Mutex::new(Ok(()));
    let run = |thread| {
        let ended = work(thread);
        let mut result = lock(&result);
        if result.is_ok() {
            *result = ended;
        }
    };
    thread::scope(|scope| {
        let run = &run;
        for thread in 1..threads {
            if let Err(error) = thread::Builder::new().spawn_scoped(scope, move || run(thread)) {
                tracing::debug!(%error, "a staged copy goes on with fewer threads");
                break;
            }
        }
        run(0);
    });
    result.into_inner().unwrap_or_else(PoisonError::into_inner)
}

impl Staging {
    /// A channel of its own.
    pub fn new(core: &Arc<Core>, limbo: &Arc<Limbo>) -> Result<Self, Error> {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        // Half the cores: the other half may be the program's own.
        let threads = (cores / 2).clamp(1, THREADS);
        let slots = cores.clamp(SLOTS, MOST_SLOTS);
        let memory = core.alloc((slots * SLOT) as u64, MemoryKind::Shared, "staging")?;
        let channel = Channel::new(core, limbo, Engine::Copy)?;
        let mut words = Pushbuffer::default();
        words.set_up_copy(&core.info().classes);
        let timeline = channel.timeline().clone();
        let (copies, slots) = (Mutex::new(CopyChannel { channel, words }), Slots::new(slots));
        Ok(Self { copies, timeline, slots, memory, threads, patience: core.patience() })
    }

    fn threads(&self, len: usize) -> usize {
        (len / SHARE).clamp(1, self.threads)
    }

    /// Copies `data` to `to` and waits until it is there. Threads may copy at the same time.
    pub fn upload(&self, to: GpuVa, data: &[u8]) -> Result<(), Error> {
        let parts = Parts::new(data.chunks(SLOT));
        share(self.threads(data.len()), |_| self.upload_parts(to, &parts))
    }

    /// Copies from `from` into `data`. Threads may copy at the same time.
    pub fn download(&self, from: GpuVa, data: &mut [u8]) -> Result<(), Error> {
        let threads = self.threads(data.len());
        let parts = Parts::new(data.chunks_mut(SLOT));
        share(threads, |_| self.download_parts(from, &parts))
    }

    /// Hands a copy to the engine.
    fn copy(&self, from: GpuVa, to: GpuVa, len: usize) -> Result<u64, Error> {
        lock(&self.copies).copy(from, to, len)
    }

    /// Moves parts of `data` to `to` until none is left; run by each thread.
    fn upload_parts<'d>(&self, to: GpuVa, data: &Parts<impl Iterator<Item = &'d [u8]>>) -> Result<(), Error> {
        let mut own = Own::new(self);
        while let Some((i, part)) = data.next() {
            if !own.reserve() {
                own.slots.rotate_left(1);
            }
            let last = own.slots.len() - 1;
            own.wait(last)?;
            let offset = own.slots[last].offset;
            self.memory.write(offset, part)?;
            let value = self.copy(self.memory.at(offset), part_at(to, i), part.len())?;
            own.slots[last].busy = Some(value);
        }
        (0..own.slots.len()).try_for_each(|at| own.wait(at))
    }

    /// Fetches parts of `data` from `from` until none is left; run by each thread.
    fn download_parts<'d>(
        &self,
        from: GpuVa,
        data: &Parts<impl Iterator<Item = &'d mut [u8]>>,
    ) -> Result<(), Error> {
        let mut own = Own::new(self);
        let mut started = VecDeque::with_capacity(SLOTS);
        loop {
            // A part is taken only with a slot for it.
            let next = if own.reserve() { data.next() } else { None };
            if let Some((i, part)) = next {
                let last = own.slots.len() - 1;
                own.wait(last)?;
                let offset = own.slots[last].offset;
                let value = self.copy(part_at(from, i), self.memory.at(offset), part.len())?;
                own.slots[last].busy = Some(value);
                started.push_back(part);
                continue;
            }
            let Some(part) = started.pop_front() else { return Ok(()) };
            own.wait(0)?;
            self.memory.read(own.slots[0].offset, part)?;
            if let Some(slot) = own.slots.pop_front() {
                self.slots.give_back(slot);
            }
        }
    }
}

/// GPU address of part `i` of a copy.
fn part_at(va: GpuVa, i: usize) -> GpuVa {
    GpuVa::inside(va.raw() + (i * SLOT) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::tests::Books;
    use crate::error::QueueError;

    /// A copy that its thread waited for in vain may still read or write its slot.
    #[test]
    fn a_slot_is_used_again_when_its_last_copy_has_ended() {
        let books = Books::new(usize::MAX);
        let staging = Staging::new(&books.core(), &Arc::default()).unwrap();
        let (at, timeline) = (GpuVa::inside(0x10_0000_0000), staging.timeline.clone());
        let in_vain = |result: Result<(), Error>, value: u64| {
            let timeout =
                matches!(result, Err(Error::Queue(QueueError::Timeout { wanted, .. })) if wanted == value);
            assert!(timeout && timeline.submitted() == value, "{result:?}, {}", timeline.submitted());
        };
        in_vain(staging.upload(at, &[1; 4]), 1);
        let slot = lock(&staging.slots.free).last().expect("given back").offset;
        in_vain(staging.upload(at, &[2; 4]), 1);
        in_vain(staging.download(at, &mut [0; 4]), 1);
        let mut staged = [0; 4];
        staging.memory.read(slot, &mut staged).unwrap();
        assert_eq!(staged, [1; 4], "the first copy reads it");
        books.poke(timeline.va(), 1);
        in_vain(staging.download(at, &mut [0; 4]), 2);
    }

    #[test]
    fn a_copy_that_was_refused_does_not_go_with_the_next() {
        let books = Books::new(usize::MAX);
        let staging = Staging::new(&books.core(), &Arc::default()).unwrap();
        let (mut copies, at) = (lock(&staging.copies), GpuVa::inside(0x10_0000_0000));
        let mut last = copies.copy(at, at, 4);
        while last.is_ok() {
            assert!(copies.words.is_empty());
            last = copies.copy(at, at, 4);
        }
        assert!(matches!(last, Err(Error::Queue(QueueError::Timeout { .. }))));
        assert!(copies.words.is_empty());
    }
}
