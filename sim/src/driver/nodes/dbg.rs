//! Debugger sessions: `D` commands.

use crate::driver::address_space::space::AddressSpace;
use crate::driver::channel::Channel;
use crate::driver::files::Object;
use crate::driver::machine::Machine;
use crate::driver::nodes::argument::{Reply, accept, with};
use crate::driver::nodes::tsg;
use crate::driver::session::debugger::DebugSession;
use crate::driver::tsg::{SmRecord, Tsg};
use nix::errno::Errno;
use nvgpu_sys::*;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Size of the image of a graphics context in this model.
const CONTEXT_BYTES: u32 = 0x8_0000;
/// Bounds of a time slice that a debugger sets, in microseconds.
const TIMESLICE: std::ops::RangeInclusive<u32> = 1000..=4_000_000;

/// Serves a `D` command.
pub(super) fn ioctl(machine: &Arc<Machine>, session: &DebugSession, request: u32, bytes: &mut [u8]) -> Reply {
    match request {
        NVGPU_DBG_GPU_IOCTL_BIND_CHANNEL => with(bytes, |a| bind_channel(machine, session, a)),
        NVGPU_DBG_GPU_IOCTL_UNBIND_CHANNEL => with(bytes, |a| unbind_channel(machine, session, a)),
        NVGPU_DBG_GPU_IOCTL_REG_OPS => with(bytes, |a| register_operations(machine, session, a)),
        NVGPU_DBG_GPU_IOCTL_EVENTS_CTRL => with(bytes, |a: &mut nvgpu_dbg_gpu_events_ctrl_args| {
            session.channel()?;
            accept(a.cmd <= NVGPU_DBG_GPU_EVENTS_CTRL_CMD_CLEAR)
        }),
        NVGPU_DBG_GPU_IOCTL_POWERGATE => {
            with(bytes, |a: &mut nvgpu_dbg_gpu_powergate_args| accept(matches!(a.mode, 1 | 2)))
        }
        NVGPU_DBG_GPU_IOCTL_GET_GR_CONTEXT_SIZE => {
            with(bytes, |a: &mut nvgpu_dbg_gpu_get_gr_context_size_args| {
                a.size = CONTEXT_BYTES;
                accept(session.channel()?.instance.has_context())
            })
        }
        NVGPU_DBG_GPU_IOCTL_SMPC_CTXSW_MODE | NVGPU_DBG_GPU_IOCTL_HWPM_CTXSW_MODE => {
            accept(session.channel()?.instance.has_context())
        }
        NVGPU_DBG_GPU_IOCTL_TIMEOUT => with(bytes, |a: &mut nvgpu_dbg_gpu_timeout_args| {
            accept(a.enable <= 1)?;
            session.state().timeouts_off = a.enable == NVGPU_DBG_GPU_IOCTL_TIMEOUT_DISABLE;
            Ok(0)
        }),
        NVGPU_DBG_GPU_IOCTL_GET_TIMEOUT => with(bytes, |a: &mut nvgpu_dbg_gpu_timeout_args| {
            // Of all sessions together (`nvgpu_dbg_gpu_ioctl_get_timeout`).
            a.enable = machine.timeouts_enabled().into();
            Ok(0)
        }),
        NVGPU_DBG_GPU_IOCTL_SET_NEXT_STOP_TRIGGER_TYPE => Ok(0),
        NVGPU_DBG_GPU_IOCTL_READ_SINGLE_SM_ERROR_STATE => with(bytes, |a| read_sm_error(machine, session, a)),
        NVGPU_DBG_GPU_IOCTL_CLEAR_SINGLE_SM_ERROR_STATE => with(bytes, |a| clear_sm_error(session, a)),
        NVGPU_DBG_GPU_IOCTL_SUSPEND_RESUME_CONTEXTS => {
            with(bytes, |a| suspend_or_resume(machine, session, a))
        }
        NVGPU_DBG_GPU_IOCTL_SET_SM_EXCEPTION_TYPE_MASK => {
            with(bytes, |a: &mut nvgpu_dbg_gpu_set_sm_exception_type_mask_args| {
                accept(a.exception_type_mask <= NVGPU_DBG_GPU_IOCTL_SET_SM_EXCEPTION_TYPE_MASK_FATAL)?;
                group(session)?.state().exception_mask = a.exception_type_mask;
                Ok(0)
            })
        }
        NVGPU_DBG_GPU_IOCTL_SET_CTX_MMU_DEBUG_MODE => with(bytes, |a| mmu_debug(machine, session, a)),
        NVGPU_DBG_GPU_IOCTL_TSG_SET_TIMESLICE => with(bytes, |a: &mut nvgpu_timeslice_args| {
            let group = group(session)?;
            accept(TIMESLICE.contains(&a.timeslice_us))?;
            group.set_timeslice(a.timeslice_us);
            Ok(0)
        }),
        NVGPU_DBG_GPU_IOCTL_TSG_GET_TIMESLICE => with(bytes, |a: &mut nvgpu_timeslice_args| {
            a.timeslice_us = group(session)?.state().timeslice_us;
            Ok(0)
        }),
        NVGPU_DBG_GPU_IOCTL_GET_MAPPINGS => with(bytes, |a| mappings(machine, session, a)),
        NVGPU_DBG_GPU_IOCTL_ACCESS_GPU_VA => with(bytes, |a| access(machine, session, a)),
        NVGPU_DBG_GPU_IOCTL_SET_SCHED_EXIT_WAIT_FOR_ERRBAR => {
            with(bytes, |a: &mut nvgpu_sched_exit_wait_for_errbar_args| accept(a.enable <= 1))
        }
        _ => Err(Errno::ENOTTY),
    }
}

