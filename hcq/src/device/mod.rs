//! Devices: opening one, and what it hands out.

use std::fmt;
use std::sync::Arc;

use nvgpu_sys::{Linux, Sys};

use crate::address::GpuVa;
use crate::backend::kernel_log::{KernelLog, Kmsg};
use crate::backend::nvgpu::Nvgpu;
use crate::backend::nvgpu::settings::Settings;
use crate::backend::rm::Rm;
use crate::backend::{Backend, Engine, MemoryKind};
use crate::device::clock::ClockPair;
use crate::device::refusal::{Machine, Refusal};
use crate::error::{Error, OpenError};
use crate::info::{BackendKind, GpuCache, Info};
use crate::memory::manager::Mapping;
use crate::objects::buffer::Buffer;
use crate::objects::program::Program;
use crate::objects::shared::Shared;
#[cfg(feature = "sim")]
use crate::observer::checker;
use crate::observer::{Observer, Unobserved};
use crate::options::{DeviceOptions, Interleave, Selector};
use crate::profile::{CommandMemory, Preemption};
use crate::program::images::Images;
use crate::program::scratch;
use crate::queue::Queue;
use crate::queue::graph::GraphBuilder;

pub(crate) mod clock;
pub(crate) mod refusal;
#[cfg(test)]
mod tests;

/// A GPU with an address space. Which driver serves it shows only in [`Device::info`]. Cloning is cheap and
/// names the same device, which closes when the last clone and everything made from it are gone.
#[derive(Clone)]
pub struct Device {
    shared: Arc<Shared>,
    /// The software ga10b, if it is the driver.
    #[cfg(feature = "sim")]
    software: Option<Arc<ga10b_sim::Sim>>,
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({:?})", self.shared.core)
    }
}

impl Device {
    /// Opens a device with default options; says which at info level.
    ///
    /// # Errors
    /// [`OpenError::Node`] if the device is not there or not permitted (its [`hint`](Error::hint) says what
    /// to do), and those of setting it up. A GPU whose nodes exist and may not be opened is an error also
    /// where another device would be taken instead.
    pub fn open(selector: Selector) -> Result<Self, Error> {
        Self::open_with(selector, DeviceOptions::default())
    }

