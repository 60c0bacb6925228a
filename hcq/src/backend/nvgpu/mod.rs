//! Tegra's `nvgpu.ko` and `nvmap.ko`, over any [`Sys`]: a Jetson, the software ga10b, a tracer, a fault
//! injector.
//!
//! One address space and one channel group (TSG) for each device. Addresses are fixed: after the windows, one
//! large area is reserved in the driver, and every buffer is mapped inside it where the tables above this
//! backend say.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use nvgpu_sys::{Sys, nvgpu_gpu_get_gpu_time_args, nvgpu_gpu_l2_fb_args};

use super::calls::Calls;
use super::kernel_log::KernelLog;
use super::{
    Backend, ChannelId, ChannelRequest, Layout, Memory, MemoryId, MemoryKind, MemoryRequest, RawChannel,
    RawFault,
};
use crate::error::{Error, QueueError};
use crate::info::{BackendKind, GpuCache, Info};
use crate::sync::lock;

mod channel;
mod fault;
mod group;
mod handle;
mod mapping;
mod mmu_fault;
mod nvmap;
pub(crate) mod settings;
mod space;

use channel::Channel;
use mapping::{Attributes, CpuMapping, Mapped};
use settings::Settings;
use space::Space;

/// `l2_flush` and `l2_invalidate` of `NVGPU_GPU_IOCTL_FLUSH_L2`: dirty lines go to memory, then all lines go.
const FLUSH_AND_INVALIDATE: u8 = 1 | 1 << 1;
/// From this length on, all pages of a buffer are mapped at once.
const POPULATED: u64 = 2 << 20;
/// Channels that the driver puts into one group.
const CHANNELS: usize = 128;
/// Bytes of the doorbell page.
const USERMODE_LEN: usize = 0x1_0000;
/// `NOTIFY_CHANNEL_PENDING`: the doorbell, in the usermode page.
const DOORBELL: usize = 0x90;

/// Channels that were opened, and those of them that are closed, each so far. Threads open and close them at the
/// same time.
#[derive(Default)]
struct ChannelCount {
    opened: AtomicUsize,
    closed: AtomicUsize,
}

/// A Jetson's GPU, or what behaves like one.
pub(crate) struct Nvgpu {
    // Dropped in this order: channels before the group, mappings before the address space they are in.
    channels: Mutex<HashMap<u64, Channel>>,
    count: ChannelCount,
    mappings: Mutex<HashMap<u64, Mapped>>,
    doorbell: CpuMapping,
    space: Space,
    next_id: AtomicU64,
    info: Info,
    layout: Layout,
    log: Box<dyn KernelLog>,
    settings: Settings,
}

impl Nvgpu {
    /// Opens the device and creates its address space.
    pub fn open(
        sys: Arc<dyn Sys>,
        kind: BackendKind,
        log: Box<dyn KernelLog>,
        settings: Settings,
    ) -> Result<Self, Error> {
        let sys: Arc<dyn Sys> = Arc::new(Calls::new(sys, settings.patience));
        let (space, info) = Space::open(sys, kind, &settings)?;
        let doorbell = CpuMapping::new(&space.sys, space.ctrl.as_fd(), USERMODE_LEN, "the doorbell page")?;
        Ok(Self {
            channels: Mutex::default(),
            count: ChannelCount::default(),
            mappings: Mutex::default(),
            doorbell,
            next_id: AtomicU64::new(1),
            info: Info { gpu_cache: Some(settings.cache), ..info },
            layout: space::layout(settings.reserve_windows, space.local_warps),
            space,
            log,
            settings,
        })
    }

    /// The node of its address space.
    #[cfg(feature = "sim")]
    pub fn address_space(&self) -> std::os::fd::BorrowedFd<'_> {
        self.space.address_space.as_fd()
    }

    fn new_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }
}

/// Whether memory of this kind may be kept in the GPU's cache: what both sides poll must not be.
fn is_kept(kind: MemoryKind) -> bool {
    kind == MemoryKind::Device
}

impl Backend for Nvgpu {
    fn info(&self) -> &Info {
        &self.info
    }

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn allocate(&self, request: &MemoryRequest) -> Result<Memory, Error> {
        let attributes = Attributes {
            caching: self.settings.caching(request.kind),
            keep: self.settings.cache == GpuCache::Keep && is_kept(request.kind),
            // The software device has memory only where it is touched.
            populate: self.info.backend == BackendKind::Nvgpu && request.len >= POPULATED,
        };
        let mapped = Mapped::new(&self.space, request, attributes)?;
        let memory = Memory { id: MemoryId(self.new_id()), cpu: Some(mapped.cpu()) };
        lock(&self.mappings).insert(memory.id.0, mapped);
        Ok(memory)
    }

