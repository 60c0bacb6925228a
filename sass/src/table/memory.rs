//! Memory, atomics, fences and caches.
//!
//! A is the address register; B is the data stored or the operand of an atomic (for `CAS` the value compared
//! with), C the value that `CAS` stores.

use crate::arch::Encoding;
use crate::opcode::Opcode::*;
use crate::operands::{Dst, Place};
use crate::printer::{NO, Printer, Refused, refused};
use crate::table::address;
use crate::table::fields::{CONSTANT_WIDTH, E, EVICT, LOAD_ORDER, STORE_ORDER, WIDTH};
use crate::table::item::{Arg, Mod};
use crate::table::row::{Row, fixed};

pub(super) static ROWS: &[Row] = &[
    fixed(Ld, 0x980, Place::R24, Place::None, Place::None).to(Dst::R).bit91_free().mods(LOAD_MODS).args(&[
        Arg::D,
        Arg::By(address::generic_load),
        Arg::PsStoredInverted(64),
    ]),
    fixed(Ldg, 0x381, Place::R24, Place::None, Place::None).to(Dst::R).mods(LOAD_MODS).args(LDG),
    fixed(Ldg, 0x981, Place::R24, Place::None, Place::None).to(Dst::R).bit91_free().mods(LOAD_MODS).args(LDG),
    fixed(Ldl, 0x983, Place::R24, Place::None, Place::None)
        .to(Dst::R)
        .bit91_free()
        .mods(&[EVICT, WIDTH])
        .args(&[Arg::D, Arg::By(address::with_uniform_32)]),
    fixed(Lds, 0x984, Place::R24, Place::None, Place::None)
        .to(Dst::R)
        .bit91_free()
        .mods(&[WIDTH])
        .args(&[Arg::D, Arg::By(address::shared_load)]),
    fixed(Ldsm, 0x83b, Place::R24, Place::None, Place::None)
        .to(Dst::R)
        .bit91_free()
        .mods(&[
            Mod::Always(".16"),
            Mod::Pick(78, 2, &[".M88", ".MT88", ".M816", ".M832"]),
            Mod::Pick(72, 2, &["", ".2", ".4"]),
        ])
        .args(&[Arg::D, Arg::By(address::with_uniform_32)]),
    fixed(Ldc, 0xb82, Place::R24, Place::ConstBytes, Place::None)
        .to(Dst::R)
        .mods(&[CONSTANT_WIDTH, Mod::Pick(78, 2, &["", ".IL", ".IS", ".ISL"])])
        .args(&[Arg::D, Arg::By(address::indexed_constant)]),
    fixed(St, 0x385, Place::R24, Place::R64, Place::None)
        .mods(STORE_MODS)
        .args(&[Arg::By(address::generic_store), Arg::R(64)]),
    fixed(St, 0x985, Place::R24, Place::R32, Place::None).bit91().mods(STORE_MODS).args(STORE),
    fixed(Stg, 0x386, Place::R24, Place::R32, Place::None).mods(STORE_MODS).args(STORE),
    fixed(Stg, 0x986, Place::R24, Place::R32, Place::None).bit91().mods(STORE_MODS).args(STORE),
    fixed(Stl, 0x387, Place::R24, Place::R32, Place::None).mods(&[EVICT, WIDTH]).args(STL),
    fixed(Stl, 0x987, Place::R24, Place::R32, Place::None).bit91().mods(&[EVICT, WIDTH]).args(STL),
    fixed(Sts, 0x388, Place::R24, Place::R32, Place::None).mods(&[WIDTH]).args(STS),
    fixed(Sts, 0x988, Place::R24, Place::R32, Place::None).bit91().mods(&[WIDTH]).args(STS),
    fixed(Ldgsts, 0xdae, Place::R24, Place::None, Place::None)
        .to(Dst::R)
        .bit91()
        .mods(LDGSTS_MODS)
        .args(LDGSTS),
    fixed(Ldgsts, 0xfae, Place::R24, Place::None, Place::None)
        .to(Dst::R)
        .bit91()
        .mods(LDGSTS_MODS)
        .args(LDGSTS),
    fixed(Ldgdepbar, 0x9af, Place::None, Place::None, Place::None),
    fixed(Depbar, 0x91a, Place::None, Place::None, Place::None)
        .mods(&[Mod::On(47, ".LE")])
        .args(&[Arg::By(depbar)]),
    fixed(Arrives, 0x9b0, Place::R24, Place::None, Place::None)
        .bit91()
        .mods(&[Mod::Always(".LDGSTSBAR"), TRANSACTION_64])
        .args(&[Arg::By(address::with_uniform_64)])
        .sm8x(),
    fixed(Arrives, 0x9b0, Place::R24, Place::None, Place::None)
        .bit91()
        .mods(&[Mod::Always(".LDGSTSBAR"), TRANSACTION_64, Mod::Pick(70, 2, &["", ".ARVCNT", ".TRANSCNT"])])
        .args(&[Arg::By(address::with_uniform_64)])
        .sm9x(),
    fixed(Qspc, 0x3aa, Place::R24, Place::None, Place::None).to(Dst::R).mods(QSPC_MODS).args(QSPC),
    fixed(Qspc, 0x9aa, Place::R24, Place::None, Place::None).to(Dst::R).bit91().mods(QSPC_MODS).args(QSPC),
    fixed(Atomg, 0x3a8, Place::R24, Place::R32, Place::None).to(Dst::R).mods(ATOMIC_MODS).args(ATOMIC),
    fixed(Atomg, 0x9a8, Place::R24, Place::R32, Place::None)
        .to(Dst::R)
        .bit91()
        .mods(ATOMIC_MODS)
        .args(ATOMIC),
    fixed(AtomgCas, 0x3a9, Place::R24, Place::R32, Place::R64)
        .to(Dst::R)
        .name("ATOMG")
        .mods(&[E, Mod::Always(".CAS"), EVICT, CAS_TYPE, STORE_ORDER])
        .args(CAS),
    fixed(Atom, 0x38a, Place::R24, Place::R32, Place::None).to(Dst::R).mods(ATOMIC_MODS).args(ATOMIC),
    fixed(Atom, 0x98a, Place::R24, Place::R32, Place::None).to(Dst::R).bit91().mods(ATOMIC_MODS).args(ATOMIC),
    fixed(AtomCas, 0x38b, Place::R24, Place::R32, Place::R64)
        .to(Dst::R)
        .name("ATOM")
        .mods(&[E, Mod::Pick(87, 2, &[".CAS", ".CAST", NO, ".CAST.SPIN"]), EVICT, CAS_TYPE, STORE_ORDER])
        .args(CAS),
    fixed(Red, 0x98e, Place::R24, Place::R32, Place::None).bit91_free().mods(RED_MODS).args(RED).sm8x(),
    fixed(Redg, 0x98e, Place::R24, Place::R32, Place::None).bit91_free().mods(RED_MODS).args(RED).sm9x(),
    fixed(Atoms, 0x38c, Place::R24, Place::R32, Place::None).to(Dst::R).mods(ATOMS_MODS).args(ATOMS),
    fixed(Atoms, 0x98c, Place::R24, Place::R32, Place::None).to(Dst::R).bit91().mods(ATOMS_MODS).args(ATOMS),
    fixed(AtomsCas, 0x38d, Place::R24, Place::R32, Place::R64)
        .to(Dst::R)
        .name("ATOMS")
        .mods(&[Mod::Pick(87, 2, &[".CAS", ".CAST", NO, ".CAST.SPIN"]), SHARED_TYPE])
        .args(&[Arg::D, Arg::By(address::shared_store), Arg::R(32), Arg::R(64)]),
    fixed(AtomsCount, 0xf8c, Place::R24, Place::None, Place::None)
        .to(Dst::R)
        .name("ATOMS")
        .bit91()
        .mods(&[Mod::By(atoms_count)])
        .args(&[Arg::D, Arg::By(address::shared_store)]),
    // Floating-point atomics have codes of their own on SM 9.0.
    fixed(Atom, 0x9a2, Place::R24, Place::R32, Place::None)
        .to(Dst::R)
        .bit91()
        .mods(FLOAT_ATOMIC_MODS)
        .args(ATOMIC)
        .sm9x(),
    fixed(Atomg, 0x9a3, Place::R24, Place::R32, Place::None)
        .to(Dst::R)
        .bit91()
        .mods(FLOAT_ATOMIC_MODS)
        .args(ATOMIC)
        .sm9x(),
    fixed(Redg, 0x9a6, Place::R24, Place::R32, Place::None)
        .bit91_free()
        .mods(FLOAT_ATOMIC_MODS)
        .args(RED)
        .sm9x(),
    fixed(Membar, 0x992, Place::None, Place::None, Place::None).mods(&[
        Mod::Pick(79, 2, &[".SC", ".ALL", "", ".MMIO"]),
        Mod::Pick(76, 3, &[".CTA", ".SM", ".GPU", ".SYS", NO, ".VC"]),
    ]),
    fixed(Errbar, 0x9ab, Place::None, Place::None, Place::None),
    fixed(Cctl, 0x98f, Place::R24, Place::None, Place::None).mods(CCTL_MODS).args(&[Arg::By(cctl_address)]),
    fixed(Cctl, 0xd8f, Place::R24, Place::None, Place::None)
        .bit91()
        .mods(CCTL_MODS)
        .args(&[Arg::By(cctl_address)]),
    fixed(Cgaerrbar, 0x5ab, Place::None, Place::None, Place::None).sm9x(),
    fixed(Fence, 0x3c6, Place::None, Place::None, Place::None)
        .mods(&[Mod::Always(".VIEW.ASYNC"), Mod::Pick(72, 1, &[".S", ".G"])])
        .sm9x(),
    fixed(Syncs, 0x5a7, Place::R24, Place::R32, Place::None)
        .bit91()
        .mods(&[Mod::Pick(70, 2, &[NO, ".PHASECHK"]), Mod::Always(".TRANS64"), Mod::On(72, ".TRYWAIT")])
        .args(&[Arg::Pd(81), Arg::By(address::with_uniform_64), Arg::R(32)])
        .sm9x(),
    fixed(Syncs, 0x9a7, Place::R24, Place::R32, Place::None)
        .to(Dst::R)
        .bit91()
        .mods(&[
            Mod::Pick(70, 2, &[".ARRIVE"]),
            Mod::Always(".TRANS64"),
            Mod::Pick(73, 2, &["", ".TMASK", ".RED"]),
            Mod::On(75, ".OPTOUT"),
            Mod::Pick(84, 3, &["", ".A1T0", ".A0T1", ".A0TR", ".A0TX", ".ART0"]),
        ])
        .args(&[Arg::D, Arg::By(address::with_uniform_64), Arg::R(32)])
        .sm9x(),
    fixed(Syncs, 0x5b2, Place::U24, Place::U32, Place::None)
        .to(Dst::U)
        .uniform()
        .bit91()
        .mods(&[Mod::Pick(72, 2, &[NO, ".EXCH"]), Mod::Always(".64")])
        .args(&[Arg::D, Arg::By(address::uniform), Arg::U(32)])
        .sm9x(),
    fixed(Syncs, 0x9b1, Place::R24, Place::None, Place::None)
        .bit91()
        .mods(&[Mod::Always(".CCTL.IV")])
        .args(&[Arg::By(address::with_uniform_64)])
        .sm9x(),
];

