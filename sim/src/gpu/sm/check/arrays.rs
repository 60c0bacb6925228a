//! The shared memory of a kernel as its compiler laid it out, for accesses beyond it that the hardware allows: a
//! block gets whole units of 128 bytes, and arrays have room between them.

use std::ops::Range;

use crate::gpu::sm::launch::Launch;
use crate::pieces::{Pieces, SharedLayout};

/// Unit in which blocks get shared memory.
const UNIT: u64 = 128;

/// Shared memory that a block may access.
#[derive(Debug)]
pub(super) struct SharedBounds {
    layout: SharedLayout,
    /// The end of the block's memory.
    end: u64,
}

impl SharedBounds {
    /// The bounds of a launch; of a kernel whose layout is not known the hardware's alone.
    pub fn of(pieces: Option<&Pieces>, launch: &Launch) -> Self {
        let size = u64::from(launch.shared_bytes);
        let layout = pieces.and_then(|pieces| pieces.shared(launch.program));
        let fixed = layout.as_ref().map(|layout| layout.bytes);
        // Memory that was asked for at the launch follows the arrays, rounded up to whole units.
        let more = layout.as_ref().is_none_or(|layout| layout.may_have_more);
        let end = fixed.filter(|fixed| !more && fixed.next_multiple_of(UNIT) == size).unwrap_or(size);
        SharedBounds { layout: layout.unwrap_or_default(), end }
    }

    /// The first byte of `place` that is no array's; `None` for one beyond what the block has, which faults.
    pub fn first_wrong(&self, place: Range<u64>, size: u64) -> Option<u64> {
        if place.end > size {
            return None;
        }
        if place.end > self.end {
            return Some(place.start.max(self.end));
        }
        let arrays = &self.layout.arrays;
        // Nothing is known of what precedes them: on SM 9.0 CUDA's own.
        let first = arrays.iter().map(|array| array.place.start).min()?;
        let outside = place.start >= first && place.start < self.layout.bytes;
        let holds = |array: &&crate::pieces::SharedArray| array.place.contains(&place.start);
        if !outside || arrays.iter().filter(holds).any(|array| place.end <= array.place.end) {
            return None;
        }
        Some(arrays.iter().filter(holds).map(|array| array.place.end).max().unwrap_or(place.start))
    }

    /// Relation of an offset to the array before it, or the first; empty if no array is known.
    pub fn describe(&self, at: u64) -> String {
        let before = self.layout.arrays.iter().filter(|array| array.place.end <= at);
        let Some(array) = before.max_by_key(|array| array.place.end) else {
            return format!("the block has {} bytes of shared memory", self.end);
        };
        let (start, bytes) = (array.place.start, array.place.end - array.place.start);
        let place = match at - array.place.end {
            0 => "at the end".to_owned(),
            past => format!("{past} bytes past the end"),
        };
        format!("{place} of shared array `{}` ({bytes} bytes at {start:#x})", array.name)
    }
}
