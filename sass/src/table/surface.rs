//! Surfaces: A is the register of the coordinates, B the data stored, C the register with the handle of the
//! surface where one has it.

use crate::opcode::Opcode;
use crate::opcode::Opcode::*;
use crate::operands::{Dst, Place};
use crate::printer::{NO, Printer, Refused};
use crate::table::fields::{EVICT, LOAD_ORDER, STORE_ORDER, WIDTH};
use crate::table::handle;
use crate::table::item::{Arg, Mod};
use crate::table::row::{Row, fixed};

const fn surface(opcode: Opcode, op12: u16, mods: &'static [Mod], args: &'static [Arg]) -> Row {
    let data = if matches!(opcode, Suld | Suquery) { Place::None } else { Place::R32 };
    let handle = if matches!(op12 >> 9, 1 | 4) { Place::R64 } else { Place::None };
    let row = fixed(opcode, op12, Place::R24, data, handle).mods(mods).args(args).widths_unknown();
    let row = if matches!(opcode, Suld | Suatom | Suquery) { row.to(Dst::R) } else { row };
    if op12 >> 9 == 7 { row.bit91() } else { row }
}

pub(super) static ROWS: &[Row] = &[
    surface(Suld, 0x797, LOAD_FORMATTED, LOAD),
    surface(Suld, 0x998, LOAD_FORMATTED, LOAD),
    surface(Suld, 0xb97, LOAD_FORMATTED, LOAD),
    surface(Suld, 0xf97, LOAD_FORMATTED, LOAD),
    surface(Suld, 0x799, LOAD_DATA, LOAD),
    surface(Suld, 0x99a, LOAD_DATA, LOAD),
    surface(Suld, 0xb99, LOAD_DATA, LOAD),
    surface(Suld, 0xf99, LOAD_DATA, LOAD),
    surface(Sust, 0x79b, STORE_FORMATTED, STORE),
    surface(Sust, 0x99c, STORE_FORMATTED, STORE),
    surface(Sust, 0xb9b, STORE_FORMATTED, STORE),
    surface(Sust, 0xf9b, STORE_FORMATTED, STORE),
    surface(Sust, 0x79d, STORE_DATA, STORE),
    surface(Sust, 0x99e, STORE_DATA, STORE),
    surface(Sust, 0xb9d, STORE_DATA, STORE),
    surface(Sust, 0xf9d, STORE_DATA, STORE),
    surface(Suatom, 0x394, ATOMIC, ANSWERED),
    surface(Suatom, 0x593, ATOMIC, ANSWERED),
    surface(Suatom, 0x793, ATOMIC, ANSWERED),
    surface(Suatom, 0xf93, ATOMIC, ANSWERED),
    surface(Suatom, 0x396, EXCHANGE, ANSWERED),
    surface(Suatom, 0x595, EXCHANGE, ANSWERED),
    surface(Suatom, 0x795, EXCHANGE, ANSWERED),
    surface(Suatom, 0xf95, EXCHANGE, ANSWERED),
    surface(Suquery, 0x7b3, QUERY, ASKED),
    surface(Suquery, 0x9b3, QUERY, ASKED),
    surface(Suquery, 0xbb3, QUERY, ASKED),
    surface(Suquery, 0xfb3, QUERY, ASKED),
    surface(Sured, 0x3a0, REDUCE, STORE),
    surface(Sured, 0x59f, REDUCE, STORE),
    surface(Sured, 0x79f, REDUCE, STORE),
    surface(Sured, 0xf9f, REDUCE, STORE),
];

/// Unformatted: bytes of memory.
const DATA: Mod = Mod::Always(".D");
/// Formatted: the components of a texel.
const FORMATTED: Mod = Mod::Always(".P");
/// The first coordinate counts bytes.
const BYTE_ADDRESS: Mod = Mod::On(72, ".BA");
const SHAPE: Mod = Mod::Pick(61, 3, &[".1D", ".1D_BUFFER", ".1D_ARRAY", ".2D", ".2D_ARRAY", ".3D"]);
const COMPONENTS: Mod =
    Mod::Pick(72, 4, &[NO, ".R", NO, ".RG", NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, ""]);