const PREFETCH: &[&str] = &["", ".LTC64B", ".LTC128B", ".LTC256B"];
const LOAD_MODS: &[Mod] = &[E, EVICT, Mod::Pick(68, 2, PREFETCH), WIDTH, LOAD_ORDER];
const LDG: &[Arg] = &[Arg::PdOpt(81), Arg::D, Arg::By(address::global_load), Arg::PsStoredInverted(64)];
const STORE_MODS: &[Mod] = &[E, EVICT, WIDTH, STORE_ORDER];
const STORE: &[Arg] = &[Arg::By(address::global_store), Arg::R(32)];
const STL: &[Arg] = &[Arg::By(address::with_uniform_64), Arg::R(32)];
const STS: &[Arg] = &[Arg::By(address::shared_store), Arg::R(32)];
/// Order and scope of a copy: the names differ from those of loads.
const LDGSTS_ORDER: &[&str] = &[
    "",
    ".CONSTANT.PRIVATE",
    ".CONSTANT.CTA",
    ".CONSTANT.CTA.PRIVATE",
    ".CONSTANT",
    ".MMIO.CTA",
    ".GPU.PRIVATE",
    ".MMIO.CTA.PRIVATE",
    ".MMIO.SM",
    ".CONSTANT.SM",
    ".MMIO.VC",
    ".CONSTANT.SM.PRIVATE",
    ".MMIO.GPU",
    ".CONSTANT.VC",
    ".CONSTANT.VC.PRIVATE",
    ".CONSTANT.GPU",
];
const LDGSTS_MODS: &[Mod] = &[
    Mod::Always(".E"),
    Mod::Off(81, ".BYPASS"),
    EVICT,
    Mod::Pick(71, 2, PREFETCH),
    Mod::Pick(73, 3, &[NO, NO, NO, NO, "", ".64", ".128"]),
    Mod::On(82, ".ZFILL"),
    Mod::Pick(77, 4, LDGSTS_ORDER),
];
const LDGSTS: &[Arg] = &[Arg::By(address::global_to_shared), Arg::PsOpt(87)];
const QSPC_MODS: &[Mod] = &[
    E,
    Mod::On8x(&[Mod::Pick(73, 2, &[".G", ".L", ".S"])]),
    Mod::On9x(&[Mod::Pick(73, 2, &[".G", ".L", ".S", ".D"])]),
];
const QSPC: &[Arg] = &[Arg::Pd(81), Arg::D, Arg::By(qspc_address)];

