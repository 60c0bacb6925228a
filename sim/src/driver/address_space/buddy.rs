//! The driver's virtual-address allocator: a buddy allocator over 4 KiB blocks.
//!
//! The addresses it returns are part of the driver's observable behaviour (field logs and applications show
//! them), so the order in which blocks are split and reused is the driver's own: free blocks of one order
//! form a last-in-first-out list, an allocation takes the smallest block that fits, and the left half of
//! every split is split further.

use std::collections::{BTreeMap, HashMap};

/// log2 of the block size.
const BLOCK_SHIFT: u32 = 12;

/// One range of virtual addresses and its free blocks.
#[derive(Debug)]
pub(crate) struct Buddy {
    start: u64,
    blocks: u64,
    max_order: u32,
    /// Per order: push sequence number to block; the highest number is the head of the list.
    lists: Vec<BTreeMap<u64, u64>>,
    /// Free block to (order, sequence number).
    free: HashMap<u64, (u32, u64)>,
    /// First block of an allocation to the blocks (and orders) that form it.
    used: HashMap<u64, Vec<(u64, u32)>>,
    sequence: u64,
}

impl Buddy {
    /// An allocator of `[start, end)`; both are multiples of 4 KiB.
    pub(crate) fn new(start: u64, end: u64) -> Self {
        let blocks = (end - start) >> BLOCK_SHIFT;
        let max_order = 63 - blocks.max(1).leading_zeros();
        let mut buddy = Self {
            start,
            blocks,
            max_order,
            lists: vec![BTreeMap::new(); max_order as usize + 1],
            free: HashMap::new(),
            used: HashMap::new(),
            sequence: 0,
        };
        let mut at = 0;
        while at < blocks {
            let order = (63 - (blocks - at).leading_zeros()).min(max_order);
            buddy.push(at, order);
            at += 1 << order;
        }
        buddy
    }

    /// First address of the range.
    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    /// End of the range (exclusive).
    pub(crate) fn end(&self) -> u64 {
        self.start + (self.blocks << BLOCK_SHIFT)
    }

    /// Takes `len` bytes anywhere; `None` when nothing fits.
    pub(crate) fn alloc(&mut self, len: u64) -> Option<u64> {
        if len == 0 {
            return None;
        }
        let order = 64 - ((len - 1) >> BLOCK_SHIFT).leading_zeros();
        let from = (order..=self.max_order).find(|&o| !self.lists[o as usize].is_empty())?;
        let block = *self.lists[from as usize].last_key_value()?.1;
        self.split_down(block, from, block, order);
        self.used.insert(block, vec![(block, order)]);
        Some(self.address(block))
    }

    /// Takes exactly `[base, base + len)`; `None` when it is unaligned, out of range or not entirely free.
    pub(crate) fn alloc_fixed(&mut self, base: u64, len: u64) -> Option<u64> {
        let mask = (1 << BLOCK_SHIFT) - 1;
        if len == 0 || base & mask != 0 || base < self.start {
            return None;
        }
        let first = (base - self.start) >> BLOCK_SHIFT;
        let count = len.checked_add(mask)? >> BLOCK_SHIFT;
        let end = first.checked_add(count)?;
        if end > self.blocks || !self.is_free(first, end) {
            return None;
        }
        // The first block is no larger than the last bit of the length allows, later ones are as large as
        // their address allows: the positions of the halves of splits decide the next allocation.
        let mut parts = Vec::new();
        let mut at = first;
        let mut order = count.trailing_zeros();
        if first != 0 {
            order = order.min(first.trailing_zeros());
        }
        while at < end {
            self.take(at, order, &mut parts);
            at += 1 << order;
            let natural = at.trailing_zeros();
            order = if at < end && 1 << natural > end - at {
                (end - at).ilog2().min(self.max_order)
            } else {
                natural
            };
        }
        self.used.insert(first, parts);
        Some(base)
    }

    /// Gives back what `alloc` or `alloc_fixed` returned; false when `base` is not the start of an
    /// allocation.
    pub(crate) fn release(&mut self, base: u64) -> bool {
        let Some(offset) = base.checked_sub(self.start) else { return false };
        if offset & ((1 << BLOCK_SHIFT) - 1) != 0 {
            return false;
        }
        let Some(parts) = self.used.remove(&(offset >> BLOCK_SHIFT)) else { return false };
        // Blocks of a fixed range go back last first.
        for (block, order) in parts.into_iter().rev() {
            self.push_and_merge(block, order);
        }
        true
    }

