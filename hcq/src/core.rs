//! State shared by all objects of a device: the driver, the memory tables, the options, and the fault that
//! stopped it.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::address::GpuVa;
use crate::backend::{Backend, ChannelId, MemoryKind, RawFault};
use crate::error::Error;
use crate::error::report::FaultReport;
use crate::info::{BackendKind, Info};
use crate::memory::manager::{MemoryManager, Piece};
use crate::observer::Observer;
use crate::options::DeviceOptions;

/// The position that a channel's timeline had reached.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Position {
    /// The channel.
    pub channel: ChannelId,
    /// The value its timeline had reached.
    pub completed: u64,
}

/// Joins what the driver recorded about a fault with what is known above: programs, and the kernels in
/// flight.
pub(crate) trait Explain: Send + Sync {
    /// The report of a fault of the channel that stopped `at` a position.
    fn explain(&self, core: &Core, at: Position, raw: &RawFault) -> FaultReport;
}

/// State shared by all objects; the device closes with the last reference.
pub(crate) struct Core {
    backend: Arc<dyn Backend>,
    memory: Arc<MemoryManager>,
    explain: Arc<dyn Explain>,
    lost: OnceLock<FaultReport>,
    observer: Arc<dyn Observer>,
    pub options: DeviceOptions,
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.info().name, self.info().backend)
    }
}

impl Core {
    /// An address space with nothing in it.
    pub fn new(
        backend: Arc<dyn Backend>,
        observer: Arc<dyn Observer>,
        options: DeviceOptions,
        explain: Arc<dyn Explain>,
    ) -> Arc<Self> {
        let keep = options.keep(backend.info().memory);
        let memory = MemoryManager::new(backend.clone(), observer.clone(), options.reserve_windows, keep);
        Arc::new(Self { backend, memory, explain, lost: OnceLock::new(), observer, options })
    }

    /// The driver.
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.backend
    }

    /// The observer of the program's use of the device.
    pub fn observer(&self) -> &dyn Observer {
        &*self.observer
    }

    /// The GPU's description.
    pub fn info(&self) -> &Info {
        self.backend.info()
    }

    /// The memory tables.
    pub fn memory(&self) -> &Arc<MemoryManager> {
        &self.memory
    }

    /// Allocates memory.
    pub fn alloc(&self, len: u64, kind: MemoryKind, what: &'static str) -> Result<Piece, Error> {
        self.memory.alloc(len, kind, what)
    }

    /// Allocates device memory at `va`.
    pub fn alloc_at(&self, va: GpuVa, len: u64, what: &'static str) -> Result<Piece, Error> {
        self.memory.alloc_at(va, len, what)
    }

    /// Whether the caller is in the process that opened the device.
    pub fn is_open_here(&self) -> bool {
        self.memory.process().is_current()
    }

    /// Refuses callers in a fork of the process that opened the device.
    pub fn here(&self) -> Result<(), Error> {
        self.memory.process().check()
    }

    /// Refuses work for a device that a fault has stopped, or that is another process's.
    pub fn alive(&self) -> Result<(), Error> {
        self.here()?;
        match self.lost.get() {
            Some(report) => Err(Error::Lost(Box::new(report.clone()))),
            None => Ok(()),
        }
    }

    /// The device is lost: the driver has stopped the channel `at` a position with error `notifier`. The
    /// first fault is the one that is reported.
    pub fn lose(&self, at: Position, notifier: u32) -> Error {
        let report = self.lost.get_or_init(|| {
            let raw = RawFault { notifier, ..self.backend.fault(at.channel) };
            self.explain.explain(self, at, &raw)
        });
        Error::Fault(Box::new(report.clone()))
    }

    /// Time for which a wait spins before it yields and then sleeps.
    pub fn spin(&self) -> Duration {
        self.options.spin.unwrap_or(match self.info().backend {
            // The software device needs the processor that a spinning waiter would hold.
            BackendKind::Sim => Duration::ZERO,
            // A decode step of a small model takes less; the kernel rounds every sleep up by some 50 µs.
            _ => Duration::from_millis(2),
        })
    }

    /// Time for which operations without a deadline of their own wait.
    pub fn patience(&self) -> Duration {
        self.options.patience
    }
}
