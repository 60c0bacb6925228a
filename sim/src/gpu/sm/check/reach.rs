//! Extent of an access of a warp, found once for all checks.

use crate::gpu::sm::lanes::has;

/// Memory that an access reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    Global,
    Shared,
    Local,
    /// More than one of them, by generic addresses.
    Mixed,
}

/// Extent of an access of a warp.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reach {
    pub extent: Extent,
    /// The lowest address.
    pub start: u64,
    /// The end of the highest; `None` where that is beyond all addresses.
    pub end: Option<u64>,
    /// Whether the lanes reach all of it: one place, or neighbouring ones.
    pub dense: bool,
    /// Whether every lane's address is a multiple of its size.
    pub aligned: bool,
}

impl Reach {
    /// The extent of an access of `lanes` at these addresses of one memory; `None` if there are no lanes.
    pub fn of(extent: Extent, at: &[u64; 32], lanes: u32, bytes: u32) -> Option<Self> {
        let first = lanes.trailing_zeros() as usize;
        let (base, bytes) = (*at.get(first)?, u64::from(bytes));
        let (mut start, mut last, mut bits, mut apart, mut step) = (base, base, 0, 0, 0);
        for lane in 0..32 {
            let makes = u64::from(has(lanes, lane)).wrapping_neg();
            let differs = (at[lane] ^ base) & makes;
            let own = base ^ differs;
            (start, last) = (start.min(own), last.max(own));
            bits |= own;
            apart |= differs;
            let place = base.wrapping_add((lane as u64).wrapping_sub(first as u64).wrapping_mul(bytes));
            step |= (at[lane] ^ place) & makes;
        }
        let neighbours = lanes >> first;
        let width = bytes.max(1).next_power_of_two();
        Some(Reach {
            extent,
            start,
            end: last.checked_add(bytes),
            dense: apart == 0 || step == 0 && neighbours & neighbours.wrapping_add(1) == 0,
            aligned: bits & (width - 1) == 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::sm::lanes::each;

    fn reach(lanes: u32, at: impl Fn(u64) -> u64) -> Reach {
        Reach::of(Extent::Global, &each(|lane| at(lane as u64)), lanes, 4).expect("lanes")
    }

    #[test]
    fn only_lanes_without_a_gap_reach_all_between() {
        let row = |lane| 64 + 4 * lane;
        for (lanes, dense) in [(u32::MAX, true), (0xff0, true), (0xff, true), (0b101, false), (1 << 31, true)]
        {
            assert_eq!(reach(lanes, row).dense, dense, "{lanes:#x}");
        }
        assert!(!reach(u32::MAX, |lane| 8 * lane).dense && reach(u32::MAX, |_| 12).dense);
        assert!(!reach(u32::MAX, |lane| 4 * (31 - lane)).dense);
        let part = reach(0xff0, row);
        assert_eq!((part.start, part.end, part.aligned), (80, Some(112), true));
        assert!(!reach(1, |_| 6).aligned && reach(2, |lane| 6 * (1 - lane.min(1))).aligned);
        assert_eq!(reach(1, |_| u64::MAX - 3).end, None);
        assert!(Reach::of(Extent::Shared, &[0; 32], 0, 4).is_none());
    }
}
