//! Exchange between threads, branches and barriers.
//!
//! `SHFL`: A is the value, B the lane, C the clamp and segment word. `BAR`: B is the barrier, C the thread
//! count.

use crate::arch::{Arch, Encoding};
use crate::opcode::Opcode::*;
use crate::operands::{Dst, Place};
use crate::printer::{NO, Printer, Refused, offset, refused};
use crate::table::item::{Arg, Mod};
use crate::table::row::{Row, fixed};
use crate::word::Word;

pub(super) static ROWS: &[Row] = &[
    fixed(Shfl, 0x389, Place::R24, Place::R32, Place::R64).to(Dst::R).mods(SHFL_MODS).args(SHFL),
    fixed(Shfl, 0x589, Place::R24, Place::R32, Place::Bits(40, 13)).to(Dst::R).mods(SHFL_MODS).args(SHFL),
    fixed(Shfl, 0x989, Place::R24, Place::Bits(53, 5), Place::R64).to(Dst::R).mods(SHFL_MODS).args(SHFL),
    fixed(Shfl, 0xf89, Place::R24, Place::Bits(53, 5), Place::Bits(40, 13))
        .to(Dst::R)
        .mods(SHFL_MODS)
        .args(SHFL),
    fixed(Vote, 0x806, Place::None, Place::None, Place::None).to(Dst::R).mods(VOTE_MODS).args(VOTE),
    fixed(Match, 0x3a1, Place::R24, Place::None, Place::None)
        .to(Dst::R)
        .mods(&[Mod::Pick(79, 1, &[".ALL", ".ANY"]), Mod::On(73, ".U64")])
        .args(&[
            Arg::Unless(79, &[Arg::Pd(81)]),
            Arg::If(79, &[Arg::Holds(81, 3, &[7])]),
            Arg::D,
            Arg::R(24),
        ]),
    fixed(Redux, 0x3c4, Place::R24, Place::None, Place::None)
        .to(Dst::U)
        .mods(&[Mod::Pick(78, 3, &["", ".OR", ".XOR", ".SUM", ".MIN", ".MAX"]), Mod::On(73, ".S32")])
        .args(&[Arg::D, Arg::R(24)]),
    fixed(R2ur, 0x3c2, Place::R24, Place::None, Place::None)
        .to(Dst::U)
        .mods(&[Mod::On(84, ".OR")])
        .args(R2UR)
        .sm8x(),
    fixed(R2ur, 0x2ca, Place::R24, Place::None, Place::None)
        .to(Dst::U)
        .mods(&[Mod::On(84, ".OR")])
        .args(R2UR)
        .sm9x(),
    fixed(Elect, 0x82f, Place::None, Place::None, Place::None)
        .to(Dst::U)
        .mods(&[Mod::On(85, ".IGNOREKILL")])
        .args(&[Arg::Pd(81), Arg::D, Arg::Ps(87)])
        .sm9x(),
    fixed(Acqbulk, 0x82e, Place::None, Place::None, Place::None).sm9x(),
    fixed(Preexit, 0x82d, Place::None, Place::None, Place::None).sm9x(),
    fixed(B2r, 0x31c, Place::None, Place::None, Place::None)
        .to(Dst::R)
        .mods(&[Mod::Pick(78, 2, &["", ".RESULT", ".WARP"])])
        .args(&[Arg::D, Arg::By(b2r_source)]),
    fixed(Bra, 0x947, Place::None, Place::None, Place::None).mods(BRA_MODS).args(&[Arg::PsOpt(87), TARGET]),
    fixed(Bra, 0x947, Place::U24, Place::None, Place::None)
        .bit91()
        .mods(&[Mod::Pick(85, 2, &["", ".INC", ".DEC"]), Mod::Pick(32, 2, &[NO, NO, ".DIV", ".CONV"])])
        .args(&[Arg::PsOpt(87), Arg::By(bra_mask), TARGET]),
    fixed(Brx, 0x949, Place::R24, Place::None, Place::None)
        .mods(&[Mod::Pick(85, 2, &["", ".INC", ".DEC"])])
        .args(&[Arg::PsOpt(87), Arg::R(24), Arg::By(branch_offset)]),
    fixed(Brxu, 0x958, Place::U24, Place::None, Place::None).bit91().mods(UNIFORM_JUMP).args(UNIFORM_TARGET),
    fixed(Jmxu, 0x959, Place::U24, Place::None, Place::None).bit91().mods(UNIFORM_JUMP).args(UNIFORM_TARGET),
    fixed(Jmx, 0x94c, Place::R24, Place::None, Place::None)
        .mods(&[Mod::Pick(85, 2, &["", ".INC", ".DEC"])])
        .args(&[Arg::PsOpt(87), Arg::R(24), Arg::By(branch_offset)]),
    fixed(Lepc, 0x34e, Place::None, Place::None, Place::None).to(Dst::R).args(&[Arg::D]),
    fixed(Lepc, 0x94e, Place::None, Place::None, Place::None)
        .to(Dst::R)
        .args(&[Arg::D, Arg::By(code_address)])
        .sm9x(),
    fixed(UcgabarArv, 0x9c7, Place::None, Place::None, Place::None).uniform().bit91().sm9x(),
    fixed(UcgabarWait, 0xdc7, Place::None, Place::None, Place::None).uniform().bit91().sm9x(),
    fixed(CallAbs, 0x343, Place::R24, Place::None, Place::None).mods(NOINC).args(&[
        Arg::PsOpt(87),
        Arg::R(24),
        Arg::By(branch_offset),
    ]),
    fixed(CallAbs, 0x943, Place::None, Place::None, Place::None)
        .mods(NOINC)
        .args(&[Arg::PsOpt(87), Arg::By(absolute)]),
    fixed(CallRel, 0x344, Place::R24, Place::None, Place::None).mods(NOINC).args(&[
        Arg::PsOpt(87),
        Arg::R(24),
        Arg::By(target_after_register),
    ]),
    fixed(CallRel, 0x944, Place::None, Place::None, Place::None).mods(NOINC).args(&[Arg::PsOpt(87), TARGET]),
    fixed(Ret, 0x950, Place::R24, Place::None, Place::None)
        .mods(&[Mod::Pick(85, 1, &[".REL", ".ABS"]), Mod::On(86, ".NODEC")])
        .args(&[Arg::PsOpt(87), Arg::R(24), Arg::By(return_target)]),
    fixed(Exit, 0x94d, Place::None, Place::None, Place::None)
        .mods(&[Mod::Pick(84, 2, &["", ".KEEPREFCOUNT", ".PREEMPTED"]), Mod::On(86, ".NO_ATEXIT")])
        .args(&[Arg::PsOpt(87)]),
    fixed(Bpt, 0x95c, Place::None, Place::None, Place::None)
        .mods(&[Mod::Pick(84, 3, &[NO, ".PAUSE", ".PAUSE", ".TRAP", ".INT", ".DRAIN", ".PAUSE_QUIET"])])
        .args(&[Arg::HexOpt(34, 3)]),
    fixed(Nop, 0x918, Place::None, Place::None, Place::None),
    fixed(Pmtrig, 0x801, Place::None, Place::None, Place::None).args(&[Arg::PsOpt(87), Arg::Hex(32, 16)]),
    fixed(Yield, 0x946, Place::None, Place::None, Place::None).args(&[Arg::PsOpt(87)]),
    fixed(Nanosleep, 0x35d, Place::None, Place::R32, Place::None).mods(NANOSLEEP_MODS).args(NANOSLEEP),
    fixed(Nanosleep, 0xb5d, Place::None, Place::Const, Place::None)
        .bit91_free()
        .mods(NANOSLEEP_MODS)
        .args(NANOSLEEP),
    fixed(Nanosleep, 0xd5d, Place::None, Place::U32, Place::None)
        .bit91()
        .mods(NANOSLEEP_MODS)
        .args(NANOSLEEP),
    fixed(Nanosleep, 0x95d, Place::None, Place::Imm32, Place::None)
        .mods(&[Mod::On(83, ".CLEAR"), Mod::Unless(83, NANOSLEEP_MODS)])
        .args(&[Arg::Unless(83, &[Arg::PsOpt(87), Arg::Hex(32, 32)])]),
    fixed(Bmov, 0x355, Place::None, Place::None, Place::None)
        .to(Dst::R)
        .mods(BMOV_CLEAR)
        .args(&[Arg::D, Arg::By(state_24)]),
    fixed(Bmov, 0xf55, Place::None, Place::None, Place::None)
        .mods(BMOV_CLEAR)
        .args(&[Arg::By(convergence_barrier), Arg::By(barrier_or_state)]),
    fixed(Bmov, 0x356, Place::None, Place::R32, Place::None).mods(BMOV_PQUAD).args(BMOV),
    fixed(Bmov, 0x956, Place::None, Place::Imm32, Place::None).mods(BMOV_PQUAD).args(BMOV),
    fixed(Bmov, 0xb56, Place::None, Place::Const, Place::None).mods(BMOV_PQUAD).args(BMOV),
    fixed(Bmov, 0xd56, Place::None, Place::U32, Place::None).bit91().mods(BMOV_PQUAD).args(BMOV),
    fixed(Bmov, 0xf56, Place::None, Place::None, Place::None)
        .mods(BMOV_PQUAD)
        .args(&[Arg::By(state_24), Arg::By(convergence_barrier)]),
    fixed(Rpcmov, 0x352, Place::None, Place::R32, Place::None)
        .mods(&[Mod::Always(".32")])
        .args(&[Arg::By(return_pc), Arg::R(32)]),
    fixed(Rpcmov, 0x353, Place::None, Place::None, Place::None)
        .to(Dst::R)
        .mods(&[Mod::Always(".32")])
        .args(&[Arg::D, Arg::By(return_pc)]),
    fixed(Bssy, 0x945, Place::None, Place::None, Place::None).args(&[
        Arg::PsOpt(87),
        Arg::By(convergence_barrier),
        Arg::By(bssy_target),
    ]),
    fixed(Bsync, 0x941, Place::None, Place::None, Place::None)
        .args(&[Arg::PsOpt(87), Arg::By(convergence_barrier)]),
    fixed(Break, 0x942, Place::None, Place::None, Place::None)
        .args(&[Arg::PsOpt(87), Arg::By(convergence_barrier)]),
    fixed(Warpsync, 0x348, Place::None, Place::R32, Place::None).mods(EXCLUSIVE).args(WARPSYNC).sm8x(),
    fixed(Warpsync, 0x948, Place::None, Place::Imm32, Place::None).args(WARPSYNC).sm8x(),
    fixed(Warpsync, 0xb48, Place::None, Place::Const, Place::None)
        .bit91_free()
        .mods(EXCLUSIVE)
        .args(WARPSYNC)
        .sm8x(),
    fixed(Warpsync, 0xd48, Place::None, Place::U32, Place::None)
        .bit91()
        .mods(EXCLUSIVE)
        .args(WARPSYNC)
        .sm8x(),
    fixed(Warpsync, 0x348, Place::R24, Place::None, Place::None)
        .mods(&[Mod::Pick(85, 2, &["", ".EXCLUSIVE", ".COLLECTIVE"])])
        .args(&[Arg::PsOpt(87), Arg::R(24), Arg::If(86, &[TARGET])])
        .sm9x(),
    fixed(Warpsync, 0x948, Place::None, Place::None, Place::None)
        .mods(&[Mod::On(86, ".COLLECTIVE"), Mod::Always(".ALL")])
        .args(&[Arg::PsOpt(87), Arg::If(86, &[TARGET])])
        .sm9x(),
    fixed(Endcollective, 0x91b, Place::None, Place::None, Place::None).args(&[Arg::PsOpt(87)]).sm9x(),
    fixed(Bar, 0xb1d, Place::None, Place::Bits(54, 4), Place::Bits(42, 12)).mods(BAR_MODS).args(BAR),
    fixed(Bar, 0x91d, Place::None, Place::Bits(54, 4), Place::R32).mods(BAR_MODS).args(BAR),
    fixed(Bar, 0x51d, Place::None, Place::R32, Place::Bits(42, 12)).mods(BAR_MODS).args(BAR),
    fixed(Bar, 0x31d, Place::None, Place::R32, Place::None).mods(BAR_MODS).args(BAR),
];

