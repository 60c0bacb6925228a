//! The device-scope profiler: `P` commands. Resources are accounted for; they have no counters.

use crate::driver::files::Object;
use crate::driver::machine::Machine;
use crate::driver::nodes::argument::{Reply, with};
use crate::driver::session::profiler::ProfilerFile;
use nix::errno::Errno;
use nvgpu_sys::*;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Serves a `P` command.
pub(super) fn ioctl(machine: &Arc<Machine>, file: &ProfilerFile, request: u32, bytes: &mut [u8]) -> Reply {
    match request {
        NVGPU_PROFILER_IOCTL_BIND_CONTEXT => with(bytes, |a: &mut nvgpu_profiler_bind_context_args| {
            let known = a.tsg_fd == -1 || matches!(machine.object_by_number(a.tsg_fd), Some(Object::Tsg(_)));
            if !known || file.context_bound.swap(true, Ordering::AcqRel) {
                return Err(Errno::EINVAL);
            }
            Ok(0)
        }),
        NVGPU_PROFILER_IOCTL_UNBIND_CONTEXT => {
            file.resources.store(0, Ordering::Release);
            if file.context_bound.swap(false, Ordering::AcqRel) { Ok(0) } else { Err(Errno::EINVAL) }
        }
        NVGPU_PROFILER_IOCTL_RESERVE_PM_RESOURCE => {
            with(bytes, |a: &mut nvgpu_profiler_reserve_pm_resource_args| {
                let bit = resource(a.resource)?;
                let taken = file.resources.fetch_or(bit, Ordering::AcqRel) & bit != 0;
                if taken { Err(Errno::EINVAL) } else { Ok(0) }
            })
        }
        NVGPU_PROFILER_IOCTL_RELEASE_PM_RESOURCE => {
            with(bytes, |a: &mut nvgpu_profiler_release_pm_resource_args| {
                let bit = resource(a.resource)?;
                let held = file.resources.fetch_and(!bit, Ordering::AcqRel) & bit != 0;
                if held { Ok(0) } else { Err(Errno::EINVAL) }
            })
        }
        NVGPU_PROFILER_IOCTL_BIND_PM_RESOURCES => {
            if file.resources.load(Ordering::Acquire) == 0 {
                return Err(Errno::EINVAL);
            }
            file.resources_bound.store(true, Ordering::Release);
            Ok(0)
        }
        NVGPU_PROFILER_IOCTL_UNBIND_PM_RESOURCES => {
            if file.resources_bound.swap(false, Ordering::AcqRel) {
                Ok(0)
            } else {
                Err(Errno::EINVAL)
            }
        }
        _ => Err(Errno::ENOTTY),
    }
}

fn resource(number: u32) -> Result<u32, Errno> {
    if number > NVGPU_PROFILER_PM_RESOURCE_ARG_HES_CWD { Err(Errno::EINVAL) } else { Ok(1 << number) }
}
