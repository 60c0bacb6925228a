//! Pairs of 16-bit floats.

use super::row::{Dst, Kind, Row, Shape, alu};
use crate::Opcode::*;

pub(super) static ROWS: &[Row] = &[
    alu(Hadd2, 0x030, Shape::TwoC).kind(Kind::Half).neg(0b011).abs(0b011),
    alu(Hfma2, 0x031, Shape::Three).kind(Kind::Half).neg(0b111).abs(0b111),
    alu(Hmul2, 0x032, Shape::Two).kind(Kind::Half).neg(0b011).abs(0b011),
    alu(Hset2, 0x033, Shape::TwoC).kind(Kind::Half).neg(0b011).abs(0b011),
    alu(Hsetp2, 0x034, Shape::TwoC).kind(Kind::Half).neg(0b011).abs(0b011).to(Dst::None),
    alu(Hfma2Mma, 0x035, Shape::Three).kind(Kind::HalfMma).neg(0b111).abs(0b111),
    alu(Hmnmx2, 0x040, Shape::Two).kind(Kind::Half).neg(0b011).abs(0b011),
];
