//! Channels in user-mode submit.

use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use nvgpu_sys::{
    Ioctl, NVGPU_CHANNEL_SETUP_BIND_FLAGS_DETERMINISTIC, NVGPU_CHANNEL_SETUP_BIND_FLAGS_USERMODE_SUPPORT,
    NVGPU_COMPUTE_PREEMPTION_MODE_CTA, NVGPU_IOCTL_CHANNEL_DISABLE_WDT, nvgpu_alloc_obj_ctx_args,
    nvgpu_as_bind_channel_args, nvgpu_channel_setup_bind_args, nvgpu_channel_wdt_args,
    nvgpu_gpu_open_channel_args, nvgpu_preemption_mode_args, nvgpu_set_error_notifier,
    nvgpu_tsg_bind_channel_ex_args,
};

use super::handle::Handle;
use super::mapping::CpuMapping;
use super::nvmap::{self, PAGE};
use super::space::Space;
use crate::backend::{ChannelRequest, Engine, MemoryKind};
use crate::error::Error;
use crate::info::Classes;

/// The runlist of graphics, compute and its copy engine.
const GR_RUNLIST: i32 = -1;
/// Byte offset of the error code in a notifier.
const NOTIFIER_CODE: usize = 8;
/// Byte offset of the 32-bit word whose upper half is the status.
const NOTIFIER_STATUS: usize = 12;
/// Status of a notifier that was posted.
const POSTED: u32 = 0xffff;

/// An open channel and its memory.
#[derive(Debug)]
pub(super) struct Channel {
    // Dropped in this order: the channel before the memory it uses.
    _channel: Handle,
    ring: CpuMapping,
    userd: CpuMapping,
    notifier: CpuMapping,
    token: u32,
}

impl Channel {
    /// Opens a channel, binds it, and gives it its ring, its objects and its error notifier.
    pub fn new(space: &Space, classes: &Classes, request: &ChannelRequest) -> Result<Self, Error> {
        let mut open = nvgpu_gpu_open_channel_args { channel_fd: GR_RUNLIST };
        // SAFETY: the struct holds no addresses.
        unsafe { space.ctrl.send(&mut open) }?;
        let channel = Handle::from_answer(&space.sys, nvgpu_gpu_open_channel_args::NAME, open.channel_fd)?;
        let fd = channel.raw();

        // The address space before the group: the group's first subcontext takes it from its first channel.
        let mut bind = nvgpu_as_bind_channel_args { channel_fd: fd.cast_unsigned() };
        // SAFETY: the descriptor is the channel's, which is open.
        unsafe { space.address_space.send(&mut bind) }?;
        let mut bind = nvgpu_tsg_bind_channel_ex_args { channel_fd: fd, ..Default::default() };
        // SAFETY: as above.
        unsafe { space.tsg.send(&mut bind) }?;
        // User-mode submit is refused while the watchdog is on.
        let mut watchdog =
            nvgpu_channel_wdt_args { wdt_status: NVGPU_IOCTL_CHANNEL_DISABLE_WDT, timeout_ms: 0 };
        // SAFETY: the struct holds no addresses.
        unsafe { channel.send(&mut watchdog) }?;

        let ring_len = (u64::from(request.entries) * 8).next_multiple_of(PAGE);
        let buffer = |len, kind, what| {
            let buffer = nvmap::allocate(&space.sys, &space.nvmap, len, kind)?;
            let mapping = CpuMapping::new(&space.sys, buffer.as_fd(), len as usize, what)?;
            Ok::<_, Error>((buffer, mapping))
        };
        let (ring_buffer, ring) = buffer(ring_len, MemoryKind::Command, "a GPFIFO ring")?;
        let (userd_buffer, userd) = buffer(PAGE, MemoryKind::Command, "a USERD page")?;
        let (notifier_buffer, notifier) = buffer(PAGE, MemoryKind::Shared, "an error notifier")?;
        let mut setup = nvgpu_channel_setup_bind_args {
            num_gpfifo_entries: request.entries,
            flags: NVGPU_CHANNEL_SETUP_BIND_FLAGS_DETERMINISTIC
                | NVGPU_CHANNEL_SETUP_BIND_FLAGS_USERMODE_SUPPORT,
            userd_dmabuf_fd: userd_buffer.raw(),
            gpfifo_dmabuf_fd: ring_buffer.raw(),
            ..Default::default()
        };
        // SAFETY: both descriptors are open DMA buffers, which the channel keeps from here on.
        unsafe { channel.send(&mut setup) }?;

        let classes = match request.engine {
            Engine::Compute => &[classes.copy, classes.compute][..],
            Engine::Copy => &[classes.copy][..],
        };
        for class in classes {
            let mut object = nvgpu_alloc_obj_ctx_args { class_num: *class, flags: 0, obj_id: 0 };
            // SAFETY: the struct holds no addresses.
            unsafe { channel.send(&mut object) }?;
        }
        let mut post = nvgpu_set_error_notifier {
            offset: 0,
            size: PAGE,
            mem: notifier_buffer.raw().cast_unsigned(),
            padding: 0,
        };
        // SAFETY: the descriptor is an open DMA buffer, which the channel keeps from here on.
        unsafe { channel.send(&mut post) }?;
        if request.engine == Engine::Compute {
            prefer_preemption(&channel);
        }
        Ok(Self { _channel: channel, ring, userd, notifier, token: setup.work_submit_token })
    }

    /// The ring's entries.
    pub fn ring(&self) -> NonNull<u64> {
        self.ring.base().cast()
    }

    /// USERD.
    pub fn userd(&self) -> NonNull<u8> {
        self.userd.base()
    }

    /// What the doorbell is rung with.
    pub fn token(&self) -> u32 {
        self.token
    }

    /// The error the driver has posted, if any.
    pub fn error(&self) -> Option<u32> {
        let word = |offset: usize| {
            // SAFETY: the notifier's page is mapped, and the offsets are multiples of 4 inside it.
            unsafe { AtomicU32::from_ptr(self.notifier.base().as_ptr().add(offset).cast()) }
                .load(Ordering::Acquire)
        };
        // The status is written last.
        (word(NOTIFIER_STATUS) >> 16 == POSTED).then(|| word(NOTIFIER_CODE))
    }
}

/// Lets the driver switch to other processes between thread blocks instead of at the end of grids: without
/// it, long kernels beside a desktop add up to the driver's context-switch limit, which stops the channel.
fn prefer_preemption(channel: &Handle) {
    let mut mode = nvgpu_preemption_mode_args {
        graphics_preempt_mode: 0,
        compute_preempt_mode: NVGPU_COMPUTE_PREEMPTION_MODE_CTA,
    };
    // SAFETY: the struct holds no addresses.
    if let Err(error) = unsafe { channel.send(&mut mode) } {
        tracing::debug!(%error, "compute preemption between blocks is not available");
    }
}
