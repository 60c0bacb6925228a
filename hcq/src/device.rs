//! Devices: opening one, and what it hands out.

use std::sync::Arc;

use nvgpu_sys::{Linux, Sys};

use crate::address::GpuVa;
use crate::backend::nvgpu::{KernelLog, Kmsg, NoLog, Nvgpu};
use crate::backend::rm::Rm;
use crate::backend::{Backend, Engine, MemoryKind};
use crate::buffer::Buffer;
use crate::clock::{self, ClockPair};
use crate::context::Context;
use crate::error::Error;
use crate::graph::GraphBuilder;
use crate::info::{BackendKind, Info};
use crate::memory::Mapping;
use crate::program::Program;
use crate::queue::Queue;
use crate::selector::{DeviceOptions, GpuCache, Selector};

/// A GPU with an address space. Which driver serves it shows only in [`Device::info`]. Cloning is cheap and names the
/// same device, which closes when the last clone and everything made from it are gone.
#[derive(Clone, Debug)]
pub struct Device {
    context: Arc<Context>,
}

impl Device {
    /// Opens a device with default options; says which at info level.
    ///
    /// # Errors
    /// [`Error::Open`] if the device is not there or not permitted (its [`hint`](Error::hint) says what to do), and
    /// those of setting it up.
    pub fn open(selector: Selector) -> Result<Self, Error> {
        Self::open_with(selector, DeviceOptions::default())
    }

