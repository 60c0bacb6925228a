//! Divides an address space into the rows of a picture: one for each range with the same mappings. Of
//! thousands, those that matter stay, and the ranges between them become one row.

use std::collections::{BTreeMap, BTreeSet};

use crate::address_map::AddressMap;

/// Most rows that are kept when there are too many; as many again lie between them.
const KEPT: usize = 40;
/// Most rows that are drawn one by one.
const MAX_ROWS: usize = 2 * KEPT + 1;
/// Rows kept around each mark.
const AROUND: usize = 2;
/// Rows kept for marks, and for windows.
const FOR_MARKS: usize = 20;
const FOR_WINDOWS: usize = 8;
/// Of too many rows, gaps and mappings shorter than these parts of the mapped bytes are never kept for their
/// length: they would stand for any other of their size.
const LONG_GAP: u64 = 64;
const LONG_MAPPING: u64 = 1024;
/// Mappings that are drawn side by side where they overlap.
pub(super) const LANES: usize = 3;

/// A range of addresses, a row of the picture.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    /// First address.
    pub(super) start: u64,
    /// Address after the last.
    pub(super) end: u64,
    /// The first mappings that hold all of it, by their index; none where several rows became one.
    pub(super) active: Vec<usize>,
    /// Number of mappings in it.
    pub(super) mappings: usize,
    /// Bytes of it that are mapped.
    pub(super) mapped: u64,
    /// Whether all of it is in a window, and in a reservation.
    pub(super) window: bool,
    pub(super) reserved: bool,
}

impl Row {
    /// Length in bytes.
    pub(super) const fn len(&self) -> u64 {
        self.end - self.start
    }

    /// Whether several ranges became this row.
    pub(super) fn is_joined(&self) -> bool {
        self.mappings > 0 && self.active.is_empty()
    }
}

/// The rows of a map, without a gap from its first address to its last. `marks` are addresses that a row
/// begins with, unless a mapping holds them.
pub(super) fn rows(map: &AddressMap, marks: &[u64]) -> Vec<Row> {
    let rows = divide(map, marks);
    if rows.len() <= MAX_ROWS {
        return rows;
    }
    let kept = important(&rows, marks);
    let mut joined: Vec<Row> = Vec::new();
    let mut before_is_kept = true;
    for (index, row) in rows.into_iter().enumerate() {
        let is_kept = kept.contains(&index);
        match joined.last_mut() {
            Some(last) if !is_kept && !before_is_kept => join(last, &row, map),
            _ => joined.push(row),
        }
        before_is_kept = is_kept;
    }
    joined
}

/// Makes `row` part of the one before it.
fn join(last: &mut Row, row: &Row, map: &AddressMap) {
    // Mappings that reach over from before are counted already.
    let first = map.mappings.partition_point(|m| m.va.0 < row.start);
    let beginning = map.mappings[first..].iter().take_while(|m| m.va.0 < row.end).count();
    last.mappings += beginning;
    last.mapped += row.mapped;
    last.end = row.end;
    last.active.clear();
    last.window &= row.window;
    last.reserved &= row.reserved;
}

/// The rows that stay: those around marks, windows, and the longest of those that are mapped and of the gaps.
fn important(rows: &[Row], marks: &[u64]) -> BTreeSet<usize> {
    let mut kept = BTreeSet::new();
    let at_marks = marks.iter().flat_map(|mark| {
        let at = rows.partition_point(|row| row.end <= *mark);
        at.saturating_sub(AROUND)..(at + AROUND).min(rows.len())
    });
    for index in at_marks {
        if kept.len() < FOR_MARKS {
            kept.insert(index);
        }
    }
    let windows = rows.iter().enumerate().filter(|(_, row)| row.window).map(|(index, _)| index);
    kept.extend(windows.take(FOR_WINDOWS));
    let mapped_bytes = rows.iter().map(|row| row.mapped).fold(0, u64::saturating_add);
    // Gaps first: few of them are long.
    for (mapped, least, most) in
        [(false, mapped_bytes / LONG_GAP, KEPT / 2), (true, mapped_bytes / LONG_MAPPING, KEPT)]
    {
        let is_long = |i: &usize| (rows[*i].mapped > 0) == mapped && rows[*i].len() > least;
        let mut by_length: Vec<usize> = (0..rows.len()).filter(|i| is_long(i) && !kept.contains(i)).collect();
        by_length.sort_by_key(|index| std::cmp::Reverse(rows[*index].len()));
        let room = KEPT.saturating_sub(kept.len()).min(most);
        kept.extend(by_length.into_iter().take(room));
    }
    kept
}

