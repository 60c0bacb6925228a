//! What all objects of one open device share: the backend, its memory, what waits to be freed, and its fate.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use crate::address::GpuVa;
use crate::backend::{Backend, MemoryKind};
use crate::error::Error;
use crate::fault::FaultReport;
use crate::memory::{MemoryManager, Piece};
use crate::program::{Image, Kernel};
use crate::scratch::ScratchPool;
use crate::selector::DeviceOptions;
use crate::timeline::{Slot, Timeline, Uses, reached};
use crate::transfer::Transfer;

/// Yields this long after spinning, before it sleeps.
const YIELD: Duration = Duration::from_micros(200);
/// A sleep is at most this part of what was waited already: what a wait may be too long by.
const SLEEP_SHARE: u32 = 32;
/// Longest sleep, which bounds how late the end of work or a dead channel is noticed.
const LONGEST_SLEEP: Duration = Duration::from_micros(500);

/// Memory that goes back when the submissions that name it are over.
#[derive(Debug)]
struct Retired {
    uses: Uses,
    pieces: Vec<Piece>,
    slots: Vec<Arc<Slot>>,
}

/// The shared part of a device.
#[derive(Debug)]
pub(crate) struct Context {
    backend: Box<dyn Backend>,
    pub options: DeviceOptions,
    memory: MemoryManager,
    limbo: Mutex<Vec<Retired>>,
    lost: OnceLock<FaultReport>,
    /// Loaded programs, to name the code a fault happened in.
    programs: Mutex<Vec<Weak<Image>>>,
    /// Counts loaded programs: caches of code are dropped when it moves.
    code_generation: AtomicU64,
    pub scratch: ScratchPool,
    /// Moves data of buffers the CPU cannot reach.
    transfer: Mutex<Option<Transfer>>,
    /// Makes large copies; the inner `None` where there is no code for the GPU.
    copy_kernel: Mutex<Option<Option<Kernel>>>,
}

