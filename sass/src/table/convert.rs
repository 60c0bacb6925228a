//! Conversions.

use crate::arch::Encoding;
use crate::number::{bf16_text, f16_text};
use crate::opcode::Opcode::*;
use crate::operands::{Kind, Place, Role, Shape};
use crate::printer::{NO, Printer, Refused, refused};
use crate::table::fields::{FTZ, RND, TO_INTEGER};
use crate::table::item::{Arg, Mod};
use crate::table::row::{NO_SLOT64_B, Row, alu};

/// A row whose source is a float.
const fn from_float(row: Row, kind: Kind) -> Row {
    row.kind(kind).neg(0b010).abs(0b010)
}

pub(super) static ROWS: &[Row] = &[
    alu(F2fp, 0x03e, Shape::Three)
        .forms(NO_SLOT64_B)
        .kind(Kind::F32)
        .mods(&[Mod::On(77, ".SATFINITE"), Mod::On(75, ".RELU"), Mod::On(76, ".BF16"), PACK, F2FP_RND])
        .args(F2FP)
        .before_sm89(),
    alu(F2fp, 0x03e, Shape::Three)
        .forms(NO_SLOT64_B)
        .kind(Kind::F32)
        .mods(&[
            Mod::On(77, ".SATFINITE"),
            Mod::On(75, ".RELU"),
            Mod::Gather(&[(76, 1), (86, 2)], &[".F16", ".BF16", NO, NO, ".E5M2", ".E4M3"]),
            Mod::Pick(73, 2, &[".F32", ".F16", ".E5M2", ".E4M3"]),
            Mod::By(f2fp_packing),
        ])
        .args(&[Arg::D, Arg::By(f2fp_sources)])
        .since_sm89(),
    alu(F2ip, 0x043, Shape::Three)
        .spaced(3)
        .kind(Kind::F32)
        .mods(&[
            Mod::Pick(76, 1, &[".U8", ".S8"]),
            Mod::Always(".F32"),
            Mod::Pick(78, 2, &["", NO, NO, ".TRUNC"]),
            Mod::On(74, ".NTZ"),
            Mod::On(75, ".RELU"),
        ])
        .args(&[Arg::D, Arg::A, Arg::B, Arg::With(&Arg::C, &[Mod::On(72, ".H1")])]),
    alu(I2fp, 0x045, Shape::One)
        .mods(&[
            Mod::Pick(75, 3, &[NO, NO, ".F32"]),
            Mod::Gather(&[(84, 2), (74, 1)], &[NO, NO, ".U32", NO, NO, NO, ".S32"]),
            Mod::Pick(78, 2, &["", NO, NO, ".RZ"]),
        ])
        .args(&[Arg::D, Arg::B]),
    from_float(alu(F2f, 0x104, Shape::One), Kind::F32).mods(F2F_MODS).args(&[Arg::D, Arg::By(f2f_source)]),
    from_float(alu(F2f, 0x110, Shape::One), Kind::F64).mods(F2F_MODS).args(&[Arg::D, Arg::By(f2f_source)]),
    from_float(alu(F2i, 0x105, Shape::One), Kind::F32).mods(F2I_MODS).args(&[Arg::D, Arg::By(float_source)]),
    from_float(alu(F2i, 0x111, Shape::One), Kind::F64).mods(F2I_MODS).args(&[Arg::D, Arg::By(float_source)]),
    alu(I2f, 0x106, Shape::One).mods(I2F_MODS).args(&[Arg::D, Arg::By(integer_source)]),
    alu(I2f, 0x112, Shape::One).mods(I2F_MODS).args(&[Arg::D, Arg::By(integer_source)]),
    from_float(alu(Frnd, 0x107, Shape::One), Kind::F32)
        .mods(FRND_MODS)
        .args(&[Arg::D, Arg::By(float_source)]),
    from_float(alu(Frnd, 0x113, Shape::One), Kind::F64)
        .mods(FRND_MODS)
        .args(&[Arg::D, Arg::By(float_source)]),
];

