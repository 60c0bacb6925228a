//! Branches, convergence and barriers.

use crate::gpu::sm::barrier::Arrival;
use crate::gpu::sm::core::{Core, Flow};
use crate::gpu::sm::fault::esr;
use crate::gpu::sm::lanes::each;
use crate::gpu::sm::lower::{Lower, Refusal};
use crate::gpu::sm::micro_op::{MicroOp, warp_ops};
use crate::gpu::sm::warp::{Path, Wait, Waiting};

use sass::Encoding;

/// Lanes branch to op `to`; the rest of the path continues with the next op. The smaller side runs first, as
/// observed on Hopper; programs must not depend on it.
#[inline(always)]
fn branch(core: &mut Core<'_>, taken: u32, to: u32) -> Flow {
    if taken == 0 {
        return Flow::Next;
    }
    let rest = core.active & !taken;
    if rest != 0 && taken.count_ones() >= rest.count_ones() {
        core.warp.paths.push(Path { pc: to, mask: taken });
        core.active = rest;
        return Flow::Next;
    }
    if rest != 0 {
        core.warp.paths.push(Path { pc: core.pc + 1, mask: rest });
        core.active = taken;
    }
    core.pc = to;
    Flow::Jump
}

/// Sends each lane of the mask to its own address.
fn branch_each(core: &mut Core<'_>, targets: &[u64; 32], lanes: u32) -> Flow {
    let mut left = lanes;
    let mut first: Vec<Path> = Vec::new();
    while left != 0 {
        let to = targets[left.trailing_zeros() as usize];
        let group = (0..32).filter(|&i| left >> i & 1 != 0 && targets[i] == to).fold(0, |m, i| m | 1u32 << i);
        let Some(pc) = core.map.index_of(to) else {
            core.missing = to;
            return Flow::Missing;
        };
        first.push(Path { pc, mask: group });
        left &= !group;
    }
    let rest = core.active & !lanes;
    core.warp.paths.extend(first.drain(1..));
    if rest != 0 {
        core.warp.paths.push(Path { pc: core.pc + 1, mask: rest });
    }
    (core.pc, core.active) = (first[0].pc, first[0].mask);
    Flow::Jump
}

/// Takes lanes out of the current path; they wait for `on` and resume at the next op.
fn park(core: &mut Core<'_>, lanes: u32, on: Wait) {
    core.active &= !lanes;
    core.warp.waiting.push(Waiting { pc: core.pc + 1, mask: lanes, on });
}

