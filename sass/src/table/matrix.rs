//! Tensor-core operations.

use super::row::{Dst, Kind, Place, Row, fixed};
use crate::Opcode::*;

pub(super) static ROWS: &[Row] = &[
    fixed(Imma, 0x237, Place::R24, Place::R32, Place::R64).to(Dst::R),
    fixed(Movm, 0x23a, Place::R24, Place::None, Place::None).to(Dst::R),
    fixed(Hmma, 0x23c, Place::R24, Place::R32, Place::R64).to(Dst::R).neg(0b011),
    fixed(Bmma, 0x23d, Place::R24, Place::R32, Place::R64).to(Dst::R),
    fixed(Dmma, 0x23f, Place::R24, Place::R32, Place::R64).to(Dst::R).kind(Kind::F64).neg(0b111).abs(0b111),
];