const PACK: Mod = Mod::Pick(78, 1, &[".PACK_AB", ".MERGE_C"]);
const F2FP_RND: Mod = Mod::Gather(
    &[(79, 3), (76, 1), (78, 1)],
    &[
        "", NO, NO, ".RZ", ".RS.7b", NO, NO, NO, "", NO, NO, ".RZ", NO, NO, NO, NO, "", NO, NO, ".RZ", NO,
        NO, NO, NO, "", NO, NO, ".RZ",
    ],
);
const F2FP: &[Arg] = &[
    Arg::D,
    Arg::If(78, &[Arg::Holds(24, 8, &[255]), Arg::B, Arg::With(&Arg::C, &[Mod::On(72, ".H1")])]),
    Arg::Unless(78, &[Arg::A, Arg::B, Arg::By(f2fp_random)]),
];
const FLOATS: &[&str] = &[NO, ".F16", ".F32", ".F64", ".BF16"];
const F2F_MODS: &[Mod] = &[FTZ, Mod::Pick(75, 3, FLOATS), Mod::Pick(84, 3, FLOATS), RND, Mod::By(f2f_types)];
const F2I_MODS: &[Mod] = &[
    FTZ,
    Mod::Gather(&[(75, 2), (72, 1)], &[".U8", ".U16", ".U32", ".U64", ".S8", ".S16", "", ".S64"]),
    Mod::On8x(&[Mod::Pick(84, 2, SIZES)]),
    Mod::On9x(&[Mod::Pick(84, 3, SIZES_SM90)]),
    TO_INTEGER,
    Mod::On(77, ".NTZ"),
    Mod::By(size_class),
];
/// Floats by size; SM 9.0 has bf16 too.
const SIZES: &[&str] = &[NO, ".F16", "", ".F64"];
const SIZES_SM90: &[&str] = &[NO, ".F16", "", ".F64", ".BF16"];
const FLOAT_75: Mod = Mod::On8x(&[Mod::Pick(75, 2, SIZES)]);
const FLOAT_75_SM90: Mod = Mod::On9x(&[Mod::Pick(75, 3, SIZES_SM90)]);
const I2F_MODS: &[Mod] = &[
    FLOAT_75,
    FLOAT_75_SM90,
    Mod::Gather(&[(84, 2), (74, 1)], &[".U8", ".U16", ".U32", ".U64", ".S8", ".S16", "", ".S64"]),
    RND,
    Mod::By(size_class),
];
const FRND_MODS: &[Mod] =
    &[FTZ, FLOAT_75, FLOAT_75_SM90, TO_INTEGER, Mod::By(size_class), Mod::By(frnd_types)];

/// Whether the code is one of those for conversions with a 64-bit side.
fn is_wide(p: &Printer<'_>) -> bool {
    p.word.op12() & 0x1ff >= 0x110
}

/// Sizes are stored as powers of two at 75 and 84: a 64-bit one on either side takes the wide code and no
/// other.
fn size_class(p: &mut Printer<'_>) -> Result<(), Refused> {
    let wide = p.bits(75, 2) == 3 || p.bits(84, 2) == 3;
    if wide == is_wide(p) { Ok(()) } else { refused(75, 2) }
}

/// The type is stored twice.
fn frnd_types(p: &mut Printer<'_>) -> Result<(), Refused> {
    let width = match p.arch.encoding() {
        Encoding::Sm8x => 2,
        Encoding::Sm9x => 3,
    };
    if p.bits(75, width) == p.bits(84, width) { Ok(()) } else { refused(84, width) }
}

/// The pairs of types that exist; SM 9.0 added those that read bf16 or make it from something else than fp32.
fn f2f_types(p: &mut Printer<'_>) -> Result<(), Refused> {
    const F32: u64 = 2;
    const F64: u64 = 3;
    const BF16: u64 = 4;
    let (to, from) = (p.bits(75, 3), p.bits(84, 3));
    let exists = match p.arch.encoding() {
        Encoding::Sm8x => from != BF16 && (to != BF16 || from == F32),
        Encoding::Sm9x => true,
    };
    if exists && to != from && is_wide(p) == (to == F64 || from == F64) { Ok(()) } else { refused(75, 3) }
}

/// Source type of a conversion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Float {
    F16,
    Bf16,
    F32,
    F64,
}

/// The source of a conversion from a float; a half may be the upper one of its register.
pub(super) fn conversion_source(p: &mut Printer<'_>, from: Float) -> Result<(), Refused> {
    p.next();
    let place = p.operands.places(p.word)[1];
    let half = matches!(from, Float::F16 | Float::Bf16);
    if place == Place::Imm32 && half {
        let value = p.bits(32, 16) as u16;
        p.put(&if from == Float::F16 { f16_text(value) } else { bf16_text(value) });
        return Ok(());
    }
    let kind = if from == Float::F64 { Kind::F64 } else { Kind::F32 };
    p.plain_source(Role::B, place, kind, half);
    if half {
        match p.bits(60, 2) {
            0 => {}
            1 => p.put(".H1"),
            _ => return refused(60, 2),
        }
    }
    Ok(())
}

