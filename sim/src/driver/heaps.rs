//! nvmap's heaps: which there are, the order in which they are tried, and what of a carveout is taken.

use nvgpu_sys::{
    NVMAP_HEAP_CARVEOUT_FSI, NVMAP_HEAP_CARVEOUT_GENERIC, NVMAP_HEAP_CARVEOUT_MASK, NVMAP_HEAP_CARVEOUT_VPR,
    NVMAP_HEAP_IOVMM,
};
use std::collections::BTreeMap;

/// The carveouts of an Orin AGX, in nvmap's order (`nvmap_init.c`).
pub(crate) const CARVEOUTS: [u32; 2] = [NVMAP_HEAP_CARVEOUT_VPR, NVMAP_HEAP_CARVEOUT_FSI];
/// Bytes of each.
pub(crate) const CARVEOUT_BYTES: u64 = 64 << 20;
/// The largest piece of contiguous memory that the kernel gives: order 10 (Linux 5.15, `MAX_ORDER`).
pub(crate) const CONTIGUOUS_BYTES: u64 = 4 << 20;
const PAGE: u64 = crate::dram::PAGE;
/// Blocks of a carveout lie at multiples of their size, rounded up to a power of two, up to so many pages
/// (`nvmap_init.c`, `DMA_BUF_ALIGNMENT`).
const MOST_ALIGNED: u64 = 256;

/// The first carveout of a mask.
pub(crate) fn first_carveout(mask: u32) -> Option<u32> {
    CARVEOUTS.into_iter().find(|heap| mask & heap != 0)
}

/// Whether a mask names the memory of the system, which stands in for the generic carveout where there is none.
pub(crate) fn has_system(mask: u32) -> bool {
    mask & (NVMAP_HEAP_IOVMM | NVMAP_HEAP_CARVEOUT_GENERIC) != 0
}

/// The heaps of a mask that are there, in the order in which a buffer of so many bytes is tried in them
/// (`nvmap_alloc_handle`).
pub(crate) fn order(mask: u32, bytes: u64) -> impl Iterator<Item = u32> {
    let (system, carveouts) = (NVMAP_HEAP_IOVMM, NVMAP_HEAP_CARVEOUT_MASK & !NVMAP_HEAP_CARVEOUT_VPR);
    let groups = if bytes == PAGE { [carveouts, system] } else { [system, carveouts] };
    [NVMAP_HEAP_CARVEOUT_VPR].into_iter().chain(groups).flat_map(move |group| {
        (0..32)
            .rev()
            .map(|bit| 1 << bit)
            .filter(move |heap| mask & group & heap != 0)
            .filter_map(|heap| if has_system(heap) { Some(NVMAP_HEAP_IOVMM) } else { first_carveout(heap) })
    })
}

/// The blocks of a carveout that buffers have: bytes by offset.
#[derive(Debug, Default)]
pub(crate) struct Taken(BTreeMap<u64, u64>);

impl Taken {
    /// A buffer has this block.
    pub(crate) fn add(&mut self, offset: u64, bytes: u64) {
        self.0.insert(offset, bytes);
    }

    /// Bytes that no buffer has.
    pub(crate) fn free(&self) -> u64 {
        CARVEOUT_BYTES - self.0.values().sum::<u64>()
    }

    /// Returns the first place where a block of so many bytes fits.
    pub(crate) fn find(&self, bytes: u64) -> Option<u64> {
        let align = PAGE * (bytes / PAGE).checked_next_power_of_two()?.min(MOST_ALIGNED);
        let mut at = 0;
        for (&start, &len) in &self.0 {
            if at + bytes <= start {
                break;
            }
            at = at.max((start + len).next_multiple_of(align));
        }
        (at + bytes <= CARVEOUT_BYTES).then_some(at)
    }
}