    /// Opens a device.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with(selector: Selector, options: DeviceOptions) -> Result<Self, Error> {
        match selector {
            Selector::Nvgpu => Self::nvgpu(options),
            Selector::Rm => Self::rm(options),
            Selector::Sim => Self::sim(options),
            Selector::Auto => match Self::nvgpu(options.clone()) {
                // Absent or not ours to use: the next one. Anything else is a device that does not work.
                Err(Error::Open { path, errno }) => {
                    tracing::debug!(?path, %errno, "no Jetson GPU");
                    match Self::rm(options.clone()) {
                        Err(error @ (Error::Open { .. } | Error::Driver(_) | Error::Unsupported { .. })) => {
                            tracing::debug!(%error, "no desktop GPU that can be used");
                            Self::sim(options)
                        }
                        other => other,
                    }
                }
                other => other,
            },
        }
    }

    fn nvgpu(options: DeviceOptions) -> Result<Self, Error> {
        Self::over(Arc::new(Linux), BackendKind::Nvgpu, Box::new(Kmsg::open()), options)
    }

    fn rm(options: DeviceOptions) -> Result<Self, Error> {
        let backend = Rm::open(Arc::new(Linux), Box::new(Kmsg::open()))?;
        Ok(Self::of(Box::new(backend), options))
    }

    #[cfg(feature = "sim")]
    fn sim(mut options: DeviceOptions) -> Result<Self, Error> {
        let sim = match options.sim.take() {
            Some(sim) => sim,
            None => {
                let config = ga10b_sim::SimConfig::from_env().map_err(|bad| Error::UnknownSetting {
                    variable: bad.variable,
                    value: bad.value,
                    expected: bad.expected,
                })?;
                ga10b_sim::Sim::try_new(config)
                    .map_err(|errno| Error::Open { path: c"the software ga10b".into(), errno })?
            }
        };
        let log = Box::new(SimLog { from: sim.kernel_log().len(), sim: sim.clone() });
        Self::over(sim, BackendKind::Sim, log, options)
    }

    #[cfg(not(feature = "sim"))]
    fn sim(_: DeviceOptions) -> Result<Self, Error> {
        Err(Error::NotBuilt { backend: "sim" })
    }

    /// Opens a Jetson's GPU over any implementation of the system calls: a tracer, a fault injector.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn with_sys(sys: Arc<dyn Sys>, options: DeviceOptions) -> Result<Self, Error> {
        Self::over(sys, BackendKind::Nvgpu, Box::new(NoLog), options)
    }

    fn over(
        sys: Arc<dyn Sys>,
        kind: BackendKind,
        log: Box<dyn KernelLog>,
        options: DeviceOptions,
    ) -> Result<Self, Error> {
        let cache = options.gpu_cache.map_or_else(GpuCache::from_env, Ok)?;
        let backend = Nvgpu::open(sys, kind, log, options.reserve_windows, cache)?;
        Ok(Self::of(Box::new(backend), options))
    }

    fn of(backend: Box<dyn Backend>, options: DeviceOptions) -> Self {
        let info = backend.info();
        tracing::info!(name = %info.name, backend = %info.backend, sms = info.sm_count, "opened a GPU");
        Self { context: Context::new(backend, options) }
    }

    /// What the device is.
    pub fn info(&self) -> &Info {
        self.context.backend().info()
    }

    /// Allocates a buffer of `len` bytes, aligned to 256, and to 2 MiB from 8 MiB on. Its content is not specified.
    ///
    /// # Errors
    /// [`Error::EmptyBuffer`]; [`Error::OutOfAddresses`]; what the driver says when memory is used up.
    pub fn alloc(&self, len: u64) -> Result<Buffer, Error> {
        self.context.alive()?;
        let piece = self.context.alloc(len, MemoryKind::Device, "buffer")?;
        Ok(Buffer::new(&self.context, piece))
    }

    /// Allocates a buffer of `len` bytes in the CPU's memory, which both sides reach: the CPU without a staging copy, the
    /// GPU over its bus. Copies between host and GPU are fastest from and to it. On a Jetson, whose memory is one, it
    /// is a buffer like any other.
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc).
    pub fn alloc_host(&self, len: u64) -> Result<Buffer, Error> {
        self.context.alive()?;
        let piece = self.context.alloc(len, MemoryKind::Shared, "host buffer")?;
        Ok(Buffer::new(&self.context, piece))
    }

    /// Allocates a buffer of `len` bytes at a given address, a multiple of 4 KiB.
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc); [`Error::InWindow`] and [`Error::AddressTaken`] if it cannot lie there.
    pub fn alloc_at(&self, va: GpuVa, len: u64) -> Result<Buffer, Error> {
        self.context.alive()?;
        let piece = self.context.alloc_at(va, len, "buffer")?;
        Ok(Buffer::new(&self.context, piece))
    }

    /// Loads a cubin.
    ///
    /// # Errors
    /// [`Error::Cubin`] says what is wrong with it; those of allocating its memory.
    pub fn load(&self, cubin: &[u8]) -> Result<Program, Error> {
        Program::load(&self.context, cubin)
    }

    /// Opens a queue for launches and copies.
    ///
    /// # Errors
    /// Those of creating a channel; [`Error::Lost`] after a fault.
    pub fn queue(&self) -> Result<Queue, Error> {
        Queue::new(&self.context, Engine::Compute)
    }

    /// Opens a queue for copies alone, which run beside the launches of other queues.
    ///
    /// # Errors
    /// As [`queue`](Self::queue).
    pub fn copy_queue(&self) -> Result<Queue, Error> {
        Queue::new(&self.context, Engine::Copy)
    }

    /// Starts recording a graph.
    pub fn graph(&self) -> GraphBuilder {
        GraphBuilder::new(&self.context)
    }

    /// Everything mapped in the address space, by address.
    pub fn memory_map(&self) -> Vec<Mapping> {
        self.context.memory().mappings()
    }

    /// The windows through which kernels reach shared and local memory: name and first address. No buffer lies there.
    pub fn windows(&self) -> [(&'static str, GpuVa); 2] {
        let layout = self.context.backend().layout();
        [("shared memory", layout.shared_window), ("local memory", layout.local_window)]
    }

    /// The GPU's clock in ns, from which timestamps are taken.
    ///
    /// # Errors
    /// What the driver says.
    pub fn gpu_time(&self) -> Result<u64, Error> {
        self.context.backend().gpu_time()
    }

    /// Reads the GPU's clock and the program's together, in some µs.
    ///
    /// # Errors
    /// What the driver says.
    pub fn clock_pair(&self) -> Result<ClockPair, Error> {
        clock::pair(|| self.gpu_time())
    }
}

/// The software device's kernel log.
#[cfg(feature = "sim")]
#[derive(Debug)]
struct SimLog {
    sim: Arc<ga10b_sim::Sim>,
    from: usize,
}

#[cfg(feature = "sim")]
impl KernelLog for SimLog {
    fn lines(&self) -> Vec<String> {
        self.sim.kernel_log().split_off(self.from)
    }
}
