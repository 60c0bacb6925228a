//! Staged copies: data that the CPU cannot reach in place goes through staging memory, by the copy engine.
//!
//! One CPU core moves less than the bus does, so large copies are shared out among threads: each fills or
//! empties staging slots of its own, while the engine works on others.

use std::collections::VecDeque;
use std::iter::Enumerate;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::address::GpuVa;
use crate::backend::{Engine, MemoryKind};
use crate::device::core::Core;
use crate::error::Error;
use crate::memory::manager::Piece;
use crate::submission::channel::Channel;
use crate::submission::limbo::Limbo;
use crate::submission::pushbuffer::Pushbuffer;
use crate::submission::timeline::Timeline;
use crate::sync::lock;

/// Bytes of one staging slot.
const SLOT: usize = 1 << 20;
/// Slots of a thread: the CPU works on one while the engine works on the other.
const SLOTS: usize = 2;
/// Most threads of a copy.
const THREADS: usize = 8;
/// Copies are shared out from this many bytes for each thread on: starting one takes as long as copying half
/// of it.
const SHARE: usize = 2 << 20;

/// A copy channel with staging memory.
pub(crate) struct Staging {
    // Dropped first, and then nothing uses the memory any more.
    copies: CopyChannel,
    memory: Piece,
    threads: usize,
    patience: Duration,
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

/// What the threads of one copy share.
struct Work<'a> {
    timeline: Arc<Timeline>,
    copies: Mutex<&'a mut CopyChannel>,
    staging: &'a Piece,
    patience: Duration,
    /// The GPU's side.
    va: GpuVa,
}

impl Work<'_> {
    /// Offset of a thread's slot.
    fn slot(thread: usize, round: usize) -> u64 {
        ((thread * SLOTS + round % SLOTS) * SLOT) as u64
    }

    /// Where part `i` lies on the GPU's side.
    fn at(&self, i: usize) -> GpuVa {
        GpuVa::inside(self.va.raw() + (i * SLOT) as u64)
    }

    fn wait(&self, value: u64) -> Result<(), Error> {
        self.timeline.wait(value, self.patience)
    }

    /// Moves parts of `data` to the GPU until none is left; run by each thread.
    fn upload<'d>(&self, thread: usize, data: &Parts<impl Iterator<Item = &'d [u8]>>) -> Result<(), Error> {
        let mut busy = [None; SLOTS];
        for round in 0.. {
            let Some((i, part)) = data.next() else { break };
            let slot = Self::slot(thread, round);
            if let Some(value) = busy[round % SLOTS] {
                self.wait(value)?;
            }
            self.staging.write(slot, part)?;
            let value = lock(&self.copies).copy(self.staging.at(slot), self.at(i), part.len())?;
            busy[round % SLOTS] = Some(value);
        }
        busy.into_iter().flatten().try_for_each(|value| self.wait(value))
    }

    /// Fetches parts of `data` from the GPU until none is left; run by each thread.
    fn download<'d>(
        &self,
        thread: usize,
        data: &Parts<impl Iterator<Item = &'d mut [u8]>>,
    ) -> Result<(), Error> {
        let mut started = VecDeque::with_capacity(SLOTS);
        for round in 0.. {
            let next = data.next();
            let none_left = next.is_none();
            if let Some((i, part)) = next {
                let slot = Self::slot(thread, round);
                let value = lock(&self.copies).copy(self.at(i), self.staging.at(slot), part.len())?;
                started.push_back((value, slot, part));
            }
            if (none_left || started.len() == SLOTS)
                && let Some((value, slot, part)) = started.pop_front()
            {
                self.wait(value)?;
                self.staging.read(slot, part)?;
            }
            if none_left && started.is_empty() {
                break;
            }
        }
        Ok(())
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
        let memory = core.alloc((threads * SLOTS * SLOT) as u64, MemoryKind::Shared, "staging")?;
        let channel = Channel::new(core, limbo, Engine::Copy)?;
        let mut words = Pushbuffer::default();
        words.set_up_copy(&core.info().classes);
        Ok(Self { copies: CopyChannel { channel, words }, memory, threads, patience: core.patience() })
    }

    fn work(&mut self, va: GpuVa) -> Result<Work<'_>, Error> {
        // What an earlier copy has left running when it failed.
        self.copies.channel.wait_idle()?;
        let timeline = self.copies.channel.timeline().clone();
        let (staging, patience) = (&self.memory, self.patience);
        Ok(Work { timeline, copies: Mutex::new(&mut self.copies), staging, patience, va })
    }

    fn threads(&self, len: usize) -> usize {
        (len / SHARE).clamp(1, self.threads)
    }

    /// Copies `data` to `to` and waits until it is there.
    pub fn upload(&mut self, to: GpuVa, data: &[u8]) -> Result<(), Error> {
        let (threads, work) = (self.threads(data.len()), self.work(to)?);
        let parts = Parts::new(data.chunks(SLOT));
        share(threads, |thread| work.upload(thread, &parts))
    }

    /// Copies from `from` into `data`.
    pub fn download(&mut self, from: GpuVa, data: &mut [u8]) -> Result<(), Error> {
        let (threads, work) = (self.threads(data.len()), self.work(from)?);
        let parts = Parts::new(data.chunks_mut(SLOT));
        share(threads, |thread| work.download(thread, &parts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::tests::Books;

    #[test]
    fn a_copy_that_was_refused_does_not_go_with_the_next() {
        let books = Books::new(usize::MAX);
        let mut staging = Staging::new(&books.core(), &Arc::default()).unwrap();
        let (copies, at) = (&mut staging.copies, GpuVa::inside(0x10_0000_0000));
        let mut last = copies.copy(at, at, 4);
        while last.is_ok() {
            assert!(copies.words.is_empty());
            last = copies.copy(at, at, 4);
        }
        assert!(matches!(last, Err(Error::Timeout { .. })));
        assert!(copies.words.is_empty());
    }
}
