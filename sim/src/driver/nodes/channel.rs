//! Channel descriptors: `H` commands.

use crate::driver::address_space::space::AddressSpace;
use crate::driver::channel::Channel;
use crate::driver::files::Object;
use crate::driver::log::DEVICE;
use crate::driver::machine::Machine;
use crate::driver::nodes::argument::{Reply, with};
use crate::driver::nodes::setup_bind;
use crate::driver::notifier::Notifier;
use crate::driver::recovery;
use crate::driver::tsg::{Tsg, TsgState};
use crate::driver::unbind;
use crate::gpu::classes::CLASSES;
use crate::gpu::exception::Exception;
use crate::gpu::instance::Preemption;
use crate::violations::Consequence;
use nix::errno::Errno;
use nvgpu_sys::*;
use std::os::fd::IntoRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Runlists: 0 for graphics, compute and its copy engine; 1 and 2 for the asynchronous copy engines.
const RUNLISTS: i32 = 3;
const COMPUTE_CLASSES: [u32; 3] = [0xc7c0, 0xc5c0, 0xc3c0];
const GRAPHICS_CLASSES: [u32; 5] = [0xc797, 0xc597, 0xc397, 0xc097, 0xb197];
/// Bytes of the driver's range that a context takes in an address space; sizes are not known, only that
/// together with a small ring they fit in 2 MiB (field notes with a range that ended 2 MiB below 2^40).
const CONTEXT_BUFFERS: [u64; 5] = [0x1_0000, 0x2_0000, 0x8_0000, 0x8_0000, 0x1000];
/// How often `WAIT` polls its semaphore.
const WAIT_POLL: Duration = Duration::from_micros(100);
/// Context registers hold address bits 39:8.
const CONTEXT_REACH: u64 = 1 << 40;

/// A new channel on `runlist`; `None` and -1 mean the graphics runlist.
pub(super) fn open(machine: &Machine, runlist: Option<i32>) -> Result<Arc<Channel>, Errno> {
    let runlist = match runlist {
        None | Some(-1) => 0,
        Some(id) if (0..RUNLISTS).contains(&id) => id as u32,
        Some(id) => {
            let text =
                format!("opening a channel on runlist {id}, which does not exist, leaks a device reference");
            machine.violations.record(Consequence::Leak, "NVGPU_GPU_IOCTL_OPEN_CHANNEL", text);
            return Err(Errno::EINVAL);
        }
    };
    let id = machine.channel_ids.take().ok_or(Errno::ENOMEM)?;
    Ok(machine.channels.open(id, runlist))
}