/// The group of the session's channel.
fn group(session: &DebugSession) -> Result<Arc<Tsg>, Errno> {
    session.channel()?.state().tsg.clone().ok_or(Errno::EINVAL)
}

/// The channel that an argument names.
fn named(machine: &Machine, fd: u32) -> Result<Arc<Channel>, Errno> {
    match machine.object_by_number(fd as i32) {
        Some(Object::Channel(channel)) => Ok(channel),
        _ => Err(Errno::EINVAL),
    }
}

fn bind_channel(machine: &Machine, session: &DebugSession, a: &nvgpu_dbg_gpu_bind_channel_args) -> Reply {
    // The file comes first (`dbg_bind_channel_gk20a`). A channel may be bound several times.
    if !machine.is_open(a.channel_fd as i32) {
        return Err(Errno::ENODEV);
    }
    let channel = named(machine, a.channel_fd)?;
    session.state().channels.push((a.channel_fd as i32, channel));
    Ok(0)
}

fn unbind_channel(machine: &Machine, session: &DebugSession, a: &nvgpu_dbg_gpu_unbind_channel_args) -> Reply {
    let channel = named(machine, a.channel_fd)?;
    let channels = &mut session.state().channels;
    let at = channels.iter().position(|(_, c)| Arc::ptr_eq(c, &channel)).ok_or(Errno::EINVAL)?;
    channels.remove(at);
    Ok(0)
}

fn read_sm_error(
    machine: &Machine,
    session: &DebugSession,
    a: &mut nvgpu_dbg_gpu_read_single_sm_error_state_args,
) -> Reply {
    let record = tsg::sm_record(&*group(session)?, a.sm_id)?;
    let len = (a.sm_error_state_record_size as usize).min(record.len());
    let left = machine.user.write_or_count(a.sm_error_state_record_mem, &record[..len]);
    a.sm_error_state_record_size = len as u64;
    Ok(left)
}

fn clear_sm_error(session: &DebugSession, a: &nvgpu_dbg_gpu_clear_single_sm_error_state_args) -> Reply {
    let group = group(session)?;
    *group.state().sm_errors.get_mut(a.sm_id as usize).ok_or(Errno::EINVAL)? = SmRecord::default();
    Ok(0)
}

