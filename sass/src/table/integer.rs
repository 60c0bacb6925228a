//! Moves, selects, predicate logic and integers.

use crate::opcode::Opcode::*;
use crate::operand::Operand;
use crate::operands::{Dst, Kind, Place, Shape};
use crate::printer::{Printer, Refused, refused};
use crate::special::name_of;
use crate::table::fields::{BOOLEAN, COMPARE_INT, FTZ, U32};
use crate::table::item::{Arg, Mod};
use crate::table::row::{NO_SLOT64_B, Row, alu, fixed};

const SEL: &[Arg] = &[Arg::D, Arg::A, Arg::B, Arg::Ps(87)];
const THREE: &[Arg] = &[Arg::D, Arg::A, Arg::B, Arg::C];

pub(super) static ROWS: &[Row] = &[
    alu(Mov, 0x002, Shape::One).args(&[Arg::D, Arg::B, Arg::By(move_mask)]),
    alu(P2r, 0x003, Shape::Two).kind(Kind::Int).mods(&[Mod::Pick(76, 2, BYTE)]).args(&[
        Arg::D,
        Arg::Text("PR"),
        Arg::A,
        Arg::B,
    ]),
    alu(R2p, 0x004, Shape::Two).to(Dst::None).args(&[
        Arg::Text("PR"),
        Arg::With(&Arg::A, &[Mod::Pick(76, 2, BYTE)]),
        Arg::B,
    ]),
    alu(Sel, 0x007, Shape::Two).args(SEL),
    alu(Fsel, 0x008, Shape::Two).kind(Kind::F32).neg(0b011).abs(0b011).mods(&[FTZ]).args(SEL),
    alu(Isetp, 0x00c, Shape::Two).kind(Kind::Int).to(Dst::None).mods(ISETP_MODS).args(ISETP),
    alu(Iadd3, 0x010, Shape::Three)
        .forms(NO_SLOT64_B)
        .kind(Kind::Int)
        .neg(0b111)
        .x_inverts()
        .mods(&[Mod::On(74, ".X")])
        .args(IADD3),
    alu(Lea, 0x011, Shape::TwoAndR64).neg(0b011).x_inverts().mods(LEA_MODS).args(LEA),
    alu(Lop3, 0x012, Shape::Three).forms(NO_SLOT64_B).mods(LOP3_MODS).args(LOP3),
    alu(Iabs, 0x013, Shape::One).args(&[Arg::D, Arg::B]),
    alu(Vabsdiff, 0x014, Shape::Three).mods(&[U32]).args(&[Arg::D, Arg::PdOpt(81), Arg::A, Arg::B, Arg::C]),
    alu(Vabsdiff4, 0x015, Shape::Three)
        .forms(1 << 1)
        .mods(&[Mod::Off(73, ".U8"), Mod::On(75, ".ACC")])
        .args(&[Arg::D, Arg::PdOpt(81), Arg::A, Arg::B, Arg::C])
        .sm8x(),
    alu(Vabsdiff4, 0x015, Shape::Three)
        .forms(NO_SLOT64_B)
        .mods(&[Mod::Off(73, ".U8"), Mod::On(75, ".ACC")])
        .args(&[Arg::D, Arg::PdOpt(81), Arg::A, Arg::B, Arg::C])
        .sm9x(),
    alu(Prmt, 0x016, Shape::Three)
        .mods(&[Mod::Pick(72, 3, &["", ".F4E", ".B4E", ".RC8", ".ECL", ".ECR", ".RC16"])])
        .args(THREE),
    alu(Imnmx, 0x017, Shape::Two).kind(Kind::Int).mods(&[U32]).args(SEL),
    alu(Shf, 0x019, Shape::Three).mods(SHF_MODS).args(THREE),
    alu(Sgxt, 0x01a, Shape::Two).mods(&[Mod::On(75, ".W"), U32]).args(&[Arg::D, Arg::A, Arg::B]),
    alu(Bmsk, 0x01b, Shape::Two).mods(&[Mod::On(75, ".W")]).args(&[Arg::D, Arg::A, Arg::B]),
    fixed(Plop3, 0x81c, Place::None, Place::None, Place::None).mods(LUT).args(PLOP3),
    alu(Plop3, 0x01d, Shape::One).spaced(5).forms(1 << 1 | 1 << 5 | 1 << 6).to(Dst::None).mods(LUT).args(&[
        Arg::Pd(81),
        Arg::Pd(84),
        Arg::Ps(87),
        Arg::With(&Arg::B, SIGN),
        Arg::Ps(68),
        Arg::Hex(72, 8),
        Arg::Hex(16, 8),
    ]),
    alu(Plop3, 0x01f, Shape::TwoAndR64)
        .spaced(5)
        .forms(1 << 1 | 1 << 5 | 1 << 6)
        .to(Dst::None)
        .mods(LUT)
        .args(&[
            Arg::Pd(81),
            Arg::Pd(84),
            Arg::With(&Arg::A, SIGN),
            Arg::With(&Arg::B, SIGN),
            Arg::With(&Arg::C, SIGN),
            Arg::Hex(72, 8),
            Arg::Hex(16, 8),
        ]),
    alu(Imad, 0x024, Shape::Three)
        .kind(Kind::Int)
        .neg(0b100)
        .x_inverts()
        .mods(&[Mod::By(imad_alias), U32, Mod::On(74, ".X")])
        .args(&[Arg::D, Arg::A, Arg::B, Arg::C, CARRY_IN[0], CARRY_IN[1], Arg::Holds(81, 3, &[7])]),
    alu(ImadWide, 0x025, Shape::Three)
        .forms(0xfe & !(1 << 2))
        .kind(Kind::Int)
        .neg(0b100)
        .x_inverts()
        .mods(IMAD_WIDE_MODS)
        .args(IMAD_WIDE),
    alu(Idp, 0x026, Shape::Three).forms(1 << 1 | 1 << 5 | 1 << 6).neg(0b100).mods(IDP_MODS).args(THREE),
    alu(ImadHi, 0x027, Shape::Three)
        .forms(0xfe & !(1 << 2))
        .kind(Kind::Int)
        .neg(0b100)
        .x_inverts()
        .mods(IMAD_WIDE_MODS)
        .args(IMAD_WIDE),
    alu(Viadd, 0x036, Shape::Two)
        .neg(0b010)
        .mods(&[Mod::On(73, ".16x2")])
        .args(&[Arg::D, Arg::A, Arg::B])
        .sm9x(),
    alu(I2i, 0x038, Shape::One)
        .mods(&[Mod::Pick(76, 2, SMALL), Mod::Always(".S32.SAT")])
        .args(&[Arg::D, Arg::B]),
    alu(I2ip, 0x039, Shape::Three)
        .forms(NO_SLOT64_B)
        .mods(&[Mod::Pick(76, 2, SMALL), Mod::Always(".S32"), Mod::Pick(74, 2, &[".SAT", "", ".SATRELU"])])
        .args(I2IP)
        .sm8x(),
    alu(I2ip, 0x039, Shape::Three)
        .forms(NO_SLOT64_B)
        .mods(&[Mod::Pick(76, 2, SMALL), Mod::Always(".S32"), Mod::Pick(74, 2, &["", ".SAT", ".SATRELU"])])
        .args(I2IP)
        .sm9x(),
    alu(Viaddmnmx, 0x046, Shape::Three)
        .neg(0b010)
        .mods(&[Mod::Pick(72, 2, MINMAX), Mod::On(76, ".RELU")])
        .args(&[Arg::D, Arg::A, Arg::B, Arg::C, Arg::Ps(87)])
        .sm9x(),
    alu(Vimnmx3, 0x00f, Shape::Three)
        .forms(NO_SLOT64_B)
        .kind(Kind::Int)
        .mods(&[Mod::Pick(72, 2, MINMAX), Mod::On(76, ".RELU")])
        .args(&[Arg::D, Arg::A, Arg::B, Arg::C, Arg::Ps(87)])
        .sm9x(),
    alu(Vimnmx, 0x048, Shape::Two)
        .kind(Kind::Int)
        .mods(&[Mod::Pick(72, 2, MINMAX), Mod::On(76, ".RELU")])
        .args(&[Arg::D, Arg::Holds(81, 6, &[63]), Arg::A, Arg::B, Arg::Ps(87)])
        .sm9x(),
    alu(Flo, 0x100, Shape::One).neg(0b010).inverts().mods(FLO_MODS).args(&[Arg::D, Arg::PdOpt(81), Arg::B]),
    alu(Brev, 0x101, Shape::One).args(&[Arg::D, Arg::B]),
    alu(Popc, 0x109, Shape::One).neg(0b010).inverts().args(&[Arg::D, Arg::B]),
    fixed(Cs2r, 0x805, Place::Bits(72, 8), Place::None, Place::None)
        .to(Dst::R)
        .mods(&[Mod::Off(80, ".32")])
        .args(&[Arg::D, Arg::By(special_register)]),
    fixed(S2r, 0x919, Place::Bits(72, 8), Place::None, Place::None)
        .to(Dst::R)
        .args(&[Arg::D, Arg::By(special_register)]),
];

