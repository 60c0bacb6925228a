//! The device-scope profiler: `P` commands. Resources are accounted for; they have no counters.

use crate::driver::files::Object;
use crate::driver::machine::Machine;
use crate::driver::nodes::argument::{Reply, accept, with};
use crate::driver::session::profiler::{ProfilerFile, ProfilerState};
use crate::driver::tsg::Tsg;
use crate::driver::unbind;
use nix::errno::Errno;
use nvgpu_sys::*;
use std::sync::{Arc, Weak};

/// Counters of the machine: of memory, of units.
const HWPM: u32 = 1 << NVGPU_PROFILER_PM_RESOURCE_ARG_HWPM_LEGACY;
/// Counters of the SMs.
const SMPC: u32 = 1 << NVGPU_PROFILER_PM_RESOURCE_ARG_SMPC;
/// Samples of program counters.
const PC_SAMPLER: u32 = 1 << NVGPU_PROFILER_PM_RESOURCE_ARG_PC_SAMPLER;

/// Serves a `P` command.
pub(super) fn ioctl(
    machine: &Arc<Machine>,
    file: &Arc<ProfilerFile>,
    request: u32,
    bytes: &mut [u8],
) -> Reply {
    match request {
        NVGPU_PROFILER_IOCTL_BIND_CONTEXT => with(bytes, |a| bind_context(machine, file, a)),
        NVGPU_PROFILER_IOCTL_UNBIND_CONTEXT => {
            let mut state = file.state();
            if state.bound {
                // The driver ignores the result of this too.
                let _ = unbind_resources(machine, &mut state);
            }
            accept(state.has_context)?;
            (state.has_context, state.group) = (false, None);
            Ok(0)
        }
        NVGPU_PROFILER_IOCTL_RESERVE_PM_RESOURCE => with(bytes, |a| reserve(machine, file, a)),
        NVGPU_PROFILER_IOCTL_RELEASE_PM_RESOURCE => {
            with(bytes, |a: &mut nvgpu_profiler_release_pm_resource_args| {
                let bit = resource(a.resource)?;
                let mut state = file.state();
                accept(state.reserved & bit != 0)?;
                if state.bound {
                    unbind_resources(machine, &mut state)?;
                }
                state.reserved &= !bit;
                state.switched &= !bit;
                Ok(0)
            })
        }
        NVGPU_PROFILER_IOCTL_BIND_PM_RESOURCES => {
            let mut state = file.state();
            accept(!state.bound && state.reserved & (HWPM | SMPC) != 0)?;
            set_modes(machine, &state, "NVGPU_PROFILER_IOCTL_BIND_PM_RESOURCES")?;
            state.bound = true;
            Ok(0)
        }
        NVGPU_PROFILER_IOCTL_UNBIND_PM_RESOURCES => unbind_resources(machine, &mut file.state()),
        _ => Err(Errno::ENOTTY),
    }
}

fn resource(number: u32) -> Result<u32, Errno> {
    match number {
        NVGPU_PROFILER_PM_RESOURCE_ARG_HWPM_LEGACY => Ok(HWPM),
        NVGPU_PROFILER_PM_RESOURCE_ARG_SMPC => Ok(SMPC),
        NVGPU_PROFILER_PM_RESOURCE_ARG_PC_SAMPLER => Ok(PC_SAMPLER),
        _ => Err(Errno::EINVAL),
    }
}

/// Whether another open of the node satisfies `is`.
fn of_another(machine: &Machine, file: &Arc<ProfilerFile>, is: impl Fn(&ProfilerState) -> bool) -> bool {
    // Not under the driver's lock: a file's lock is held while its group is taken off the engine.
    let others: Vec<Arc<ProfilerFile>> = {
        let driver = machine.driver();
        let profilers = driver.files.objects().filter_map(|object| match object {
            Object::Profiler(other) if !Arc::ptr_eq(other, file) => Some(Arc::clone(other)),
            _ => None,
        });
        profilers.collect()
    };
    others.iter().any(|other| is(&other.state()))
}

fn bind_context(
    machine: &Machine,
    file: &Arc<ProfilerFile>,
    a: &mut nvgpu_profiler_bind_context_args,
) -> Reply {
    accept(!file.state().has_context)?;
    let group = if a.tsg_fd < 0 {
        None
    } else {
        let Some(Object::Tsg(tsg)) = machine.object_by_number(a.tsg_fd) else { return Err(Errno::EINVAL) };
        let tsg = Arc::downgrade(&tsg);
        let is_taken = |state: &ProfilerState| state.group.as_ref().is_some_and(|g| g.ptr_eq(&tsg));
        accept(!of_another(machine, file, is_taken))?;
        Some(tsg)
    };
    let mut state = file.state();
    (state.has_context, state.group) = (true, group);
    Ok(0)
}

fn reserve(
    machine: &Machine,
    file: &Arc<ProfilerFile>,
    a: &mut nvgpu_profiler_reserve_pm_resource_args,
) -> Reply {
    let is_switched = a.flags & NVGPU_PROFILER_RESERVE_PM_RESOURCE_ARG_FLAG_CTXSW != 0;
    let bit = {
        let mut state = file.state();
        accept(state.has_context)?;
        let bit = resource(a.resource)?;
        accept(state.group.is_some() || !is_switched && bit != PC_SAMPLER)?;
        // Kept also where the reservation fails.
        state.switched = if is_switched { state.switched | bit } else { state.switched & !bit };
        if state.reserved & bit != 0 || state.bound {
            return Err(Errno::EEXIST);
        }
        bit
    };
    if of_another(machine, file, |state| state.reserved & bit != 0) {
        return Err(Errno::EBUSY);
    }
    file.state().reserved |= bit;
    Ok(0)
}

fn unbind_resources(machine: &Machine, state: &mut ProfilerState) -> Reply {
    accept(state.bound)?;
    set_modes(machine, state, "NVGPU_PROFILER_IOCTL_UNBIND_PM_RESOURCES")?;
    state.bound = false;
    Ok(0)
}

/// Changes the registers that the group's context saves, off the engine, where a reserved resource is part of
/// the context.
fn set_modes(machine: &Machine, state: &ProfilerState, call: &'static str) -> Result<(), Errno> {
    if state.reserved & state.switched & (HWPM | SMPC) == 0 {
        return Ok(());
    }
    let Some(tsg) = state.group.as_ref().and_then(Weak::upgrade) else {
        let rule = "a resource is reserved as part of a context, and no context is bound: the driver follows \
                    a null pointer; release the resource before the context";
        return machine.violations.freeze(call, rule);
    };
    unbind::while_preempted(machine.host(), &tsg, || has_context(&tsg))
}

fn has_context(tsg: &Tsg) -> Result<(), Errno> {
    if tsg.state().has_class { Ok(()) } else { Err(Errno::EFAULT) }
}