/// Serves an `H` command.
pub(super) fn ioctl(machine: &Arc<Machine>, channel: &Arc<Channel>, request: u32, bytes: &mut [u8]) -> Reply {
    if channel.instance.is_closing() {
        return Err(Errno::ETIMEDOUT);
    }
    match request {
        NVGPU_IOCTL_CHANNEL_SET_NVMAP_FD => Ok(0),
        NVGPU_IOCTL_CHANNEL_SET_TIMEOUT => with(bytes, |a: &mut nvgpu_set_timeout_args| {
            channel.state().timeout_ms = a.timeout;
            Ok(0)
        }),
        NVGPU_IOCTL_CHANNEL_SET_TIMEOUT_EX => with(bytes, |a: &mut nvgpu_set_timeout_ex_args| {
            channel.state().timeout_ms = a.timeout;
            Ok(0)
        }),
        NVGPU_IOCTL_CHANNEL_GET_TIMEDOUT => with(bytes, |a: &mut nvgpu_get_param_args| {
            a.value = channel.instance.is_unserviceable().into();
            Ok(0)
        }),
        NVGPU_IOCTL_CHANNEL_WAIT => with(bytes, |a| wait(machine, channel, a)),
        NVGPU_IOCTL_CHANNEL_SUBMIT_GPFIFO => {
            if channel.instance.is_unserviceable() {
                Err(Errno::ETIMEDOUT)
            } else {
                Err(Errno::EINVAL)
            }
        }
        NVGPU_IOCTL_CHANNEL_ALLOC_OBJ_CTX => with(bytes, |a| alloc_obj_ctx(machine, channel, a)),
        NVGPU_IOCTL_CHANNEL_ZCULL_BIND => with(bytes, |a: &mut nvgpu_zcull_bind_args| {
            if a.mode > NVGPU_ZCULL_MODE_PART_OF_REGULAR_BUF { Err(Errno::EINVAL) } else { Ok(0) }
        }),
        NVGPU_IOCTL_CHANNEL_SET_ERROR_NOTIFIER => with(bytes, |a| set_notifier(machine, channel, a)),
        NVGPU_IOCTL_CHANNEL_OPEN => with(bytes, |a: &mut nvgpu_channel_open_args| {
            let new = open(machine, Some(a.in_runlist_id()))?;
            let fd =
                machine.driver().files.open(Object::Channel(new), |n| format!("nvhost-{DEVICE}-fd{n}"))?;
            a.set_out_channel_fd(fd.into_raw_fd());
            Ok(0)
        }),
        NVGPU_IOCTL_CHANNEL_ENABLE => {
            channel.instance.set_enabled(true);
            machine.gpu.wake();
            Ok(0)
        }
        NVGPU_IOCTL_CHANNEL_DISABLE => {
            channel.instance.set_enabled(false);
            Ok(0)
        }
        NVGPU_IOCTL_CHANNEL_PREEMPT => {
            let tsg = channel.state().tsg.clone().ok_or(Errno::EINVAL)?;
            unbind::while_preempted(machine.host(), &tsg, || Ok(0))
        }
        NVGPU_IOCTL_CHANNEL_FORCE_RESET => {
            if channel.state().tsg.is_some() {
                recovery::recover(machine, channel, &Exception::ForcedReset, None);
            }
            Ok(0)
        }
        NVGPU_IOCTL_CHANNEL_WDT => with(bytes, |a| watchdog(channel, a)),
        NVGPU_IOCTL_CHANNEL_SET_PREEMPTION_MODE => with(bytes, |a| preemption_mode(machine, channel, a)),
        NVGPU_IOCTL_CHANNEL_ALLOC_GPFIFO_EX => {
            with(bytes, |a: &mut nvgpu_alloc_gpfifo_ex_args| setup_bind::kernel_ring(channel, a.num_entries))
        }
        NVGPU_IOCTL_CHANNEL_SET_BOOSTED_CTX => Ok(0),
        NVGPU_IOCTL_CHANNEL_GET_USER_SYNCPOINT => with(bytes, |a| user_syncpoint(machine, channel, a)),
        NVGPU_IOCTL_CHANNEL_SETUP_BIND => with(bytes, |a| setup_bind::setup_bind(machine, channel, a)),
        _ => Err(Errno::ENOTTY),
    }
}

fn watchdog(channel: &Channel, a: &nvgpu_channel_wdt_args) -> Reply {
    let mut state = channel.state();
    let enable = match a.wdt_status & (NVGPU_IOCTL_CHANNEL_DISABLE_WDT | NVGPU_IOCTL_CHANNEL_ENABLE_WDT) {
        NVGPU_IOCTL_CHANNEL_DISABLE_WDT => false,
        NVGPU_IOCTL_CHANNEL_ENABLE_WDT => true,
        _ => return Err(Errno::EINVAL),
    };
    if state.deterministic && enable {
        return Err(Errno::EINVAL);
    }
    state.watchdog = enable;
    if a.wdt_status & NVGPU_IOCTL_CHANNEL_WDT_FLAG_SET_TIMEOUT != 0 {
        state.watchdog_ms = a.timeout_ms;
    }
    Ok(0)
}

fn alloc_obj_ctx(machine: &Machine, channel: &Channel, a: &nvgpu_alloc_obj_ctx_args) -> Reply {
    let (tsg, space, veid) = {
        let state = channel.state();
        (state.tsg.clone(), state.address_space.clone(), state.veid)
    };
    let Some(tsg) = tsg else {
        machine.violations.record(
            Consequence::Leak,
            "NVGPU_IOCTL_CHANNEL_ALLOC_OBJ_CTX",
            "before the channel is in a group, this call leaks a power reference: the GPU stays on until reboot",
        );
        return Err(Errno::EINVAL);
    };
    let space = space.ok_or(Errno::EINVAL)?;
    let graphics = GRAPHICS_CLASSES.contains(&a.class_num);
    if !CLASSES.contains(&a.class_num) || graphics && veid != 0 {
        return Err(Errno::EINVAL);
    }
    channel.state().class = Some(a.class_num);
    unbind::while_preempted(machine.host(), &tsg, || add_class(machine, &tsg, &space, a))
}

