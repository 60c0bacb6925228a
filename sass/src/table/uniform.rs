//! The uniform datapath: one value per warp.

use crate::opcode::Opcode::*;
use crate::operands::{Dst, Kind, Place, Shape};
use crate::printer::{Printer, Refused};
use crate::table::control::{VOTE, VOTE_MODS};
use crate::table::fields::{CONSTANT_WIDTH, U32};
use crate::table::integer::{
    CARRY_IN, FLO_MODS, IADD3, ISETP, ISETP_MODS, LEA, LEA_MODS, LOP3, LOP3_MODS, LUT, PLOP3, SHF_MODS,
    special_register,
};
use crate::table::item::{Arg, Mod};
use crate::table::row::{Row, fixed, ualu};

const TWO: &[Arg] = &[Arg::D, Arg::A, Arg::B];
const THREE: &[Arg] = &[Arg::D, Arg::A, Arg::B, Arg::C];

pub(super) static ROWS: &[Row] = &[
    fixed(Umov, 0x882, Place::None, Place::Imm32, Place::None).to(Dst::U).uniform().args(&[Arg::D, Arg::B]),
    fixed(Umov, 0xc82, Place::None, Place::U32, Place::None)
        .to(Dst::U)
        .uniform()
        .bit91()
        .args(&[Arg::D, Arg::B]),
    fixed(Voteu, 0x886, Place::None, Place::None, Place::None).to(Dst::U).mods(VOTE_MODS).args(VOTE),
    fixed(S2ur, 0x9c3, Place::Bits(72, 8), Place::None, Place::None)
        .to(Dst::U)
        .uniform()
        .args(&[Arg::D, Arg::By(special_register)]),
    fixed(Uldc, 0xab9, Place::None, Place::ConstBytes, Place::None)
        .to(Dst::U)
        .uniform()
        .mods(&[CONSTANT_WIDTH])
        .args(TWO_OF_ULDC),
    fixed(Uldc, 0xab9, Place::U24, Place::None, Place::None)
        .to(Dst::U)
        .uniform()
        .bit91()
        .mods(&[CONSTANT_WIDTH])
        .args(&[Arg::D, Arg::By(bindless_constant)]),
    fixed(Uldc, 0xabb, Place::U24, Place::ConstBytes, Place::None)
        .to(Dst::U)
        .uniform()
        .bit91()
        .mods(&[CONSTANT_WIDTH])
        .args(&[Arg::D, Arg::By(uniform_indexed_constant)]),
    ualu(Usel, 0x087, Shape::Two).args(&[Arg::D, Arg::A, Arg::B, Arg::Ps(87)]),
    ualu(Uisetp, 0x08c, Shape::Two).kind(Kind::Int).to(Dst::None).mods(ISETP_MODS).args(ISETP),
    ualu(Uiadd3, 0x090, Shape::Three)
        .forms(1 << 1 | 1 << 4)
        .kind(Kind::Int)
        .neg(0b111)
        .x_inverts()
        .mods(&[Mod::On(74, ".X")])
        .args(IADD3),
    ualu(Uiadd3B64, 0x097, Shape::Three)
        .forms(1 << 1)
        .kind(Kind::Int)
        .neg(0b111)
        .x_inverts()
        .mods(&[Mod::On(74, ".X")])
        .args(IADD3)
        .sm9x(),
    ualu(Ulea, 0x091, Shape::TwoAndR64).neg(0b011).x_inverts().mods(LEA_MODS).args(LEA),
    ualu(Ulop3, 0x092, Shape::Three).forms(1 << 1 | 1 << 4).mods(LOP3_MODS).args(LOP3),
    ualu(Uprmt, 0x096, Shape::Three).forms(1 << 1 | 1 << 4).args(THREE),
    ualu(Ushf, 0x099, Shape::Three).mods(SHF_MODS).args(THREE),
    ualu(Usgxt, 0x09a, Shape::Two).mods(&[Mod::On(75, ".W"), U32]).args(TWO),
    ualu(Ubmsk, 0x09b, Shape::Two).mods(&[Mod::On(75, ".W")]).args(TWO),
    fixed(Uplop3, 0x89c, Place::None, Place::None, Place::None).uniform().mods(LUT).args(PLOP3),
    ualu(Uimad, 0x0a4, Shape::Three)
        .kind(Kind::Int)
        .neg(0b100)
        .x_inverts()
        .mods(&[U32, Mod::On(74, ".X")])
        .args(&[Arg::D, Arg::A, Arg::B, Arg::C, CARRY_IN[0], CARRY_IN[1], Arg::Holds(81, 3, &[7, 0])]),
    ualu(UimadWide, 0x0a5, Shape::Three)
        .kind(Kind::Int)
        .neg(0b100)
        .x_inverts()
        .mods(&[U32, Mod::On(74, ".X")])
        .args(&[Arg::D, Arg::PdOpt(81), Arg::A, Arg::B, Arg::C, CARRY_IN[0], CARRY_IN[1]]),
    ualu(Uflo, 0x0bd, Shape::One).neg(0b010).inverts().mods(FLO_MODS).args(&[Arg::D, Arg::PdOpt(81), Arg::B]),
    ualu(Ubrev, 0x0be, Shape::One).args(&[Arg::D, Arg::B]),
    ualu(Upopc, 0x0bf, Shape::One).neg(0b010).inverts().args(&[Arg::D, Arg::B]),
];

const TWO_OF_ULDC: &[Arg] = &[Arg::D, Arg::B];

/// `cx[UR][offset]`.
fn bindless_constant(p: &mut Printer<'_>) -> Result<(), Refused> {
    p.next();
    p.put("cx[");
    p.ureg_read(24, 2);
    let offset = p.bits(38, 16);
    p.put_fmt(format_args!("][{offset:#x}]"));
    Ok(())
}

/// `c[bank][UR+offset]`.
fn uniform_indexed_constant(p: &mut Printer<'_>) -> Result<(), Refused> {
    p.next();
    let (bank, offset) = (p.bits(54, 5), p.sbits(38, 16));
    p.put_fmt(format_args!("c[{bank:#x}]["));
    p.ureg(24);
    if offset != 0 {
        p.put("+");
        p.signed_hex(offset);
    }
    p.put("]");
    Ok(())
}