const UNIFORM_JUMP: &[Mod] =
    &[Mod::Pick(85, 2, &["", ".INC", ".DEC"]), Mod::Pick(32, 2, &["", ".U", ".DIV", ".CONV"])];
const UNIFORM_TARGET: &[Arg] = &[Arg::PsOpt(87), Arg::U(24), Arg::By(branch_offset)];
const TARGET: Arg = Arg::By(target);
const SHFL_MODS: &[Mod] = &[Mod::Pick(58, 2, &[".IDX", ".UP", ".DOWN", ".BFLY"])];
const SHFL: &[Arg] = &[Arg::Pd(81), Arg::D, Arg::A, Arg::B, Arg::C];
pub(super) const VOTE_MODS: &[Mod] = &[Mod::Pick(72, 2, &[".ALL", ".ANY", ".EQ"])];
pub(super) const VOTE: &[Arg] = &[Arg::By(vote_destination), Arg::By(vote_predicate), Arg::Ps(87)];
const R2UR: &[Arg] = &[Arg::By(r2ur_predicate), Arg::D, Arg::A];
const BRA_MODS: &[Mod] = &[
    Mod::Pick(85, 2, &["", ".INC", ".DEC"]),
    Mod::Pick(32, 2, &["", ".U", ".DIV", ".CONV"]),
    Mod::By(bra_any),
];
const NANOSLEEP: &[Arg] = &[Arg::PsOpt(87), Arg::B];
const NOINC: &[Mod] = &[Mod::On(86, ".NOINC")];
const NANOSLEEP_MODS: &[Mod] =
    &[Mod::On(86, ".RAND"), Mod::On(85, ".WARP"), Mod::On9x(&[Mod::On(84, ".SYNCS")])];