/// The rest of `ALLOC_OBJ_CTX`, while the group is off the engine.
fn add_class(machine: &Machine, tsg: &Tsg, space: &Arc<AddressSpace>, a: &nvgpu_alloc_obj_ctx_args) -> Reply {
    let graphics = GRAPHICS_CLASSES.contains(&a.class_num);
    let weak = Arc::downgrade(space);
    let mut state = tsg.state();
    if !state.contexts.iter().any(|(s, _)| s.ptr_eq(&weak)) {
        let mut buffers = Vec::new();
        for len in CONTEXT_BUFFERS {
            let va = space.reserve_kernel(len)?;
            buffers.push(va);
            if va + len > CONTEXT_REACH {
                machine.violations.freeze(
                    "NVGPU_IOCTL_CHANNEL_ALLOC_OBJ_CTX",
                    format!(
                        "context buffers of address space {} reach {:#x}, past 2^40: the driver hits BUG() with locks held; \
                         let va_range_end be at most 0xff00000000 and keep gpfifo buffers small",
                        space.id(),
                        va + len
                    ),
                )?;
            }
        }
        state.contexts.push((weak, buffers));
        tsg.entry.set_context();
        let first = !std::mem::replace(&mut machine.driver().golden_context, true);
        if first && machine.config.first_context_ms > 0 {
            machine.clock.spend(Duration::from_millis(machine.config.first_context_ms.into()));
        }
    }
    let compute = COMPUTE_CLASSES.contains(&a.class_num);
    let flag = |flag: u32, mode: u32| if a.flags & flag != 0 { mode } else { 0 };
    let mut asked = [
        flag(NVGPU_ALLOC_OBJ_FLAGS_GFXP, NVGPU_GRAPHICS_PREEMPTION_MODE_GFXP),
        flag(NVGPU_ALLOC_OBJ_FLAGS_CILP, NVGPU_COMPUTE_PREEMPTION_MODE_CILP),
    ];
    // The context of a group whose first class is the copy engine's counts as initialized without a mode.
    if !std::mem::replace(&mut state.has_class, true) && (compute || graphics) {
        let defaults = [NVGPU_GRAPHICS_PREEMPTION_MODE_WFI, NVGPU_COMPUTE_PREEMPTION_MODE_WFI];
        for (asked, default) in asked.iter_mut().zip(defaults) {
            *asked = if *asked == 0 { default } else { *asked };
        }
    }
    if compute || graphics {
        set_modes(machine, tsg, &mut state, asked, true)?;
    }
    Ok(0)
}

fn preemption_mode(machine: &Machine, channel: &Channel, a: &nvgpu_preemption_mode_args) -> Reply {
    let (tsg, class) = {
        let state = channel.state();
        (state.tsg.clone(), state.class)
    };
    let (Some(tsg), Some(class)) = (tsg, class) else { return Err(Errno::EINVAL) };
    // A value that is no mode counts as none.
    let known = |mode: u32, modes: &[u32]| if modes.contains(&mode) { mode } else { 0 };
    let asked = [
        known(
            a.graphics_preempt_mode,
            &[NVGPU_GRAPHICS_PREEMPTION_MODE_WFI, NVGPU_GRAPHICS_PREEMPTION_MODE_GFXP],
        ),
        known(
            a.compute_preempt_mode,
            &[
                NVGPU_COMPUTE_PREEMPTION_MODE_WFI,
                NVGPU_COMPUTE_PREEMPTION_MODE_CTA,
                NVGPU_COMPUTE_PREEMPTION_MODE_CILP,
            ],
        ),
    ];
    let computes = COMPUTE_CLASSES.contains(&class) || GRAPHICS_CLASSES.contains(&class);
    unbind::while_preempted(machine.host(), &tsg, || {
        set_modes(machine, &tsg, &mut tsg.state(), asked, computes).map(|()| 0)
    })
}

