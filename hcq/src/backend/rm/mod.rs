//! The desktop driver's resource manager (`/dev/nvidiactl`, `/dev/nvidiaN`), over any [`Sys`].
//!
//! One client for each device, one address space that the resource manager writes the page tables of, one
//! channel group for each channel. Only objects are created: no setting of the GPU is changed, nothing is
//! reset, and all of it goes when the control descriptor closes, however the process ends.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nvgpu_sys::Sys;
use rm_sys::{Release, Version};

use super::calls::Calls;
use super::kernel_log::KernelLog;
use super::{
    Backend, ChannelId, ChannelRequest, Layout, Memory, MemoryId, MemoryKind, MemoryRequest, MmuError,
    RawChannel, RawFault,
};
use crate::address::GpuVa;
use crate::error::{DriverError, Error, MemoryError};
use crate::info::Info;
use crate::sync::lock;

mod channel;
mod client;
mod doorbell;
mod fault;
mod generation;
mod gpu;
mod mapping;
mod memory;
mod space;
#[cfg(test)]
mod tests;

use channel::{Channel, Wanted};
use client::Client;
use doorbell::Doorbell;
use generation::Generation;
use memory::{Allocation, GRANULE, Placement};
use space::Space;

/// First address for buffers. The firmware has addresses of its own at 4 GiB.
const LOW: u64 = 0x10_0000_0000;
/// Pushbuffers, QMDs and semaphores lie below.
const HIGH: u64 = 1 << 40;
/// End of the addresses used here, of 2^49 (Ampere) or 2^57 (Hopper) there are.
const END: u64 = 1 << 47;
/// Base of the local-memory window: 16 MiB.
const LOCAL_WINDOW: u64 = 0x7293_0000_0000;
/// Base of the shared-memory window: 4 GiB, and on Hopper a multiple of it.
const SHARED_WINDOW: u64 = 0x7294_0000_0000;
/// Addresses kept free from each window's base.
const WINDOW_ROOM: u64 = 1 << 32;

/// A desktop or data-centre GPU.
pub(crate) struct Rm {
    // Dropped in this order: channels before the memory they use, everything before the address space.
    channels: Mutex<HashMap<u64, Channel>>,
    memory: Mutex<HashMap<u64, Allocation>>,
    doorbell: Doorbell,
    space: Arc<Space>,
    copy_engine: Option<u32>,
    next_id: AtomicU64,
    info: Info,
    layout: Layout,
    log: Box<dyn KernelLog>,
}

impl fmt::Debug for Rm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rm").field("info", &self.info).field("space", &self.space).finish_non_exhaustive()
    }
}

impl Rm {
    /// Opens the first GPU this process may use. Requests that signals keep interrupting, or that the driver
    /// is too busy for, are repeated for `patience`.
    ///
    /// # Errors
    /// [`OpenError::Driver`](crate::OpenError::Driver) for a driver release and
    /// [`OpenError::Unsupported`](crate::OpenError::Unsupported) for a GPU generation that is not known here,
    /// else the call that the driver refused.
    pub fn open(sys: Arc<dyn Sys>, log: Box<dyn KernelLog>, patience: Duration) -> Result<Self, Error> {
        let sys = Arc::new(Calls::new(sys, patience));
        let control = client::open_control(&*sys)?;
        let version = match gpu::driver_version(&*sys, &control) {
            Ok(version) => version,
            Err(error) => {
                tracing::debug!(%error, "the driver does not report its version");
                Version::of_loaded_driver().map_err(|unread| {
                    tracing::debug!(%unread, "and it cannot be read");
                    error
                })?
            }
        };
        let release = Release::of(version).map_err(Error::driver)?;
        let card = gpu::find(&*sys, &control)?;
        let client = Client::new(sys, release, control, card.fd, card.path)?;
        let (device, subdevice) = space::open_device(&client, card.id)?;
        let generation = Generation::of(&gpu::class_list(&device)?)?;
        tracing::debug!(generation = generation.name, driver = %version, "GPU found");
        let info = gpu::describe(&subdevice, generation, release, version)?;
        let space = Arc::new(Space::new(device, subdevice, info.sm_count)?);
        let copy_engine = gpu::copy_engine(space.subdevice());
        let doorbell = Doorbell::new(&space, generation)?;
        let layout = Layout {
            low: LOW..HIGH,
            high: HIGH..END,
            shared_window: GpuVa::inside(SHARED_WINDOW),
            local_window: GpuVa::inside(LOCAL_WINDOW),
            reserved: [SHARED_WINDOW..SHARED_WINDOW + WINDOW_ROOM, LOCAL_WINDOW..LOCAL_WINDOW + WINDOW_ROOM],
            local_warps: info.max_warps_per_sm,
            granule: GRANULE,
            channel_va: channel::MEMORY,
        };
        Ok(Self {
            channels: Mutex::default(),
            memory: Mutex::default(),
            doorbell,
            space,
            copy_engine,
            next_id: AtomicU64::new(1),
            info,
            layout,
            log,
        })
    }

