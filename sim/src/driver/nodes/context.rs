//! Contexts of the graphics engine: `ALLOC_OBJ_CTX` and `SET_PREEMPTION_MODE`.
//! Source: `common/gr/gr_setup.c`, `obj_ctx.c`, `ctx.c`, `common/fifo/tsg.c`, r36.4.3.

use crate::driver::address_space::space::AddressSpace;
use crate::driver::channel::Channel;
use crate::driver::machine::Machine;
use crate::driver::nodes::argument::Reply;
use crate::driver::tsg::{Tsg, TsgState};
use crate::driver::unbind;
use crate::gpu::classes::CLASSES;
use crate::gpu::instance::Preemption;
use crate::what_if::WhatIf;
use nix::errno::Errno;
use nv_hw::class::Kind;
use nvgpu_sys::*;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of the driver's range that a context takes in an address space; sizes are not known, only that
/// together with a small ring they fit in 2 MiB (field notes with a range that ended 2 MiB below 2^40).
const CONTEXT_BUFFERS: [u64; 5] = [0x1_0000, 0x2_0000, 0x8_0000, 0x8_0000, 0x1000];
/// Context registers hold address bits 39:8.
const CONTEXT_REACH: u64 = 1 << 40;
/// Graphics modes and compute modes that ga10b has, as bits.
const GRAPHICS_MODES: u32 = NVGPU_GRAPHICS_PREEMPTION_MODE_WFI | NVGPU_GRAPHICS_PREEMPTION_MODE_GFXP;
const COMPUTE_MODES: u32 = NVGPU_COMPUTE_PREEMPTION_MODE_WFI
    | NVGPU_COMPUTE_PREEMPTION_MODE_CTA
    | NVGPU_COMPUTE_PREEMPTION_MODE_CILP;

fn is_compute(class: u32) -> bool {
    Kind::of(class) == Some(Kind::Compute)
}

fn is_graphics(class: u32) -> bool {
    Kind::of(class) == Some(Kind::Graphics)
}

/// Properties of a channel that decide which classes and modes go together.
#[derive(Clone, Copy, Debug)]
struct Member {
    class: u32,
    veid: u32,
    runqueue: u32,
}

impl Member {
    /// The channel of the request: the driver uses the subcontext that its last bind request named.
    fn asking(channel: &Channel) -> Self {
        let state = channel.state();
        Self { class: state.class.unwrap_or(0), veid: state.veid, runqueue: state.runqueue }
    }

    /// The channels of a group: the driver uses the subcontext that they are in.
    fn all(machine: &Machine, tsg: &Tsg) -> Vec<Self> {
        let member = |channel: &Arc<Channel>| {
            let asking = Self::asking(channel);
            Self { veid: channel.state().bound_veid, ..asking }
        };
        machine.channels.of_group(tsg).iter().map(member).collect()
    }
}

/// The rules of classes, subcontexts and PBDMAs (`nvgpu_tsg_validate_class_veid_pbdma`).
fn check_class(this: Member, all: &[Member]) -> Result<(), Errno> {
    let any = |rule: fn(&Member) -> bool| all.iter().any(rule);
    let graphics_active = any(|m| is_graphics(m.class) && m.veid == 0 && m.runqueue == 0);
    let wrong = if is_graphics(this.class) {
        this.runqueue != 0
            || this.veid != 0
            || any(|m| is_compute(m.class) && m.veid == 0 && m.runqueue != 0)
            || any(|m| is_compute(m.class) && m.veid != 0 && m.runqueue == 0)
    } else {
        is_compute(this.class) && graphics_active && (this.veid == 0) != (this.runqueue == 0)
    };
    if wrong { Err(Errno::EINVAL) } else { Ok(()) }
}

