//! Pairs of 16-bit floats.

use crate::arch::Encoding;
use crate::number::f16_text;
use crate::opcode::Opcode::*;
use crate::operands::{Dst, Kind, Place, Role, Shape};
use crate::printer::{NO, Printer, Refused};
use crate::table::fields::{BOOLEAN, COMPARE, FTZ, FTZ_FMZ, SAT, SETP};
use crate::table::item::{Arg, Mod};
use crate::table::row::{Row, alu};

/// Accumulation in fp32, only on SM 8.x.
const F32: Mod = Mod::On8x(&[Mod::On(78, ".F32")]);
const BF16: Mod = Mod::On(85, ".BF16_V2");
/// SM 9.0 has bf16 forms of operations that were fp16 only.
const BF16_SM90: Mod = Mod::On9x(&[BF16]);
const COMPARE_BF16_SM90: Mod = Mod::By(compare_bf16);
const RELU_SAT: Mod = Mod::Gather(&[(79, 1), (77, 1)], &["", ".RELU", ".SAT", NO]);

/// A row of pairs whose sources all take sign and absolute value.
const fn pairs(row: Row) -> Row {
    row.kind(Kind::Half).neg(0b111).abs(0b111)
}

pub(super) static ROWS: &[Row] = &[
    pairs(alu(Hadd2, 0x030, Shape::TwoC))
        .bf16_sm9x(85)
        .mods(&[BF16_SM90, Mod::On(78, ".F32"), FTZ, SAT])
        .args(&[Arg::D, Arg::A, Arg::By(hadd2_second)]),
    pairs(alu(Hfma2, 0x031, Shape::Three))
        .bf16(85)
        .crossed(86)
        .mods(&[BF16, Mod::On(78, ".F32"), FTZ_FMZ, RELU_SAT])
        .args(&[Arg::D, Arg::A, Arg::B, Arg::C, Arg::If(79, &[Arg::PsOpt(87)])]),
    pairs(alu(Hmul2, 0x032, Shape::Two)).bf16_sm9x(85).mods(&[BF16_SM90, F32, FTZ_FMZ, SAT]).args(&[
        Arg::D,
        Arg::A,
        Arg::B,
    ]),
    pairs(alu(Hset2, 0x033, Shape::TwoC))
        .mods(&[COMPARE_BF16_SM90, Mod::On(71, ".BF"), COMPARE, FTZ, Mod::Pick(69, 2, BOOLEAN)])
        .args(&[Arg::D, Arg::A, Arg::B, Arg::Ps(87)]),
    pairs(alu(Hsetp2, 0x034, Shape::TwoC))
        .to(Dst::None)
        .mods(&[COMPARE_BF16_SM90, COMPARE, FTZ, Mod::On(71, ".H_AND"), Mod::Pick(69, 2, BOOLEAN)])
        .args(SETP),
    pairs(alu(Hfma2Mma, 0x035, Shape::Three))
        .bf16_sm9x(85)
        .kind(Kind::HalfMma)
        .mods(&[BF16_SM90, FTZ_FMZ, RELU_SAT])
        .args(&[Arg::D, Arg::A, Arg::B, Arg::C, Arg::If(79, &[Arg::PsOpt(87)])]),
    pairs(alu(Hmnmx2, 0x040, Shape::Two))
        .bf16(85)
        .mods(&[
            Mod::On8x(&[Mod::Gather(&[(85, 1), (78, 1)], &["", ".BF16_V2", ".F32", NO])]),
            BF16_SM90,
            FTZ,
            Mod::On(81, ".NAN"),
            Mod::On(82, ".XORSIGN"),
        ])
        .args(&[Arg::D, Arg::A, Arg::B, Arg::Ps(87)]),
];

/// SM 9.0 compares bf16 in the register form.
fn compare_bf16(p: &mut Printer<'_>) -> Result<(), Refused> {
    if p.arch.encoding() == Encoding::Sm9x && p.word.form() == 1 && p.bit(65) {
        p.put(".BF16_V2");
    }
    Ok(())
}

/// `.F32` widens one half, so that an immediate is a single one.
fn hadd2_second(p: &mut Printer<'_>) -> Result<(), Refused> {
    if p.word.bit(78) && p.operands.places(p.word)[1] == Place::Imm32 {
        p.next();
        let half = p.bits(32, 16) as u16;
        p.put(&f16_text(half));
    } else {
        return p.source(Role::B);
    }
    Ok(())
}
