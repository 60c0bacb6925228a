//! Products of matrices in shared memory that nothing has waited for: they go on beside the threads.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::gpu::sm::check::knowledge::Knowledge;

/// Products of a warp between two commits.
#[derive(Debug, Default)]
struct ProductGroup {
    /// Registers of sums: first, count, and the op that began the product.
    sums: Vec<(u8, u32, u32)>,
    /// Knowledge that a wait for them gains.
    reads: Knowledge,
}

/// The products of a block that warps have not waited for: closed groups, the oldest first, and the open one.
#[derive(Debug, Default)]
pub(super) struct Products {
    closed: FxHashMap<u32, VecDeque<ProductGroup>>,
    open: FxHashMap<u32, ProductGroup>,
}

impl Products {
    /// A warp begins a product with sums in `count` registers.
    pub fn begin(&mut self, warp: u32, first: u8, count: u32, pc: u32) {
        let group = self.open.entry(warp).or_default();
        if !group.sums.iter().any(|&(other, ..)| other == first) {
            group.sums.push((first, count, pc));
        }
    }

    pub fn commit(&mut self, warp: u32, reads: Knowledge) {
        let sums = self.open.remove(&warp).unwrap_or_default().sums;
        self.closed.entry(warp).or_default().push_back(ProductGroup { sums, reads });
    }

    /// A warp waits until no more than `left` of its groups are unfinished; returns the knowledge that it
    /// gains. A group's products know of those before them.
    pub fn wait(&mut self, warp: u32, left: u32) -> Option<Knowledge> {
        let groups = self.closed.get_mut(&warp)?;
        let finished = groups.len().checked_sub(left as usize)?;
        groups.drain(..finished).next_back().map(|group| group.reads)
    }

    /// The op that began an unfinished product with a sum in register `register`.
    pub fn begun(&self, warp: u32, register: u8) -> Option<u32> {
        let closed = self.closed.get(&warp).into_iter().flatten();
        let mut sums = closed.chain(self.open.get(&warp)).flat_map(|group| &group.sums);
        let holds = |first: u8, count: u32| register >= first && u32::from(register - first) < count;
        sums.find(|&&(first, count, _)| holds(first, count)).map(|&(.., pc)| pc)
    }

    #[inline]
    pub fn is_empty(&self, warp: u32) -> bool {
        !self.open.contains_key(&warp) && self.closed.get(&warp).is_none_or(VecDeque::is_empty)
    }
}