const BMOV_CLEAR: &[Mod] = &[Mod::Always(".32"), Mod::On(84, ".CLEAR")];
const BMOV_PQUAD: &[Mod] = &[Mod::Always(".32"), Mod::On(84, ".PQUAD")];
const BMOV: &[Arg] = &[Arg::By(state_24), Arg::B];
const EXCLUSIVE: &[Mod] = &[Mod::On(86, ".EXCLUSIVE")];
const WARPSYNC: &[Arg] = &[Arg::PsOpt(87), Arg::B];
const BAR_MODS: &[Mod] = &[
    Mod::Pick(77, 3, &[".SYNC", ".ARV", ".RED", ".SCAN", ".SYNCALL"]),
    Mod::By(bar_reduction),
    Mod::By(bar_defer),
];
const BAR: &[Arg] = &[Arg::By(bar_operands)];

/// SM 9.0: the uniform branch is taken if any thread takes it.
fn bra_any(p: &mut Printer<'_>) -> Result<(), Refused> {
    if p.arch.encoding() == Encoding::Sm9x && p.word.bits(32, 2) == 1 && p.bit(84) {
        p.put(".ANY");
    }
    Ok(())
}

fn target(p: &mut Printer<'_>) -> Result<(), Refused> {
    p.next();
    p.target();
    Ok(())
}