/// The rules of CILP beside graphics (`nvgpu_tsg_validate_cilp_config`); `enabled` when it is set already.
fn allows_cilp(this: Member, all: &[Member], enabled: bool) -> bool {
    let any = |rule: fn(&Member) -> bool| all.iter().any(rule);
    let graphics_active = any(|m| is_graphics(m.class) && m.veid == 0 && m.runqueue == 0);
    let asynchronous = any(|m| is_compute(m.class) && m.veid != 0 && m.runqueue != 0);
    let beside_graphics = graphics_active && is_compute(this.class) && (this.veid != 0 || asynchronous);
    let with_graphics = enabled && is_graphics(this.class) && asynchronous;
    !beside_graphics && !with_graphics
}

/// `ALLOC_OBJ_CTX`.
pub(super) fn allocate(machine: &Machine, channel: &Channel, a: &nvgpu_alloc_obj_ctx_args) -> Reply {
    let (tsg, space) = {
        let mut state = channel.state();
        let space = state.address_space.clone().ok_or(Errno::EINVAL)?;
        if !CLASSES.contains(&a.class_num) {
            return Err(Errno::EINVAL);
        }
        // The channel has it from now on, also after an error.
        state.class = Some(a.class_num);
        (state.tsg.clone().ok_or(Errno::EINVAL)?, space)
    };
    unbind::while_preempted(machine.host(), &tsg, || add_class(machine, channel, &tsg, &space, a))
}

/// The rest of `ALLOC_OBJ_CTX`, while the group is off the engine.
fn add_class(
    machine: &Machine,
    channel: &Channel,
    tsg: &Tsg,
    space: &Arc<AddressSpace>,
    a: &nvgpu_alloc_obj_ctx_args,
) -> Reply {
    let (this, all) = (Member::asking(channel), Member::all(machine, tsg));
    check_class(this, &all)?;
    let veid = channel.state().bound_veid;
    let mut state = tsg.state();
    if !state.subcontexts.add_header(veid) {
        let text = "the channel was put into its group before it had an address space: the kernel dereferences a null \
                    pointer; bind the address space first";
        machine.violations.freeze("NVGPU_IOCTL_CHANNEL_ALLOC_OBJ_CTX", text)?;
        return Err(Errno::EINVAL);
    }
    if is_compute(a.class_num) || is_graphics(a.class_num) {
        let flag = |flag: u32, mode: u32| if a.flags & flag != 0 { mode } else { 0 };
        let mut asked = [
            flag(NVGPU_ALLOC_OBJ_FLAGS_GFXP, NVGPU_GRAPHICS_PREEMPTION_MODE_GFXP),
            flag(NVGPU_ALLOC_OBJ_FLAGS_CILP, NVGPU_COMPUTE_PREEMPTION_MODE_CILP),
        ];
        // The context of a group whose first class is the copy engine's counts as initialized without a mode.
        if state.has_class {
            asked = without_current(&state, asked);
        } else {
            let defaults = [NVGPU_GRAPHICS_PREEMPTION_MODE_WFI, NVGPU_COMPUTE_PREEMPTION_MODE_WFI];
            for (asked, default) in asked.iter_mut().zip(defaults) {
                *asked = if *asked == 0 { default } else { *asked };
            }
        }
        if asked != [0, 0] {
            set_modes(machine, &mut state, this, &all, asked)?;
        }
    }
    state.has_memory = true;
    map(machine, &mut state, space)?;
    tsg.entry.set_context();
    state.has_class = true;
    write_modes(tsg, &state);
    Ok(0)
}

/// Maps the context's buffers in an address space, unless they are.
fn map(machine: &Machine, state: &mut TsgState, space: &Arc<AddressSpace>) -> Result<(), Errno> {
    let weak = Arc::downgrade(space);
    if state.contexts.iter().any(|(s, _)| s.ptr_eq(&weak)) {
        return Ok(());
    }
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
    let first = !std::mem::replace(&mut machine.driver().golden_context, true);
    if first && machine.config.first_context_ms > 0 {
        machine.clock.spend(Duration::from_millis(machine.config.first_context_ms.into()));
    }
    Ok(())
}

