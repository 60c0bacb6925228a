//! `SETUP_BIND`: the ring of a channel.

use crate::driver::channel::{Channel, ChannelState};
use crate::driver::machine::Machine;
use crate::driver::nodes::argument::Reply;
use crate::driver::tsg::Tsg;
use crate::findings::Checks;
use crate::gpu::classes::GRAPHICS_RUNLIST;
use crate::gpu::gmmu::PteAttributes;
use crate::gpu::userd::Ring;
use crate::poison::POISON;
use crate::violations::Consequence;
use crate::what_if::WhatIf;
use nix::errno::Errno;
use nvgpu_sys::*;
use std::sync::Arc;

/// Bytes of a ring from which on it is as large as the one that froze a machine.
const LARGE_RING: u64 = 3 << 20;

/// Every check in the driver's order.
pub(super) fn setup_bind(
    machine: &Machine,
    channel: &Arc<Channel>,
    a: &mut nvgpu_channel_setup_bind_args,
) -> Reply {
    let usermode = a.flags & NVGPU_CHANNEL_SETUP_BIND_FLAGS_USERMODE_SUPPORT != 0;
    let deterministic = a.flags & NVGPU_CHANNEL_SETUP_BIND_FLAGS_DETERMINISTIC != 0;
    let entries = a.num_gpfifo_entries;
    check_entries(entries, if usermode { 2 } else { 4 })?;
    let mut state = channel.state();
    let space = state.address_space.clone().ok_or(Errno::EINVAL)?;
    let tsg = state.tsg.clone().ok_or(Errno::EINVAL)?;
    if channel.instance.bindings().ring.is_some() || state.kernel_ring {
        return Err(Errno::EEXIST);
    }
    if deterministic && state.watchdog || usermode && !deterministic {
        return Err(Errno::EINVAL);
    }
    if !usermode {
        // Kernel-mode submission is a separate path, which no client of this machine uses: the ring exists,
        // and submits fail.
        schedule(machine, &tsg, &state)?;
        state.kernel_ring = true;
        state.deterministic = deterministic;
        return Ok(0);
    }
    if a.gpfifo_dmabuf_fd == 0 || a.userd_dmabuf_fd == 0 {
        return Err(Errno::EINVAL);
    }
    if a.gpfifo_dmabuf_offset != 0 || a.userd_dmabuf_offset != 0 {
        return Err(Errno::EINVAL);
    }
    let gpfifo = machine.buffer(&mut machine.driver(), a.gpfifo_dmabuf_fd)?;
    if gpfifo.backing().is_none() || gpfifo.size() < (u64::from(entries) * 8).max(4096) {
        return Err(Errno::EINVAL);
    }
    if gpfifo.size() >= LARGE_RING {
        machine.violations.record(
            Consequence::MayFreeze,
            "NVGPU_IOCTL_CHANNEL_SETUP_BIND",
            format!(
                "a ring of {:#x} bytes pushes the context's buffers up in the driver's range, and ALLOC_OBJ_CTX then froze an Orin \
                 whose user range ended 2 MiB below 2^40; entries times 8, rounded up to 4 KiB, is all that a ring needs",
                gpfifo.size()
            ),
        );
    }
    let read_only = PteAttributes { read_only: true, ..PteAttributes::default() };
    let va = space.map_kernel(&gpfifo, read_only)?;
    let undo = |errno| {
        space.unmap_kernel(va);
        errno
    };
    let userd = machine.buffer(&mut machine.driver(), a.userd_dmabuf_fd).map_err(undo)?;
    let userd = userd.backing().ok_or(Errno::EINVAL).map_err(undo)?;
    if machine.config.checks().contains(Checks::INIT) {
        // nvmap gives memory that is zero: the put index that the program has not written yet is.
        userd.clear(POISON);
    }
    schedule(machine, &tsg, &state).map_err(undo)?;
    {
        let mut bindings = channel.instance.bindings();
        bindings.ring = Some(Ring::new(entries, va, userd));
        bindings.tables = Some(Arc::clone(space.tables()));
    }
    state.deterministic = true;
    let is_dead = machine.config.what_if.has(WhatIf::DEAD_VEID_0)
        && state.veid == 0
        && channel.instance.runlist() == GRAPHICS_RUNLIST;
    drop(state);
    a.work_submit_token = channel.instance.token();
    (a.gpfifo_gpu_va, a.userd_gpu_va, a.usermode_mmio_gpu_va) = (0, 0, 0);
    // The host never fetches for a channel that is on no runlist. Only the graphics runlist has subcontexts.
    if !is_dead {
        machine.gpu.add_channel(&channel.instance);
    }
    Ok(0)
}

/// The channel's subcontext goes into the instance blocks of its group.
fn schedule(machine: &Machine, tsg: &Tsg, channel: &ChannelState) -> Result<(), Errno> {
    if tsg.state().subcontexts.schedule(channel.veid, channel.bound_veid) {
        return Ok(());
    }
    let text = "the channel was put into its group before it had an address space: the kernel dereferences a null pointer; \
                bind the address space first";
    machine.violations.freeze("NVGPU_IOCTL_CHANNEL_SETUP_BIND", text)
}

/// `ALLOC_GPFIFO_EX`: the older form, kernel-mode only.
pub(super) fn kernel_ring(channel: &Channel, entries: u32) -> Reply {
    check_entries(entries, 4)?;
    let mut state = channel.state();
    if state.address_space.is_none() || state.tsg.is_none() {
        return Err(Errno::EINVAL);
    }
    if channel.instance.bindings().ring.is_some() || state.kernel_ring {
        return Err(Errno::EEXIST);
    }
    state.kernel_ring = true;
    Ok(0)
}

fn check_entries(entries: u32, least: u32) -> Result<(), Errno> {
    if entries < least || !entries.is_power_of_two() || entries > u32::MAX / 8 {
        return Err(Errno::EINVAL);
    }
    Ok(())
}