/// The size field at 84 names the source.
fn float_source(p: &mut Printer<'_>) -> Result<(), Refused> {
    match (p.bits(84, 2), p.arch.encoding()) {
        (0, Encoding::Sm9x) if p.bit(86) => conversion_source(p, Float::Bf16),
        (1, _) => conversion_source(p, Float::F16),
        (2, _) => conversion_source(p, Float::F32),
        (3, _) => conversion_source(p, Float::F64),
        _ => refused(84, 2),
    }
}

fn f2f_source(p: &mut Printer<'_>) -> Result<(), Refused> {
    match p.bits(84, 3) {
        1 => conversion_source(p, Float::F16),
        2 => conversion_source(p, Float::F32),
        4 => conversion_source(p, Float::Bf16),
        3 => conversion_source(p, Float::F64),
        _ => refused(84, 3),
    }
}

/// An integer source: 8 and 16-bit ones name the byte or half they lie in.
fn integer_source(p: &mut Printer<'_>) -> Result<(), Refused> {
    p.next();
    let place = p.operands.places(p.word)[1];
    let size = p.bits(84, 2);
    p.plain_source(Role::B, place, Kind::Bits, size < 2);
    if place == Place::Imm32 || size >= 2 {
        return Ok(());
    }
    match (size, p.bits(60, 2)) {
        (_, 0) => {}
        (0, byte) => p.put_fmt(format_args!(".B{byte}")),
        (1, 1) => p.put(".H1"),
        _ => return refused(60, 2),
    }
    Ok(())
}

/// Packing of the results of `F2FP` on SM 8.9 and later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Packing {
    /// The halves are A and B.
    Ab,
    /// The lower part is B, the upper one a part of C.
    MergeC,
    /// The lower half is A and B, the upper one a half of C.
    AbMergeC,
    /// Two halves of 8 bits of B become two of 16.
    UnpackB,
    /// Two halves of B become two of 8 bits, the upper half is one of C.
    UnpackBMergeC,
}

fn f2fp_packing_of(p: &mut Printer<'_>) -> Result<Packing, Refused> {
    let flags = (p.bit(78), p.bit(90), p.bit(89));
    match (p.bits(73, 2), flags) {
        (0, (false, false, false)) => Ok(Packing::Ab),
        (0, (true, false, false)) => Ok(Packing::MergeC),
        (0, (true, true, false)) => Ok(Packing::AbMergeC),
        (2 | 3, (false, false, true)) => Ok(Packing::UnpackB),
        (1, (false, true, false)) => Ok(Packing::UnpackBMergeC),
        _ => Err(Refused { lo: 89, width: 2 }),
    }
}

fn f2fp_packing(p: &mut Printer<'_>) -> Result<(), Refused> {
    let packing = f2fp_packing_of(p)?;
    p.put(match packing {
        Packing::Ab => ".PACK_AB",
        Packing::MergeC => ".MERGE_C",
        Packing::AbMergeC => ".PACK_AB_MERGE_C",
        Packing::UnpackB => ".UNPACK_B",
        Packing::UnpackBMergeC => ".UNPACK_B_MERGE_C",
    });
    if matches!(packing, Packing::Ab | Packing::MergeC) {
        p.pick(79, 3, &["", NO, NO, ".RZ"])?;
    }
    Ok(())
}

fn f2fp_sources(p: &mut Printer<'_>) -> Result<(), Refused> {
    let packing = f2fp_packing_of(p)?;
    if matches!(packing, Packing::Ab | Packing::AbMergeC) {
        p.source(Role::A)?;
    } else if p.bits(24, 8) != 255 {
        return refused(24, 8);
    }
    p.source(Role::B)?;
    match packing {
        Packing::UnpackB if p.bit(88) => p.put(".H1"),
        Packing::MergeC | Packing::AbMergeC | Packing::UnpackBMergeC => {
            p.source(Role::C)?;
            if p.bit(72) {
                p.put(".H1");
            }
            return Ok(());
        }
        _ => {}
    }
    if p.bits(64, 8) == 255 { Ok(()) } else { refused(64, 8) }
}

/// Stochastic rounding takes random bits from C.
fn f2fp_random(p: &mut Printer<'_>) -> Result<(), Refused> {
    if p.bits(79, 3) == 4 {
        p.source(Role::C)
    } else if p.bits(64, 8) == 255 {
        Ok(())
    } else {
        refused(64, 8)
    }
}