fn suspend_or_resume(
    machine: &Machine,
    session: &DebugSession,
    a: &mut nvgpu_dbg_gpu_suspend_resume_contexts_args,
) -> Reply {
    let run = match a.action {
        NVGPU_DBG_GPU_SUSPEND_ALL_CONTEXTS => false,
        NVGPU_DBG_GPU_RESUME_ALL_CONTEXTS => true,
        _ => return Err(Errno::EINVAL),
    };
    (a.resident_context_fd, a.is_resident_context) = (-1, 0);
    for (fd, channel) in &session.state().channels {
        if channel.instance.is_busy() {
            (a.is_resident_context, a.resident_context_fd) = (1, *fd);
        }
        let group = channel.state().tsg.clone();
        if let Some(group) = group {
            group.entry.set_enabled(run);
        }
    }
    machine.gpu.wake();
    Ok(0)
}

fn mmu_debug(
    machine: &Machine,
    session: &DebugSession,
    a: &nvgpu_dbg_gpu_set_ctx_mmu_debug_mode_args,
) -> Reply {
    session.channel()?;
    if a.reserved != 0 || a.mode > NVGPU_DBG_GPU_CTX_MMU_DEBUG_MODE_ENABLED {
        return Err(Errno::EINVAL);
    }
    let mut state = session.state();
    if a.mode == NVGPU_DBG_GPU_CTX_MMU_DEBUG_MODE_ENABLED {
        state.mmu_debug += 1;
        return Ok(0);
    }
    if state.mmu_debug == 0 {
        machine.violations.freeze(
            "NVGPU_DBG_GPU_IOCTL_SET_CTX_MMU_DEBUG_MODE",
            "disabling without a previous enable wraps a counter in the driver, which later loops for hours; pair \
             enable and disable",
        )?;
        return Ok(0);
    }
    state.mmu_debug -= 1;
    Ok(0)
}

/// The address space of the session's channel; a real kernel dereferences a null pointer when there is none.
fn space(machine: &Machine, session: &DebugSession, call: &'static str) -> Result<Arc<AddressSpace>, Errno> {
    let space = session.channel()?.state().address_space.clone();
    space.ok_or_else(|| {
        let text = "the channel has no address space: the kernel dereferences a null pointer; bind one first";
        match machine.violations.freeze(call, text) {
            Err(errno) => errno,
            Ok(()) => Errno::EINVAL,
        }
    })
}

fn mappings(machine: &Machine, session: &DebugSession, a: &mut nvgpu_dbg_gpu_get_mappings_args) -> Reply {
    let space = space(machine, session, "NVGPU_DBG_GPU_IOCTL_GET_MAPPINGS")?;
    if a.va_lo > a.va_hi || a.ops_buffer == 0 && a.count != 0 {
        return Err(Errno::EINVAL);
    }
    let found = space.user_mappings(a.va_lo, a.va_hi);
    if a.count == 0 {
        a.count = found.len() as u32;
        return Ok(0);
    }
    let entries: Vec<_> = found
        .iter()
        .take(a.count as usize)
        .map(|&(gpu_va, size, _)| nvgpu_dbg_gpu_get_mappings_entry { gpu_va, size })
        .collect();
    machine.user.write_array(a.ops_buffer, &entries)?;
    // Set as soon as the count is reached, even when nothing is left.
    if entries.len() == a.count as usize {
        a.has_more = 1;
    }
    a.count = entries.len() as u32;
    Ok(0)
}

