//! Group descriptors: `T` commands.

use crate::driver::channel::Channel;
use crate::driver::files::Object;
use crate::driver::machine::Machine;
use crate::driver::nodes::argument::{Reply, accept, with};
use crate::driver::tsg::{SmRecord, Tsg};
use crate::driver::unbind::{self, Preempting, Unbound};
use crate::violations::Consequence;
use nix::errno::Errno;
use nv_hw::fault::hww_esr;
use nvgpu_sys::*;
use std::os::fd::IntoRawFd;
use std::sync::Arc;
use zerocopy::{FromBytes, IntoBytes};

/// Bounds of a time slice in microseconds.
const TIMESLICE: std::ops::RangeInclusive<u32> = 1000..=50_000;

/// Ways of a set of the L2 cache (`GPU_LIT_NUM_LTC_LTS_WAYS` of ga10b).
const L2_WAYS: u32 = 16;

/// A new group.
pub(super) fn open(machine: &Machine) -> Result<Arc<Tsg>, Errno> {
    let id = machine.tsg_ids.take().ok_or(Errno::ENOMEM)?;
    Ok(Arc::new(Tsg::new(id, machine.chip().sms)))
}

/// Serves a `T` command.
pub(super) fn ioctl(machine: &Arc<Machine>, tsg: &Arc<Tsg>, request: u32, bytes: &mut [u8]) -> Reply {
    match request {
        NVGPU_TSG_IOCTL_BIND_CHANNEL => bind_old(machine, tsg, bytes),
        NVGPU_TSG_IOCTL_UNBIND_CHANNEL => unbind(machine, tsg, bytes),
        NVGPU_IOCTL_TSG_ENABLE => {
            tsg.entry.set_enabled(true);
            machine.gpu.wake();
            Ok(0)
        }
        NVGPU_IOCTL_TSG_DISABLE => {
            tsg.entry.set_enabled(false);
            Ok(0)
        }
        NVGPU_IOCTL_TSG_PREEMPT => Preempting::begin(machine.host(), tsg).wait(machine.host()).map(|()| 0),
        NVGPU_IOCTL_TSG_EVENT_ID_CTRL => with(bytes, |a| open_event(machine, tsg, a)),
        NVGPU_IOCTL_TSG_SET_RUNLIST_INTERLEAVE => with(bytes, |a: &mut nvgpu_runlist_interleave_args| {
            check_unlocked(machine)?;
            accept(a.level < NVGPU_RUNLIST_INTERLEAVE_NUM_LEVELS)?;
            tsg.state().interleave = a.level;
            Ok(0)
        }),
        NVGPU_IOCTL_TSG_SET_TIMESLICE => with(bytes, |a: &mut nvgpu_timeslice_args| {
            check_unlocked(machine)?;
            accept(TIMESLICE.contains(&a.timeslice_us))?;
            tsg.set_timeslice(a.timeslice_us);
            Ok(0)
        }),
        NVGPU_IOCTL_TSG_GET_TIMESLICE => with(bytes, |a: &mut nvgpu_timeslice_args| {
            a.timeslice_us = tsg.state().timeslice_us;
            Ok(0)
        }),
        NVGPU_TSG_IOCTL_BIND_CHANNEL_EX => with(bytes, |a: &mut nvgpu_tsg_bind_channel_ex_args| {
            check_unlocked(machine)?;
            channel(machine, a.channel_fd)?.bind(tsg, a.subcontext_id)?;
            Ok(0)
        }),
        NVGPU_TSG_IOCTL_READ_SINGLE_SM_ERROR_STATE => with(bytes, |a| read_sm_error(machine, tsg, a)),
        NVGPU_TSG_IOCTL_SET_L2_MAX_WAYS_EVICT_LAST => {
            with(bytes, |a: &mut nvgpu_tsg_l2_max_ways_evict_last_args| {
                let mut state = tsg.state();
                // The driver reads back its own write: without a context that is 0.
                accept(a.max_ways <= L2_WAYS && (state.has_memory || a.max_ways == 0))?;
                state.l2_ways = a.max_ways;
                Ok(0)
            })
        }
        NVGPU_TSG_IOCTL_GET_L2_MAX_WAYS_EVICT_LAST => {
            with(bytes, |a: &mut nvgpu_tsg_l2_max_ways_evict_last_args| {
                a.max_ways = tsg.state().l2_ways;
                Ok(0)
            })
        }
        NVGPU_TSG_IOCTL_SET_L2_SECTOR_PROMOTION => {
            with(bytes, |a: &mut nvgpu_tsg_set_l2_sector_promotion_args| set_promotion(tsg, a.promotion_flag))
        }
        NVGPU_TSG_IOCTL_BIND_SCHEDULING_DOMAIN => {
            with(bytes, |a: &mut nvgpu_tsg_bind_scheduling_domain_args| {
                accept(a.reserved0 == 0 && a.reserved.as_bytes().iter().all(|&b| b == 0))?;
                // Domains are made by privileged schedulers; there is none.
                Err(Errno::ENOENT)
            })
        }
        NVGPU_TSG_IOCTL_CREATE_SUBCONTEXT => with(bytes, |a| create_subcontext(machine, tsg, a)),
        NVGPU_TSG_IOCTL_DELETE_SUBCONTEXT => with(bytes, |a: &mut nvgpu_tsg_delete_subcontext_args| {
            tsg.state().subcontexts.delete(a.veid).map(|()| 0)
        }),
        _ => Err(Errno::ENOTTY),
    }
}