/// Cuts the address space wherever something begins or ends.
fn divide(map: &AddressMap, marks: &[u64]) -> Vec<Row> {
    let windows: Vec<_> = map.windows.iter().map(|w| (w.base.0, w.end())).collect();
    let reservations: Vec<_> = map.reservations.iter().map(|r| (r.va.0, r.end())).collect();
    let regions = map.regions.iter().map(|r| (r.va.0, r.end()));
    let mappings = map.mappings.iter().map(|m| (m.va.0, m.end()));
    let all = mappings.chain(regions).chain(windows.iter().copied()).chain(reservations.iter().copied());
    let mut cuts: BTreeSet<u64> = all.flat_map(|(start, end)| [start, end]).collect();
    cuts.extend(marks.iter().filter(|mark| !is_mapped(map, **mark)));
    let (windows, reservations) = (union(windows), union(reservations));
    let mut begins = map.mappings.iter().enumerate().peekable();
    let mut active: BTreeMap<(u64, usize), ()> = BTreeMap::new();
    let mut by_index = BTreeSet::new();
    let cuts: Vec<u64> = cuts.into_iter().collect();
    let mut rows = Vec::new();
    for pair in cuts.windows(2) {
        let (start, end) = (pair[0], pair[1]);
        while let Some((index, mapping)) = begins.next_if(|(_, mapping)| mapping.va.0 <= start) {
            if mapping.end() > start {
                active.insert((mapping.end(), index), ());
                by_index.insert(index);
            }
        }
        while let Some(entry) = active.first_entry().filter(|entry| entry.key().0 <= start) {
            by_index.remove(&entry.remove_entry().0.1);
        }
        let is_in = |ranges: &[(u64, u64)]| {
            let at = ranges.partition_point(|(_, last)| *last <= start);
            ranges.get(at).is_some_and(|(first, last)| *first <= start && end <= *last)
        };
        rows.push(Row {
            start,
            end,
            active: by_index.iter().take(LANES).copied().collect(),
            mappings: by_index.len(),
            mapped: if by_index.is_empty() { 0 } else { end - start },
            window: is_in(&windows),
            reserved: is_in(&reservations),
        });
    }
    rows
}

/// Whether a mapping holds the address and does not begin there.
fn is_mapped(map: &AddressMap, address: u64) -> bool {
    let before = map.mappings.partition_point(|m| m.va.0 < address);
    map.mappings[..before].iter().any(|m| address < m.end())
}

/// Ranges in order, with those that touch as one.
fn union(mut ranges: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    ranges.sort_unstable();
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for (start, end) in ranges {
        match joined.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => joined.push((start, end)),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address_map::{Mapping, Parts};
    use crate::hex::Hex;

    fn map(ranges: &[(u64, u64)]) -> AddressMap {
        let mapping =
            |&(va, size_bytes): &(u64, u64)| Mapping { va: Hex(va), size_bytes, ..Mapping::default() };
        AddressMap::new(Parts { mappings: ranges.iter().map(mapping).collect(), ..Parts::default() })
    }

    #[test]
    fn overlaps_and_gaps_are_rows_of_their_own() {
        let rows = rows(&map(&[(0x1000, 0x2000), (0x2000, 0x2000), (0x8000, 0x1000)]), &[0x5000, 0x8800]);
        let seen: Vec<_> = rows.iter().map(|r| (r.start, r.end, r.active.as_slice())).collect();
        assert_eq!(
            seen,
            [
                (0x1000, 0x2000, &[0][..]),
                (0x2000, 0x3000, &[0, 1]),
                (0x3000, 0x4000, &[1]),
                (0x4000, 0x5000, &[]),
                (0x5000, 0x8000, &[]),
                (0x8000, 0x9000, &[2]),
            ]
        );
    }

    #[test]
    fn of_thousands_the_long_ones_and_those_at_marks_stay() {
        let mut ranges: Vec<_> = (0..5000).map(|i| (i * 0x10000, 0x1000)).collect();
        ranges[2500].1 = 0x8000;
        let map = map(&ranges);
        let mark = 4000 * 0x10000 + 0x1000;
        let rows = rows(&map, &[mark]);
        assert!(rows.len() <= MAX_ROWS, "{}", rows.len());
        assert!(rows.iter().any(|r| r.active == [2500]) && rows.iter().any(|r| r.active == [4000]));
        assert!(rows.iter().any(|r| r.start == mark));
        assert_eq!(rows.iter().map(|r| r.mappings).sum::<usize>(), 5000);
        assert_eq!(rows.iter().map(|r| r.mapped).sum::<u64>(), map.totals.mapped_bytes);
        assert!(rows.windows(2).all(|pair| pair[0].end == pair[1].start));
    }
}