warp_ops! {
    /// Raises the warp error k[0].
    Raise(core, op) {
        core.raise(op.k[0], core.mask, None, None)
    }

    /// Continues at the op k[0].
    Goto(core, op) {
        core.pc = op.k[0];
        Flow::Jump
    }

    Nop(_core, _) {
        Flow::Next
    }

    Branch(core, op) {
        let taken = core.mask & core.pred(op.ps[0]);
        branch(core, taken, op.k[0])
    }

    /// Taken by the whole path if a live lane of a uniform mask is elsewhere, or (k[1]) if none is.
    BranchDiverged(core, op) {
        let mask = core.uniform(op.a) ^ op.k[2];
        let diverged = mask & core.warp.live & !core.active != 0;
        if diverged != (op.k[1] != 0) {
            let taken = core.mask & core.pred(op.ps[0]);
            branch(core, taken, op.k[0])
        } else {
            Flow::Next
        }
    }

    /// To the address in a register pair plus k[1]:k[0].
    BranchIndirect(core, op) {
        let base = u64::from(op.k[0]) | u64::from(op.k[1]) << 32;
        let lanes = core.mask & core.pred(op.ps[0]);
        if lanes == 0 {
            return Flow::Next;
        }
        let a = core.src_pair(op.a);
        let targets = each(|i| a[i].wrapping_add(base));
        branch_each(core, &targets, lanes)
    }

    Exit(core, op) {
        let lanes = core.mask & core.pred(op.ps[0]);
        core.exit_lanes(lanes);
        if core.active == 0 { Flow::Park } else { Flow::Next }
    }

    /// Remembers the path in convergence barrier k[1].
    ConvergeSet(core, op) {
        let n = op.k[1] & 15;
        if !core.warp.waiting.is_empty() {
            // Lanes that reached the same BSSY apart from these would wait for a set that is overwritten here.
            core.warp.release(|w| w.on == Wait::Converge(n as u8));
        }
        core.warp.barriers[n as usize] = core.active;
        Flow::Next
    }

    ConvergeWait(core, op) {
        let n = op.k[0] & 15;
        let lanes = core.mask & core.pred(op.ps[0]);
        let members = core.warp.barriers[n as usize];
        let waits = lanes & members;
        if waits == 0 {
            return Flow::Next;
        }
        if members & core.warp.live & !waits == 0 {
            // Everyone is here already; lanes that do not belong to it pass through in the same path.
            core.warp.barriers[n as usize] = 0;
            return Flow::Next;
        }
        park(core, waits, Wait::Converge(n as u8));
        core.warp.try_converge(n as u8);
        if core.active == 0 { Flow::Park } else { Flow::Next }
    }

    ConvergeBreak(core, op) {
        let n = op.k[0] & 15;
        let lanes = core.mask & core.pred(op.ps[0]);
        core.warp.barriers[n as usize] &= !lanes;
        core.warp.try_converge(n as u8);
        Flow::Next
    }

    /// WARPSYNC with a mask per lane in A.
    WarpSync(core, op) {
        let lanes = core.mask & core.pred(op.ps[0]);
        let masks = core.src(op.a);
        let live = core.warp.live;
        if lanes == core.active && (0..32).all(|i| lanes >> i & 1 == 0 || masks[i] & live & !lanes == 0) {
            return Flow::Next;
        }
        let mut left = lanes;
        while left != 0 {
            let mask = masks[left.trailing_zeros() as usize];
            let group = (0..32).filter(|&i| left >> i & 1 != 0 && masks[i] == mask).fold(0, |m, i| m | 1u32 << i);
            park(core, group, Wait::WarpSync(mask));
            left &= !group;
        }
        let pc = core.pc + 1;
        core.warp.try_warpsync(pc);
        if core.active == 0 { Flow::Park } else { Flow::Next }
    }

    /// Lets other paths, warps and blocks run.
    Yield(core, _) {
        core.warp.give_way(core.mask);
        core.pc += 1;
        Flow::Yield
    }

    /// Without a trap handler, and none is installed here, an H200 reports the code of an instruction that
    /// does not exist, at the address of this one. That a ga10b does the same is inferred.
    Trap(core, _) {
        core.raise(esr::ILLEGAL_INSTR_ENCODING, core.mask, None, None)
    }

    /// R <- warp state k[0], cleared if k[1].
    StateRead(core, op) {
        let n = op.k[0] as usize;
        let value = match n {
            0..16 => core.warp.barriers[n],
            24 => core.warp.threads & !core.warp.live,
            26 => core.active,
            _ => 0,
        };
        core.put(op.d, &[value; 32]);
        if op.k[1] != 0 && n < 16 {
            core.warp.barriers[n] = 0;
        }
        Flow::Next
    }

    /// B k[2] <- warp state k[0], cleared if k[1].
    StateMove(core, op) {
        let (from, to) = (op.k[0] as usize, op.k[2] as usize & 15);
        if from < 16 {
            let value = core.warp.barriers[from];
            if op.k[1] != 0 {
                core.warp.barriers[from] = 0;
            }
            core.warp.barriers[to] = value;
        } else {
            core.warp.barriers[to] = if from == 26 { core.active } else { 0 };
        }
        Flow::Next
    }

    /// Warp state k[0] <- the value of the first active lane.
    StateWrite(core, op) {
        let lane = core.mask.trailing_zeros() as usize & 31;
        let value = core.src(op.b)[lane];
        if op.k[0] < 16 {
            core.warp.barriers[op.k[0] as usize] = value;
        }
        Flow::Next
    }

    /// BAR: id in A (or packed with the count), count in B; k: 0 waits, 1 reduces, 2 OR, 3 packed.
    BlockBarrier(core, op) {
        let arrival = arrival(core, op);
        core.arrive(arrival)
    }

    BarrierResult(core, op) {
        let (count, any) = (core.warp.bar_count, core.warp.bar_bool);
        core.put(op.d, &[count; 32]);
        core.put_pred(op.pd[0], if any { u32::MAX } else { 0 });
        Flow::Next
    }
}

/// The arrival of the current lanes at a BAR.
pub(crate) fn arrival(core: &Core<'_>, op: &MicroOp) -> Arrival {
    let lane = core.mask.trailing_zeros() as usize & 31;
    let (a, b) = (core.src(op.a)[lane], core.src(op.b)[lane]);
    let (id, count) = if op.k[3] != 0 { (a & 15, a >> 16 & 0xfff) } else { (a & 15, b) };
    let votes = if op.k[1] != 0 { core.pred(op.ps[0]) } else { 0 };
    Arrival { id, count, lanes: core.mask, waits: op.k[0] != 0, votes, any: op.k[2] != 0 }
}

pub(super) fn nop(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.run::<Nop>();
    Ok(())
}

pub(super) fn yield_(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.run::<Yield>();
    Ok(())
}

fn always(l: &Lower<'_>) -> bool {
    l.bits(12, 4) == 7 && l.bits(87, 4) == 7
}

pub(super) fn bra(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.op.ps[0] = l.ps();
    l.branch = Some(l.relative());
    if l.bit(91) && l.bits(32, 2) >= 2 {
        l.op.a = l.ureg(l.bits(24, 6), 1)?;
        l.op.k[1] = u32::from(l.bits(32, 2) == 3);
        l.op.k[2] = l.mask(30);
        l.run::<BranchDiverged>();
    } else {
        l.ends = always(l);
        l.run::<Branch>();
    }
    Ok(())
}

fn indirect(l: &mut Lower<'_>, base: u64) -> Result<(), Refusal> {
    l.a(2)?;
    l.op.ps[0] = l.ps();
    (l.op.k[0], l.op.k[1]) = (base as u32, (base >> 32) as u32);
    l.run::<BranchIndirect>();
    Ok(())
}

