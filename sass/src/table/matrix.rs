//! Tensor-core operations.

use crate::opcode::Opcode::*;
use crate::operands::{Dst, Kind, Place};
use crate::printer::NO;
use crate::table::fields::RND;
use crate::table::item::{Arg, Mod};
use crate::table::row::{Row, fixed};

pub(super) static ROWS: &[Row] = &[
    fixed(Imma, 0x237, Place::R24, Place::R32, Place::R64)
        .to(Dst::R)
        .mods(&[
            Mod::On(72, ".SP"),
            Mod::Gather(&[(75, 1), (85, 2)], &[".8816", NO, ".8832", NO, ".16816", ".16832", ".16864"]),
            Mod::On8x(&[
                Mod::Gather(&[(76, 1), (83, 1)], INTEGERS),
                Mod::Gather(&[(78, 1), (84, 1)], INTEGERS),
            ]),
            Mod::On9x(&[Mod::Pick(76, 1, INTEGERS), Mod::Pick(78, 1, INTEGERS)]),
            Mod::On(82, ".SAT"),
        ])
        .args(&[
            Arg::D,
            Arg::With(&Arg::A, &[Mod::Pick(73, 1, &[".ROW"])]),
            Arg::With(&Arg::B, COLUMN),
            Arg::C,
            Arg::If(72, SPARSE),
            Arg::UpStoredInverted(87),
        ]),
    fixed(Movm, 0x23a, Place::R24, Place::None, Place::None)
        .to(Dst::R)
        .mods(&[Mod::Always(".16"), Mod::Pick(78, 2, &[".MT88", ".M832", ".M864"])])
        .args(&[Arg::D, Arg::R(24)]),
    fixed(Hmma, 0x23c, Place::R24, Place::R32, Place::R64)
        .to(Dst::R)
        .neg(0b011)
        .mods(&[
            Mod::On(73, ".SP"),
            Mod::Gather(&[(75, 1), (78, 1)], &[".1688", ".16816", ".1684"]),
            Mod::Pick(76, 1, &[".F16", ".F32"]),
            Mod::Pick(82, 2, &["", ".BF16", ".TF32"]),
        ])
        .args(&[Arg::D, Arg::A, Arg::B, Arg::C, Arg::If(73, SPARSE), Arg::UpStoredInverted(87)]),
    fixed(Qmma, 0x27a, Place::R24, Place::R32, Place::R64)
        .to(Dst::R)
        .neg(0b011)
        .mods(&[
            Mod::Pick(75, 2, &[".16816", ".16832"]),
            Mod::Pick(77, 1, &[".F16", ".F32"]),
            Mod::Pick(78, 1, EIGHTHS),
            Mod::Pick(79, 1, EIGHTHS),
        ])
        .args(&[
            Arg::D,
            Arg::With(&Arg::A, &[Mod::Pick(73, 1, &[".ROW"])]),
            Arg::With(&Arg::B, COLUMN),
            Arg::C,
            Arg::UpStoredInverted(87),
        ])
        .sm89(),
    fixed(Bmma, 0x23d, Place::R24, Place::R32, Place::R64)
        .to(Dst::R)
        .mods(&[
            Mod::Pick(75, 2, &[".88128", ".168128", ".168256"]),
            Mod::Pick(78, 1, &[".XOR", ".AND"]),
            Mod::Pick(80, 1, &[NO, ".POPC"]),
        ])
        .args(&[
            Arg::D,
            Arg::With(&Arg::A, &[Mod::Always(".ROW")]),
            Arg::With(&Arg::B, COLUMN),
            Arg::C,
            Arg::UpStoredInverted(87),
        ]),
    DMMA.mods(&[Mod::Always(".884"), RND]).sm8x(),
    DMMA.mods(&[Mod::Always(".8x8x4"), RND]).sm9x(),
];

/// The register that selects the stored elements of a sparse A, and the threads that provide it.
const SPARSE: &[Arg] = &[Arg::With(&Arg::R(40), &[Mod::On(50, ".reuse")]), Arg::Hex(48, 2)];
const COLUMN: &[Mod] = &[Mod::Pick(74, 1, &[NO, ".COL"])];
const ABC: &[Arg] = &[Arg::D, Arg::A, Arg::B, Arg::C, Arg::UpStoredInverted(87)];
const DMMA: Row = fixed(Dmma, 0x23f, Place::R24, Place::R32, Place::R64)
    .to(Dst::R)
    .kind(Kind::F64)
    .neg(0b111)
    .abs(0b111)
    .args(ABC);
/// Floats of 8 bits.
const EIGHTHS: &[&str] = &[".E4M3", ".E5M2"];
/// Width and sign of a matrix element.
const INTEGERS: &[&str] = &[".U8", ".S8", ".U4", ".S4"];
