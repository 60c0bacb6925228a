//! Memory, atomics, fences and caches.
//!
//! A is the address register; B is the data stored or the operand of an atomic (for `CAS` the value compared with), C the
//! value that `CAS` stores.

use super::row::{Dst, Place, Row, fixed};
use crate::Opcode::*;

pub(super) static ROWS: &[Row] = &[
    fixed(Ld, 0x980, Place::R24, Place::None, Place::None).to(Dst::R).bit91_free(),
    fixed(Ldg, 0x381, Place::R24, Place::None, Place::None).to(Dst::R),
    fixed(Ldg, 0x981, Place::R24, Place::None, Place::None).to(Dst::R).bit91_free(),
    fixed(Ldl, 0x983, Place::R24, Place::None, Place::None).to(Dst::R).bit91_free(),
    fixed(Lds, 0x984, Place::R24, Place::None, Place::None).to(Dst::R).bit91_free(),
    fixed(Ldsm, 0x83b, Place::R24, Place::None, Place::None).to(Dst::R).bit91_free(),
    fixed(Ldc, 0xb82, Place::R24, Place::ConstBytes, Place::None).to(Dst::R),
    fixed(St, 0x385, Place::R24, Place::R64, Place::None),
    fixed(St, 0x985, Place::R24, Place::R32, Place::None).bit91(),
    fixed(Stg, 0x386, Place::R24, Place::R32, Place::None),
    fixed(Stg, 0x986, Place::R24, Place::R32, Place::None).bit91(),
    fixed(Stl, 0x387, Place::R24, Place::R32, Place::None),
    fixed(Stl, 0x987, Place::R24, Place::R32, Place::None).bit91(),
    fixed(Sts, 0x388, Place::R24, Place::R32, Place::None),
    fixed(Sts, 0x988, Place::R24, Place::R32, Place::None).bit91(),
    fixed(Ldgsts, 0xdae, Place::R24, Place::None, Place::None).to(Dst::R).bit91(),
    fixed(Ldgsts, 0xfae, Place::R24, Place::None, Place::None).to(Dst::R).bit91(),
    fixed(Ldgdepbar, 0x9af, Place::None, Place::None, Place::None),
    fixed(Depbar, 0x91a, Place::None, Place::None, Place::None),
    fixed(Arrives, 0x9b0, Place::R24, Place::None, Place::None).bit91(),
    fixed(Qspc, 0x3aa, Place::R24, Place::None, Place::None).to(Dst::R),
    fixed(Qspc, 0x9aa, Place::R24, Place::None, Place::None).to(Dst::R).bit91(),
    fixed(Atomg, 0x3a8, Place::R24, Place::R32, Place::None).to(Dst::R),
    fixed(Atomg, 0x9a8, Place::R24, Place::R32, Place::None).to(Dst::R).bit91(),
    fixed(AtomgCas, 0x3a9, Place::R24, Place::R32, Place::R64).to(Dst::R),
    fixed(Atom, 0x38a, Place::R24, Place::R32, Place::None).to(Dst::R),
    fixed(Atom, 0x98a, Place::R24, Place::R32, Place::None).to(Dst::R).bit91(),
    fixed(AtomCas, 0x38b, Place::R24, Place::R32, Place::R64).to(Dst::R),
    fixed(Red, 0x98e, Place::R24, Place::R32, Place::None).bit91().sm87(),
    fixed(Redg, 0x98e, Place::R24, Place::R32, Place::None).bit91().sm90(),
    fixed(Atoms, 0x38c, Place::R24, Place::R32, Place::None).to(Dst::R),
    fixed(Atoms, 0x98c, Place::R24, Place::R32, Place::None).to(Dst::R).bit91(),
    fixed(AtomsCas, 0x38d, Place::R24, Place::R32, Place::R64).to(Dst::R),
    fixed(AtomsCount, 0xf8c, Place::R24, Place::None, Place::None).to(Dst::R).bit91(),
    // Floating-point atomics moved to codes of their own on SM 9.0.
    fixed(Atom, 0x9a2, Place::R24, Place::R32, Place::None).to(Dst::R).bit91().sm90(),
    fixed(Atomg, 0x9a3, Place::R24, Place::R32, Place::None).to(Dst::R).bit91().sm90(),
    fixed(Redg, 0x9a6, Place::R24, Place::R32, Place::None).bit91().sm90(),
    fixed(Membar, 0x992, Place::None, Place::None, Place::None),
    fixed(Errbar, 0x9ab, Place::None, Place::None, Place::None),
    fixed(Cctl, 0x98f, Place::R24, Place::None, Place::None),
    fixed(Cctl, 0xd8f, Place::R24, Place::None, Place::None).bit91(),
    fixed(Cgaerrbar, 0x5ab, Place::None, Place::None, Place::None).sm90(),
    fixed(Fence, 0x3c6, Place::None, Place::None, Place::None).sm90(),
    fixed(Syncs, 0x5a7, Place::R24, Place::R32, Place::None).to(Dst::R).bit91().sm90(),
    fixed(Syncs, 0x9a7, Place::R24, Place::R32, Place::None).to(Dst::R).bit91().sm90(),
    fixed(Syncs, 0x5b2, Place::R24, Place::U32, Place::None).to(Dst::U).bit91().sm90(),
    fixed(Syncs, 0x9b1, Place::R24, Place::None, Place::None).bit91().sm90(),
];
