//! Fields that many operations share.

use crate::printer::NO;
use crate::table::item::{Arg, Mod};

/// Rounding of float operations.
pub(super) const RND: Mod = Mod::Pick(78, 2, &["", ".RM", ".RP", ".RZ"]);
/// Rounding to an integer.
pub(super) const TO_INTEGER: Mod = Mod::Pick(78, 2, &["", ".FLOOR", ".CEIL", ".TRUNC"]);
/// Subnormals count as zero.
pub(super) const FTZ: Mod = Mod::On(80, ".FTZ");
/// FTZ, or FMZ (0 times anything is 0 as well).
pub(super) const FTZ_FMZ: Mod = Mod::Gather(&[(80, 1), (76, 1)], &["", ".FTZ", ".FMZ", NO]);
/// Clamps to 0 and 1.
pub(super) const SAT: Mod = Mod::On(77, ".SAT");

/// Comparison of floats.
pub(super) const COMPARE: Mod = Mod::Pick(
    76,
    4,
    &[
        ".F", ".LT", ".EQ", ".LE", ".GT", ".NE", ".GE", ".NUM", ".NAN", ".LTU", ".EQU", ".LEU", ".GTU",
        ".NEU", ".GEU", ".T",
    ],
);
/// Comparison of doubles: the constant results became minimum and maximum.
pub(super) const COMPARE_F64: Mod = Mod::Pick(
    76,
    4,
    &[
        ".MIN", ".LT", ".EQ", ".LE", ".GT", ".NE", ".GE", ".NUM", ".NAN", ".LTU", ".EQU", ".LEU", ".GTU",
        ".NEU", ".GEU", ".MAX",
    ],
);
/// Comparison of integers.
pub(super) const COMPARE_INT: Mod = Mod::Pick(76, 3, &[".F", ".LT", ".EQ", ".LE", ".GT", ".NE", ".GE", ".T"]);
/// Operations that combine a comparison with the predicate source.
pub(super) const BOOLEAN: &[&str] = &[".AND", ".OR", ".XOR"];

/// Signed, or `.U32`.
pub(super) const U32: Mod = Mod::Off(73, ".U32");
/// Destinations, sources and predicate of a comparison.
pub(super) const SETP: &[Arg] = &[Arg::Pd(81), Arg::Pd(84), Arg::A, Arg::B, Arg::Ps(87)];

/// Width and sign of a memory access.
pub(super) const WIDTH: Mod = Mod::Pick(73, 3, &[".U8", ".S8", ".U16", ".S16", "", ".64", ".128"]);
/// The same without 128 bits.
pub(super) const CONSTANT_WIDTH: Mod = Mod::Pick(73, 3, &[".U8", ".S8", ".U16", ".S16", "", ".64"]);
/// Cache eviction priority.
pub(super) const EVICT: Mod = Mod::Pick(84, 3, &[".EF", "", ".EL", ".LU", ".EU", ".NA"]);
/// 64-bit address.
pub(super) const E: Mod = Mod::On(72, ".E");
/// Order and scope of a load.
pub(super) const LOAD_ORDER: Mod = Mod::Pick(
    77,
    4,
    &[
        "",
        ".CONSTANT.PRIVATE",
        ".CONSTANT.CTA",
        ".CONSTANT.CTA.PRIVATE",
        ".CONSTANT",
        ".STRONG.SM",
        ".STRONG.GPU.PRIVATE",
        ".STRONG.GPU",
        ".MMIO.GPU",
        ".CONSTANT.SM",
        ".STRONG.SYS",
        ".CONSTANT.SM.PRIVATE",
        ".MMIO.SYS",
        ".CONSTANT.VC",
        ".CONSTANT.VC.PRIVATE",
        ".CONSTANT.GPU",
    ],
);
/// Order and scope of a store or an atomic.
pub(super) const STORE_ORDER: Mod = Mod::Pick(
    77,
    4,
    &[
        "",
        ".CONSTANT.PRIVATE",
        ".CONSTANT.CTA",
        ".CONSTANT.CTA.PRIVATE",
        ".STRONG.SM.PRIVATE",
        ".STRONG.SM",
        ".STRONG.GPU.PRIVATE",
        ".STRONG.GPU",
        ".MMIO.GPU",
        ".CONSTANT.SM",
        ".STRONG.SYS",
        ".CONSTANT.SM.PRIVATE",
        ".MMIO.SYS",
        ".CONSTANT.VC",
        ".CONSTANT.VC.PRIVATE",
        ".CONSTANT.GPU",
    ],
);
