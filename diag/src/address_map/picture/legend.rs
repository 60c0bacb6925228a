//! Legend of colours and patterns: colours are permissions, patterns memory kinds.

use crate::address_map::picture::boxes::Placed;
use crate::address_map::picture::rows::Row;
use crate::address_map::{AddressMap, Mapping, READ_AND_WRITE, READ_ONLY, Severity};

/// Memory kind of plain memory, and those of surfaces whose layout the hardware chooses (generic, compressed
/// or not).
const PITCH: u8 = 0;
const GENERIC: [u8; 3] = [6, 8, 9];

/// Permissions of the GPU on a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Permission {
    ReadWrite,
    ReadOnly,
    Unknown,
}

impl Permission {
    pub(super) fn of(mapping: &Mapping) -> Self {
        let has = |word: &str| mapping.flags.iter().any(|flag| flag == word);
        match (has(READ_ONLY), mapping.kind) {
            (true, _) => Self::ReadOnly,
            // Entries of page tables have both, or neither.
            (false, Some(_)) => Self::ReadWrite,
            (false, None) if has(READ_AND_WRITE) => Self::ReadWrite,
            (false, None) => Self::Unknown,
        }
    }

    pub(super) const fn class(self) -> &'static str {
        match self {
            Self::ReadWrite => "vm-rw",
            Self::ReadOnly => "vm-ro",
            Self::Unknown => "vm-unknown",
        }
    }
}

/// Layout of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Pitch,
    Generic,
    Other,
    Unknown,
}

impl Kind {
    pub(super) fn of(mapping: &Mapping) -> Self {
        match mapping.kind {
            Some(PITCH) => Self::Pitch,
            Some(kind) if GENERIC.contains(&kind) => Self::Generic,
            Some(_) => Self::Other,
            None => Self::Unknown,
        }
    }

    pub(super) const fn pattern(self) -> Option<&'static str> {
        match self {
            Self::Generic => Some("stripes"),
            Self::Other => Some("cross"),
            Self::Pitch | Self::Unknown => None,
        }
    }
}

/// An entry of the legend.
#[derive(Clone, Copy, Debug)]
pub(super) struct Swatch {
    pub(super) class: &'static str,
    pub(super) pattern: Option<&'static str>,
    pub(super) text: &'static str,
}

/// Kinds of marks in a picture.
#[derive(Clone, Copy, Debug)]
pub(super) struct Marked {
    pub(super) faults: bool,
    pub(super) program_counters: bool,
}

/// The entries for the kinds in the picture.
pub(super) fn swatches(map: &AddressMap, rows: &[Row], placed: &[Placed], marked: Marked) -> Vec<Swatch> {
    let drawn = || placed.iter().filter_map(|p| map.mappings.get(p.mapping?));
    let has = |permission| drawn().any(|m| Permission::of(m) == permission);
    let kind = |kind| drawn().any(|m| Kind::of(m) == kind);
    let is_wrong = |m: &Mapping| map.remarks.iter().any(|r| r.severity == Severity::Problem && r.va == m.va);
    let entries = [
        (has(Permission::ReadWrite), "vm-rw", None, "mapped, read and write"),
        (has(Permission::ReadOnly), "vm-ro", None, "mapped, read only"),
        (has(Permission::Unknown), "vm-unknown", None, "mapped, permission not known"),
        (kind(Kind::Generic), "vm-gap", Some("stripes"), "memory kind: generic"),
        (kind(Kind::Other), "vm-gap", Some("cross"), "memory kind: another"),
        (placed.iter().any(|p| p.mapping.is_none()), "vm-several", None, "many, drawn as one"),
        (rows.iter().any(|row| row.window), "vm-window", None, "window"),
        (rows.iter().any(|r| r.reserved && r.mappings == 0), "vm-reserved", Some("stripes"), "reserved"),
        (rows.iter().any(|row| row.mappings == 0), "vm-gap", None, "free"),
        (drawn().any(is_wrong), "vm-wrong", None, "problem: overlaps, or is in a window"),
        (marked.faults, "vm-mark-fill", None, "address of a fault"),
        (marked.program_counters, "vm-pc-fill", None, "program counter of a fault"),
    ];
    let used = entries.into_iter().filter(|(is_used, ..)| *is_used);
    used.map(|(_, class, pattern, text)| Swatch { class, pattern, text }).collect()
}
