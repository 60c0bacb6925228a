//! The scheduling node: `S` commands, for tools.

use crate::driver::machine::Machine;
use crate::driver::nodes::argument::{Reply, with};
use crate::driver::tsg::Tsg;
use nix::errno::Errno;
use nvgpu_sys::*;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Groups of the GPU, one bit each.
const TSGS: u32 = 512;

/// Serves an `S` command.
pub(super) fn ioctl(machine: &Arc<Machine>, request: u32, bytes: &mut [u8]) -> Reply {
    match request {
        NVGPU_SCHED_IOCTL_GET_TSGS => with(bytes, |a: &mut nvgpu_sched_get_tsgs_args| {
            let groups = machine.driver().groups();
            bitmap(machine, &mut a.size, a.buffer, &groups)
        }),
        NVGPU_SCHED_IOCTL_GET_RECENT_TSGS => {
            with(bytes, |a: &mut nvgpu_sched_get_tsgs_args| recent(machine, &mut a.size, a.buffer))
        }
        NVGPU_SCHED_IOCTL_GET_TSGS_BY_PID => with(bytes, |a: &mut nvgpu_sched_get_tsgs_by_pid_args| {
            // The driver compares process numbers as 32-bit ones.
            let pid = a.pid as u32;
            let mut groups = machine.driver().groups();
            groups.retain(|tsg| tsg.pid == pid);
            bitmap(machine, &mut a.size, a.buffer, &groups)
        }),
        NVGPU_SCHED_IOCTL_TSG_GET_PARAMS => with(bytes, |a: &mut nvgpu_sched_tsg_get_params_args| {
            let tsg = find(machine, a.tsgid)?;
            let state = tsg.state();
            a.timeslice = state.timeslice_us;
            a.runlist_interleave = state.interleave;
            a.graphics_preempt_mode = state.graphics_mode;
            a.compute_preempt_mode = state.compute_mode;
            a.pid = tsg.pid.into();
            Ok(0)
        }),
        NVGPU_SCHED_IOCTL_TSG_SET_TIMESLICE => with(bytes, |a: &mut nvgpu_sched_tsg_timeslice_args| {
            let tsg = find(machine, a.tsgid)?;
            if !(1000..=50_000).contains(&a.timeslice) {
                return Err(Errno::EINVAL);
            }
            tsg.set_timeslice(a.timeslice);
            Ok(0)
        }),
        NVGPU_SCHED_IOCTL_TSG_SET_RUNLIST_INTERLEAVE => {
            with(bytes, |a: &mut nvgpu_sched_tsg_runlist_interleave_args| {
                let tsg = find(machine, a.tsgid)?;
                if a.runlist_interleave >= NVGPU_RUNLIST_INTERLEAVE_NUM_LEVELS {
                    return Err(Errno::EINVAL);
                }
                tsg.state().interleave = a.runlist_interleave;
                Ok(0)
            })
        }
        NVGPU_SCHED_IOCTL_LOCK_CONTROL => {
            machine.driver().sched_locked = true;
            Ok(0)
        }
        NVGPU_SCHED_IOCTL_UNLOCK_CONTROL => {
            machine.driver().sched_locked = false;
            Ok(0)
        }
        NVGPU_SCHED_IOCTL_GET_API_VERSION => with(bytes, |a: &mut nvgpu_sched_api_version_args| {
            a.version = NVGPU_SCHED_API_VERSION;
            Ok(0)
        }),
        NVGPU_SCHED_IOCTL_GET_TSG => with(bytes, |a: &mut nvgpu_sched_tsg_refcount_args| {
            let tsg = find(machine, a.tsgid)?;
            let mut driver = machine.driver();
            if driver.sched_references.iter().any(|t| Arc::ptr_eq(t, &tsg)) {
                return Err(Errno::ENXIO);
            }
            driver.sched_references.push(tsg);
            Ok(0)
        }),
        NVGPU_SCHED_IOCTL_PUT_TSG => with(bytes, |a: &mut nvgpu_sched_tsg_refcount_args| {
            if a.tsgid >= TSGS {
                return Err(Errno::EINVAL);
            }
            let mut driver = machine.driver();
            let at = driver.sched_references.iter().position(|t| t.id() == a.tsgid).ok_or(Errno::ENXIO)?;
            driver.sched_references.swap_remove(at);
            Ok(0)
        }),
        _ => Err(Errno::ENOTTY),
    }
}

fn find(machine: &Machine, id: u32) -> Result<Arc<Tsg>, Errno> {
    if id >= TSGS {
        return Err(Errno::EINVAL);
    }
    machine.driver().groups().into_iter().find(|t| t.id() == id).ok_or(Errno::ENXIO)
}

/// Groups that were opened since the node was, or since the last such request.
fn recent(machine: &Machine, size: &mut u32, buffer: u64) -> Reply {
    let (mut shown, mut new) = {
        let driver = machine.driver();
        (driver.sched_shown.clone(), driver.groups())
    };
    new.retain(|tsg| !shown.iter().any(|old| old.as_ptr() == Arc::as_ptr(tsg)));
    bitmap(machine, size, buffer, &new)?;
    shown.retain(|old| old.strong_count() > 0);
    shown.extend(new.iter().map(Arc::downgrade));
    machine.driver().sched_shown = shown;
    Ok(0)
}

/// Writes the numbers of groups as bits; `ENOSPC` with the size they take where the buffer has not that much.
fn bitmap(machine: &Machine, size: &mut u32, buffer: u64, groups: &[Arc<Tsg>]) -> Reply {
    let mut bits = [0_u64; TSGS as usize / 64];
    for tsg in groups {
        bits[tsg.id() as usize / 64] |= 1 << (tsg.id() % 64);
    }
    let whole = bits.as_bytes().len() as u32;
    if *size < whole || buffer == 0 {
        *size = whole;
        return Err(Errno::ENOSPC);
    }
    machine.user.write(buffer, bits.as_bytes())?;
    Ok(0)
}
