//! Free ranges of an address space, and its sums.

use std::collections::BTreeMap;

use crate::address_map::parts::{Hole, Mapping, Totals, Window};
use crate::hex::Hex;
use crate::process_map::map::Range;

/// The ranges of `regions` (or between the first and the last mapping) that hold neither a mapping nor a
/// window.
pub(super) fn holes(
    regions: &[Range],
    windows: &[Window],
    reservations: &[Range],
    mappings: &[Mapping],
) -> Vec<Hole> {
    let whole = match (mappings.first(), mappings.iter().map(Mapping::end).max()) {
        (Some(first), Some(end)) => vec![Range::new("", first.va.0, end - first.va.0)],
        _ => Vec::new(),
    };
    let mut taken: Vec<(u64, u64)> = mappings.iter().map(|m| (m.va.0, m.end())).collect();
    taken.extend(windows.iter().map(|w| (w.base.0, w.end())));
    taken.sort_unstable();
    let mut holes = Vec::new();
    for region in if regions.is_empty() { &whole } else { regions } {
        let mut at = region.va.0;
        let ends = [(region.end(), region.end())];
        for &(start, end) in taken.iter().filter(|(_, end)| *end > region.va.0).chain(&ends) {
            let until = start.min(region.end());
            if at < until {
                let reserved = reservations.iter().any(|r| r.va.0 <= at && until <= r.end());
                holes.push(Hole { va: Hex(at), size_bytes: until - at, reserved });
            }
            at = at.max(end);
            if at >= region.end() {
                break;
            }
        }
    }
    holes
}

/// The sums over mappings, reservations and holes.
pub(super) fn totals(mappings: &[Mapping], reservations: &[Range], holes: &[Hole]) -> Totals {
    let mut by_page = BTreeMap::new();
    for mapping in mappings {
        let bytes: &mut u64 = by_page.entry(mapping.page_bytes.unwrap_or(0)).or_insert(0);
        *bytes = bytes.saturating_add(mapping.size_bytes);
    }
    // Documents may hold ranges that overlap: sums stop at the largest number.
    let sum = |bytes: &mut dyn Iterator<Item = u64>| bytes.fold(0, u64::saturating_add);
    let free_bytes = sum(&mut holes.iter().map(|hole| hole.size_bytes));
    let largest_hole_bytes = holes.iter().map(|hole| hole.size_bytes).max().unwrap_or(0);
    let elsewhere = free_bytes - largest_hole_bytes;
    Totals {
        mapped_bytes: sum(&mut by_page.values().copied()),
        by_page_bytes: by_page.into_iter().collect(),
        reserved_bytes: sum(&mut reservations.iter().map(|range| range.size_bytes)),
        free_bytes,
        largest_hole_bytes,
        fragmentation_percent: match free_bytes {
            0 => 0.0,
            _ => (elsewhere as f64 * 1000.0 / free_bytes as f64).round() / 10.0,
        },
    }
}
