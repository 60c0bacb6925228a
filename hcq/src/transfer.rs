//! Moves data between the program and memory: by the CPU where it can reach the memory, else by the copy engine
//! through staging memory.
//!
//! One CPU core moves less than the bus does, so large transfers are shared out among threads: each fills or empties
//! staging slots of its own, while the engine works on others.

use std::collections::VecDeque;
use std::iter::Enumerate;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use crate::address::GpuVa;
use crate::backend::{Engine, MemoryKind};
use crate::context::{Context, lock};
use crate::error::Error;
use crate::lane::Lane;
use crate::memory::Piece;
use crate::pushbuffer::Pushbuffer;
use crate::timeline::Timeline;

/// Bytes of one staging slot.
const SLOT: usize = 1 << 20;
/// Slots of a thread: the CPU works on one while the engine works on the other.
const SLOTS: usize = 2;
/// Most threads of a transfer.
const THREADS: usize = 8;
/// Transfers are shared out from this many bytes for each thread on: starting one takes as long as copying half of it.
const SHARE: usize = 2 << 20;

/// A copy channel with staging memory.
#[derive(Debug)]
pub(crate) struct Transfer {
    line: Line,
    staging: Piece,
    threads: usize,
}

/// A copy channel, and the words of a copy.
#[derive(Debug)]
struct Line {
    lane: Lane,
    words: Pushbuffer,
}

impl Line {
    fn copy(&mut self, context: &Context, from: GpuVa, to: GpuVa, len: usize) -> Result<u64, Error> {
        self.words.copy(from, to, len as u64);
        let value = self.lane.submit(context, &mut self.words, &[], false)?;
        self.words.clear();
        Ok(value)
    }
}

/// What the threads of one transfer share.
struct Work<'a> {
    context: &'a Context,
    timeline: Arc<Timeline>,
    line: Mutex<&'a mut Line>,
    staging: &'a Piece,
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
        self.context.wait(&self.timeline, value, self.context.patience())
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
            let value = lock(&self.line).copy(self.context, self.staging.at(slot), self.at(i), part.len())?;
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
                let value =
                    lock(&self.line).copy(self.context, self.at(i), self.staging.at(slot), part.len())?;
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

/// The parts of a transfer that no thread has taken yet.
struct Parts<I>(Mutex<Enumerate<I>>);

impl<I: Iterator> Parts<I> {
    fn new(parts: I) -> Self {
        Self(Mutex::new(parts.enumerate()))
    }

    fn next(&self) -> Option<(usize, I::Item)> {
        lock(&self.0).next()
    }
}

/// Runs `work` on `threads` threads, this one included. It does all there is to do with any number of them, so that one
/// that cannot be started is not missed.
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
                tracing::debug!(%error, "a transfer goes on with fewer threads");
                break;
            }
        }
        run(0);
    });
    result.into_inner().unwrap_or_else(PoisonError::into_inner)
}

impl Transfer {
    /// A channel of its own.
    pub fn new(context: &Arc<Context>) -> Result<Self, Error> {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        // Half the cores: the other half may be the program's own.
        let threads = (cores / 2).clamp(1, THREADS);
        let staging = context.alloc((threads * SLOTS * SLOT) as u64, MemoryKind::Shared, "staging")?;
        let lane = match Lane::new(context, Engine::Copy) {
            Ok(lane) => lane,
            Err(error) => {
                context.free(staging);
                return Err(error);
            }
        };
        let mut words = Pushbuffer::default();
        words.set_up_copy(&context.backend().info().classes);
        Ok(Self { line: Line { lane, words }, staging, threads })
    }

    fn work<'a>(&'a mut self, context: &'a Context, va: GpuVa) -> Result<Work<'a>, Error> {
        // What an earlier transfer left behind when it failed.
        self.line.lane.wait(context, self.line.lane.last())?;
        let timeline = self.line.lane.timeline().clone();
        Ok(Work { context, timeline, line: Mutex::new(&mut self.line), staging: &self.staging, va })
    }

    fn threads(&self, len: usize) -> usize {
        (len / SHARE).clamp(1, self.threads)
    }

    /// Copies `data` to `to` and waits until it is there.
    pub fn upload(&mut self, context: &Context, to: GpuVa, data: &[u8]) -> Result<(), Error> {
        let (threads, work) = (self.threads(data.len()), self.work(context, to)?);
        let parts = Parts::new(data.chunks(SLOT));
        share(threads, |thread| work.upload(thread, &parts))
    }

    /// Copies from `from` into `data`.
    pub fn download(&mut self, context: &Context, from: GpuVa, data: &mut [u8]) -> Result<(), Error> {
        let (threads, work) = (self.threads(data.len()), self.work(context, from)?);
        let parts = Parts::new(data.chunks_mut(SLOT));
        share(threads, |thread| work.download(thread, &parts))
    }

    /// Removes the channel and frees the staging memory.
    pub fn close(self, context: &Context) {
        self.line.lane.close(context);
        context.free(self.staging);
    }
}

impl Context {
    fn by_cpu(&self, piece: &Piece) -> bool {
        piece.is_mapped() && !self.options.staged_copies
    }

    /// Writes into memory that no submission uses.
    pub fn upload(self: &Arc<Self>, piece: &Piece, offset: u64, data: &[u8]) -> Result<(), Error> {
        if self.by_cpu(piece) {
            self.backend().before_cpu_access(piece.kind())?;
            return piece.write(offset, data);
        }
        self.with_transfer(|t| t.upload(self, piece.at(offset), data))
    }

    /// Reads memory that no submission uses.
    pub fn download(self: &Arc<Self>, piece: &Piece, offset: u64, data: &mut [u8]) -> Result<(), Error> {
        if self.by_cpu(piece) {
            self.backend().before_cpu_access(piece.kind())?;
            return piece.read(offset, data);
        }
        self.with_transfer(|t| t.download(self, piece.at(offset), data))
    }
}
