//! From addresses to places on the page: in a row the axis is linear, rows are as high as the logarithm of
//! their length.

use crate::address_map::picture::rows::Row;

/// Height of the lowest row: a line of text.
pub(super) const LINE: f64 = 20.0;
/// Height of the highest.
const HIGHEST: f64 = 84.0;
/// Height of the highest gap: longer ones are drawn broken.
const HIGHEST_GAP: f64 = 34.0;
/// Rows above which they grow more slowly.
const MANY: usize = 24;
/// A range up to this length gets the lowest row.
const SHORTEST: f64 = 4096.0;

/// The vertical places of rows.
#[derive(Debug)]
pub(super) struct Scale<'a> {
    rows: &'a [Row],
    /// Upper edge of each row, and the lower edge of the last.
    edges: Vec<f64>,
    broken: Vec<bool>,
}

impl<'a> Scale<'a> {
    /// Rows from `top` on.
    pub(super) fn new(rows: &'a [Row], top: f64) -> Self {
        let each = if rows.len() > MANY { 1.2 } else { 3.2 };
        let (mut edges, mut broken) = (vec![top], Vec::new());
        let mut y = top;
        for row in rows {
            let full = LINE + each * (row.len() as f64 / SHORTEST).log2().max(0.0);
            let most = if row.mappings > 0 { HIGHEST } else { HIGHEST_GAP };
            broken.push(row.mappings == 0 && full > HIGHEST_GAP);
            y += full.min(most);
            edges.push(y);
        }
        Self { rows, edges, broken }
    }

    /// The upper and the lower edge of a row.
    pub(super) fn row(&self, index: usize) -> (f64, f64) {
        (self.edges[index], self.edges[index + 1])
    }

    /// Whether a row is shorter than its length requires.
    pub(super) fn is_broken(&self, index: usize) -> bool {
        self.broken[index]
    }

    /// The lower edge of the last row.
    pub(super) fn bottom(&self) -> f64 {
        self.edges[self.rows.len()]
    }

    /// The place of an address; of one outside, the nearest edge.
    pub(super) fn y(&self, address: u64) -> f64 {
        let index = self.rows.partition_point(|row| row.end <= address);
        let Some(row) = self.rows.get(index) else { return self.bottom() };
        let (top, bottom) = self.row(index);
        let part = address.saturating_sub(row.start) as f64 / row.len().max(1) as f64;
        top + (bottom - top) * part
    }
}
