//! Places mappings side by side where they overlap.

use crate::address_map::picture::rows::{LANES, Row};

/// A mapping, or the content of a row that several became, as a box over rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Placed {
    /// The mapping; `None` for a row that several became.
    pub(super) mapping: Option<usize>,
    /// The first and the last row.
    pub(super) rows: (usize, usize),
    /// Index of its lane.
    pub(super) lane: usize,
    pub(super) lanes: usize,
    /// Mappings beyond the lanes, of the row that has most.
    pub(super) hidden: usize,
}

/// The boxes of the rows, by their first row.
pub(super) fn boxes(rows: &[Row]) -> Vec<Placed> {
    let mut placed: Vec<Placed> = Vec::new();
    // The boxes that reach into the row, by lane, and the first box of their group.
    let mut lanes: [Option<usize>; LANES] = [None; LANES];
    let mut group = 0;
    for (index, row) in rows.iter().enumerate() {
        for lane in &mut lanes {
            let goes_on = |i: &usize| placed[*i].mapping.is_some_and(|mapping| row.active.contains(&mapping));
            *lane = lane.filter(goes_on);
        }
        if lanes.iter().all(Option::is_none) {
            close(&mut placed[group..]);
            group = placed.len();
        }
        let new = |mapping, lane| Placed { mapping, rows: (index, index), lane, lanes: 1, hidden: 0 };
        if row.is_joined() {
            placed.push(new(None, 0));
        }
        for &mapping in &row.active {
            let at = |i: &Option<usize>| i.is_some_and(|i| placed[i].mapping == Some(mapping));
            let lane = lanes.iter().position(at).or_else(|| lanes.iter().position(Option::is_none));
            let Some(lane) = lane else { continue };
            let at = *lanes[lane].get_or_insert_with(|| {
                placed.push(new(Some(mapping), lane));
                placed.len() - 1
            });
            placed[at].rows.1 = index;
            placed[at].hidden = placed[at].hidden.max(row.mappings - row.active.len());
        }
    }
    close(&mut placed[group..]);
    placed
}

/// Gives all boxes of a group the number of lanes that it needs.
fn close(group: &mut [Placed]) {
    let lanes = group.iter().map(|placed| placed.lane + 1).max().unwrap_or(1);
    group.iter_mut().for_each(|placed| placed.lanes = lanes);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(active: &[usize], mappings: usize) -> Row {
        let active = active.to_vec();
        Row { start: 0, end: 1, active, mappings, mapped: 1, window: false, reserved: false }
    }

    #[test]
    fn mappings_that_overlap_stand_side_by_side() {
        let rows = [row(&[0], 1), row(&[0, 1], 2), row(&[1], 1), row(&[2], 1), row(&[], 7)];
        let seen: Vec<_> = boxes(&rows).iter().map(|p| (p.mapping, p.rows, p.lane, p.lanes)).collect();
        assert_eq!(
            seen,
            [(Some(0), (0, 1), 0, 2), (Some(1), (1, 2), 1, 2), (Some(2), (3, 3), 0, 1), (None, (4, 4), 0, 1)]
        );
        assert_eq!(boxes(&[row(&[0, 1, 2], 9)])[0].hidden, 6);
    }
}