/// The value behind a lock; what a panicking thread left is whole, since changes are made in one go.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Context {
    /// A fresh address space with nothing in it.
    pub fn new(backend: Box<dyn Backend>, options: DeviceOptions) -> Arc<Self> {
        let memory = MemoryManager::new(backend.layout(), options.reserve_windows);
        Arc::new(Self {
            backend,
            options,
            memory,
            limbo: Mutex::default(),
            lost: OnceLock::new(),
            programs: Mutex::default(),
            code_generation: AtomicU64::new(0),
            scratch: ScratchPool::default(),
            transfer: Mutex::default(),
            copy_kernel: Mutex::default(),
        })
    }

    /// The driver.
    pub fn backend(&self) -> &dyn Backend {
        &*self.backend
    }

    /// The memory tables.
    pub fn memory(&self) -> &MemoryManager {
        &self.memory
    }

    /// Allocates memory; what became free meanwhile is given back first.
    pub fn alloc(&self, len: u64, kind: MemoryKind, what: &'static str) -> Result<Piece, Error> {
        self.collect();
        self.memory.alloc(&*self.backend, len, kind, what)
    }

    /// Allocates device memory at `va`.
    pub fn alloc_at(&self, va: GpuVa, len: u64, what: &'static str) -> Result<Piece, Error> {
        self.collect();
        self.memory.alloc_at(&*self.backend, va, len, what)
    }

    /// Frees memory that nothing uses.
    pub fn free(&self, piece: Piece) {
        let va = piece.va();
        if let Err(error) = self.memory.free(&*self.backend, piece) {
            tracing::warn!(%va, %error, "memory could not be freed");
        }
    }

    /// Frees memory as soon as the submissions that name it are over.
    pub fn retire(&self, pieces: Vec<Piece>, slots: Vec<Arc<Slot>>, uses: Uses) {
        if uses.are_over(self) {
            for piece in pieces {
                self.free(piece);
            }
        } else {
            lock(&self.limbo).push(Retired { uses, pieces, slots });
        }
    }

    /// Frees what has been retired and is no longer in use.
    pub fn collect(&self) {
        let over: Vec<Retired> = {
            let mut limbo = lock(&self.limbo);
            if limbo.is_empty() {
                return;
            }
            limbo.extract_if(.., |r| r.uses.are_over(self)).collect()
        };
        for Retired { uses, pieces, slots } in over {
            for piece in pieces {
                self.free(piece);
            }
            drop((uses, slots));
        }
    }

    /// A program was loaded.
    pub fn register(&self, image: &Arc<Image>) {
        let mut programs = lock(&self.programs);
        programs.retain(|p| p.strong_count() > 0);
        programs.push(Arc::downgrade(image));
        self.code_generation.fetch_add(1, Ordering::Release);
        drop(programs);
        crate::map_file::write(self);
    }

    /// The loaded programs.
    pub fn images(&self) -> Vec<Arc<Image>> {
        lock(&self.programs).iter().filter_map(Weak::upgrade).collect()
    }

    /// Number of programs ever loaded.
    pub fn code_generation(&self) -> u64 {
        self.code_generation.load(Ordering::Acquire)
    }

    /// The loaded program whose code contains `pc`.
    pub fn image_at(&self, pc: u64) -> Option<Arc<Image>> {
        lock(&self.programs).iter().filter_map(Weak::upgrade).find(|image| image.contains(pc))
    }

    /// The kernels named by submissions of `timeline` that have not ended: program and number in it.
    pub fn kernels_in_flight(&self, timeline: &Timeline) -> Vec<(Arc<Image>, usize)> {
        let next = timeline.completed(self).wrapping_add(1);
        let images: Vec<_> = lock(&self.programs).iter().filter_map(Weak::upgrade).collect();
        let of = |image: Arc<Image>| {
            let kernels: Vec<_> = image.kernels_after(timeline, next).collect();
            kernels.into_iter().map(move |i| (image.clone(), i))
        };
        images.into_iter().flat_map(of).collect()
    }

    /// Runs `f` with the queue that moves data; it is created on first use.
    pub fn with_transfer<T>(
        self: &Arc<Self>,
        f: impl FnOnce(&mut Transfer) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut transfer = lock(&self.transfer);
        if transfer.is_none() {
            *transfer = Some(Transfer::new(self)?);
        }
        transfer.as_mut().map_or(Err(Error::Discarded), f)
    }

    /// The kernel that makes large copies; it is loaded on first use.
    pub fn copy_kernel(
        self: &Arc<Self>,
        load: impl FnOnce(&Arc<Self>) -> Result<Option<Kernel>, Error>,
    ) -> Result<Option<Kernel>, Error> {
        let mut kernel = lock(&self.copy_kernel);
        if kernel.is_none() {
            *kernel = Some(load(self)?);
        }
        Ok(kernel.clone().flatten())
    }

    /// Refuses work for a device that a fault has stopped.
    pub fn alive(&self) -> Result<(), Error> {
        match self.lost.get() {
            Some(report) => Err(Error::Lost(Box::new(report.clone()))),
            None => Ok(()),
        }
    }

    /// Looks whether the channel of `timeline` was stopped; if so, says why.
    pub fn check(&self, timeline: &Timeline) -> Result<(), Error> {
        let Some(code) = self.backend.channel_error(timeline.channel) else { return Ok(()) };
        timeline.stop();
        let report = self.lost.get_or_init(|| {
            let mut raw = self.backend.fault(timeline.channel);
            raw.notifier = code;
            crate::map_file::write(self);
            FaultReport::decode(self, timeline, &raw)
        });
        Err(Error::Fault(Box::new(report.clone())))
    }

    /// Waits until `timeline` has reached `value`: spins, yields, then sleeps, at most `timeout`.
    pub fn wait(&self, timeline: &Timeline, value: u64, timeout: Duration) -> Result<(), Error> {
        if reached(timeline.completed(self), value) {
            return Ok(());
        }
        if !timeline.can_reach(value) {
            return Err(Error::Discarded);
        }
        let start = Instant::now();
        let spin = self.spin().min(timeout);
        loop {
            for _ in 0..64 {
                if reached(timeline.completed(self), value) {
                    return Ok(());
                }
                std::hint::spin_loop();
            }
            if start.elapsed() >= spin {
                break;
            }
        }
        loop {
            // Looked at before the value: work that finished in time counts, whatever happened after it.
            let error = self.check(timeline);
            let completed = timeline.completed(self);
            if reached(completed, value) {
                return Ok(());
            }
            error?;
            let waited = start.elapsed();
            if waited >= timeout {
                return Err(Error::Timeout { waited, wanted: value, reached: completed });
            }
            if waited < spin + YIELD {
                thread::yield_now();
            } else {
                thread::sleep((waited / SLEEP_SHARE).min(LONGEST_SLEEP).min(timeout - waited));
            }
        }
    }

    fn spin(&self) -> Duration {
        self.options.spin.unwrap_or(match self.backend.info().backend {
            // The software device needs the processor that a spinning waiter would hold.
            crate::BackendKind::Sim => Duration::ZERO,
            // A decode step of a small model takes less; the kernel rounds every sleep up by some 50 µs.
            _ => Duration::from_millis(2),
        })
    }

    /// How long operations without a deadline of their own wait.
    pub fn patience(&self) -> Duration {
        self.options.patience
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let transfer = lock(&self.transfer).take();
        if let Some(transfer) = transfer {
            transfer.close(self);
        }
    }
}
