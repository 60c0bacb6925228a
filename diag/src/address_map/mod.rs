//! A GPU address space: mappings, free ranges, and ranges that are not allowed.

mod bars;
pub mod difference;
mod documents;
mod parts;
pub mod picture;
mod print;
pub mod spaces;
mod sums;

use serde::Serialize;

use crate::address_map::sums::{holes, totals};
use crate::hex::Hex;
use crate::page_table::walk::Walk;
use crate::process_map::host::HostRange;
use crate::process_map::map::Process;
use crate::size::size;

pub use crate::address_map::parts::{BufferObject, Hole, Mapping, Totals, WINDOW_BYTES, Window};
pub use crate::process_map::map::Range;

/// From this size on buffers are laid out on multiples of [`LARGE_ALIGNMENT`].
pub const LARGE: u64 = 8 << 20;
/// Bytes that one entry of a PDE0 covers: a large buffer that begins on one needs the fewest tables and TLB
/// entries.
pub const LARGE_ALIGNMENT: u64 = 2 << 20;
/// The smallest of the pages that a larger alignment serves.
const BIG_PAGE: u64 = 64 << 10;
/// The flag of a mapping that the GPU may only read.
const READ_ONLY: &str = "read only";
/// The flag of a mapping that the GPU may write, from documents that have it.
const READ_AND_WRITE: &str = "read and write";
/// Addresses at which ports to ga10b put the windows, below the 40 bits that nvgpu reports.
const GA10B_WINDOWS: [(&str, u64); 2] = [("local memory", 0xfd_0000_0000), ("shared memory", 0xfe_0000_0000)];

/// An address space.
#[derive(Clone, Debug, Serialize)]
pub struct AddressMap {
    /// Owner, and where the map was read.
    pub source: String,
    /// Its number among the address spaces of its owner, and how many those are, where they are several.
    #[serde(skip)]
    pub number: Option<(usize, usize)>,
    /// The process, where it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<Process>,
    /// Ranges that addresses are given out from.
    pub regions: Vec<Range>,
    /// Windows through which generic addresses reach shared and local memory.
    pub windows: Vec<Window>,
    /// Ranges taken out of the driver's allocator.
    pub reservations: Vec<Range>,
    /// Mappings, by address.
    pub mappings: Vec<Mapping>,
    /// Free ranges, by address.
    pub holes: Vec<Hole>,
    /// Sums.
    pub totals: Totals,
    /// Errors and possible improvements.
    pub remarks: Vec<Remark>,
    /// Buffers the process holds, mapped or not.
    pub buffers: Vec<BufferObject>,
    /// The page tables, where they were read.
    pub tables: Option<Walk>,
    /// Properties of mappings that the source does not report, so that their absence means nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub untold: Vec<String>,
    /// CPU mappings of the process.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub host: Vec<HostRange>,
}

/// Severity of a remark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// It is wrong.
    Problem,
    /// It could be better.
    Advice,
}

/// Something worth saying.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Remark {
    /// Severity.
    pub severity: Severity,
    /// The address it is about.
    pub va: Hex,
    /// Text of the remark.
    pub text: String,
}

/// Parts of an address map.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    /// Owner of the address space.
    pub source: String,
    /// Its number among those of its owner, and how many those are, where they are several.
    pub number: Option<(usize, usize)>,
    /// The process, where it is one.
    pub process: Option<Process>,
    /// Ranges that addresses are given out from.
    pub regions: Vec<Range>,
    /// Windows.
    pub windows: Vec<Window>,
    /// Ranges taken out of the driver's allocator.
    pub reservations: Vec<Range>,
    /// Mappings, in any order.
    pub mappings: Vec<Mapping>,
    /// Buffers the process holds.
    pub buffers: Vec<BufferObject>,
    /// The page tables.
    pub tables: Option<Walk>,
    /// Properties that no mapping reports.
    pub untold: Vec<String>,
    /// CPU mappings of the process.
    pub host: Vec<HostRange>,
}

/// The windows as ports to ga10b place them; the driver does not report them.
#[must_use]
pub fn ga10b_windows() -> Vec<Window> {
    GA10B_WINDOWS.iter().map(|(name, base)| Window::new(name, *base)).collect()
}

