//! Parts of an address space: mappings, windows, free ranges, buffers, sums.

use serde::Serialize;

use crate::hex::Hex;
use crate::page_table::format::kind_name;
use crate::page_table::walk::Run;
use crate::size::size;

/// Assumed size of a window: working drivers place two of them 16 MiB apart, and the hardware refuses windows
/// that overlap; a crash is known from 2 MiB inside one.
pub const WINDOW_BYTES: u64 = 16 << 20;

/// A window through which generic addresses reach something that is not in the address space.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Window {
    /// Name of the memory seen through it.
    pub name: String,
    /// First address.
    pub base: Hex,
    /// Length.
    pub size_bytes: u64,
}

/// A mapping.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Mapping {
    /// First address.
    pub va: Hex,
    /// Length.
    pub size_bytes: u64,
    /// Name, where it is known: that of the dma-buf, or the program's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Size of its pages.
    pub page_bytes: Option<u64>,
    /// Memory kind.
    pub kind: Option<u8>,
    /// Attributes in words.
    pub flags: Vec<String>,
    /// First physical address.
    pub physical: Option<Hex>,
}

/// A range without mappings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Hole {
    /// First address.
    pub va: Hex,
    /// Length.
    pub size_bytes: u64,
    /// Whether all of it is taken out of the driver's allocator.
    pub reserved: bool,
}

/// A buffer of the process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BufferObject {
    /// Its name, where it has one.
    pub name: Option<String>,
    /// Its size, where it is known.
    pub size_bytes: Option<u64>,
    /// Its descriptor in the process.
    pub fd: i32,
}

/// Sums over an address space.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Totals {
    /// Mapped bytes.
    pub mapped_bytes: u64,
    /// Mapped bytes by size of page; 0 for mappings whose pages are not known.
    pub by_page_bytes: Vec<(u64, u64)>,
    /// Reserved bytes.
    pub reserved_bytes: u64,
    /// Free bytes between and around the mappings, without the windows.
    pub free_bytes: u64,
    /// The largest hole.
    pub largest_hole_bytes: u64,
    /// Part of the free space outside the largest hole.
    pub fragmentation_percent: f64,
}

impl Window {
    /// A window of [`WINDOW_BYTES`].
    #[must_use]
    pub fn new(name: &str, base: u64) -> Self {
        Self { name: name.to_owned(), base: Hex(base), size_bytes: WINDOW_BYTES }
    }

    pub(super) fn end(&self) -> u64 {
        self.base.0.saturating_add(self.size_bytes)
    }
}

impl Mapping {
    pub(super) fn end(&self) -> u64 {
        self.va.0.saturating_add(self.size_bytes)
    }

    /// A run of pages that tables name.
    #[must_use]
    pub fn of_run(run: &Run) -> Self {
        Self {
            va: run.va,
            size_bytes: run.size_bytes,
            name: None,
            page_bytes: Some(run.page_bytes),
            kind: run.physical.map(|_| run.kind),
            flags: run.flags.iter().map(|flag| (*flag).to_owned()).collect(),
            physical: run.physical,
        }
    }

    /// Kind, pages, flags and name in words.
    pub(super) fn describe(&self) -> String {
        let mut words = Vec::new();
        words.extend(self.page_bytes.map(|bytes| format!("{} pages", size(bytes))));
        words.extend(self.kind.map(|kind| match kind_name(kind) {
            Some(name) => format!("kind {kind} ({name})"),
            None => format!("kind {kind:#04x}"),
        }));
        words.extend(self.flags.iter().cloned());
        words.extend(self.physical.map(|at| format!("at physical {at}")));
        words.extend(self.name.as_ref().map(|name| format!("{name:?}")));
        words.join(", ")
    }
}