/// The only width of a barrier in shared memory.
const TRANSACTION_64: Mod = Mod::Pick(73, 3, &[NO, NO, NO, NO, NO, ".64"]);
const OPERATION: &[&str] =
    &[".ADD", ".MIN", ".MAX", ".INC", ".DEC", ".AND", ".OR", ".XOR", ".EXCH", ".SAFEADD"];
const TYPE: Mod = Mod::By(atomic_type);
const CAS_TYPE: Mod = Mod::By(cas_type);
const ATOMIC_MODS: &[Mod] = &[E, Mod::Pick(87, 4, OPERATION), EVICT, TYPE, STORE_ORDER];
const ATOMIC: &[Arg] = &[Arg::Pd(81), Arg::D, Arg::By(address::atomic), Arg::R(32)];
const CAS: &[Arg] = &[Arg::Pd(81), Arg::D, Arg::By(address::plain), Arg::R(32), Arg::R(64)];
const RED_MODS: &[Mod] = &[E, Mod::Pick(87, 3, OPERATION), EVICT, TYPE, STORE_ORDER];
const RED: &[Arg] = &[Arg::By(address::reduction), Arg::R(32)];
const SHARED_TYPE: Mod = Mod::Pick(73, 2, &["", ".S32", ".64"]);
const ATOMS_MODS: &[Mod] = &[Mod::Pick(87, 4, OPERATION), SHARED_TYPE];
const ATOMS: &[Arg] = &[Arg::D, Arg::By(address::shared_store), Arg::R(32)];
const FLOAT_ATOMIC_MODS: &[Mod] = &[
    E,
    Mod::Pick(88, 2, &[".ADD", ".MIN", ".MAX"]),
    EVICT,
    Mod::Pick(
        73,
        4,
        &[
            ".F16x2.RN",
            ".F16x4.RN",
            ".F16x8.RN",
            ".BF16x2.RN",
            ".BF16x4.RN",
            ".BF16x8.RN",
            NO,
            NO,
            NO,
            ".F32.FTZ.RN",
            ".F32x2.FTZ.RN",
            ".F32x4.FTZ.RN",
            ".F32.RN",
            ".F32x2.RN",
            ".F32x4.RN",
            ".F64.RN",
        ],
    ),
    STORE_ORDER,
];

