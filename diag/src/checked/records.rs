//! The lines that machines left.

use ga10b_sim::Record;

use crate::document::{self, Bounds};

/// Most of a line: texts of a finding, and its numbers.
const BOUNDS: Bounds = Bounds { bytes: 1 << 20, values: 1 << 10 };

/// The lines of a file of findings.
#[derive(Clone, Debug, Default)]
pub struct Records {
    /// Those that could be read.
    pub all: Vec<Record>,
    /// Number of the others: a process that was killed may leave half a line.
    pub unreadable: u64,
}

impl Records {
    /// Reads a file that [`SimConfig::findings`](ga10b_sim::SimConfig::findings) named.
    #[must_use]
    pub fn read(text: &[u8]) -> Self {
        let mut records = Self::default();
        for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            match document::read(line, BOUNDS) {
                Ok(record) => records.all.push(record),
                Err(_) => records.unreadable += 1,
            }
        }
        records
    }
}
