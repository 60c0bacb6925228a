//! Conversions.

use super::row::{Kind, Row, Shape, alu};
use crate::Opcode::*;

pub(super) static ROWS: &[Row] = &[
    alu(F2fp, 0x03e, Shape::Three).kind(Kind::F32),
    alu(F2ip, 0x043, Shape::Three).kind(Kind::F32),
    alu(I2fp, 0x045, Shape::One),
    alu(F2f, 0x104, Shape::One).kind(Kind::F32).neg(0b010).abs(0b010),
    alu(F2i, 0x105, Shape::One).kind(Kind::F32).neg(0b010).abs(0b010),
    alu(I2f, 0x106, Shape::One),
    alu(Frnd, 0x107, Shape::One).kind(Kind::F32).neg(0b010).abs(0b010),
    alu(F2f, 0x110, Shape::One).kind(Kind::F64).neg(0b010).abs(0b010),
    alu(F2i, 0x111, Shape::One).kind(Kind::F64).neg(0b010).abs(0b010),
    alu(I2f, 0x112, Shape::One),
    alu(Frnd, 0x113, Shape::One).kind(Kind::F64).neg(0b010).abs(0b010),
];
