//! Free GPU addresses: chosen here for every backend, recycled when a mapping goes.
//!
//! The windows through which generic addresses reach shared and local memory are taken out when the space is
//! created, before anything is mapped, so no buffer can land in them.

use std::ops::Range;

use crate::address::GpuVa;
use crate::backend::Layout;
use crate::error::{Error, MemoryError};
use crate::memory::range_set::RangeSet;

/// Mappings this long and longer start on 2 MiB boundaries.
const LARGE: u64 = 8 << 20;
/// Their alignment.
const LARGE_ALIGN: u64 = 2 << 20;

/// The part of the address space that a mapping has to be in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Below 2^40: what pushbuffers, QMDs and semaphores can name.
    Low,
    /// Anywhere.
    Any,
}

/// Addresses that were taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// First address of the mapping.
    pub va: GpuVa,
    /// Length of the mapping, in whole granules.
    pub len: u64,
    /// The range taken: the mapping, and after it a guard that stays unmapped, so that running past the end
    /// of a buffer faults instead of reaching the next one.
    pub range: Range<u64>,
}

/// The free addresses of one address space.
#[derive(Debug)]
pub(crate) struct VaSpace {
    low: RangeSet,
    /// Addresses beyond `low`, where the layout has any.
    high: RangeSet,
    low_range: Range<u64>,
    granule: u64,
    /// Bytes of a guard.
    guard: u64,
    windows: Vec<(&'static str, Range<u64>)>,
}

impl VaSpace {
    /// All addresses of `layout`; without the windows unless `reserve_windows` is off. At least `guard` bytes,
    /// whole granules, stay unmapped after each mapping.
    pub fn new(layout: &Layout, reserve_windows: bool, guard: u64) -> Self {
        let mut low = RangeSet::new(layout.low.clone());
        let mut high =
            if layout.high == layout.low { RangeSet::default() } else { RangeSet::new(layout.high.clone()) };
        let mut windows = Vec::new();
        if reserve_windows {
            let [shared, local] = &layout.reserved;
            windows = vec![("shared memory", shared.clone()), ("local memory", local.clone())];
            for (_, range) in &windows {
                low.exclude(range);
                high.exclude(range);
            }
        }
        let (low_range, granule) = (layout.low.clone(), layout.granule);
        Self { low, high, low_range, granule, guard: granule.max(guard), windows }
    }

    /// `len` rounded up to whole granules.
    fn rounded(&self, len: u64) -> Result<u64, Error> {
        len.checked_next_multiple_of(self.granule).ok_or(Error::Memory(MemoryError::OutOfAddresses { len }))
    }

    /// Takes a free range for `len` bytes, aligned to the granule, or to 2 MiB from 8 MiB on.
    pub fn alloc(&mut self, len: u64, reach: Reach) -> Result<Place, Error> {
        let out = Error::Memory(MemoryError::OutOfAddresses { len });
        let need = self.rounded(len)?;
        let Some(guarded) = need.checked_add(self.guard) else { return Err(out) };
        let align = if need >= LARGE { self.granule.max(LARGE_ALIGN) } else { self.granule };
        let high = if reach == Reach::Any { self.high.take(guarded, align) } else { None };
        let at = high.or_else(|| self.low.take(guarded, align)).ok_or(out)?;
        Ok(Place { va: GpuVa::inside(at), len: need, range: at..at + guarded })
    }

    /// Takes the range at `va`, without a guard after it.
    pub fn alloc_at(&mut self, va: GpuVa, len: u64) -> Result<Place, Error> {
        let taken = || Error::Memory(MemoryError::AddressTaken { va, len });
        let need = self.rounded(len)?;
        let end = va.checked_add(need).ok_or_else(taken)?;
        let range = va.raw()..end.raw();
        if let Some((window, _)) =
            self.windows.iter().find(|(_, w)| range.start < w.end && w.start < range.end)
        {
            return Err(Error::Memory(MemoryError::InWindow { va, len, window }));
        }
        if !va.is_aligned(self.granule)
            || !(self.low.take_at(range.clone()) || self.high.take_at(range.clone()))
        {
            return Err(taken());
        }
        Ok(Place { va, len: need, range })
    }

    /// Returns the [`range`](Place::range) of what [`alloc`](Self::alloc) or [`alloc_at`](Self::alloc_at) gave.
    pub fn free(&mut self, range: Range<u64>) {
        let set = if self.low_range.contains(&range.start) { &mut self.low } else { &mut self.high };
        set.put(range);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GIB: u64 = 1 << 30;

    fn layout() -> Layout {
        Layout {
            low: 0x10_0000_0000..0xff_0000_0000,
            high: 0x10_0000_0000..0xff_0000_0000,
            shared_window: GpuVa::inside(0xfe_0000_0000),
            local_window: GpuVa::inside(0xfd_0000_0000),
            reserved: [0xfe_0000_0000..0xfe_0000_0000 + GIB, 0xfd_0000_0000..0xfd_0000_0000 + GIB],
            local_warps: 48,
            granule: 4096,
            channel_va: 0,
        }
    }

    proptest! {
        /// Whatever the sizes and the order, no mapping touches a window, and large ones are 2 MiB aligned.
        #[test]
        fn no_sequence_reaches_a_window(sizes in prop::collection::vec((1u64..200 * GIB, any::<bool>()), 1..60)) {
            let layout = layout();
            let mut space = VaSpace::new(&layout, true, 0);
            let mut live: Vec<Place> = Vec::new();
            for (len, free_one) in sizes {
                if free_one && !live.is_empty() {
                    let place = live.swap_remove(len as usize % live.len());
                    space.free(place.range);
                }
                let Ok(place) = space.alloc(len, Reach::Any) else { continue };
                let (start, end) = (place.va.raw(), place.va.raw() + place.len);
                prop_assert!(place.len >= len);
                prop_assert!(layout.reserved.iter().all(|w| end <= w.start || w.end <= start));
                prop_assert!(live.iter().all(|l| {
                    let (from, to) = (l.va.raw(), l.va.raw() + l.len);
                    end < from || to < start
                }), "neighbours keep a gap");
                prop_assert!(len < LARGE || start % LARGE_ALIGN == 0);
                live.push(place);
            }
        }
    }

    #[test]
    fn a_fixed_address_in_a_window_is_refused_by_name() {
        let mut space = VaSpace::new(&layout(), true, 0);
        let va = GpuVa::inside(0xfe_0020_0000);
        let error = space.alloc_at(va, 4096).unwrap_err();
        assert!(
            matches!(error, Error::Memory(MemoryError::InWindow { window: "shared memory", .. })),
            "{error}"
        );
        let mut open = VaSpace::new(&layout(), false, 0);
        assert!(open.alloc_at(va, 4096).is_ok());
        assert!(matches!(open.alloc_at(va, 4096), Err(Error::Memory(MemoryError::AddressTaken { .. }))));
    }

    #[test]
    fn low_objects_stay_low_and_data_goes_high() {
        let layout = Layout { high: 0x100_0000_0000..0x200_0000_0000, ..layout() };
        let mut space = VaSpace::new(&layout, true, 0);
        assert!(space.alloc(1, Reach::Low).unwrap().va.raw() < 1 << 40);
        let data = space.alloc(1, Reach::Any).unwrap();
        assert!(data.va.raw() >= 1 << 40);
        space.free(data.range.clone());
        assert_eq!(space.alloc(1, Reach::Any).unwrap(), data, "addresses are recycled");
    }
}
