//! Copies of whole runs of bytes, which the SM's copy unit does for one thread: SM 9.0.
//!
//! `UBLKCP`: A is the source (a pair for global memory), B the destination and the barrier object in the register
//! after it, C the length in units of 16 bytes.

use crate::opcode::Opcode::*;
use crate::operands::Place;
use crate::printer::{NO, Printer, Refused};
use crate::table::item::{Arg, Mod};
use crate::table::row::{Row, fixed};

pub(super) static ROWS: &[Row] = &[
    fixed(Ublkcp, 0x3ba, Place::U24, Place::U32, Place::U64)
        .uniform()
        .bit91()
        .mods(&[
            Mod::Pick(73, 2, &[NO, ".S.G", ".G.S"]),
            Mod::Pick(81, 2, &["", ".LTC64B", ".LTC128B", ".LTC256B"]),
            Mod::On(83, ".SEQUENCED"),
        ])
        .args(&[Arg::By(destination), Arg::By(source), Arg::U(64), Arg::If(76, POLICY)])
        .sm9x(),
    fixed(Ublkpf, 0x3bc, Place::U24, Place::None, Place::U64)
        .uniform()
        .bit91()
        .mods(&[Mod::Always(".L2")])
        .args(&[Arg::By(source), Arg::U(64), Arg::If(76, POLICY)])
        .sm9x(),
    fixed(Utmacmdflush, 0x9b7, Place::None, Place::None, Place::None).uniform().sm9x(),
];

const POLICY: &[Arg] = &[Arg::By(policy)];

fn destination(p: &mut Printer<'_>) -> Result<(), Refused> {
    bracketed(p, "[", 32);
    Ok(())
}

fn source(p: &mut Printer<'_>) -> Result<(), Refused> {
    bracketed(p, "[", 24);
    Ok(())
}

/// The eviction policy.
fn policy(p: &mut Printer<'_>) -> Result<(), Refused> {
    bracketed(p, "desc[", 40);
    Ok(())
}

fn bracketed(p: &mut Printer<'_>, opens: &str, lo: u8) {
    p.next();
    p.put(opens);
    p.ureg_read(lo, 2);
    p.put("]");
}