    fn free(&self, memory: MemoryId) -> Result<(), Error> {
        let mapped = lock(&self.mappings).remove(&memory.0);
        match mapped {
            Some(mapped) => mapped.unmap(&self.space.address_space),
            None => Ok(()),
        }
    }

    fn before_cpu_access(&self, kind: MemoryKind) -> Result<(), Error> {
        if self.settings.cache == GpuCache::Bypass || !is_kept(kind) {
            return Ok(());
        }
        let mut args = nvgpu_gpu_l2_fb_args { flags: FLUSH_AND_INVALIDATE, ..Default::default() };
        // SAFETY: the struct holds no addresses.
        unsafe { self.space.ctrl.send(&mut args) }
    }

    fn create_channel(&self, request: &ChannelRequest) -> Result<RawChannel, Error> {
        let id = ChannelId(self.new_id());
        let ChannelCount { opened, closed } = &self.count;
        let before = closed.load(Ordering::Relaxed);
        opened.fetch_add(1, Ordering::Relaxed);
        let made = Channel::new(&self.space, &self.info.classes, &self.settings, request);
        let channel = made.map_err(|error| {
            // The driver says no more than EINVAL. There were at most so many, this one with them.
            let there = opened.load(Ordering::Relaxed) - before + lock(&self.space.unfinished).len();
            closed.fetch_add(1, Ordering::Relaxed);
            match error.is_refusal() && there > CHANNELS {
                true => Error::Queue(QueueError::TooMany { limit: CHANNELS }),
                false => error,
            }
        })?;
        let raw = RawChannel { id, ring: channel.ring(), userd: channel.userd(), token: channel.token() };
        lock(&self.channels).insert(id.0, channel);
        Ok(raw)
    }

    fn destroy_channel(&self, channel: ChannelId) {
        let gone = lock(&self.channels).remove(&channel.0);
        let count = usize::from(gone.is_some());
        drop(gone);
        self.count.closed.fetch_add(count, Ordering::Relaxed);
        // Channels are closed when none works.
        let unfinished = std::mem::take(&mut *lock(&self.space.unfinished));
        drop(unfinished);
    }

    fn ring_doorbell(&self, token: u32) {
        let at: NonNull<u8> = self.doorbell.base();
        // SAFETY: the page is mapped for `USERMODE_LEN` bytes while `self` exists and the doorbell lies in
        // it, 4-byte aligned. The GPU is powered: only a channel's owner rings, and a deterministic channel
        // holds a power reference.
        unsafe { AtomicU32::from_ptr(at.as_ptr().add(DOORBELL).cast()) }.store(token, Ordering::Release);
    }

    fn channel_error(&self, channel: ChannelId) -> Option<u32> {
        lock(&self.channels).get(&channel.0)?.error()
    }

    fn gives_way(&self) -> bool {
        self.space.preempts.load(Ordering::Relaxed)
    }

    fn shares_group(&self) -> bool {
        true
    }

    fn is_given_up(&self, channel: ChannelId) -> bool {
        lock(&self.channels).get(&channel.0).is_some_and(|channel| channel.is_given_up(&self.space))
    }

    fn fault(&self, channel: ChannelId) -> RawFault {
        let (notifier, number) = match lock(&self.channels).get(&channel.0) {
            Some(channel) => (channel.error().unwrap_or(0), Some(channel.number())),
            None => (0, None),
        };
        fault::read(&self.space.group.tsg, self.info.sm_count, notifier, number, &*self.log)
    }

    fn explanation(&self) -> Vec<String> {
        self.log.explanation()
    }

    fn free_memory(&self) -> Result<u64, Error> {
        nvmap::memory(&self.space.nvmap).map(|memory| memory.free)
    }

    fn gpu_time(&self) -> Result<u64, Error> {
        let mut args = nvgpu_gpu_get_gpu_time_args::default();
        // SAFETY: the struct holds no addresses.
        unsafe { self.space.ctrl.send(&mut args) }?;
        Ok(args.gpu_timestamp)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use nv_hw::class;

    use crate::info::{BackendKind, Classes, Info};

    /// A description of an Orin's GPU.
    pub(crate) fn info() -> Info {
        Info {
            name: "ga10b".into(),
            backend: BackendKind::Nvgpu,
            sm: 0x807,
            sm_count: 16,
            tpc_count: 8,
            max_warps_per_sm: 48,
            max_shared_per_block: 163 << 10,
            classes: Classes {
                compute: class::AMPERE_COMPUTE_B,
                copy: class::AMPERE_DMA_COPY_B,
                channel: class::AMPERE_CHANNEL_GPFIFO_B,
            },
            memory: 64 << 30,
            unified_memory: true,
            driver_version: String::new(),
            max_clock_hz: None,
            gpu_cache: None,
        }
    }
}
