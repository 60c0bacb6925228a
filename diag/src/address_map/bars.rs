//! Divides an address space into ranges that can be drawn: mappings close together share a bar.

use crate::address_map::{AddressMap, Mapping, Window};

/// Gaps below this are drawn as part of a bar.
const SMALL_GAP: u64 = 16 << 20;
/// Most bars.
const MAX_BARS: usize = 48;

/// A stretch of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bar {
    /// First address.
    pub(super) start: u64,
    /// Address after the last.
    pub(super) end: u64,
    /// Mappings in it.
    pub(super) mappings: usize,
    /// Mapped bytes in it.
    pub(super) mapped: u64,
}

/// The bars of a map, by address. A gap that is larger than what precedes it ends a bar; if that makes too
/// many, only the largest gaps do.
pub(super) fn bars(map: &AddressMap) -> Vec<Bar> {
    let mapping = |m: &Mapping| Bar { start: m.va.0, end: m.end(), mappings: 1, mapped: m.size_bytes };
    let window = |w: &Window| Bar { start: w.base.0, end: w.end(), mappings: 0, mapped: 0 };
    let mut items: Vec<Bar> =
        map.mappings.iter().map(mapping).chain(map.windows.iter().map(window)).collect();
    items.sort_by_key(|item| item.start);
    let bars = join(items, usize::MAX, |bar, gap| gap <= SMALL_GAP.max(bar.len()));
    if bars.len() <= MAX_BARS {
        return bars;
    }
    let mut gaps: Vec<u64> = bars.windows(2).map(|pair| pair[1].start - pair[0].end).collect();
    gaps.sort_unstable_by(|a, b| b.cmp(a));
    let least = gaps.get(MAX_BARS - 2).copied().unwrap_or(0);
    join(bars, MAX_BARS, |_, gap| gap < least)
}

/// Joins what `close` says is close together, and everything at the end where there would be more than
/// `most`.
fn join(items: Vec<Bar>, most: usize, close: impl Fn(Bar, u64) -> bool) -> Vec<Bar> {
    let mut bars: Vec<Bar> = Vec::new();
    for item in items {
        let full = bars.len() >= most;
        match bars.last_mut() {
            Some(bar) if full || close(*bar, item.start.saturating_sub(bar.end)) => bar.join(item),
            _ => bars.push(item),
        }
    }
    bars
}

impl Bar {
    fn join(&mut self, other: Self) {
        self.end = self.end.max(other.end);
        self.mappings += other.mappings;
        self.mapped = self.mapped.saturating_add(other.mapped);
    }

    /// Length in bytes.
    pub(super) fn len(self) -> u64 {
        self.end - self.start
    }

    /// Cuts the bar into `columns` cells. The mappings are in the order of their addresses.
    pub(super) fn cells(self, mappings: &[Mapping], windows: &[Window], columns: usize) -> Vec<Cell> {
        let width = (self.len() as f64 / columns as f64).max(1.0);
        let mut cells = vec![Cell::default(); columns];
        let place = |address: u64| (address.clamp(self.start, self.end) - self.start) as f64 / width;
        let first = mappings.partition_point(|m| m.va.0 < self.start);
        let mappings = || mappings[first..].iter().take_while(|m| m.va.0 < self.end);
        for mapping in mappings() {
            let (from, to) = (place(mapping.va.0), place(mapping.end()));
            for (at, cell) in spanned(&mut cells, from, to) {
                let part = to.min(at as f64 + 1.0) - from.max(at as f64);
                cell.mapped = (cell.mapped + part.max(0.0)).min(1.0);
            }
        }
        for range in windows.iter().filter(|w| w.base.0 < self.end && self.start < w.end()) {
            spanned(&mut cells, place(range.base.0), place(range.end()))
                .for_each(|(_, cell)| cell.window = true);
            for mapping in mappings() {
                let (from, to) = (mapping.va.0.max(range.base.0), mapping.end().min(range.end()));
                if from < to {
                    spanned(&mut cells, place(from), place(to)).for_each(|(_, cell)| cell.overlap = true);
                }
            }
        }
        cells
    }
}

/// A part of a bar.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Cell {
    /// How much of it is mapped, 0 to 1.
    pub(super) mapped: f64,
    /// A window lies in it.
    pub(super) window: bool,
    /// Something is mapped inside that window.
    pub(super) overlap: bool,
}

/// The cells that the places from `from` to `to` touch, with their numbers.
fn spanned(cells: &mut [Cell], from: f64, to: f64) -> impl Iterator<Item = (usize, &mut Cell)> {
    let until = (to.ceil() as usize).min(cells.len());
    cells.iter_mut().enumerate().take(until).skip(from as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hex::Hex;

    #[test]
    fn a_mapping_that_ends_where_a_window_begins_is_not_in_it() {
        let bar = Bar { start: 0, end: 0x8000, mappings: 1, mapped: 0x5000 };
        let window = Window { name: "shared memory".to_owned(), base: Hex(0x5000), size_bytes: 0x3000 };
        let drawn = |size_bytes| {
            let mapping = Mapping { va: Hex(0), size_bytes, ..Mapping::default() };
            let cells = bar.cells(&[mapping], std::slice::from_ref(&window), 4);
            cells.iter().map(|cell| (cell.window, cell.overlap)).collect::<Vec<_>>()
        };
        assert_eq!(drawn(0x5000), [(false, false), (false, false), (true, false), (true, false)]);
        assert_eq!(drawn(0x5001), [(false, false), (false, false), (true, true), (true, false)]);
    }
}
