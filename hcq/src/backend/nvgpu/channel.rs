//! Channels in user-mode submit.

use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nvgpu_sys::{
    Ioctl, NVGPU_CHANNEL_SETUP_BIND_FLAGS_DETERMINISTIC, NVGPU_CHANNEL_SETUP_BIND_FLAGS_USERMODE_SUPPORT,
    NVGPU_COMPUTE_PREEMPTION_MODE_CILP, NVGPU_IOCTL_CHANNEL_DISABLE_WDT, nvgpu_alloc_obj_ctx_args,
    nvgpu_as_bind_channel_args, nvgpu_channel_setup_bind_args, nvgpu_channel_wdt_args, nvgpu_get_param_args,
    nvgpu_gpu_open_channel_args, nvgpu_preemption_mode_args, nvgpu_set_error_notifier,
    nvgpu_set_timeout_ex_args,
};

use super::group::Member;
use super::handle::Handle;
use super::mapping::CpuMapping;
use super::nvmap::{self, PAGE};
use super::settings::{Caching, Settings};
use super::space::{self, Space};
use crate::backend::{ChannelRequest, Engine};
use crate::error::{DriverError, Error, with_causes};
use crate::info::Classes;
use crate::sync::lock;

/// The runlist of graphics, compute and its copy engine.
const GR_RUNLIST: i32 = -1;
/// Byte offset of the error code in a notifier.
const NOTIFIER_CODE: usize = 8;
/// Byte offset of the 32-bit word whose upper half is the status.
const NOTIFIER_STATUS: usize = 12;
/// The channel's number in a work-submit token.
const CHANNEL_MASK: u32 = 0xfff;
/// Pauses between requests that a kernel is in the way of.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);
/// Status of a notifier that was posted.
const POSTED: u32 = 0xffff;

/// An open channel and its memory.
#[derive(Debug)]
pub(super) struct Channel {
    // Dropped in this order: the channel before the memory it uses.
    channel: Member,
    ring: CpuMapping,
    userd: CpuMapping,
    notifier: CpuMapping,
    token: u32,
}

/// The parts of a channel beside its descriptor.
struct Parts {
    ring: CpuMapping,
    userd: CpuMapping,
    notifier: CpuMapping,
    token: u32,
}

impl Channel {
    /// Opens a channel, binds it, and gives it its ring, its objects and its error notifier. Where a kernel
    /// that does not give way is in the way of that, waits for it, at most the device's patience.
    pub fn new(
        space: &Space,
        classes: &Classes,
        settings: &Settings,
        request: &ChannelRequest,
    ) -> Result<Self, Error> {
        let mut open = nvgpu_gpu_open_channel_args { channel_fd: GR_RUNLIST };
        // SAFETY: the struct holds no addresses.
        unsafe { space.ctrl.send(&mut open) }?;
        let channel = Handle::from_answer(&space.sys, nvgpu_gpu_open_channel_args::NAME, open.channel_fd)?;
        let mut bind = nvgpu_as_bind_channel_args { channel_fd: channel.raw().cast_unsigned() };
        // The address space before the group: the group's first subcontext takes it from its first channel.
        // SAFETY: the descriptor is the channel's, which is open.
        unsafe { space.address_space.send(&mut bind) }?;
        let channel = space.group.bind(channel, &space.address_space)?;
        match Self::set_up(space, &channel, classes, settings, request) {
            Ok(Parts { ring, userd, notifier, token }) => Ok(Self { channel, ring, userd, notifier, token }),
            Err(error) => {
                // Closing it beside work that does not give way would take the group down.
                lock(&space.unfinished).push(channel);
                Err(error)
            }
        }
    }