pub(super) fn brx(l: &mut Lower<'_>) -> Result<(), Refusal> {
    let base = l.relative();
    l.ends = always(l);
    indirect(l, base)
}

fn absolute(l: &Lower<'_>) -> u64 {
    l.relative().wrapping_sub(l.va.wrapping_add(16))
}

pub(super) fn call(l: &mut Lower<'_>) -> Result<(), Refusal> {
    let relative = l.bits(0, 9) == 0x144;
    let to = if relative { l.relative() } else { absolute(l) };
    if l.w.form() == 1 {
        return indirect(l, to);
    }
    l.op.ps[0] = l.ps();
    l.branch = Some(to);
    l.ends = always(l);
    l.run::<Branch>();
    Ok(())
}

pub(super) fn ret(l: &mut Lower<'_>) -> Result<(), Refusal> {
    let base = if l.bit(85) { absolute(l) } else { l.relative() };
    l.ends = always(l);
    indirect(l, base)
}

pub(super) fn exit(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.op.ps[0] = l.ps();
    l.ends = always(l);
    l.run::<Exit>();
    Ok(())
}

pub(super) fn bssy(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.op.k[1] = l.bits(16, 4);
    l.run::<ConvergeSet>();
    Ok(())
}

pub(super) fn bsync(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.op.ps[0] = l.ps();
    l.op.k[0] = l.bits(16, 4);
    l.run::<ConvergeWait>();
    Ok(())
}

pub(super) fn break_(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.op.ps[0] = l.ps();
    l.op.k[0] = l.bits(16, 4);
    l.run::<ConvergeBreak>();
    Ok(())
}

pub(super) fn warpsync(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.op.ps[0] = l.ps();
    l.op.a = match (l.w.form(), l.target.arch.encoding()) {
        (1, Encoding::Sm8x) => l.reg(l.bits(32, 8), 1)?,
        (1, Encoding::Sm9x) => l.reg(l.bits(24, 8), 1)?,
        (4, Encoding::Sm8x) => l.imm(l.bits(32, 32)),
        (4, Encoding::Sm9x) => l.imm(u32::MAX),
        (5, _) => l.constant(l.bits(54, 5), l.w.sbits(40, 14) as i32 * 4, 1),
        _ => l.ureg(l.bits(32, 6), 1)?,
    };
    l.run::<WarpSync>();
    Ok(())
}

pub(super) fn bpt(l: &mut Lower<'_>) -> Result<(), Refusal> {
    match l.bits(84, 3) {
        1..=4 => l.run::<Trap>(),
        _ => return Err(esr::ILLEGAL_INSTR_PARAM),
    }
    Ok(())
}

pub(super) fn bmov(l: &mut Lower<'_>) -> Result<(), Refusal> {
    let state = l.bits(24, 6);
    match (l.bits(0, 9), l.w.form()) {
        (0x155, 1) => {
            l.dst(1)?;
            l.op.k = [state, l.flag(84), 0, 0, 0, 0];
            l.run::<StateRead>();
        }
        (0x155, _) => {
            l.op.k = [state, l.flag(84), l.bits(16, 4), 0, 0, 0];
            l.run::<StateMove>();
        }
        (_, 7) => {
            // The barrier register to move is a state id too.
            l.op.k = [l.bits(32, 4), 0, state & 15, 0, 0, 0];
            l.run::<StateMove>();
        }
        _ => {
            l.b(1)?;
            l.op.k[0] = state;
            l.run::<StateWrite>();
        }
    }
    Ok(())
}

pub(super) fn bar(l: &mut Lower<'_>) -> Result<(), Refusal> {
    let mode = l.bits(77, 3);
    if mode > 2 {
        return Err(esr::ILLEGAL_INSTR_PARAM);
    }
    let form = l.w.form();
    let id = l.bits(54, 4);
    if matches!(form, 4 | 5) && id >= l.target.barriers.clamp(1, 16) {
        return Err(esr::OOR_REG);
    }
    (l.op.a, l.op.b) = match form {
        1 => (l.reg(l.bits(32, 8), 1)?, crate::gpu::sm::slots::ZERO),
        2 => (l.reg(l.bits(32, 8), 1)?, l.imm(l.bits(42, 12))),
        4 => (l.imm(id), l.reg(l.bits(32, 8), 1)?),
        _ => (l.imm(id), l.imm(l.bits(42, 12))),
    };
    l.op.k = [
        u32::from(mode != 1),
        u32::from(mode == 2),
        u32::from(l.bits(74, 2) == 2),
        u32::from(form == 1),
        0,
        0,
    ];
    l.op.ps[0] = l.ps();
    l.run::<BlockBarrier>();
    Ok(())
}

pub(super) fn b2r(l: &mut Lower<'_>) -> Result<(), Refusal> {
    if l.bits(78, 2) != 1 {
        return Err(esr::ILLEGAL_INSTR_PARAM);
    }
    l.dst(1)?;
    l.pd();
    l.run::<BarrierResult>();
    Ok(())
}
