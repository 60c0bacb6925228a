//! Single and double precision.

use crate::arch::Encoding;
use crate::opcode::Opcode::*;
use crate::operands::{Dst, Kind, Place, Shape};
use crate::printer::{NO, Printer, Refused};
use crate::table::convert::{Float, conversion_source};
use crate::table::fields::{BOOLEAN, COMPARE, COMPARE_F64, FTZ, FTZ_FMZ, RND, SAT, SETP};
use crate::table::item::{Arg, Mod};
use crate::table::row::{Row, alu, fixed};

const TWO: &[Arg] = &[Arg::D, Arg::A, Arg::B];
const THREE: &[Arg] = &[Arg::D, Arg::A, Arg::B, Arg::C];
const SELECT: &[Arg] = &[Arg::D, Arg::A, Arg::B, Arg::Ps(87)];

/// A row whose sources, two or three, all take sign and absolute value.
const fn signed(row: Row, kind: Kind) -> Row {
    row.kind(kind).neg(0b111).abs(0b111)
}

pub(super) static ROWS: &[Row] = &[
    signed(alu(Fmnmx, 0x009, Shape::Two), Kind::F32)
        .mods(&[FTZ, Mod::On(81, ".NAN"), Mod::On(82, ".XORSIGN")])
        .args(SELECT),
    signed(alu(Fset, 0x00a, Shape::Two), Kind::F32)
        .mods(&[Mod::Always(".BF"), COMPARE, FTZ, Mod::Pick(74, 2, BOOLEAN)])
        .args(SELECT),
    signed(alu(Fsetp, 0x00b, Shape::Two), Kind::F32)
        .to(Dst::None)
        .mods(&[COMPARE, FTZ, Mod::Pick(74, 2, BOOLEAN)])
        .args(SETP),
    signed(alu(Fmul, 0x020, Shape::Two), Kind::F32)
        .mods(&[FTZ_FMZ, Mod::Pick(84, 3, &[NO, ".D8", ".D4", ".D2", "", ".M2", ".M4", ".M8"]), RND, SAT])
        .args(TWO),
    signed(alu(Fadd, 0x021, Shape::TwoC), Kind::F32).mods(&[FTZ, RND, SAT]).args(TWO),
    signed(alu(Ffma, 0x023, Shape::Three), Kind::F32).mods(&[FTZ_FMZ, RND, SAT]).args(THREE),
    signed(alu(Fchk, 0x102, Shape::Two), Kind::F32).to(Dst::None).args(&[Arg::Pd(81), Arg::A, Arg::B]),
    signed(alu(Mufu, 0x108, Shape::One), Kind::F32).mods(MUFU_MODS).args(&[Arg::D, Arg::By(mufu_source)]),
    signed(alu(Dmul, 0x028, Shape::Two), Kind::F64).mods(&[RND]).args(TWO),
    signed(alu(Dadd, 0x029, Shape::TwoC64), Kind::F64).mods(&[RND]).args(&[
        Arg::D,
        Arg::A,
        Arg::B,
        Arg::By(dadd_free),
    ]),
    fixed(Fswzadd, 0x822, Place::R24, Place::None, Place::R64)
        .to(Dst::R)
        .kind(Kind::F32)
        .mods(&[FTZ, RND, Mod::On(77, ".NDV")])
        .args(&[Arg::D, Arg::A, Arg::C, Arg::By(lane_signs)]),
    signed(alu(Dsetp, 0x02a, Shape::TwoC), Kind::F64)
        .to(Dst::None)
        .mods(&[COMPARE_F64, Mod::Pick(74, 2, BOOLEAN)])
        .args(SETP),
    signed(alu(Dfma, 0x02b, Shape::Three), Kind::F64).mods(&[RND]).args(THREE),
];

const MUFU_MODS: &[Mod] = &[
    Mod::Pick(
        74,
        4,
        &[".COS", ".SIN", ".EX2", ".LG2", ".RCP", ".RSQ", ".RCP64H", ".RSQ64H", ".SQRT", ".TANH"],
    ),
    Mod::By(mufu_half),
];

/// The register form takes its second source from slot64; slot32 may hold any register.
fn dadd_free(p: &mut Printer<'_>) -> Result<(), Refused> {
    if p.word.form() == 1 {
        p.bits(32, 8);
    }
    Ok(())
}

/// Prints the operation of each of 4 lanes on its two values, the last lane first: adds (`P`), subtracts one
/// or the other, or gives zero.
fn lane_signs(p: &mut Printer<'_>) -> Result<(), Refused> {
    p.next();
    for lane in (0..4).rev() {
        let pair = p.bits(32 + 2 * lane, 2);
        p.put(["PP", "PN", "NP", "ZP"][pair as usize]);
    }
    Ok(())
}

/// Whether the operation works on the upper word of a double.
fn mufu_is_double(p: &Printer<'_>) -> bool {
    matches!(p.word.bits(74, 4), 6 | 7)
}

/// Returns the type that the operation reads and writes. SM 9.0 added bf16 and moved the bit of fp16.
fn mufu_type(p: &mut Printer<'_>) -> Result<Float, Refused> {
    if mufu_is_double(p) {
        return Ok(Float::F64);
    }
    let field = match p.arch.encoding() {
        Encoding::Sm8x => p.bits(73, 1),
        Encoding::Sm9x => p.bits(72, 2),
    };
    match field {
        0 => Ok(Float::F32),
        1 => Ok(Float::F16),
        2 => Ok(Float::Bf16),
        _ => Err(Refused { lo: 72, width: 2 }),
    }
}

fn mufu_half(p: &mut Printer<'_>) -> Result<(), Refused> {
    match mufu_type(p)? {
        Float::F16 => p.put(".F16"),
        Float::Bf16 => p.put(".BF16"),
        Float::F32 | Float::F64 => {}
    }
    Ok(())
}

fn mufu_source(p: &mut Printer<'_>) -> Result<(), Refused> {
    let source = mufu_type(p)?;
    conversion_source(p, source)
}