/// Result of an access outside the surface: nothing, the nearest one, a fault.
const OUTSIDE: Mod = Mod::Pick(59, 2, &[".IGN", "", ".TRAP"]);

const LOAD_DATA: &[Mod] = &[DATA, BYTE_ADDRESS, SHAPE, EVICT, WIDTH, LOAD_ORDER, OUTSIDE];
const LOAD_FORMATTED: &[Mod] = &[FORMATTED, SHAPE, EVICT, LOAD_ORDER, COMPONENTS, OUTSIDE];
const STORE_DATA: &[Mod] = &[DATA, BYTE_ADDRESS, SHAPE, EVICT, WIDTH, STORE_ORDER, OUTSIDE];
const STORE_FORMATTED: &[Mod] = &[FORMATTED, SHAPE, EVICT, STORE_ORDER, COMPONENTS, OUTSIDE];
const REDUCE: &[Mod] = &[
    DATA,
    BYTE_ADDRESS,
    SHAPE,
    Mod::Pick(87, 3, &[".ADD", ".MIN", ".MAX", ".INC", ".DEC", ".AND", ".OR", ".XOR"]),
    EVICT,
    TYPE,
    STORE_ORDER,
    OUTSIDE,
];
/// Elements of a reduction or an atomic.
const TYPE: Mod =
    Mod::Pick(73, 3, &["", ".S32", ".U64", ".F32.FTZ.RN", ".F16x2.RN", ".S64", ".SD32", ".SD64"]);

/// As for a reduction, and exchange.
const ATOMIC: &[Mod] = &[
    DATA,
    BYTE_ADDRESS,
    SHAPE,
    Mod::Pick(87, 4, &[".ADD", ".MIN", ".MAX", ".INC", ".DEC", ".AND", ".OR", ".XOR", ".EXCH"]),
    EVICT,
    TYPE,
    STORE_ORDER,
    OUTSIDE,
];
/// Compare and exchange; B is a pair.
const EXCHANGE: &[Mod] = &[
    DATA,
    BYTE_ADDRESS,
    SHAPE,
    Mod::Always(".CAS"),
    EVICT,
    Mod::On8x(&[Mod::Pick(73, 3, &["", ".S32", ".U64"])]),
    Mod::On9x(&[Mod::Pick(73, 3, &["", ".S32", ".64"])]),
    STORE_ORDER,
    OUTSIDE,
];
const QUERY: &[Mod] = &[BYTE_ADDRESS, SHAPE];

const ANSWERED: &[Arg] = &[Arg::PdOpt(81), Arg::D, Arg::By(coordinates), Arg::R(32), Arg::By(surface_handle)];
const ASKED: &[Arg] = &[
    Arg::PdOpt(81),
    Arg::D,
    Arg::By(coordinates),
    Arg::Named(87, 1, &["COMP_STATUS"]),
    Arg::By(surface_handle),
];
const LOAD: &[Arg] = &[Arg::PdOpt(81), Arg::D, Arg::By(coordinates), Arg::By(surface_handle)];
const STORE: &[Arg] = &[Arg::By(coordinates), Arg::R(32), Arg::By(surface_handle)];

fn coordinates(p: &mut Printer<'_>) -> Result<(), Refused> {
    p.next();
    p.put("[");
    p.reg(24);
    p.put("]");
    Ok(())
}

fn surface_handle(p: &mut Printer<'_>) -> Result<(), Refused> {
    match p.word.form() {
        2 | 5 => handle::constant(p),
        3 => handle::two_constants(p),
        7 => handle::uniform(p),
        _ => {
            p.next();
            p.reg(64);
        }
    }
    Ok(())
}