    fn address(&self, block: u64) -> u64 {
        self.start + (block << BLOCK_SHIFT)
    }

    fn push(&mut self, block: u64, order: u32) {
        self.sequence += 1;
        self.lists[order as usize].insert(self.sequence, block);
        self.free.insert(block, (order, self.sequence));
    }

    fn remove(&mut self, block: u64) -> Option<u32> {
        let (order, sequence) = self.free.remove(&block)?;
        self.lists[order as usize].remove(&sequence);
        Some(order)
    }

    fn push_and_merge(&mut self, mut block: u64, mut order: u32) {
        loop {
            self.push(block, order);
            if order == self.max_order {
                return;
            }
            let buddy = block ^ (1 << order);
            if self.free.get(&buddy).is_none_or(|&(o, _)| o != order) {
                return;
            }
            self.remove(block);
            self.remove(buddy);
            block = block.min(buddy);
            order += 1;
        }
    }

    /// Splits free block `block` of order `from` until the block of `order` at `target` is alone, and takes
    /// that one.
    fn split_down(&mut self, mut block: u64, from: u32, target: u64, order: u32) {
        self.remove(block);
        for half in (order..from).rev() {
            let right = block + (1 << half);
            self.push(block, half);
            self.push(right, half);
            block = if target < right { block } else { right };
            self.remove(block);
        }
    }

    /// The free block that holds block `at`.
    fn holder(&self, at: u64) -> Option<(u64, u32)> {
        (0..=self.max_order).find_map(|order| {
            let block = at >> order << order;
            self.free.get(&block).filter(|&&(o, _)| o == order).map(|_| (block, order))
        })
    }

    fn is_free(&self, first: u64, end: u64) -> bool {
        let mut at = first;
        while at < end {
            let Some((block, order)) = self.holder(at) else { return false };
            at = block + (1 << order);
        }
        true
    }