/// An unused predicate source holds !PT from the compiler; hardware takes PT and P0 as well.
pub(super) const NO_PS: Arg = Arg::Holds(87, 4, &[15, 7, 0]);
/// The carry that `.X` reads.
pub(super) const CARRY_IN: [Arg; 2] = [Arg::If(74, &[Arg::Ps(87)]), Arg::Unless(74, &[NO_PS])];
const BYTE: &[&str] = &["", ".B1", ".B2", ".B3"];
const MINMAX: &[&str] = &[".U32", "", ".U16x2", ".S16x2"];
const SMALL: &[&str] = &[".U8", ".S8", ".U16", ".S16"];
const SIGN: &[Mod] = &[Mod::Always(".SIGN")];
const I2IP: &[Arg] = &[Arg::D, Arg::A, Arg::B, Arg::With(&Arg::C, &[Mod::On(72, ".H1")])];
pub(super) const LUT: &[Mod] = &[Mod::Always(".LUT")];
pub(super) const ISETP_MODS: &[Mod] = &[COMPARE_INT, U32, Mod::Pick(74, 2, BOOLEAN), Mod::On(72, ".EX")];
pub(super) const ISETP: &[Arg] = &[
    Arg::Pd(81),
    Arg::Pd(84),
    Arg::A,
    Arg::B,
    Arg::Ps(87),
    Arg::If(72, &[Arg::Ps(68)]),
    Arg::Unless(72, &[Arg::Holds(68, 4, &[7])]),
];
/// A carry out that is PT is not printed, so that a single one may be either of the two.
pub(super) const IADD3: &[Arg] = &[
    Arg::D,
    Arg::PdOpt(81),
    Arg::PdOpt(84),
    Arg::A,
    Arg::B,
    Arg::C,
    Arg::If(74, &[Arg::Ps(87), Arg::Ps(77)]),
    Arg::Unless(74, &[NO_PS, Arg::Holds(77, 4, &[15, 7, 0])]),
];
pub(super) const LEA_MODS: &[Mod] =
    &[Mod::On(80, ".HI"), Mod::On(74, ".X"), Mod::If(80, &[Mod::On(73, ".SX32")])];
