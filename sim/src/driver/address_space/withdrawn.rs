//! Memory that the program unmapped while its launches ran: what explains a fault that follows.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

/// Ranges that are remembered.
const KEPT: usize = 256;

/// Unmapped ranges, oldest first, and when.
#[derive(Debug, Default)]
pub(super) struct Withdrawn(VecDeque<(Range<u64>, Duration)>);

impl Withdrawn {
    /// Something ran when this range was unmapped.
    pub(super) fn add(&mut self, range: Range<u64>, now: Duration) {
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back((range, now));
    }

    /// The range is mapped again.
    pub(super) fn mapped(&mut self, range: &Range<u64>) {
        self.0.retain(|(gone, _)| gone.end <= range.start || range.end <= gone.start);
    }

    /// Returns the time at which the address was unmapped.
    pub(super) fn since(&self, va: u64) -> Option<Duration> {
        self.0.iter().rev().find(|(gone, _)| gone.contains(&va)).map(|(_, at)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_remembered_until_they_are_mapped_again_or_too_many() {
        let mut withdrawn = Withdrawn::default();
        let at = Duration::from_secs;
        withdrawn.add(0x1000..0x2000, at(1));
        withdrawn.add(0x4000..0x5000, at(2));
        assert_eq!(
            (withdrawn.since(0x1fff), withdrawn.since(0x2000), withdrawn.since(0x4000)),
            (Some(at(1)), None, Some(at(2)))
        );
        withdrawn.mapped(&(0x1800..0x1900));
        assert_eq!((withdrawn.since(0x1000), withdrawn.since(0x4000)), (None, Some(at(2))));
        for i in 0..KEPT as u64 {
            withdrawn.add(i << 20..(i << 20) + 1, at(3));
        }
        assert_eq!(withdrawn.since(0x4000), None);
    }
}
