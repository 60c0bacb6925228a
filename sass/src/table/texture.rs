//! Textures.
//!
//! The texels go to two pairs of registers, the first two to the pair at bits 16 to 23; the coordinates come
//! from the registers at 24 and 32. The texture's handle is a constant, a register that follows the
//! coordinates (`.B`), two constants, or a register of the warp: an operation of code n has the codes n, n+1,
//! n+2 and n, in this order, with the operand form in the upper bits.

use crate::opcode::Opcode;
use crate::opcode::Opcode::*;
use crate::operands::{Dst, Place};
use crate::printer::{NO, Printer, Refused, refused};
use crate::table::fields::EVICT;
use crate::table::handle;
use crate::table::item::{Arg, Mod};
use crate::table::row::{Row, fixed};

const fn texture(opcode: Opcode, op12: u16, mods: &'static [Mod], args: &'static [Arg]) -> Row {
    let row = fixed(opcode, op12, Place::R24, Place::R32, Place::None).to(Dst::R).mods(mods).args(args);
    let row = row.widths_unknown();
    if op12 >> 9 == 7 { row.bit91() } else { row }
}

pub(super) static ROWS: &[Row] = &[
    texture(Tex, 0xb60, TEX_MODS, TEX),
    texture(Tex, 0x361, TEX_MODS, TEX),
    texture(Tex, 0xb62, TEX_MODS, TEX),
    texture(Tex, 0xf60, TEX_MODS, TEX),
    texture(Tld4, 0xb63, TLD4_MODS, TLD4),
    texture(Tld4, 0x364, TLD4_MODS, TLD4),
    texture(Tld4, 0xb65, TLD4_MODS, TLD4),
    texture(Tld4, 0xf63, TLD4_MODS, TLD4),
    texture(Tld, 0xb66, TLD_MODS, TLD),
    texture(Tld, 0x367, TLD_MODS, TLD),
    texture(Tld, 0xb68, TLD_MODS, TLD),
    texture(Tld, 0xf66, TLD_MODS, TLD),
    texture(Tmml, 0xb69, TMML_MODS, TMML),
    texture(Tmml, 0x36a, TMML_MODS, TMML),
    texture(Tmml, 0xb6b, TMML_MODS, TMML),
    texture(Tmml, 0xf69, TMML_MODS, TMML),
    texture(Txd, 0xb6c, TXD_MODS, TXD),
    texture(Txd, 0x36d, TXD_MODS, TXD),
    texture(Txd, 0xb6e, TXD_MODS, TXD),
    texture(Txd, 0xf6c, TXD_MODS, TXD),
    texture(Txq, 0xb6f, TXQ_MODS, TXQ),
    texture(Txq, 0x370, TXQ_MODS, TXQ),
    texture(Txq, 0xb71, TXQ_MODS, TXQ),
    texture(Txq, 0xf6f, TXQ_MODS, TXQ),
];

/// The sampler's answer is scaled to the residency of the texture.
const SCR: Mod = Mod::On(60, ".SCR");
const BINDLESS: Mod = Mod::By(bindless);
const F16: Mod = Mod::Pick(79, 2, &["", ".F16.RN", ".F16.RZ"]);
/// An offset in texels is added to the coordinates.
const AOFFI: Mod = Mod::On(76, ".AOFFI");
/// Texels are compared with a reference value.
const COMPARE: Mod = Mod::On(78, ".DC");
const NO_DERIVATIVE: Mod = Mod::On(77, ".NDV");
const NO_DEPENDENCE: Mod = Mod::On(90, ".NODEP");
const LEVEL: Mod = Mod::Pick(87, 3, &["", ".LZ", ".LB", ".LL", ".LC", ".LB.LC", ".LC.FDV"]);

const TEX_MODS: &[Mod] = &[SCR, BINDLESS, F16, LEVEL, AOFFI, COMPARE, EVICT, NO_DERIVATIVE, NO_DEPENDENCE];
const TLD_MODS: &[Mod] = &[
    SCR,
    BINDLESS,
    F16,
    Mod::Pick(87, 3, &[NO, ".LZ", NO, ".LL"]),
    AOFFI,
    EVICT,
    Mod::On(78, ".MS"),
    Mod::On(77, ".CL"),
    NO_DEPENDENCE,
];
const TLD4_MODS: &[Mod] = &[
    SCR,
    Mod::Pick(87, 2, &[".R", ".G", ".B", ".A"]),
    BINDLESS,
    F16,
    Mod::Pick(76, 2, &["", ".AOFFI", ".PTP"]),
    COMPARE,
    EVICT,
    NO_DEPENDENCE,
];
const TMML_MODS: &[Mod] = &[BINDLESS, Mod::Always(".LOD"), NO_DERIVATIVE, NO_DEPENDENCE];
const TXD_MODS: &[Mod] = &[BINDLESS, F16, Mod::On(87, ".LC"), AOFFI, EVICT, NO_DEPENDENCE];
const TXQ_MODS: &[Mod] = &[BINDLESS, NO_DEPENDENCE];

