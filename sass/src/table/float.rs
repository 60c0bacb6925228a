//! Single and double precision.

use super::row::{Dst, Kind, Row, Shape, alu};
use crate::Opcode::*;

pub(super) static ROWS: &[Row] = &[
    alu(Fmnmx, 0x009, Shape::Two).kind(Kind::F32).neg(0b011).abs(0b011),
    alu(Fset, 0x00a, Shape::Two).kind(Kind::F32).neg(0b011).abs(0b011),
    alu(Fsetp, 0x00b, Shape::Two).kind(Kind::F32).neg(0b011).abs(0b011).to(Dst::None),
    alu(Fmul, 0x020, Shape::Two).kind(Kind::F32).neg(0b011).abs(0b011),
    alu(Fadd, 0x021, Shape::TwoC).kind(Kind::F32).neg(0b011).abs(0b011),
    alu(Ffma, 0x023, Shape::Three).kind(Kind::F32).neg(0b111).abs(0b111),
    alu(Fchk, 0x102, Shape::Two).kind(Kind::F32).neg(0b011).abs(0b011).to(Dst::None),
    alu(Mufu, 0x108, Shape::One).kind(Kind::F32).neg(0b010).abs(0b010),
    alu(Dmul, 0x028, Shape::Two).kind(Kind::F64).neg(0b011).abs(0b011),
    alu(Dadd, 0x029, Shape::TwoC64).kind(Kind::F64).neg(0b011).abs(0b011),
    alu(Dsetp, 0x02a, Shape::TwoC).kind(Kind::F64).neg(0b011).abs(0b011).to(Dst::None),
    alu(Dfma, 0x02b, Shape::Three).kind(Kind::F64).neg(0b111).abs(0b111),
];