/// The type of an atomic operation. SM 9.0 moved the floats to operations of their own.
fn atomic_type(p: &mut Printer<'_>) -> Result<(), Refused> {
    const SM8X: &[&str] = &["", ".S32", ".64", ".F32.FTZ.RN", ".F16x2.RN", ".S64", ".F64.RN"];
    const SM9X: &[&str] = &["", ".S32", ".64", ".S64", ".128"];
    let names = match p.arch.encoding() {
        Encoding::Sm8x => SM8X,
        Encoding::Sm9x => SM9X,
    };
    p.pick(73, 3, names)
}

fn cas_type(p: &mut Printer<'_>) -> Result<(), Refused> {
    let names: &[&str] = match p.arch.encoding() {
        Encoding::Sm8x => &["", ".S32", ".64"],
        Encoding::Sm9x => &["", ".S32", ".64", NO, ".128"],
    };
    p.pick(73, 3, names)
}

/// Arrivals at a barrier in shared memory, and increments that count the active threads.
fn atoms_count(p: &mut Printer<'_>) -> Result<(), Refused> {
    let (arrive, count) = match p.arch.encoding() {
        Encoding::Sm8x => (9, 10),
        Encoding::Sm9x => (10, 11),
    };
    match (p.bits(87, 4), p.bits(73, 3)) {
        (op, 2) if op == arrive => p.put(".ARRIVE.64"),
        (op, 0) if op == count => p.put(".POPC.INC.32"),
        _ => return refused(87, 4),
    }
    Ok(())
}

