//! Dividing an address space into stretches that can be drawn: what lies close together shares a bar.

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
    /// Address behind the last.
    pub(super) end: u64,
    /// Mappings in it.
    pub(super) mappings: usize,
    /// Mapped bytes in it.
    pub(super) mapped: u64,
}

/// The bars of a map, by address. A gap that is larger than what lies before it ends a bar; if that makes too many, only
/// the largest gaps do.
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

/// Joins what `close` says lies close together, and everything at the end where there would be more than `most`.
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

    /// Cuts the bar into `columns` cells and says of each how much is mapped (0 to 1) and whether it is in a window.
    pub(super) fn cells(self, map: &AddressMap, columns: usize) -> Vec<(f64, bool)> {
        let width = (self.len() as f64 / columns as f64).max(1.0);
        let mut cells = vec![(0.0, false); columns];
        let place = |address: u64| (address.clamp(self.start, self.end) - self.start) as f64 / width;
        let first = map.mappings.partition_point(|m| m.va.0 < self.start);
        for mapping in map.mappings[first..].iter().take_while(|m| m.va.0 < self.end) {
            let (from, to) = (place(mapping.va.0), place(mapping.end()));
            let until = (to.ceil() as usize).min(columns);
            for (cell, (mapped, _)) in cells.iter_mut().enumerate().take(until).skip(from as usize) {
                let part = to.min(cell as f64 + 1.0) - from.max(cell as f64);
                *mapped = (*mapped + part.max(0.0)).min(1.0);
            }
        }
        for range in map.windows.iter().filter(|w| w.base.0 < self.end && self.start < w.end()) {
            let (from, to) = (place(range.base.0) as usize, place(range.end()).ceil() as usize);
            cells.iter_mut().take(to).skip(from).for_each(|(_, window)| *window = true);
        }
        cells
    }
}