/// `EPERM` while a tool has locked the scheduling parameters.
fn check_unlocked(machine: &Machine) -> Reply {
    if machine.driver().sched_locked { Err(Errno::EPERM) } else { Ok(0) }
}

/// The driver sets bits of the register and clears none (`tu104_set_l2_sector_promotion` gives no mask), reads it
/// back, and refuses when it reads something else: promotion goes up once. Without a context it reads 0.
fn set_promotion(tsg: &Tsg, flag: u32) -> Reply {
    let promotion = match flag {
        NVGPU_GPU_IOCTL_TSG_L2_SECTOR_PROMOTE_FLAG_NONE => 0,
        NVGPU_GPU_IOCTL_TSG_L2_SECTOR_PROMOTE_FLAG_64B => 1,
        NVGPU_GPU_IOCTL_TSG_L2_SECTOR_PROMOTE_FLAG_128B => 2,
        _ => return Err(Errno::EINVAL),
    };
    let mut state = tsg.state();
    if state.has_memory {
        state.l2_promotion |= promotion;
    }
    accept(state.l2_promotion == promotion)
}

fn open_event(machine: &Machine, tsg: &Tsg, a: &mut nvgpu_event_id_ctrl_args) -> Reply {
    let enable = a.cmd == NVGPU_IOCTL_CHANNEL_EVENT_ID_CMD_ENABLE;
    accept(enable && a.event_id < NVGPU_IOCTL_CHANNEL_EVENT_ID_MAX)?;
    let (fd, event) = machine.driver().files.open_event(a.event_id)?;
    tsg.state().events.push(event);
    a.event_fd = fd.into_raw_fd();
    Ok(0)
}

fn read_sm_error(machine: &Machine, tsg: &Tsg, a: &mut nvgpu_tsg_read_single_sm_error_state_args) -> Reply {
    let record = sm_record(tsg, a.sm_id)?;
    let len = (a.record_size as usize).min(record.len());
    let left = machine.user.write_or_count(a.record_mem, &record[..len]);
    a.record_size = len as u64;
    Ok(left)
}

fn create_subcontext(machine: &Machine, tsg: &Tsg, a: &mut nvgpu_tsg_create_subcontext_args) -> Reply {
    accept(a.type_ <= NVGPU_TSG_SUBCONTEXT_TYPE_ASYNC)?;
    let Some(Object::AddressSpace(space)) = machine.object_by_number(a.as_fd) else {
        return Err(Errno::EINVAL);
    };
    a.veid = tsg.state().subcontexts.create(a.type_ == NVGPU_TSG_SUBCONTEXT_TYPE_ASYNC, &space)?;
    Ok(0)
}

/// The 24 bytes that describe the last error of an SM: zeros before there is one, the masks included.
pub(super) fn sm_record(tsg: &Tsg, sm_id: u32) -> Result<[u8; 24], Errno> {
    let error = *tsg.state().sm_errors.get(sm_id as usize).ok_or(Errno::EINVAL)?;
    if error == SmRecord::default() {
        return Ok([0; 24]);
    }
    let SmRecord { global_esr, warp_esr, pc } = error;
    let record = nvgpu_tsg_sm_error_state_record {
        global_esr,
        warp_esr,
        warp_esr_pc: pc,
        global_esr_report_mask: hww_esr::GLOBAL_REPORT_MASK,
        warp_esr_report_mask: hww_esr::WARP_REPORT_MASK,
    };
    record.as_bytes().try_into().map_err(|_| Errno::EINVAL)
}

fn channel(machine: &Machine, fd: i32) -> Result<Arc<Channel>, Errno> {
    match machine.object_by_number(fd) {
        Some(Object::Channel(channel)) => Ok(channel),
        _ => Err(Errno::EINVAL),
    }
}

/// The older bind call: on an error it keeps a reference of the channel for ever.
fn bind_old(machine: &Machine, tsg: &Arc<Tsg>, bytes: &[u8]) -> Reply {
    check_unlocked(machine)?;
    let channel = channel(machine, number(bytes)?)?;
    let veid = channel.state().veid;
    channel.bind(tsg, veid).inspect_err(|_| {
        channel.state().leaked_reference = true;
        machine.violations.record(
            Consequence::Leak,
            "NVGPU_TSG_IOCTL_BIND_CHANNEL",
            format!(
                "a failed call keeps a reference of channel {}, whose close() then never returns; use BIND_CHANNEL_EX",
                channel.id()
            ),
        );
    })?;
    Ok(0)
}

fn unbind(machine: &Machine, tsg: &Arc<Tsg>, bytes: &[u8]) -> Reply {
    let channel = channel(machine, number(bytes)?)?;
    if !channel.state().tsg.as_ref().is_some_and(|t| Arc::ptr_eq(t, tsg)) {
        return Err(Errno::EINVAL);
    }
    let _one_at_a_time = tsg.init();
    let unbound = unbind::unbind(machine.host(), tsg, &channel, false);
    match unbound {
        Unbound::Cleanly => {
            channel.instance.kill();
            channel.leave(false);
        }
        Unbound::Again => {}
        Unbound::Busy => {
            unbind::tear_down(machine.host(), tsg, channel.id(), unbound);
            channel.leave(false);
            return Err(Errno::EBUSY);
        }
    }
    tsg.entry.set_enabled(true);
    machine.gpu.wake();
    if unbound == Unbound::Again { Err(Errno::EAGAIN) } else { Ok(0) }
}

fn number(bytes: &[u8]) -> Result<i32, Errno> {
    i32::read_from_bytes(bytes).map_err(|_| Errno::EINVAL)
}