    fn new_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }
}

impl Backend for Rm {
    fn info(&self) -> &Info {
        &self.info
    }

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn allocate(&self, request: &MemoryRequest) -> Result<Memory, Error> {
        let (placement, visible) = match request.kind {
            MemoryKind::Device => (Placement::Video, false),
            MemoryKind::Command => (Placement::Video, true),
            MemoryKind::Signal | MemoryKind::Shared => (Placement::System, true),
        };
        let len = request.len;
        let mut allocation = Allocation::new(&self.space, placement, len)?;
        if visible {
            allocation.map_cpu(&self.space, placement, len, "GPU memory")?;
        }
        allocation.map_gpu(&self.space, placement, len, request.va.raw())?;
        let (id, cpu) = (self.new_id(), allocation.pointer());
        lock(&self.memory).insert(id, allocation);
        Ok(Memory { id: MemoryId(id), cpu })
    }

    fn free_memory(&self) -> Result<u64, Error> {
        gpu::free_memory(self.space.subdevice())
    }

    fn free(&self, memory: MemoryId) -> Result<(), Error> {
        let gone = lock(&self.memory).remove(&memory.0);
        drop(gone);
        Ok(())
    }

    fn create_channel(&self, request: &ChannelRequest) -> Result<RawChannel, Error> {
        let va = request.va.map(GpuVa::raw).ok_or(Error::Driver(DriverError::Answer {
            name: "a channel request",
            value: 0,
            expected: "an address for the ring",
        }))?;
        let copy_engine = self.copy_engine;
        let wanted = Wanted { engine: request.engine, entries: request.entries, va, copy_engine };
        let channel = Channel::new(&self.space, &self.info.classes, wanted)?;
        let unmapped = Error::Memory(MemoryError::NotMapped { va: GpuVa::inside(va) });
        let (Some(ring), Some(userd)) = (channel.ring(), channel.userd()) else { return Err(unmapped) };
        let (id, token) = (self.new_id(), channel.token());
        lock(&self.channels).insert(id, channel);
        Ok(RawChannel { id: ChannelId(id), ring, userd, token })
    }

    fn destroy_channel(&self, channel: ChannelId) {
        let gone = lock(&self.channels).remove(&channel.0);
        drop(gone);
    }

    fn ring_doorbell(&self, token: u32) {
        self.doorbell.ring(token);
    }

    fn channel_error(&self, channel: ChannelId) -> Option<u32> {
        let channels = lock(&self.channels);
        let channel = channels.get(&channel.0)?;
        channel.notifier().code().or_else(|| channel.debugger().and_then(fault::Debugger::trapped))
    }

    fn fault(&self, channel: ChannelId) -> RawFault {
        let mut channels = lock(&self.channels);
        let Some(channel) = channels.get_mut(&channel.0) else { return RawFault::default() };
        let notifier = channel.notifier().code().unwrap_or(0);
        let by_mmu = notifier == rm_sys::ROBUST_CHANNEL_FIFO_ERROR_MMU_ERR_FLT;
        // When the driver reports an MMU fault it has reset the SMs, and taken the channel off the GPU.
        let states = match channel.debugger() {
            Some(debugger) if !by_mmu => debugger.states(),
            _ => Vec::new(),
        };
        let mmu = by_mmu.then(|| {
            let told = channel.debugger().and_then(fault::Debugger::mmu_fault);
            told.or_else(|| channel.object().and_then(fault::mmu_fault))
        });
        let accessed = states.iter().find(|s| s.address != 0);
        let accessed = accessed.map(|s| MmuError { va: s.address, kind: None, store: None });
        // A trapped SM holds the engine for every user of the GPU: the channel goes before anything else is
        // done.
        if !by_mmu {
            channel.stop();
        }
        RawFault {
            notifier,
            sms: states.into_iter().map(|s| s.error).collect(),
            mmu: mmu.flatten().or(accessed),
            log: self.log.lines().unwrap_or_default(),
            explanation: self.log.explanation(),
            stopped: None,
        }
    }

    fn gpu_time(&self) -> Result<u64, Error> {
        Ok(self.doorbell.time())
    }
}