const HANDLE: Arg = Arg::By(texture_handle);
const SECOND: Arg = Arg::By(second_source);
const MASK: Arg = Arg::By(mask);
/// The shape of the texture.
const ANY_SHAPE: Arg =
    Arg::Named(61, 3, &["1D", "2D", "3D", "CUBE", "ARRAY_1D", "ARRAY_2D", NO, "ARRAY_CUBE"]);
const TEX: &[Arg] = &[Arg::PdOpt(81), Arg::R(64), Arg::D, Arg::R(24), SECOND, HANDLE, ANY_SHAPE, MASK];
const TLD: &[Arg] = &[
    Arg::PdOpt(81),
    Arg::R(64),
    Arg::D,
    Arg::R(24),
    SECOND,
    HANDLE,
    Arg::Named(61, 3, &["1D", "2D", "3D", NO, "ARRAY_1D", "ARRAY_2D"]),
    MASK,
];
const TLD4: &[Arg] = &[
    Arg::PdOpt(81),
    Arg::R(64),
    Arg::D,
    Arg::R(24),
    SECOND,
    HANDLE,
    Arg::Named(61, 3, &[NO, "2D", NO, "CUBE", NO, "ARRAY_2D", NO, "ARRAY_CUBE"]),
    MASK,
];
const TMML: &[Arg] = &[Arg::R(64), Arg::D, Arg::R(24), SECOND, HANDLE, ANY_SHAPE, MASK];
const TXD: &[Arg] = &[
    Arg::PdOpt(81),
    Arg::R(64),
    Arg::D,
    Arg::R(24),
    SECOND,
    HANDLE,
    Arg::Named(61, 3, &["1D", "2D", NO, NO, "ARRAY_1D", "ARRAY_2D"]),
    MASK,
];
const TXQ: &[Arg] = &[
    Arg::R(64),
    Arg::D,
    Arg::R(24),
    Arg::Named(62, 2, &["TEX_HEADER_DIMENSION", "TEX_HEADER_TEXTURE_TYPE", "TEX_HEADER_SAMPLER_POS"]),
    HANDLE,
    Arg::Hex(72, 4),
];

/// Place of a texture's handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Handle {
    Constant,
    Register,
    TwoConstants,
    Uniform,
}

fn handle_of(p: &Printer<'_>) -> Handle {
    match (p.word.form(), p.word.op12() % 3) {
        (7, _) => Handle::Uniform,
        (1, _) => Handle::Register,
        // Codes that are multiples of 3 plus 0xb00: one constant.
        (_, 2) => Handle::Constant,
        _ => Handle::TwoConstants,
    }
}

/// `.B`: the handle is a register. Bit 59 decides that where the code does not, and must agree where it does.
fn bindless(p: &mut Printer<'_>) -> Result<(), Refused> {
    match handle_of(p) {
        Handle::Uniform => {}
        Handle::Constant => {
            if p.bit(59) {
                return with_second_source(p);
            }
        }
        Handle::TwoConstants => {
            if !p.bit(59) {
                return refused(59, 1);
            }
            return with_second_source(p);
        }
        Handle::Register => {
            if !p.bit(59) {
                return refused(59, 1);
            }
            p.put(".B");
        }
    }
    Ok(())
}

/// `.B` beside constants: the second register must be there.
fn with_second_source(p: &mut Printer<'_>) -> Result<(), Refused> {
    if p.bits(32, 8) == 255 {
        return refused(32, 8);
    }
    p.put(".B");
    Ok(())
}

fn texture_handle(p: &mut Printer<'_>) -> Result<(), Refused> {
    match handle_of(p) {
        Handle::Register => {}
        Handle::Constant => handle::constant(p),
        Handle::TwoConstants => handle::two_constants(p),
        Handle::Uniform => handle::uniform(p),
    }
    Ok(())
}

/// The second register of coordinates, not printed when it is RZ.
fn second_source(p: &mut Printer<'_>) -> Result<(), Refused> {
    if p.bits(32, 8) != 255 {
        p.next();
        p.reg(32);
    }
    Ok(())
}

/// Prints the mask of the texels, unless all are read.
fn mask(p: &mut Printer<'_>) -> Result<(), Refused> {
    let mask = p.bits(72, 4);
    if mask != 15 {
        p.next();
        p.put_fmt(format_args!("{mask:#x}"));
    }
    Ok(())
}