/// A relative target after a register, separated by a blank only.
fn target_after_register(p: &mut Printer<'_>) -> Result<(), Refused> {
    p.put(" ");
    p.target();
    Ok(())
}

/// An offset after a register, not printed when it is 0.
fn branch_offset(p: &mut Printer<'_>) -> Result<(), Refused> {
    let offset = p.branch_offset();
    if offset != 0 {
        p.put(" ");
        p.signed_hex(offset);
    }
    Ok(())
}

fn absolute(p: &mut Printer<'_>) -> Result<(), Refused> {
    let address = p.branch_offset();
    p.next();
    p.signed_hex(address);
    Ok(())
}

fn return_target(p: &mut Printer<'_>) -> Result<(), Refused> {
    if p.word.bit(85) {
        p.put(" ");
        let address = p.branch_offset();
        p.signed_hex(address);
        Ok(())
    } else {
        target_after_register(p)
    }
}

/// The lane mask that `BRA.DIV` and `BRA.CONV` test, inverted by bit 30.
fn bra_mask(p: &mut Printer<'_>) -> Result<(), Refused> {
    p.next();
    if p.bit(30) {
        p.put("~");
    }
    p.ureg_read(24, 1);
    Ok(())
}

/// The address that `LEPC` of SM 9.0 loads: its offset is in bytes.
fn code_address(p: &mut Printer<'_>) -> Result<(), Refused> {
    p.next();
    let target = p.pc.wrapping_add(16).wrapping_add_signed(p.sbits(24, 58));
    p.signed_hex(target as i64);
    Ok(())
}