/// Only `.HI` without `.SX32` has a third register: the upper half of the shifted value.
pub(super) const LEA: &[Arg] = &[
    Arg::D,
    Arg::PdOpt(81),
    Arg::A,
    Arg::B,
    Arg::If(80, &[Arg::Unless(73, &[Arg::C]), Arg::If(73, &[Arg::By(no_c)])]),
    Arg::Unless(80, &[Arg::By(no_c)]),
    Arg::Hex(75, 5),
    CARRY_IN[0],
    CARRY_IN[1],
];
pub(super) const LOP3_MODS: &[Mod] = &[Mod::Always(".LUT"), Mod::On(80, ".PAND")];
pub(super) const LOP3: &[Arg] =
    &[Arg::PdOpt(81), Arg::D, Arg::A, Arg::B, Arg::C, Arg::Hex(72, 8), Arg::Ps(87)];
pub(super) const PLOP3: &[Arg] = &[
    Arg::Pd(81),
    Arg::Pd(84),
    Arg::Ps(87),
    Arg::Ps(77),
    Arg::By(plop3_third),
    Arg::By(plop3_table),
    Arg::Hex(16, 8),
];
const IMAD_WIDE_MODS: &[Mod] = &[U32, Mod::On(74, ".X")];
const IMAD_WIDE: &[Arg] = &[Arg::D, Arg::PdOpt(81), Arg::A, Arg::B, Arg::C, CARRY_IN[0], CARRY_IN[1]];
pub(super) const SHF_MODS: &[Mod] = &[
    Mod::Pick(76, 1, &[".L", ".R"]),
    Mod::On(75, ".W"),
    Mod::Pick(73, 2, &[".S64", ".U64", ".S32", ".U32"]),
    Mod::On(80, ".HI"),
];
pub(super) const FLO_MODS: &[Mod] = &[U32, Mod::On(74, ".SH")];
const IDP_MODS: &[Mod] = &[
    Mod::Unless(76, &[Mod::Always(".4A"), Mod::Pick(73, 1, &[".U8", ".S8"])]),
    Mod::If(
        76,
        &[Mod::Always(".2A"), Mod::Pick(77, 1, &[".LO", ".HI"]), Mod::Pick(73, 1, &[".U16", ".S16"])],
    ),
    Mod::Pick(74, 1, &[".U8", ".S8"]),
];