    fn set_up(
        space: &Space,
        channel: &Member,
        classes: &Classes,
        settings: &Settings,
        request: &ChannelRequest,
    ) -> Result<Parts, Error> {
        if let Some(limit) = settings.switch_limit {
            let timeout = u32::try_from(limit.as_millis()).unwrap_or(u32::MAX);
            let mut args = nvgpu_set_timeout_ex_args { timeout, flags: 0 };
            // SAFETY: the struct holds no addresses.
            let set = unsafe { channel.send(&mut args) };
            space.without(set, "context switches of 3 s in all, its own limit, cost a channel")?;
        }
        // User-mode submit is refused while the watchdog is on.
        let mut watchdog =
            nvgpu_channel_wdt_args { wdt_status: NVGPU_IOCTL_CHANNEL_DISABLE_WDT, timeout_ms: 0 };
        // SAFETY: the struct holds no addresses.
        unsafe { channel.send(&mut watchdog) }?;

        let ring_len = (u64::from(request.entries) * 8).next_multiple_of(PAGE);
        let buffer = |len, caching, what| {
            let buffer = nvmap::allocate(&space.sys, &space.nvmap, len, caching)?;
            let mapping = CpuMapping::new(&space.sys, buffer.as_fd(), len as usize, what)?;
            Ok::<_, Error>((buffer, mapping))
        };
        let (ring_buffer, ring) = buffer(ring_len, Caching::WriteCombined, "a GPFIFO ring")?;
        let (userd_buffer, userd) = buffer(PAGE, Caching::WriteCombined, "a USERD page")?;
        let (notifier_buffer, notifier) = buffer(PAGE, Caching::Cacheable, "an error notifier")?;
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

        let start = Instant::now();
        let object = |class_num: u32| {
            let mut object = nvgpu_alloc_obj_ctx_args { class_num, flags: 0, obj_id: 0 };
            // SAFETY: the struct holds no addresses.
            while_busy(settings.patience, start, || unsafe { channel.send(&mut object) })
        };
        if request.engine == Engine::Compute {
            // First, because the class that comes first decides the context's mode, and the mode is refused
            // where the last class is the copy engine's.
            object(classes.compute)?;
            if space.preempts.load(Ordering::Relaxed) {
                let mut mode = nvgpu_preemption_mode_args {
                    graphics_preempt_mode: 0,
                    compute_preempt_mode: NVGPU_COMPUTE_PREEMPTION_MODE_CILP,
                };
                // SAFETY: the struct holds no addresses.
                match while_busy(settings.patience, start, || unsafe { channel.send(&mut mode) }) {
                    // The driver's own mode stays.
                    Err(error) if error.is_refusal() => {
                        if space.preempts.swap(false, Ordering::Relaxed) {
                            space::warn_of_whole_kernels(&with_causes(&error));
                        }
                    }
                    set => set?,
                }
            }
        }
        // Others ran the methods of both classes on a channel that was given one.
        if request.engine == Engine::Copy || !settings.conservative {
            object(classes.copy)?;
        }
        let mut post = nvgpu_set_error_notifier {
            offset: 0,
            size: PAGE,
            mem: notifier_buffer.raw().cast_unsigned(),
            padding: 0,
        };
        // SAFETY: the descriptor is an open DMA buffer, which the channel keeps from here on.
        let posts = unsafe { channel.send(&mut post) };
        space.without(posts, "an error is noticed when the channel is given up, and has no number")?;
        Ok(Parts { ring, userd, notifier, token: setup.work_submit_token })
    }

    /// The ring's entries.
    pub fn ring(&self) -> NonNull<u64> {
        self.ring.base().cast()
    }

    /// USERD.
    pub fn userd(&self) -> NonNull<u8> {
        self.userd.base()
    }

    /// The token written to the doorbell.
    pub fn token(&self) -> u32 {
        self.token
    }

    /// Its number, as the kernel log has it.
    pub fn number(&self) -> u32 {
        self.token & CHANNEL_MASK
    }

    /// Whether the driver has given it up.
    pub fn is_given_up(&self, space: &Space) -> bool {
        let mut args = nvgpu_get_param_args::default();
        // SAFETY: the struct holds no addresses.
        let asked = unsafe { self.channel.send(&mut args) };
        let asked = space.without(asked, "a channel that is given up without a notifier is not noticed");
        asked.is_ok() && args.value != 0
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

/// Repeats a request that the driver refuses while a kernel is in its way, which it waits for 100 ms each
/// time; for `patience` after `start`.
fn while_busy(
    patience: Duration,
    start: Instant,
    mut request: impl FnMut() -> Result<(), Error>,
) -> Result<(), Error> {
    let mut pause = SHORTEST_PAUSE;
    loop {
        match request() {
            Err(Error::Driver(DriverError::Ioctl { errno, .. }))
                if errno.raw() == libc::EBUSY && start.elapsed() < patience =>
            {
                // Meanwhile the channels of the group run, which the request had disabled.
                std::thread::sleep(pause.min(patience.saturating_sub(start.elapsed())));
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
            other => return other,
        }
    }
}
