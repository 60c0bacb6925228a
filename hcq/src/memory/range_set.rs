//! A set of free ranges: best fit, coalescing on return. Both the address space and the sub-allocator stand
//! on it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Free ranges of one number line.
#[derive(Debug, Default)]
pub(crate) struct RangeSet {
    /// Start to end; ranges neither touch nor overlap.
    by_start: BTreeMap<u64, u64>,
    /// The same ranges as (length, start).
    by_len: BTreeSet<(u64, u64)>,
}

impl RangeSet {
    /// A set of one free range.
    pub fn new(range: Range<u64>) -> Self {
        let mut set = Self::default();
        set.put(range);
        set
    }

    fn add(&mut self, start: u64, end: u64) {
        if start < end {
            self.by_start.insert(start, end);
            self.by_len.insert((end - start, start));
        }
    }

    fn remove(&mut self, start: u64, end: u64) {
        self.by_start.remove(&start);
        self.by_len.remove(&(end - start, start));
    }

    /// Returns a range to the set. It must not overlap what is free already; the part that does is ignored.
    pub fn put(&mut self, range: Range<u64>) {
        let (mut start, mut end) = (range.start, range.end);
        if start >= end {
            return;
        }
        while let Some((&s, &e)) = self.by_start.range(..=end).next_back() {
            if e < start {
                break;
            }
            self.remove(s, e);
            start = start.min(s);
            end = end.max(e);
        }
        self.add(start, end);
    }

    /// Takes `len` units aligned to `align` (a power of two) from the smallest range that has room.
    pub fn take(&mut self, len: u64, align: u64) -> Option<u64> {
        let (start, end, at) = self.by_len.range((len, 0)..).find_map(|&(have, start)| {
            let at = start.checked_next_multiple_of(align)?;
            (at.checked_add(len)? <= start + have).then_some((start, start + have, at))
        })?;
        self.remove(start, end);
        self.add(start, at);
        self.add(at + len, end);
        Some(at)
    }

    /// Takes exactly `range`; `false` if any of it is not free.
    pub fn take_at(&mut self, range: Range<u64>) -> bool {
        let Some((&start, &end)) = self.by_start.range(..=range.start).next_back() else { return false };
        if range.start >= range.end || range.end > end {
            return false;
        }
        self.remove(start, end);
        self.add(start, range.start);
        self.add(range.end, end);
        true
    }

    /// Takes whatever is free of `range`.
    pub fn exclude(&mut self, range: &Range<u64>) {
        let hit: Vec<_> = self
            .by_start
            .range(..range.end)
            .filter(|&(_, &e)| e > range.start)
            .map(|(&s, &e)| (s, e))
            .collect();
        for (start, end) in hit {
            self.remove(start, end);
            self.add(start, range.start.min(end));
            self.add(range.end.max(start), end);
        }
    }

    /// Units that are free.
    pub fn free(&self) -> u64 {
        self.by_len.iter().map(|(len, _)| len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Op {
        Take { len: u64, align_log2: u32 },
        TakeAt { start: u64, len: u64 },
        Put { pick: usize },
    }

    fn ops() -> impl Strategy<Value = Vec<Op>> {
        let op = prop_oneof![
            3 => (1u64..300, 0u32..8).prop_map(|(len, align_log2)| Op::Take { len, align_log2 }),
            1 => (0u64..4096, 1u64..200).prop_map(|(start, len)| Op::TakeAt { start, len }),
            3 => any::<usize>().prop_map(|pick| Op::Put { pick }),
        ];
        prop::collection::vec(op, 1..200)
    }

    proptest! {
        /// Nothing is handed out twice, and what was returned can be handed out again.
        #[test]
        fn live_ranges_never_overlap(ops in ops()) {
            const SIZE: u64 = 4096;
            let mut set = RangeSet::new(0..SIZE);
            let mut used = vec![false; SIZE as usize];
            let mut live: Vec<Range<u64>> = Vec::new();
            for op in ops {
                let taken = match op {
                    Op::Take { len, align_log2 } => {
                        let align = 1u64 << align_log2;
                        let got = set.take(len, align);
                        let fits = |at: u64| used[at as usize..(at + len) as usize].iter().all(|u| !u);
                        let exists = (0..=SIZE - len).step_by(align as usize).any(fits);
                        prop_assert_eq!(got.is_some(), exists);
                        if let Some(at) = got { prop_assert_eq!(at % align, 0); }
                        got.map(|at| at..at + len)
                    }
                    Op::TakeAt { start, len } => {
                        let range = start..start + len;
                        let free = range.end <= SIZE && range.clone().all(|i| !used[i as usize]);
                        prop_assert_eq!(set.take_at(range.clone()), free);
                        free.then_some(range)
                    }
                    Op::Put { pick } => {
                        if !live.is_empty() {
                            let range = live.swap_remove(pick % live.len());
                            used[range.start as usize..range.end as usize].fill(false);
                            set.put(range);
                        }
                        None
                    }
                };
                if let Some(range) = taken {
                    prop_assert!(range.clone().all(|i| !used[i as usize]));
                    used[range.start as usize..range.end as usize].fill(true);
                    live.push(range);
                }
                prop_assert_eq!(set.free(), used.iter().filter(|u| !**u).count() as u64);
            }
            for range in live { set.put(range); }
            prop_assert_eq!(set.take(SIZE, 1), Some(0), "everything coalesces again");
        }

        #[test]
        fn excluding_removes_exactly_that_range(a in 0u64..100, b in 0u64..100, c in 0u64..100, d in 0u64..100) {
            let mut set = RangeSet::new(a.min(b)..a.max(b));
            set.exclude(&(c.min(d)..c.max(d)));
            let expected = (a.min(b)..a.max(b)).filter(|i| !(c.min(d)..c.max(d)).contains(i)).count() as u64;
            prop_assert_eq!(set.free(), expected);
        }
    }
}