/// `BSSY` has a shorter offset than the other branches.
fn bssy_target(p: &mut Printer<'_>) -> Result<(), Refused> {
    p.next();
    let target = p.pc.wrapping_add(16).wrapping_add_signed(p.sbits(34, 30) * 4);
    p.signed_hex(target as i64);
    Ok(())
}

/// A half of the return address register.
fn return_pc(p: &mut Printer<'_>) -> Result<(), Refused> {
    p.next();
    let half = if p.bit(31) { "Rpc.HI" } else { "Rpc.LO" };
    p.put(half);
    Ok(())
}

/// Convergence barrier register at bits 16 to 19.
fn convergence_barrier(p: &mut Printer<'_>) -> Result<(), Refused> {
    let barrier = p.bits(16, 4);
    p.next();
    p.put_fmt(format_args!("B{barrier}"));
    Ok(())
}

/// A state of the warp at bits 24 to 29: the convergence barriers first.
fn state_24(p: &mut Printer<'_>) -> Result<(), Refused> {
    const STATES: [&str; 16] = [
        "THREAD_STATE_ENUM.0",
        "THREAD_STATE_ENUM.1",
        "THREAD_STATE_ENUM.2",
        "THREAD_STATE_ENUM.3",
        "THREAD_STATE_ENUM.4",
        "TRAP_RETURN_PC.LO",
        "TRAP_RETURN_PC.HI",
        "TRAP_RETURN_MASK",
        "MEXITED",
        "MKILL",
        "MACTIVE",
        "MATEXIT",
        "OPT_STACK",
        "API_CALL_DEPTH",
        "ATEXIT_PC.LO",
        "ATEXIT_PC.HI",
    ];
    p.next();
    match p.bits(24, 6) as usize {
        barrier @ 0..16 => p.put_fmt(format_args!("B{barrier}")),
        state @ 16..32 => p.put(STATES[state - 16]),
        _ => return refused(24, 6),
    }
    Ok(())
}

/// `.CLEAR` reads a convergence barrier, the plain form any other state.
fn barrier_or_state(p: &mut Printer<'_>) -> Result<(), Refused> {
    if (p.word.bits(24, 6) < 16) != p.bit(84) {
        return refused(24, 6);
    }
    state_24(p)
}

/// The ballot register, not printed when it is RZ.
fn vote_destination(p: &mut Printer<'_>) -> Result<(), Refused> {
    let zero = match p.operands.dst {
        Dst::U => p.bits(16, 6) == 63,
        Dst::R | Dst::None => p.bits(16, 8) == 255,
    };
    if !zero {
        p.next();
        if p.operands.dst == Dst::U { p.ureg(16) } else { p.reg(16) }
    }
    Ok(())
}