/// `IVALL`, `IVALLP`, `WBALL` and `WBALLP` act on whole caches and take no address.
const CCTL_WHOLE: [u64; 4] = [4, 6, 7, 8];
const CCTL_MODS: &[Mod] = &[
    Mod::By(cctl_wide),
    Mod::Pick(78, 2, &["", ".U", ".C", ".I"]),
    Mod::Pick(
        87,
        4,
        &[
            ".PF1", ".PF2", ".WB", ".IV", ".IVALL", ".RS", ".IVALLP", ".WBALL", ".WBALLP", ".PML2", ".DML2",
            ".RML2",
        ],
    ),
];

fn cctl_wide(p: &mut Printer<'_>) -> Result<(), Refused> {
    if p.bit(72) && !CCTL_WHOLE.contains(&p.word.bits(87, 4)) {
        p.put(".E");
    }
    Ok(())
}

fn cctl_address(p: &mut Printer<'_>) -> Result<(), Refused> {
    if !CCTL_WHOLE.contains(&p.word.bits(87, 4)) {
        p.next();
        address::Address::PLAIN.offset(32, 32).put(p);
    } else if p.bits(24, 8) != 255 {
        return refused(24, 8);
    }
    Ok(())
}

/// Waits until a scoreboard has at most so many outstanding, and for a set of others.
fn depbar(p: &mut Printer<'_>) -> Result<(), Refused> {
    if p.bit(47) {
        let (scoreboard, count) = (p.bits(44, 3), p.bits(38, 6));
        p.next();
        p.put_fmt(format_args!("SB{scoreboard}, {count:#x}"));
    }
    let set = p.bits(32, 6);
    if set != 0 {
        p.next();
        let mut separator = "{";
        for i in (0..6).rev().filter(|i| set >> i & 1 != 0) {
            p.put_fmt(format_args!("{separator}{i}"));
            separator = ",";
        }
        p.put("}");
    }
    Ok(())
}

fn qspc_address(p: &mut Printer<'_>) -> Result<(), Refused> {
    p.next();
    if p.word.bit(91) {
        address::Address::PLAIN.narrow(p).uniform(32).put(p);
    } else {
        address::Address::PLAIN.put(p);
    }
    Ok(())
}
