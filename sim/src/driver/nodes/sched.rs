//! The scheduling node: `S` commands, for tools.

use crate::driver::files::Object;
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
        NVGPU_SCHED_IOCTL_GET_TSGS | NVGPU_SCHED_IOCTL_GET_RECENT_TSGS => {
            with(bytes, |a: &mut nvgpu_sched_get_tsgs_args| bitmap(machine, &mut a.size, a.buffer, |_| true))
        }
        NVGPU_SCHED_IOCTL_GET_TSGS_BY_PID => with(bytes, |a: &mut nvgpu_sched_get_tsgs_by_pid_args| {
            let pid = a.pid;
            bitmap(machine, &mut a.size, a.buffer, |t| u64::from(t.pid) == pid)
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
                return Err(Errno::EALREADY);
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

fn groups(machine: &Machine) -> Vec<Arc<Tsg>> {
    let driver = machine.driver();
    let open = driver.files.objects().filter_map(|o| match o {
        Object::Tsg(tsg) => Some(Arc::clone(tsg)),
        _ => None,
    });
    open.collect()
}

fn find(machine: &Machine, id: u32) -> Result<Arc<Tsg>, Errno> {
    if id >= TSGS {
        return Err(Errno::EINVAL);
    }
    groups(machine).into_iter().find(|t| t.id() == id).ok_or(Errno::ENXIO)
}

fn bitmap(machine: &Machine, size: &mut u32, buffer: u64, wanted: impl Fn(&Tsg) -> bool) -> Reply {
    let mut bits = [0_u64; TSGS as usize / 64];
    for tsg in groups(machine).iter().filter(|t| wanted(t)) {
        bits[tsg.id() as usize / 64] |= 1 << (tsg.id() % 64);
    }
    let whole = bits.as_bytes().len() as u32;
    if std::mem::replace(size, whole) < whole {
        return Err(Errno::ENOSPC);
    }
    machine.user.write(buffer, bits.as_bytes())?;
    Ok(0)
}
