//! The uniform datapath: one value per warp.

use super::row::{Dst, Kind, Place, Row, Shape, fixed, ualu};
use crate::Opcode::*;

pub(super) static ROWS: &[Row] = &[
    fixed(Umov, 0x882, Place::None, Place::Imm32, Place::None).to(Dst::U).uniform(),
    fixed(Umov, 0xc82, Place::None, Place::U32, Place::None).to(Dst::U).uniform().bit91(),
    fixed(Voteu, 0x886, Place::None, Place::None, Place::None).to(Dst::U).uniform(),
    fixed(S2ur, 0x9c3, Place::Bits(72, 8), Place::None, Place::None).to(Dst::U),
    fixed(Uldc, 0xab9, Place::None, Place::ConstBytes, Place::None).to(Dst::U).uniform(),
    ualu(Usel, 0x087, Shape::Two),
    ualu(Uisetp, 0x08c, Shape::Two).kind(Kind::Int).to(Dst::None),
    ualu(Uiadd3, 0x090, Shape::Three).kind(Kind::Int).neg(0b111),
    ualu(Ulea, 0x091, Shape::TwoAndR64).neg(0b011),
    ualu(Ulop3, 0x092, Shape::Three),
    ualu(Uprmt, 0x096, Shape::Three),
    ualu(Ushf, 0x099, Shape::Three),
    ualu(Usgxt, 0x09a, Shape::Two),
    ualu(Ubmsk, 0x09b, Shape::Two),
    fixed(Uplop3, 0x89c, Place::None, Place::None, Place::None).uniform(),
    ualu(Uimad, 0x0a4, Shape::Three).kind(Kind::Int).neg(0b100),
    ualu(UimadWide, 0x0a5, Shape::Three).kind(Kind::Int).neg(0b100),
    ualu(Uflo, 0x0bd, Shape::One).neg(0b010),
    ualu(Ubrev, 0x0be, Shape::One),
    ualu(Upopc, 0x0bf, Shape::One).neg(0b010),
];