/// A register in slot64 that is not used is RZ.
fn no_c(p: &mut Printer<'_>) -> Result<(), Refused> {
    let width = if p.operands.uniform { 6 } else { 8 };
    if p.bits(64, width) == (1 << width) - 1 { Ok(()) } else { refused(64, width) }
}

/// The lane mask of `MOV`, all ones unless printed.
fn move_mask(p: &mut Printer<'_>) -> Result<(), Refused> {
    let mask = p.bits(72, 4);
    if mask != 15 {
        p.next();
        p.put_fmt(format_args!("{mask:#x}"));
    }
    Ok(())
}

/// The third input of `PLOP3`: bit 67 makes it a predicate of the warp.
fn plop3_third(p: &mut Printer<'_>) -> Result<(), Refused> {
    let uniform = p.operands.uniform || p.bit(67);
    p.next();
    p.predicate_source(68, uniform);
    Ok(())
}

/// The first truth table of `PLOP3`, in two pieces.
fn plop3_table(p: &mut Printer<'_>) -> Result<(), Refused> {
    let table = p.bits(64, 3) | p.bits(72, 5) << 3;
    p.next();
    p.put_fmt(format_args!("{table:#x}"));
    Ok(())
}

/// The names under which `IMAD` prints when it only moves, adds or shifts.
fn imad_alias(p: &mut Printer<'_>) -> Result<(), Refused> {
    if p.word.bit(74) || p.word.bit(91) {
        return Ok(());
    }
    let [a, b, c] = p.operands.sources(p.word).map(|source| source.map(|source| source.operand));
    let zero = Some(Operand::Reg(255));
    p.put(match b {
        _ if a == zero => ".MOV",
        Some(Operand::Reg(255) | Operand::Imm(0)) => ".MOV",
        Some(Operand::Imm(1)) if c == zero => ".MOV",
        Some(Operand::Imm(1)) => ".IADD",
        Some(Operand::Imm(0x1_0000 | 0x8000_0000)) => "",
        Some(Operand::Imm(factor)) if c == zero && factor.is_power_of_two() => ".SHL",
        _ => "",
    });
    Ok(())
}

/// The name of a special register.
pub(super) fn special_register(p: &mut Printer<'_>) -> Result<(), Refused> {
    let number = p.bits(72, 8) as u8;
    p.next();
    match name_of(p.arch, number) {
        Some(name) => p.put(name),
        None => p.put_fmt(format_args!("SR{number}")),
    }
    Ok(())
}
