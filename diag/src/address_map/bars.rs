//! Divides an address space into ranges that can be drawn: mappings close together share a bar.

use crate::address_map::AddressMap;

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

/// A part of a bar.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Cell {
    /// Mapped part of it, 0 to 1.
    pub(super) mapped: f64,
    /// Whether it holds part of a window.
    pub(super) window: bool,
    /// Whether something is mapped in that part.
    pub(super) trapped: bool,
}

/// The bars of a map, by address. A gap that is larger than what precedes it ends a bar; if that makes too
/// many, only the largest gaps do.
pub(super) fn bars(map: &AddressMap) -> Vec<Bar> {
    let mapping = |m: &crate::address_map::Mapping| Bar {
        start: m.va.0,
        end: m.end(),
        mappings: 1,
        mapped: m.size_bytes,
    };
    let window =
        |w: &crate::address_map::Window| Bar { start: w.base.0, end: w.end(), mappings: 0, mapped: 0 };
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

    /// Cuts the bar into `columns` cells and returns the content of each.
    pub(super) fn cells(self, map: &AddressMap, columns: usize) -> Vec<Cell> {
        let width = (self.len() as f64 / columns as f64).max(1.0);
        let mut cells = vec![Cell::default(); columns];
        let place = |address: u64| (address.clamp(self.start, self.end) - self.start) as f64 / width;
        let first = map.mappings.partition_point(|m| m.va.0 < self.start);
        for mapping in map.mappings[first..].iter().take_while(|m| m.va.0 < self.end) {
            let (from, to) = (place(mapping.va.0), place(mapping.end()));
            let until = (to.ceil() as usize).min(columns);
            for (at, cell) in cells.iter_mut().enumerate().take(until).skip(from as usize) {
                let part = to.min(at as f64 + 1.0) - from.max(at as f64);
                cell.mapped = (cell.mapped + part.max(0.0)).min(1.0);
            }
        }
        let mut mark = |start: u64, end: u64, set: &dyn Fn(&mut Cell)| {
            let (from, to) = (place(start) as usize, place(end).ceil() as usize);
            cells.iter_mut().take(to).skip(from).for_each(set);
        };
        for window in map.windows.iter().filter(|w| w.base.0 < self.end && self.start < w.end()) {
            mark(window.base.0, window.end(), &|cell| cell.window = true);
            for mapping in &map.mappings {
                let (start, end) = (mapping.va.0.max(window.base.0), mapping.end().min(window.end()));
                if start < end {
                    mark(start, end, &|cell| cell.trapped = true);
                }
            }
        }
        cells
    }
}