    /// Opens a device.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with(selector: Selector, options: DeviceOptions) -> Result<Self, Error> {
        match selector {
            Selector::Nvgpu => {
                Self::nvgpu(Arc::new(Linux), options).map_err(|error| Machine::own().explain(error))
            }
            Selector::Rm => Self::rm(Arc::new(Linux), &Machine::own(), options),
            Selector::Sim => Self::sim(options),
            Selector::Auto => Self::any(&(Arc::new(Linux) as _), &Machine::own(), options),
        }
    }

    /// The first device that can be opened. One that is absent or not ours to use is passed over; anything
    /// else is a device that does not work.
    fn any(sys: &Arc<dyn Sys>, machine: &Machine, options: DeviceOptions) -> Result<Self, Error> {
        let nvgpu = match Self::nvgpu(sys.clone(), options.clone()) {
            // Another device in its place would be a surprise that nothing explains.
            Err(error) if error.is_forbidden() => return Err(error),
            Err(error @ Error::Open(OpenError::Node { .. })) => {
                Refusal::new(BackendKind::Nvgpu, error, machine)
            }
            other => return other,
        };
        nvgpu.warn();
        let rm = match Self::rm(sys.clone(), machine, options.clone()) {
            Err(error) if error.is_forbidden() => return Err(error),
            Err(
                error @ Error::Open(
                    OpenError::Node { .. }
                    | OpenError::Driver { .. }
                    | OpenError::DisplayDriver
                    | OpenError::Unsupported { .. }
                    | OpenError::UnsupportedSm { .. },
                ),
            ) => Refusal::new(BackendKind::Rm, error, machine),
            other => {
                tracing::info!("passed over: {nvgpu}");
                return other;
            }
        };
        rm.warn();
        tracing::info!("passed over: {nvgpu}; {rm}");
        match Self::sim(options) {
            Err(Error::Open(OpenError::NotBuilt { .. })) => {
                Err(Error::Open(OpenError::NoDevice { nvgpu: nvgpu.into_error(), rm: rm.into_error() }))
            }
            other => other,
        }
    }

    fn nvgpu(sys: Arc<dyn Sys>, options: DeviceOptions) -> Result<Self, Error> {
        Self::over(sys, BackendKind::Nvgpu, Box::new(Kmsg::open()), options)
    }

    fn rm(sys: Arc<dyn Sys>, machine: &Machine, options: DeviceOptions) -> Result<Self, Error> {
        machine.check_desktop_driver()?;
        Self::over_rm(sys, Box::new(Kmsg::open()), options)
    }

    #[cfg(feature = "sim")]
    fn sim(options: DeviceOptions) -> Result<Self, Error> {
        Self::over_sim(crate::backend::software::start()?, options)
    }

    #[cfg(not(feature = "sim"))]
    fn sim(_: DeviceOptions) -> Result<Self, Error> {
        Err(Error::Open(OpenError::NotBuilt { backend: "sim" }))
    }

    /// A device on `sim`.
    #[cfg(feature = "sim")]
    pub(crate) fn over_sim(sim: Arc<ga10b_sim::Sim>, mut options: DeviceOptions) -> Result<Self, Error> {
        options.keep_freed = checker::keep_freed(&sim).or(options.keep_freed);
        let log = Box::new(crate::backend::software::Log::new(sim.clone()));
        let (nvgpu, options) = Self::open_nvgpu(sim.clone(), BackendKind::Sim, log, options)?;
        let observer = checker::of(&sim, nvgpu.address_space());
        let device = Self::of(Arc::new(nvgpu), observer, options)?;
        Ok(Self { software: Some(sim), ..device })
    }

    /// The software ga10b that it is, if it is.
    #[cfg(feature = "sim")]
    pub(crate) fn software(&self) -> Option<&Arc<ga10b_sim::Sim>> {
        self.software.as_ref()
    }

    /// A device of nvgpu's, whose calls go through `sys`.
    pub(crate) fn over(
        sys: Arc<dyn Sys>,
        kind: BackendKind,
        log: Box<dyn KernelLog>,
        options: DeviceOptions,
    ) -> Result<Self, Error> {
        let (nvgpu, options) = Self::open_nvgpu(sys, kind, log, options)?;
        Self::of(Arc::new(nvgpu), Arc::new(Unobserved), options)
    }

    /// The driver of such a device, and the options as they are resolved.
    fn open_nvgpu(
        sys: Arc<dyn Sys>,
        kind: BackendKind,
        log: Box<dyn KernelLog>,
        options: DeviceOptions,
    ) -> Result<(Nvgpu, DeviceOptions), Error> {
        let cache = options.gpu_cache.map_or_else(GpuCache::from_env, Ok)?;
        let options = options.resolve()?;
        let settings = Settings {
            reserve_windows: options.reserve_windows,
            cache,
            patience: options.patience,
            commands: options.profile.command_memory.unwrap_or(CommandMemory::Cacheable),
            conservative: options.is_conservative(),
            subcontext: options.profile.subcontext,
            preemption: options.profile.preemption.unwrap_or(Preemption::WaitForIdle),
            switch_limit: options.switch_limit,
            timeslice: options.timeslice,
            interleave: options.interleave,
        };
        Ok((Nvgpu::open(sys, kind, log, settings)?, options))
    }

    /// A device of a desktop driver's, whose calls go through `sys`.
    pub(crate) fn over_rm(
        sys: Arc<dyn Sys>,
        log: Box<dyn KernelLog>,
        options: DeviceOptions,
    ) -> Result<Self, Error> {
        if let Some(level) = options.interleave {
            return Err(Interleave::refused(level, "nothing, as the desktop driver has no such levels"));
        }
        let options = options.resolve()?;
        let backend = Rm::open(sys, log, options.patience)?;
        Self::of(Arc::new(backend), Arc::new(Unobserved), options)
    }

    fn of(
        backend: Arc<dyn Backend>,
        observer: Arc<dyn Observer>,
        options: DeviceOptions,
    ) -> Result<Self, Error> {
        let info = backend.info();
        tracing::info!(name = %info.name, backend = %info.backend, sms = info.sm_count, "opened a GPU");
        Ok(Self {
            shared: Shared::new(backend, observer, options)?,
            #[cfg(feature = "sim")]
            software: None,
        })
    }

    /// The device's description.
    pub fn info(&self) -> &Info {
        self.shared.core.backend().info()
    }

    /// The points at which kernels are interrupted when another program, a desktop's compositor among them,
    /// is to have the GPU. At their end on a Jetson, unless a [`Profile`](crate::Profile) says otherwise and
    /// its driver can; known once the first queue is open.
    ///
    /// Where kernels run to their end, one that takes more than 100 ms keeps a desktop waiting, and the
    /// driver counts that: after [`switch_limit`](DeviceOptions::switch_limit) in all it takes the channel
    /// down. A persistent kernel beside a desktop needs [`Preemption::Instructions`], or launches that end
    /// sooner. Queues are created and closed beside it only when it has ended.
    pub fn preemption(&self) -> Preemption {
        match self.shared.core.backend().gives_way() {
            true => Preemption::Instructions,
            false => Preemption::WaitForIdle,
        }
    }

    /// The memory that can be allocated now. On a Jetson that is the kernel's estimate for the memory that CPU
    /// and GPU share; where the driver does not say, all that the GPU has. Memory that the device keeps for
    /// later buffers counts as free.
    ///
    /// # Errors
    /// The driver's errors.
    pub fn free_memory(&self) -> Result<u64, Error> {
        self.shared.core.here()?;
        let core = &self.shared.core;
        let free = core.backend().free_memory()?.saturating_add(core.memory().kept());
        Ok(free.min(core.info().memory))
    }

    /// Gives the memory of freed buffers back that the device keeps for later ones
    /// ([`keep_freed`](DeviceOptions::keep_freed)).
    ///
    /// # Errors
    /// The driver's errors; [`Error::Forked`].
    pub fn trim(&self) -> Result<(), Error> {
        self.shared.core.here()?;
        self.shared.core.memory().give_back_kept()
    }

    /// Bytes of device memory that stacks take, once a kernel with `stack` bytes per thread
    /// ([`Kernel::local_bytes`](crate::Kernel::local_bytes)) was launched and none with more: room for every
    /// thread that the GPU can hold at once.
    ///
    /// Memory for stacks is allocated when a launch needs more than there is, and stays until the device
    /// goes. Kernels with growing stacks therefore take a sum of such figures, unless
    /// [`reserve_stacks`](Self::reserve_stacks) came first.
    pub fn stack_memory(&self, stack: u32) -> u64 {
        scratch::bytes(&self.shared.core, scratch::per_thread(stack))
    }

    /// Allocates the memory for stacks of `stack` bytes per thread now, so that no launch of a kernel with
    /// such a stack allocates.
    ///
    /// # Errors
    /// [`MemoryError::OutOfMemory`](crate::MemoryError::OutOfMemory);
    /// [`MemoryError::OutOfAddresses`](crate::MemoryError::OutOfAddresses).
    pub fn reserve_stacks(&self, stack: u32) -> Result<(), Error> {
        self.shared.core.alive()?;
        match scratch::per_thread(stack) {
            0 => Ok(()),
            some => self.shared.scratch.get(&self.shared.core, some).map(drop),
        }
    }

    /// Allocates a buffer of `len` bytes, aligned to 256, and to 2 MiB from 8 MiB on. Its content is not
    /// specified.
    ///
    /// # Errors
    /// [`MemoryError::EmptyBuffer`](crate::MemoryError::EmptyBuffer);
    /// [`MemoryError::OutOfMemory`](crate::MemoryError::OutOfMemory);
    /// [`MemoryError::OutOfAddresses`](crate::MemoryError::OutOfAddresses).
    pub fn alloc(&self, len: u64) -> Result<Buffer, Error> {
        self.shared.core.alive()?;
        let piece = self.shared.alloc(len, MemoryKind::Device, "buffer")?;
        Ok(Buffer::new(&self.shared, piece))
    }

    /// Allocates a buffer of `len` bytes in the CPU's memory, which both sides reach: the CPU without a
    /// staging copy, the GPU over its bus. Copies between host and GPU are fastest from and to it. On a
    /// Jetson, whose memory is one, it is a buffer like any other.
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc).
    pub fn alloc_host(&self, len: u64) -> Result<Buffer, Error> {
        self.shared.core.alive()?;
        let piece = self.shared.alloc(len, MemoryKind::Shared, "host buffer")?;
        Ok(Buffer::new(&self.shared, piece))
    }

    /// Allocates a buffer of `len` bytes at a given address, a multiple of 4 KiB.
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc); [`MemoryError::InWindow`](crate::MemoryError::InWindow) and
    /// [`MemoryError::AddressTaken`](crate::MemoryError::AddressTaken) if it cannot lie there.
    pub fn alloc_at(&self, va: GpuVa, len: u64) -> Result<Buffer, Error> {
        self.shared.core.alive()?;
        let piece = self.shared.alloc_at(va, len, "buffer")?;
        Ok(Buffer::new(&self.shared, piece))
    }

    /// Loads a cubin: the one that is given, or of several ([`images!`](crate::images)) the one that runs on
    /// this device.
    ///
    /// # Errors
    /// [`ProgramError::Cubin`](crate::ProgramError::Cubin) says what is wrong with it, or that none is for
    /// this device; those of allocating its memory.
    pub fn load<'a>(&self, images: impl Into<Images<'a>>) -> Result<Program, Error> {
        Program::load(&self.shared, images.into())
    }

    /// Opens a queue for launches and copies.
    ///
    /// # Errors
    /// Those of creating a channel; [`Error::Lost`] after a fault.
    pub fn queue(&self) -> Result<Queue, Error> {
        Queue::new(&self.shared, Engine::Compute)
    }

    /// Opens a queue for copies alone, which run beside the launches of other queues.
    ///
    /// # Errors
    /// As [`queue`](Self::queue).
    pub fn copy_queue(&self) -> Result<Queue, Error> {
        Queue::new(&self.shared, Engine::Copy)
    }

    /// Starts recording a graph.
    pub fn graph(&self) -> GraphBuilder {
        GraphBuilder::new(&self.shared)
    }

    /// Everything mapped in the address space, by address.
    pub fn memory_map(&self) -> Vec<Mapping> {
        self.shared.core.memory().mappings()
    }

    /// The windows through which kernels reach shared and local memory: name and first address. No buffer
    /// lies there.
    pub fn windows(&self) -> [(&'static str, GpuVa); 2] {
        let layout = self.shared.core.backend().layout();
        [("shared memory", layout.shared_window), ("local memory", layout.local_window)]
    }

    /// The GPU's clock in ns, from which timestamps are taken.
    ///
    /// # Errors
    /// The driver's errors.
    pub fn gpu_time(&self) -> Result<u64, Error> {
        self.shared.core.here()?;
        self.shared.core.backend().gpu_time()
    }

    /// Reads the GPU's clock and the program's together, in some µs.
    ///
    /// # Errors
    /// The driver's errors.
    pub fn clock_pair(&self) -> Result<ClockPair, Error> {
        clock::pair(|| self.gpu_time())
    }
}