    /// Takes the naturally aligned block `(at, order)`, which is free but perhaps as several smaller blocks.
    fn take(&mut self, at: u64, order: u32, parts: &mut Vec<(u64, u32)>) {
        let Some((block, from)) = self.holder(at) else { return };
        if from >= order {
            self.split_down(block, from, at, order);
            parts.push((at, order));
        } else {
            let half = order - 1;
            self.take(at, half, parts);
            self.take(at + (1 << half), half, parts);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SIZES: [u64; 8] = [1 << 12, 1 << 12, 1 << 16, 1 << 20, 1 << 24, 1 << 26, 1 << 29, 1 << 32];

    fn row(start: u64, end: u64, reserved: &[u64]) -> Vec<u64> {
        let mut buddy = Buddy::new(start, end);
        for &base in reserved {
            assert_eq!(buddy.alloc_fixed(base, 1 << 30), Some(base));
        }
        SIZES.iter().map(|&len| buddy.alloc(len).unwrap()).collect()
    }

    #[test]
    fn first_addresses_are_those_of_the_driver() {
        assert_eq!(
            row(0x200000, 0xff_ffe0_0000, &[]),
            [
                0xff_ffa0_0000,
                0xff_ffa0_1000,
                0xff_ffa1_0000,
                0xff_ffb0_0000,
                0xff_fe20_0000,
                0xff_f820_0000,
                0xff_c020_0000,
                0xfe_0020_0000
            ]
        );
        assert_eq!(
            row(0x200000, 0xff_0000_0000, &[]),
            [
                0xfe_ffe0_0000,
                0xfe_ffe0_1000,
                0xfe_ffe1_0000,
                0xfe_fff0_0000,
                0xfe_fe20_0000,
                0xfe_f820_0000,
                0xfe_c020_0000,
                0xfc_0020_0000
            ]
        );
        assert_eq!(
            row(0x400_0000, 0x20_0000_0000, &[]),
            [
                0x1f_fc00_0000,
                0x1f_fc00_1000,
                0x1f_fc01_0000,
                0x1f_fc10_0000,
                0x1f_fd00_0000,
                0x1f_f400_0000,
                0x1f_c400_0000,
                0x1e_0400_0000
            ]
        );
        assert_eq!(
            row(0x1_0000_0000, 0xff_0000_0000, &[]),
            [
                0xfd_0000_0000,
                0xfd_0000_1000,
                0xfd_0001_0000,
                0xfd_0010_0000,
                0xfd_0100_0000,
                0xfd_0400_0000,
                0xfd_2000_0000,
                0xfe_0000_0000
            ]
        );
    }

    #[test]
    fn small_buffers_gather_behind_the_reserved_windows() {
        let windows = [0xfd_0000_0000, 0xfe_0000_0000];
        assert_eq!(
            row(0x200000, 0xff_0000_0000, &windows),
            [
                0xfe_4000_0000,
                0xfe_4000_1000,
                0xfe_4001_0000,
                0xfe_4010_0000,
                0xfd_fe20_0000,
                0xfd_f820_0000,
                0xfd_c020_0000,
                0xf8_0020_0000
            ]
        );
        assert_eq!(
            row(0x1_0000_0000, 0xff_0000_0000, &windows),
            [
                0xfe_4000_0000,
                0xfe_4000_1000,
                0xfe_4001_0000,
                0xfe_4010_0000,
                0xfe_4100_0000,
                0xfe_4400_0000,
                0xfe_6000_0000,
                0xf9_0000_0000
            ]
        );
    }

    #[test]
    fn everything_released_leaves_one_range_again() {
        let mut buddy = Buddy::new(0x200000, 0x200000 + (0b1011 << 12));
        let a = buddy.alloc(0x1000).unwrap();
        let b = buddy.alloc(0x3000).unwrap();
        assert!(buddy.release(a) && buddy.release(b));
        assert!(!buddy.release(a));
        assert_eq!(buddy.alloc_fixed(0x200000, 0b1011 << 12), Some(0x200000));
    }

    #[derive(Clone, Debug)]
    enum Op {
        Alloc(u64),
        Fixed(u64, u64),
        Release(usize),
    }

    fn ops() -> impl Strategy<Value = Vec<Op>> {
        let op = prop_oneof![
            (1u64..0x9000).prop_map(Op::Alloc),
            (0u64..70, 1u64..0x6000).prop_map(|(b, l)| Op::Fixed(b, l)),
            any::<prop::sample::Index>().prop_map(|i| Op::Release(i.index(1 << 16))),
        ];
        prop::collection::vec(op, 1..80)
    }

    proptest! {
        /// Live ranges never overlap, a fixed range is given exactly when it is free, and nothing is lost.
        #[test]
        fn live_ranges_never_overlap(ops in ops(), blocks in 1u64..64) {
            let start = 0x10_0000;
            let end = start + (blocks << 12);
            let mut real = Buddy::new(start, end);
            let mut model: Vec<(u64, u64)> = Vec::new();
            let free = |model: &[(u64, u64)], at: u64, len: u64| {
                at >= start && at + len <= end && model.iter().all(|&(b, l)| at + len <= b || b + l <= at)
            };
            for op in ops {
                match op {
                    Op::Alloc(len) => {
                        let size = len.div_ceil(0x1000).next_power_of_two() << 12;
                        if let Some(va) = real.alloc(len) {
                            prop_assert!(free(&model, va, size));
                            prop_assert_eq!((va - start) % size, 0);
                            model.push((va, size));
                        } else {
                            let mut at = start;
                            while at + size <= end {
                                prop_assert!(!free(&model, at, size), "{:#x} was free", at);
                                at += size;
                            }
                        }
                    }
                    Op::Fixed(block, len) => {
                        let (at, size) = (start + (block << 12), len.div_ceil(0x1000) << 12);
                        let expected = free(&model, at, size).then_some(at);
                        prop_assert_eq!(real.alloc_fixed(at, len), expected);
                        if expected.is_some() {
                            model.push((at, size));
                        }
                    }
                    Op::Release(pick) => if !model.is_empty() {
                        let (at, _) = model.swap_remove(pick % model.len());
                        prop_assert!(real.release(at));
                    }
                }
            }
            for (at, _) in model {
                prop_assert!(real.release(at));
            }
            prop_assert_eq!(real.alloc_fixed(start, end - start), Some(start));
        }
    }
}
