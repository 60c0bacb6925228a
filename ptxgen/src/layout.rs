//! Division of a run of bytes into memory accesses.

use crate::alignment::Alignment;

/// One memory access of an access plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Bytes from the pointer.
    pub offset: u32,
    /// Bytes moved: 1, 2, 4, 8 or 16.
    pub width: u32,
}

/// Memory accesses that a run of bytes is divided into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout(Vec<Access>);

impl Layout {
    /// The widest access there is, in bytes.
    pub const MAX_ACCESS: u32 = 16;

    /// Cuts `count` elements of `size` bytes at an address of which `alignment` is proven: each access is as
    /// wide as its own address allows, none reaches past the end, and where elements themselves are
    /// unaligned none straddles two of them.
    pub fn plan(alignment: Alignment, size: u32, count: u32) -> Self {
        let run = if alignment.proven() >= size { size * count } else { size };
        let mut plan = Vec::new();
        for start in (0..size * count).step_by(run.max(1) as usize) {
            let mut offset = start;
            while offset < start + run {
                let fits = 1 << (start + run - offset).ilog2();
                let width = alignment.plus(i64::from(offset)).proven().min(fits).min(Self::MAX_ACCESS);
                plan.push(Access { offset, width });
                offset += width;
            }
        }
        Self(plan)
    }

    /// The accesses in order of address, without gap or overlap.
    pub fn accesses(&self) -> &[Access] {
        &self.0
    }
}
