//! Matrix products of a warpgroup (`wgmma`), and the waits for them, and registers that move between
//! warpgroups (`setmaxnreg`): sm_90a alone.
//!
//! B lies in shared memory, which a descriptor in two uniform registers names; A does too in one form and is in
//! registers in the other. Bits 53 to 59 hold the shape, each operation in its own way.

use crate::opcode::Opcode;
use crate::opcode::Opcode::*;
use crate::operands::{Dst, Place};
use crate::printer::{NO, Printer, Refused, refused};
use crate::table::item::{Arg, Mod};
use crate::table::row::{Row, fixed};

/// A product with A in shared memory.
const fn shared(opcode: Opcode, op12: u16) -> Row {
    fixed(opcode, op12, Place::None, Place::None, Place::R64).to(Dst::R).widths_unknown().bit91().sm9x()
}

/// A product with A in registers.
const fn registers(opcode: Opcode, op12: u16) -> Row {
    fixed(opcode, op12, Place::R24, Place::None, Place::R64).to(Dst::R).widths_unknown().bit91().sm9x()
}

pub(super) static ROWS: &[Row] = &[
    fixed(Warpgroup, 0x9c5, Place::None, Place::None, Place::None)
        .mods(&[
            Mod::Pick(79, 2, &[".ARRIVE", ".WAIT", ".DEPBAR"]),
            Mod::If(80, &[Mod::Pick(47, 1, &[NO, ".LE"])]),
        ])
        .args(&[Arg::If(80, &[Arg::Named(84, 3, &["gsb0"]), Arg::Hex(72, 3)])])
        .sm9x(),
    fixed(Usetmaxreg, 0x9c8, Place::None, Place::None, Place::None)
        .uniform()
        .bit91()
        .mods(&[Mod::Pick(72, 2, &[NO, ".DEALLOC", ".TRY_ALLOC"]), Mod::Pick(74, 1, &[NO, ".CTAPOOL"])])
        .args(&[Arg::If(73, &[Arg::Pd(81)]), Arg::By(no_result), Arg::Hex(32, 10)])
        .sm9x(),
    shared(Hgmma, 0x9f0).mods(HALF).args(&[
        Arg::D,
        Arg::By(half_of_both),
        C,
        SCALE,
        Arg::If(73, HALF_SPARSE),
        GROUP,
    ]),
    registers(Hgmma, 0xdf0).mods(HALF).args(&[
        Arg::D,
        Arg::By(negatable),
        Arg::By(half_of_b),
        C,
        SCALE,
        Arg::If(73, HALF_SPARSE),
        GROUP,
    ]),
    shared(Igmma, 0x9f1).mods(INTEGER).args(&[
        Arg::D,
        Arg::By(plain_of_both),
        C,
        SCALE,
        Arg::If(73, SPARSE),
        GROUP,
    ]),
    registers(Igmma, 0xdf1).mods(INTEGER).args(&[
        Arg::D,
        Arg::R(24),
        Arg::By(plain_of_b),
        C,
        SCALE,
        Arg::If(73, SPARSE),
        GROUP,
    ]),
    shared(Bgmma, 0x9f2).mods(BITS).args(&[Arg::D, Arg::By(plain_of_both), C, SCALE, GROUP]),
    registers(Bgmma, 0xdf2).mods(BITS).args(&[Arg::D, Arg::R(24), Arg::By(plain_of_b), C, SCALE, GROUP]),
    shared(Qgmma, 0x9f3).mods(QUARTER).args(&[
        Arg::D,
        Arg::By(signed_of_both),
        C,
        SCALE,
        Arg::If(73, SPARSE),
        GROUP,
    ]),
    registers(Qgmma, 0xdf3).mods(QUARTER).args(&[
        Arg::D,
        Arg::By(negatable),
        Arg::By(signed_of_b),
        C,
        SCALE,
        Arg::If(73, SPARSE),
        GROUP,
    ]),
];

/// The sum so far.
const C: Arg = Arg::R(64);
/// Whether it is added: 0 is always, and not printed.
const SCALE: Arg = Arg::UpStoredInverted(87);
/// The counter that the product counts in.
const GROUP: Arg = Arg::By(group);
/// The selectors of a sparse A: their register, and which threads provide them.
const HALF_SPARSE: &[Arg] = &[Arg::R(40), Arg::Hex(48, 2)];
const SPARSE: &[Arg] = &[Arg::R(40), Arg::HexOpt(48, 2)];

const SPARSE_A: Mod = Mod::If(73, &[Mod::Always(".SP"), Mod::On(74, ".REGOFFSET")]);
const RESULT: Mod = Mod::Pick(75, 1, &[".F16", ".F32"]);
const EIGHTHS: &[&str] = &[".E4M3", ".E5M2"];
const SIGNS: &[&str] = &[".U8", ".S8"];
const HALF: &[Mod] = &[SPARSE_A, Mod::By(half_shape), RESULT, Mod::Pick(76, 2, &["", ".BF16", ".TF32"])];
const QUARTER: &[Mod] =
    &[SPARSE_A, Mod::By(quarter_shape), RESULT, Mod::Pick(76, 1, EIGHTHS), Mod::Pick(77, 1, EIGHTHS)];