impl AddressMap {
    /// Sorts, sums up and judges.
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        let Parts {
            source,
            number,
            process,
            mut regions,
            mut windows,
            mut reservations,
            mut mappings,
            buffers,
            tables,
            untold,
            host,
        } = parts;
        for ranges in [&mut regions, &mut reservations] {
            ranges.sort_by_key(|range| range.va);
        }
        windows.sort_by_key(|window| window.base);
        mappings.retain(|mapping| mapping.size_bytes != 0);
        mappings.sort_by_key(|mapping| (mapping.va, mapping.size_bytes));
        let holes = holes(&regions, &windows, &reservations, &mappings);
        let mut map = Self {
            totals: totals(&mappings, &reservations, &holes),
            remarks: Vec::new(),
            source,
            number,
            process,
            regions,
            windows,
            reservations,
            mappings,
            holes,
            buffers,
            tables,
            untold,
            host,
        };
        map.remarks = map.judge();
        map
    }

    /// The address space that page tables describe.
    #[must_use]
    pub fn of_tables(source: String, windows: Vec<Window>, tables: Walk) -> Self {
        let mappings = tables.runs.iter().map(Mapping::of_run).collect();
        Self::new(Parts { source, windows, mappings, tables: Some(tables), ..Parts::default() })
    }

    /// The address space of a device that this process has opened.
    #[must_use]
    pub fn of_device(device: &hcq::Device) -> Self {
        let info = device.info();
        let window = |(name, base): (&str, hcq::GpuVa)| Window::new(name, base.raw());
        let mapping = |mapping: &hcq::Mapping| Mapping {
            va: Hex(mapping.va.raw()),
            size_bytes: mapping.len,
            name: Some(mapping.what.to_owned()),
            ..Mapping::default()
        };
        Self::new(Parts {
            source: format!("this process on {} ({})", info.name, info.backend),
            process: Some(Process { pid: std::process::id() }),
            windows: device.windows().into_iter().map(window).collect(),
            mappings: device.memory_map().iter().map(mapping).collect(),
            ..Parts::default()
        })
    }

    /// The heading of a text or a picture.
    fn title(&self) -> String {
        let number = self.number.map_or(String::new(), |(number, of)| format!("{number} of {of} "));
        format!("Address space {number}of {}", self.source)
    }

    fn judge(&self) -> Vec<Remark> {
        let mut remarks = Vec::new();
        let mut remark = |severity, va, text| remarks.push(Remark { severity, va, text });
        let mut before: Option<&Mapping> = None;
        for mapping in &self.mappings {
            if let Some(before) = before.filter(|before| before.end() > mapping.va.0) {
                let (va, len) = (before.va, size(before.size_bytes));
                let text = format!("{} at {} overlaps {len} at {va}", size(mapping.size_bytes), mapping.va);
                remark(Severity::Problem, mapping.va, text);
            }
            if before.is_none_or(|before| before.end() < mapping.end()) {
                before = Some(mapping);
            }
            let len = size(mapping.size_bytes);
            for window in &self.windows {
                let (start, end) = (window.base.0, window.end());
                if mapping.va.0 < end && start < mapping.end() {
                    let text = format!(
                        "{len} at {} lies in the {} window: generic accesses do not reach the buffer there, but {}",
                        mapping.va, window.name, window.name
                    );
                    remark(Severity::Problem, mapping.va, text);
                }
            }
            // Small pages gain nothing from it: the driver chooses their layout.
            let is_small = mapping.page_bytes.is_some_and(|bytes| bytes < BIG_PAGE);
            if mapping.size_bytes >= LARGE && !is_small && !mapping.va.0.is_multiple_of(LARGE_ALIGNMENT) {
                let text = format!("{len} at {} does not begin on a multiple of 2 MiB", mapping.va);
                remark(Severity::Advice, mapping.va, text);
            }
        }
        let allocatable = |window: &&Window| {
            let inside = |range: &Range| range.va.0 <= window.base.0 && window.base.0 < range.end();
            self.regions.iter().any(inside)
                && !self.reservations.is_empty()
                && !self.reservations.iter().any(inside)
        };
        for window in self.windows.iter().filter(allocatable) {
            let text =
                format!("the {} window is not reserved: the driver can give out its addresses", window.name);
            remark(Severity::Advice, window.base, text);
        }
        if let Some(tables) = &self.tables {
            for anomaly in &tables.anomalies {
                let (level, entry, text) = (anomaly.level.name(), anomaly.entry, &anomaly.text);
                remark(
                    Severity::Problem,
                    anomaly.va,
                    format!("{level} entry {entry} for {}: {text}", anomaly.va),
                );
            }
            if tables.more_anomalies > 0 {
                let text = format!("{} more entries that make no sense", tables.more_anomalies);
                remark(Severity::Problem, Hex(0), text);
            }
        }
        remarks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn mapping(va: u64, size_bytes: u64) -> Mapping {
        Mapping { va: Hex(va), size_bytes, ..Mapping::default() }
    }

    fn problems(map: &AddressMap) -> Vec<&str> {
        let problem = |r: &&Remark| r.severity == Severity::Problem;
        map.remarks.iter().filter(problem).map(|r| r.text.as_str()).collect()
    }

    #[test]
    fn holes_are_what_is_left_of_a_region() {
        let map = AddressMap::new(Parts {
            regions: vec![Range::new("user", 16 * MIB, 84 * MIB)],
            reservations: vec![Range::new("reserved", 16 * MIB, 40 * MIB)],
            mappings: vec![mapping(30 * MIB, 10 * MIB), mapping(20 * MIB, 10 * MIB), mapping(60 * MIB, MIB)],
            ..Parts::default()
        });
        let holes: Vec<_> =
            map.holes.iter().map(|h| (h.va.0 / MIB, h.size_bytes / MIB, h.reserved)).collect();
        assert_eq!(holes, [(16, 4, true), (40, 20, false), (61, 39, false)]);
        assert_eq!(map.totals.free_bytes, 63 * MIB);
        assert_eq!(map.totals.largest_hole_bytes, 39 * MIB);
        assert_eq!(map.totals.fragmentation_percent, 38.1);
        assert_eq!(map.totals.mapped_bytes, 21 * MIB);
    }

    #[test]
    fn overlaps_windows_and_alignment_are_remarked_upon() {
        let map = AddressMap::new(Parts {
            windows: ga10b_windows(),
            mappings: vec![
                mapping(0x10_0000_0000, 4 * MIB),
                mapping(0x10_0020_0000, 4 * MIB),
                mapping(0x20_0000_1000, 8 * MIB),
                mapping(0xfe_0020_0000, MIB),
                mapping(0xfd_4000_0000, MIB),
            ],
            ..Parts::default()
        });
        let found = problems(&map);
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!(found[0], "4 MiB at 0x1000200000 overlaps 4 MiB at 0x1000000000");
        assert!(found[1].starts_with("1 MiB at 0xfe00200000 lies in the shared memory window"), "{found:?}");
        let advice = map.remarks.iter().filter(|r| r.severity == Severity::Advice);
        let advice: Vec<_> = advice.map(|r| r.text.as_str()).collect();
        // 1 GiB after the base of a window is a good place: windows span 16 MiB.
        assert_eq!(advice.len(), 1, "{advice:?}");
        assert!(advice[0].contains("does not begin on a multiple of 2 MiB"));
    }

    /// The layout that tinygrad had on an Orin: buffers from the top down, in pages of 4 KiB, beside windows.
    #[test]
    fn a_layout_that_ran_on_an_orin_is_not_remarked_upon() {
        let small = |va, size_bytes| Mapping { page_bytes: Some(4096), ..mapping(va, size_bytes) };
        let map = AddressMap::new(Parts {
            windows: ga10b_windows(),
            mappings: vec![
                small(0xfe_0100_0000, 2 * MIB),
                small(0xfe_ff00_1000, 16 * MIB),
                small(0xff_ff60_0000, 4 * MIB),
                small(0xff_ffa0_0000, MIB),
            ],
            ..Parts::default()
        });
        assert_eq!(map.remarks, []);
        let mut text = Vec::new();
        crate::report::Report::print(&map, &mut text).expect("memory");
        let text = String::from_utf8(text).expect("text");
        let bars = text.lines().filter(|line| line.contains(" [") && line.trim_start().starts_with("0x"));
        assert!(bars.clone().count() > 1, "{text}");
        assert!(bars.clone().all(|line| !line.contains('!')), "{text}");
    }

    #[test]
    fn a_window_that_the_driver_can_give_out_is_remarked_upon() {
        let parts = |reserved: u64| Parts {
            regions: vec![Range::new("user", 1 << 32, 0xff_0000_0000 - (1 << 32))],
            windows: ga10b_windows(),
            reservations: vec![Range::new("r", 0xfd_0000_0000, 1 << 30), Range::new("r", reserved, 1 << 30)],
            ..Parts::default()
        };
        assert_eq!(AddressMap::new(parts(0xfe_0000_0000)).remarks, []);
        let remarks = AddressMap::new(parts(0x10_0000_0000)).remarks;
        assert!(remarks[0].text.starts_with("the shared memory window is not reserved"), "{remarks:?}");
    }
}