fn access(machine: &Machine, session: &DebugSession, a: &nvgpu_dbg_gpu_va_access_args) -> Reply {
    let space = space(machine, session, "NVGPU_DBG_GPU_IOCTL_ACCESS_GPU_VA")?;
    let write = match u32::from(a.cmd) {
        NVGPU_DBG_GPU_IOCTL_ACCESS_GPUVA_CMD_READ => false,
        NVGPU_DBG_GPU_IOCTL_ACCESS_GPUVA_CMD_WRITE => true,
        _ => return Err(Errno::EINVAL),
    };
    if a.count == 0 || a.ops_buf == 0 {
        return Err(Errno::EINVAL);
    }
    let ops: Vec<nvgpu_dbg_gpu_va_access_entry> = machine.user.read_array(a.ops_buf, a.count as usize)?;
    for op in ops {
        if op.gpu_va % 4 != 0 || op.size % 4 != 0 || op.size == 0 {
            return Err(Errno::EINVAL);
        }
        let (start, len, buffer) = space.find_mapping(op.gpu_va).ok_or(Errno::EINVAL)?;
        // Across the border of a mapping the driver overwrites the first piece with the second.
        if op.gpu_va + u64::from(op.size) > start + len {
            return Err(Errno::EINVAL);
        }
        let backing = buffer.backing().ok_or(Errno::EINVAL)?;
        // The driver counts from the start of the buffer, whatever part of it is mapped.
        let offset = op.gpu_va - start;
        if offset + u64::from(op.size) > backing.len() {
            return Err(Errno::EINVAL);
        }
        let host = backing.ptr().as_ptr() as u64 + offset;
        let len = op.size as usize;
        if write {
            machine.user.write_own(host, &machine.user.read(op.data, len)?)?;
        } else {
            machine.user.write(op.data, &machine.user.read_own(host, len)?)?;
        }
    }
    Ok(0)
}

fn register_operations(
    machine: &Machine,
    session: &DebugSession,
    a: &mut nvgpu_dbg_gpu_exec_reg_ops_args,
) -> Reply {
    if !session.profiler {
        session.channel()?;
    }
    if a.num_ops > 1024 {
        return Err(Errno::EINVAL);
    }
    let mut ops: Vec<nvgpu_dbg_gpu_reg_op> = machine.user.read_array(a.ops, a.num_ops as usize)?;
    for op in &mut ops {
        let wide = match u32::from(op.op) {
            NVGPU_DBG_GPU_REG_OP_READ_32 | NVGPU_DBG_GPU_REG_OP_WRITE_32 => false,
            NVGPU_DBG_GPU_REG_OP_READ_64 | NVGPU_DBG_GPU_REG_OP_WRITE_64 => true,
            _ => return Err(Errno::EINVAL),
        };
        if op.type_ > 1 || op.offset % 4 != 0 || op.offset >> 24 != 0 || !is_allowed(op.offset) {
            let site = ("validate_reg_op_offset", 0);
            machine.log.error(&machine.clock, site, &format!("invalid regop offset: {:#x}", op.offset));
            return Err(Errno::EINVAL);
        }
        let writes = u32::from(op.op) & 1 != 0;
        if !writes {
            op.value_lo = register(machine, op.offset);
            op.value_hi = if wide { register(machine, op.offset + 4) } else { 0 };
        }
        op.status = NVGPU_DBG_GPU_REG_OP_STATUS_SUCCESS as u8;
    }
    machine.user.write(a.ops, ops.as_bytes())?;
    a.gr_ctx_resident = 0;
    Ok(0)
}

/// SM registers of one TPC: offsets inside the window of an SM.
const SM_WINDOW: [std::ops::RangeInclusive<u32>; 2] = [0x700..=0x71c, 0x728..=0x738];

/// The part of the driver's list of registers that this machine has.
fn is_allowed(offset: u32) -> bool {
    let in_gpc = (0x50_4000..0x51_4000).contains(&offset).then_some(offset & 0x7ff);
    let sm = in_gpc
        .is_some_and(|at| SM_WINDOW.iter().any(|r| r.contains(&at) || r.contains(&(at.wrapping_sub(0x80)))));
    let tpc = in_gpc.is_some_and(|at| matches!(at, 0x508 | 0x50c | 0x608));
    sm || tpc || matches!(offset, 0x9400 | 0x9410 | 0x40_9b00 | 0x41_9e80..=0x41_9eb4 | 0x41_88b0 | 0x40_5840)
}

/// Value of a register: the driver clears the error registers before a tool can read them.
fn register(machine: &Machine, offset: u32) -> u32 {
    match offset {
        0x9400 => machine.clock.ptimer() as u32,
        0x9410 => (machine.clock.ptimer() >> 32) as u32,
        _ => 0,
    }
}