/// Sets the preemption modes of a group; 0 asks for nothing. `computes` when the channel's last class is one
/// of compute or graphics.
fn set_modes(
    machine: &Machine,
    tsg: &Tsg,
    state: &mut TsgState,
    asked: [u32; 2],
    computes: bool,
) -> Result<(), Errno> {
    let asks = |mode: u32, current: u32| if mode == current { 0 } else { mode };
    let (graphics, compute) = (asks(asked[0], state.graphics_mode), asks(asked[1], state.compute_mode));
    if graphics == 0 && compute == 0 {
        return Ok(());
    }
    let cilp = compute == NVGPU_COMPUTE_PREEMPTION_MODE_CILP;
    // Modes only go up.
    let lower =
        graphics != 0 && graphics < state.graphics_mode || compute != 0 && compute < state.compute_mode;
    if lower || cilp && !machine.config.cilp || cilp && graphics == NVGPU_GRAPHICS_PREEMPTION_MODE_GFXP {
        return Err(Errno::EINVAL);
    }
    if graphics != 0 {
        state.graphics_mode = graphics;
    }
    // The graphics mode is set by then, the driver's error notwithstanding.
    if !computes {
        return Err(Errno::EINVAL);
    }
    if compute != 0 {
        state.compute_mode = compute;
    }
    tsg.entry.set_preemption(match state.compute_mode {
        NVGPU_COMPUTE_PREEMPTION_MODE_CTA => Preemption::Blocks,
        NVGPU_COMPUTE_PREEMPTION_MODE_CILP => Preemption::Instructions,
        _ => Preemption::WaitForIdle,
    });
    Ok(())
}

fn set_notifier(machine: &Machine, channel: &Channel, a: &nvgpu_set_error_notifier) -> Reply {
    if a.mem == 0 {
        return Err(Errno::EINVAL);
    }
    // The previous one is dropped first, even when the new one is then refused.
    channel.state().notifier = None;
    let buffer = machine.buffer(&mut machine.driver(), a.mem as i32).map_err(|_| Errno::EINVAL)?;
    let backing = buffer.backing().ok_or(Errno::EINVAL)?;
    channel.state().notifier = Some(Notifier::new(backing, a.offset).ok_or(Errno::EINVAL)?);
    Ok(0)
}

fn user_syncpoint(machine: &Machine, channel: &Channel, a: &mut nvgpu_get_user_syncpoint_args) -> Reply {
    let space = channel.state().address_space.clone();
    let mut bindings = channel.instance.bindings();
    let (id, va) = match bindings.syncpoint {
        Some(known) => known,
        None => {
            let space = space.ok_or(Errno::EINVAL)?;
            let pages = machine.syncpoints.pages()?;
            space.sync_map(|id| pages[id as usize])?;
            let id = machine.syncpoints.allocate()?;
            let va =
                space.map_syncpoint(pages[id as usize]).inspect_err(|_| machine.syncpoints.release(id))?;
            bindings.syncpoint = Some((id, va));
            (id, va)
        }
    };
    a.gpu_va = va;
    a.syncpoint_id = id;
    a.syncpoint_max = machine.syncpoints.value(id);
    Ok(0)
}

/// `WAIT` is for kernel-mode channels; on others it waits for a semaphore word until the timeout.
fn wait(machine: &Machine, channel: &Channel, a: &mut nvgpu_wait_args) -> Reply {
    if channel.instance.is_unserviceable() {
        return Err(Errno::ETIMEDOUT);
    }
    if a.type_ != NVGPU_WAIT_TYPE_SEMAPHORE {
        return Err(Errno::EINVAL);
    }
    let (fd, offset, payload) =
        (a.condition_semaphore_dmabuf_fd(), a.condition_semaphore_offset(), a.condition_semaphore_payload());
    let buffer = machine.buffer(&mut machine.driver(), fd as i32).map_err(|_| Errno::EINVAL)?;
    let backing = buffer.backing().ok_or(Errno::EINVAL)?;
    if u64::from(offset) + 4 > backing.len() || offset % 4 != 0 {
        return Err(Errno::EINVAL);
    }
    let ptr = backing.ptr().as_ptr().wrapping_add(offset as usize);
    // SAFETY: inside the buffer, which `backing` keeps, and aligned; reached through atomics only.
    let semaphore = unsafe { AtomicU32::from_ptr(ptr.cast()) };
    let deadline = (a.timeout != NVGPU_NO_TIMEOUT)
        .then(|| machine.clock.deadline(Duration::from_millis(a.timeout.into())));
    let is_met = || semaphore.load(Ordering::Acquire) == payload;
    let is_gone = || channel.instance.is_unserviceable() || channel.instance.is_closing();
    machine.clock.wait(deadline.as_ref(), WAIT_POLL, || is_met() || is_gone());
    if is_met() { Ok(0) } else { Err(Errno::ETIMEDOUT) }
}