/// `SET_PREEMPTION_MODE`.
pub(super) fn set_preemption(machine: &Machine, channel: &Channel, a: &nvgpu_preemption_mode_args) -> Reply {
    let (tsg, space) = {
        let state = channel.state();
        state.class.ok_or(Errno::EINVAL)?;
        (state.tsg.clone().ok_or(Errno::EINVAL)?, state.address_space.as_ref().map(Arc::downgrade))
    };
    unbind::while_preempted(machine.host(), &tsg, || {
        let (this, all) = (Member::asking(channel), Member::all(machine, &tsg));
        let mut state = tsg.state();
        let asked = without_current(&state, [a.graphics_preempt_mode, a.compute_preempt_mode]);
        if asked == [0, 0] {
            return Ok(0);
        }
        set_modes(machine, &mut state, this, &all, asked)?;
        // The modes stay, the driver's error notwithstanding.
        if !space.is_some_and(|space| state.subcontexts.maps(&space)) {
            return Err(Errno::EINVAL);
        }
        if !state.has_memory {
            let text = "no class of the group was ever allocated successfully: the driver hits BUG() with locks held; \
                        allocate one first";
            machine.violations.freeze("NVGPU_IOCTL_CHANNEL_SET_PREEMPTION_MODE", text)?;
        }
        write_modes(&tsg, &state);
        Ok(0)
    })
}

/// Asks for nothing where the mode is set already.
fn without_current(state: &TsgState, asked: [u32; 2]) -> [u32; 2] {
    let [graphics, compute] = asked;
    let asks = |mode, current| if mode == current { 0 } else { mode };
    [asks(graphics, state.graphics_mode), asks(compute, state.compute_mode)]
}

/// Sets the preemption modes of a group: graphics and compute, 0 to leave one as it is, not both 0.
fn set_modes(
    machine: &Machine,
    state: &mut TsgState,
    this: Member,
    all: &[Member],
    [graphics, compute]: [u32; 2],
) -> Result<(), Errno> {
    // One bit that ga10b knows is enough, and modes only go up.
    let wrong = |mode: u32, known, current| mode != 0 && (mode & known == 0 || mode < current);
    let cilp = compute == NVGPU_COMPUTE_PREEMPTION_MODE_CILP;
    let is_cilp = state.compute_mode == NVGPU_COMPUTE_PREEMPTION_MODE_CILP;
    if wrong(graphics, GRAPHICS_MODES, state.graphics_mode)
        || wrong(compute, COMPUTE_MODES, state.compute_mode)
        || cilp && (!machine.config.cilp || machine.config.what_if.has(WhatIf::CILP_REFUSED))
        || cilp && graphics == NVGPU_GRAPHICS_PREEMPTION_MODE_GFXP
        || (cilp && is_compute(this.class) || is_graphics(this.class)) && !allows_cilp(this, all, is_cilp)
    {
        return Err(Errno::EINVAL);
    }
    if matches!(graphics, NVGPU_GRAPHICS_PREEMPTION_MODE_WFI | NVGPU_GRAPHICS_PREEMPTION_MODE_GFXP) {
        state.graphics_mode = graphics;
    }
    // The graphics mode is set by then, the driver's error notwithstanding.
    if !is_compute(this.class) && !is_graphics(this.class) {
        return Err(Errno::EINVAL);
    }
    // Also to 0, when the request sets the graphics mode alone.
    state.compute_mode = compute;
    Ok(())
}

/// Writes the modes into the context's image, which keeps its own for any other mode.
fn write_modes(tsg: &Tsg, state: &TsgState) {
    match state.compute_mode {
        NVGPU_COMPUTE_PREEMPTION_MODE_CTA => tsg.entry.set_preemption(Preemption::Blocks),
        NVGPU_COMPUTE_PREEMPTION_MODE_CILP => tsg.entry.set_preemption(Preemption::Instructions),
        _ => {}
    }
}