const INTEGER: &[Mod] = &[
    SPARSE_A,
    Mod::By(integer_shape),
    Mod::Pick(76, 2, SIGNS),
    Mod::Pick(82, 2, SIGNS),
    Mod::On(75, ".SAT"),
];
const BITS: &[Mod] =
    &[Mod::By(bit_shape), Mod::Pick(77, 2, &[NO, NO, ".AND"]), Mod::Pick(80, 1, &[NO, ".POPC"])];

/// A claim of registers says whether it succeeded; giving them back does not, and the field holds UPT.
fn no_result(p: &mut Printer<'_>) -> Result<(), Refused> {
    if p.bit(73) || p.bits(81, 3) == 7 { Ok(()) } else { refused(81, 3) }
}

fn shape(p: &mut Printer<'_>, n: u64, k: u64) {
    p.put_fmt(format_args!(".64x{n}x{k}"));
}

/// Columns in steps of 8, and of three depths one that a sparse A doubles.
fn half_shape(p: &mut Printer<'_>) -> Result<(), Refused> {
    let (n, sparse) = (p.bits(53, 5), p.bit(73));
    let k = match (p.bits(58, 2), sparse) {
        (0, _) => 16,
        (1, false) => 8,
        (2, true) => 32,
        _ => return refused(58, 2),
    };
    shape(p, (n + 1) * 8, k);
    Ok(())
}

fn quarter_shape(p: &mut Printer<'_>) -> Result<(), Refused> {
    let (n, sparse) = (p.bits(53, 5), p.bit(73));
    if p.bit(58) != sparse {
        return refused(58, 1);
    }
    shape(p, (n + 1) * 8, if sparse { 64 } else { 32 });
    Ok(())
}

/// The columns that integers have, by number: in steps of 8 up to 32, then of 16.
const fn integer_columns(number: u64) -> Option<u64> {
    match number {
        0..=3 => Some((number + 1) * 8),
        4..=17 => Some((number - 1) * 16),
        _ => None,
    }
}

fn integer_shape(p: &mut Printer<'_>) -> Result<(), Refused> {
    let (value, sparse) = (p.bits(53, 6), p.bit(73));
    match integer_columns(value / 3).filter(|_| value % 3 == u64::from(sparse)) {
        Some(n) => shape(p, n, if sparse { 64 } else { 32 }),
        None => return refused(53, 6),
    }
    Ok(())
}

fn bit_shape(p: &mut Printer<'_>) -> Result<(), Refused> {
    match integer_columns(p.bits(53, 6)) {
        Some(n) => shape(p, n, 256),
        None => return refused(53, 6),
    }
    Ok(())
}

fn group(p: &mut Printer<'_>) -> Result<(), Refused> {
    match p.bits(84, 3) {
        0 => {
            p.next();
            p.put("gsb0");
        }
        7 => {}
        _ => return refused(84, 3),
    }
    Ok(())
}

/// A register whose elements can be negated.
fn negatable(p: &mut Printer<'_>) -> Result<(), Refused> {
    p.next();
    if p.bit(72) {
        p.put("-");
    }
    p.reg(24);
    Ok(())
}

/// The descriptor at a bit, of both matrices (four uniform registers) or of B (two), and the bits that change
/// the elements.
fn descriptor(p: &mut Printer<'_>, lo: u8, count: u8, changes: &[(u8, &'static str)]) -> Result<(), Refused> {
    p.next();
    p.put("gdesc[");
    p.ureg_read(lo, count);
    p.put("]");
    for (bit, text) in changes {
        if p.bit(*bit) {
            p.put(text);
        }
    }
    Ok(())
}

fn half_of_both(p: &mut Printer<'_>) -> Result<(), Refused> {
    descriptor(p, 24, 4, &[(72, ".negA"), (63, ".negB"), (61, ".tnspA"), (62, ".tnspB")])
}

fn half_of_b(p: &mut Printer<'_>) -> Result<(), Refused> {
    descriptor(p, 32, 2, &[(63, ".negB"), (62, ".tnspB")])
}

fn signed_of_both(p: &mut Printer<'_>) -> Result<(), Refused> {
    descriptor(p, 24, 4, &[(72, ".negA"), (63, ".negB")])
}

fn signed_of_b(p: &mut Printer<'_>) -> Result<(), Refused> {
    descriptor(p, 32, 2, &[(63, ".negB")])
}

fn plain_of_both(p: &mut Printer<'_>) -> Result<(), Refused> {
    descriptor(p, 24, 4, &[])
}

fn plain_of_b(p: &mut Printer<'_>) -> Result<(), Refused> {
    descriptor(p, 32, 2, &[])
}
