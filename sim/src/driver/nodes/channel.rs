//! Channel descriptors: `H` commands.

use crate::driver::channel::Channel;
use crate::driver::files::Object;
use crate::driver::log::DEVICE;
use crate::driver::machine::Machine;
use crate::driver::nodes::argument::{Reply, with};
use crate::driver::nodes::{context, setup_bind};
use crate::driver::notifier::Notifier;
use crate::driver::recovery;
use crate::driver::unbind;
use crate::gpu::exception::Exception;
use crate::violations::Consequence;
use nix::errno::Errno;
use nvgpu_sys::*;
use std::os::fd::IntoRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

/// Runlists: 0 for graphics, compute and its copy engine; 1 and 2 for the asynchronous copy engines.
const RUNLISTS: i32 = 3;
/// Interval at which `WAIT` polls its semaphore.
const WAIT_POLL: Duration = Duration::from_micros(100);
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
        NVGPU_IOCTL_CHANNEL_ALLOC_OBJ_CTX => with(bytes, |a| context::allocate(machine, channel, a)),
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
        NVGPU_IOCTL_CHANNEL_SET_PREEMPTION_MODE => {
            with(bytes, |a| context::set_preemption(machine, channel, a))
        }
        NVGPU_IOCTL_CHANNEL_ALLOC_GPFIFO_EX => {
            with(bytes, |a: &mut nvgpu_alloc_gpfifo_ex_args| setup_bind::kernel_ring(channel, a.num_entries))
        }
        // ga10b has no such function (`hal/init/hal_ga10b.c`, r36.4.3).
        NVGPU_IOCTL_CHANNEL_SET_BOOSTED_CTX => Err(Errno::EINVAL),
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
            let Some(space) = space else {
                let text = "the channel has no address space: the kernel dereferences a null pointer; bind one first";
                machine.violations.freeze("NVGPU_IOCTL_CHANNEL_GET_USER_SYNCPOINT", text)?;
                return Err(Errno::EINVAL);
            };
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

/// Bytes of what `WAIT` looks at: a notification (`struct notification`), or a semaphore.
const NOTIFICATION: u64 = 16;
const SEMAPHORE: u64 = 4;

/// `WAIT` waits for a word in a buffer until the timeout, which 0 has not.
fn wait(machine: &Machine, channel: &Channel, a: &mut nvgpu_wait_args) -> Reply {
    if channel.instance.is_unserviceable() {
        return Err(Errno::ETIMEDOUT);
    }
    let (fd, offset, payload) =
        (a.condition_semaphore_dmabuf_fd(), a.condition_semaphore_offset(), a.condition_semaphore_payload());
    let len = match a.type_ {
        NVGPU_WAIT_TYPE_NOTIFIER => NOTIFICATION,
        NVGPU_WAIT_TYPE_SEMAPHORE if offset % 4 == 0 => SEMAPHORE,
        _ => return Err(Errno::EINVAL),
    };
    let buffer = machine.buffer(&mut machine.driver(), fd as i32).map_err(|_| Errno::EINVAL)?;
    let backing = buffer.backing().ok_or(Errno::EINVAL)?;
    if u64::from(offset) + len > backing.len() {
        return Err(Errno::EINVAL);
    }
    let byte = |at: u64| {
        let ptr = backing.ptr().as_ptr().wrapping_add((u64::from(offset) + at) as usize);
        // SAFETY: inside the buffer, which `backing` keeps; reached through atomics only.
        unsafe { AtomicU8::from_ptr(ptr) }
    };
    let load = |at: u64| byte(at).load(Ordering::Acquire);
    let is_met = || match a.type_ {
        NVGPU_WAIT_TYPE_NOTIFIER => [load(14), load(15)] == [0, 0],
        _ => u32::from_ne_bytes([load(0), load(1), load(2), load(3)]) == payload,
    };
    let is_gone = || channel.instance.is_unserviceable() || channel.instance.is_closing();
    let deadline = (a.timeout != 0).then(|| machine.clock.deadline(Duration::from_millis(a.timeout.into())));
    machine.clock.wait(deadline.as_ref(), WAIT_POLL, || is_met() || is_gone());
    let ended = is_met() || is_gone();
    if a.type_ == NVGPU_WAIT_TYPE_SEMAPHORE {
        return if ended { Ok(0) } else { Err(Errno::ETIMEDOUT) };
    }
    if !ended {
        // The driver takes its own time-out for an interruption (`gk20a_channel_wait`).
        return Err(Errno::EINTR);
    }
    // The driver's own placeholders: its source says that the information is to be filled in.
    let time = machine.clock.uptime();
    let stamp = [time.subsec_nanos(), time.as_secs() as u32, 0xdead_beef];
    let id = (channel.id() as u16).to_ne_bytes();
    for (at, value) in (0..).zip(stamp.iter().flat_map(|word| word.to_ne_bytes()).chain(id)) {
        byte(at).store(value, Ordering::Release);
    }
    Ok(0)
}