/// `VOTEU` writes a predicate of the warp but reads one of the thread.
fn vote_predicate(p: &mut Printer<'_>) -> Result<(), Refused> {
    let index = p.bits(81, 3) as u8;
    p.next();
    p.predicate_written(index, p.operands.dst == Dst::U);
    Ok(())
}

/// Printed unless PT; always with `.OR`, which reads it.
fn r2ur_predicate(p: &mut Printer<'_>) -> Result<(), Refused> {
    let index = p.bits(81, 3) as u8;
    if index != 7 || p.bit(84) {
        p.next();
        p.predicate_written(index, false);
    }
    Ok(())
}

/// `RESULT`: the predicate; otherwise the barrier number.
fn b2r_source(p: &mut Printer<'_>) -> Result<(), Refused> {
    match p.bits(78, 2) {
        0 => {
            let barrier = p.bits(54, 4);
            p.next();
            p.put_fmt(format_args!("{barrier:#x}"));
        }
        1 => {
            let index = p.bits(81, 3) as u8;
            if index != 7 {
                p.next();
                p.predicate_written(index, false);
            }
        }
        _ => {}
    }
    Ok(())
}

const BAR_ARRIVE: u64 = 1;
const BAR_RED: u64 = 2;
const BAR_SCAN: u64 = 3;
const BAR_SYNCALL: u64 = 4;

fn bar_reduction(p: &mut Printer<'_>) -> Result<(), Refused> {
    if p.word.bits(77, 3) == BAR_RED {
        match p.bits(74, 2) {
            0 => p.put(".POPC"),
            1 => p.put(".AND"),
            2 => p.put(".OR"),
            _ => return refused(74, 2),
        }
    }
    Ok(())
}

/// Arrivals and scans cannot defer blocking.
fn bar_defer(p: &mut Printer<'_>) -> Result<(), Refused> {
    if p.bit(80) {
        if matches!(p.word.bits(77, 3), BAR_ARRIVE | BAR_SCAN) {
            return refused(80, 1);
        }
        p.put(".DEFER_BLOCKING");
    }
    Ok(())
}

/// Barrier number, thread count (0 = all, not printed) and the input of a reduction.
fn bar_operands(p: &mut Printer<'_>) -> Result<(), Refused> {
    let mode = p.word.bits(77, 3);
    if mode == BAR_SYNCALL {
        return Ok(());
    }
    p.next();
    match p.word.form() {
        1 | 2 => p.reg(32),
        _ => {
            let barrier = p.bits(54, 4);
            p.put_fmt(format_args!("{barrier:#x}"));
        }
    }
    match p.word.form() {
        1 | 4 => {
            p.next();
            p.reg(32);
        }
        _ => {
            let count = p.bits(42, 12);
            if count != 0 || mode == BAR_ARRIVE {
                p.next();
                p.put_fmt(format_args!("{count:#x}"));
            }
        }
    }
    if mode >= BAR_RED {
        p.next();
        p.predicate_source(87, false);
    }
    Ok(())
}

/// The target of a branch, if the word alone determines it.
pub(crate) fn branch_target(row: &Row, arch: Arch, word: Word, pc: u64) -> Option<u64> {
    let next = pc.wrapping_add(16);
    match row.opcode {
        Bra => Some(next.wrapping_add_signed(offset(arch, word))),
        CallRel if word.form() == 4 => Some(next.wrapping_add_signed(offset(arch, word))),
        Warpsync if is_collective(arch, word) => Some(next.wrapping_add_signed(offset(arch, word))),
        CallAbs if word.form() == 4 => Some(offset(arch, word) as u64),
        Bssy => Some(next.wrapping_add_signed(word.sbits(34, 30) * 4)),
        _ => None,
    }
}

/// `WARPSYNC.COLLECTIVE` of SM 9.0, which branches.
fn is_collective(arch: Arch, word: Word) -> bool {
    arch.encoding() == Encoding::Sm9x && word.bit(86)
}
