//! The GPFIFO entries between two values of `GP_PUT`.

/// Entries read last that are compared with the ring: if they changed, it was lapped.
const COMPARED: usize = 8;

/// Reader's position in a ring.
#[derive(Debug)]
pub(crate) struct Ring {
    entries: u32,
    put: u32,
    last: Vec<(u32, u64)>,
}

/// New entries.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct News {
    /// Place of the first.
    pub first: u32,
    /// The entries.
    pub words: Vec<u64>,
    /// Entries before them that others have replaced: at least so many.
    pub not_seen: u64,
}

impl Ring {
    /// A ring that nothing was put into.
    pub fn new(entries: u32) -> Self {
        Self { entries, put: 0, last: Vec::new() }
    }

    /// Reads the new entries up to `put`; `None` if there are none, or if they cannot be read.
    pub fn advance(&mut self, put: u32, entry: impl Fn(u32) -> Option<u64>) -> Option<News> {
        if put == self.put || put >= self.entries {
            return None;
        }
        let count = (put + self.entries - self.put) % self.entries;
        let place = |i: u32| (self.put + i) % self.entries;
        let words = (0..count).map(|i| entry(place(i))).collect::<Option<Vec<u64>>>()?;
        let is_new = |index: u32| (index + self.entries - self.put) % self.entries < count;
        let lapped = self.last.iter().any(|(index, word)| !is_new(*index) && entry(*index) != Some(*word));
        let not_seen = if lapped { u64::from(self.entries) } else { 0 };
        let news = News { first: self.put, words, not_seen };
        self.last = (0..count).map(place).zip(news.words.iter().copied()).collect();
        self.last.drain(..self.last.len().saturating_sub(COMPARED));
        self.put = put;
        Some(news)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_put_outside_the_ring_and_memory_that_cannot_be_read_are_no_news() {
        let mut ring = Ring::new(8);
        assert_eq!(ring.advance(8, |_| Some(1)), None);
        assert_eq!(ring.advance(3, |_| None), None);
        assert_eq!(ring.advance(2, |_| Some(1)), Some(News { first: 0, words: vec![1, 1], not_seen: 0 }));
        assert_eq!(ring.advance(2, |_| Some(1)), None);
    }

    proptest! {
        /// However the program and the reading alternate: the new entries are right, and a lap does not go
        /// unnoticed.
        #[test]
        fn entries_come_in_order_and_laps_are_counted(bursts in proptest::collection::vec(0u32..40, 1..30)) {
            const N: u32 = 16;
            let (mut memory, mut written) = ([0u64; N as usize], 0u64);
            let (mut ring, mut seen) = (Ring::new(N), 0u64);
            for burst in bursts {
                for _ in 0..burst {
                    memory[(written % u64::from(N)) as usize] = written + 1;
                    written += 1;
                }
                let put = (written % u64::from(N)) as u32;
                let news = ring.advance(put, |i| Some(memory[i as usize]));
                let count = news.as_ref().map_or(0, |n| n.words.len() as u64);
                let expected: Vec<u64> = (written - count + 1..=written).collect();
                if let Some(news) = news {
                    prop_assert_eq!(&news.words, &expected);
                    let lost = written - count - seen;
                    prop_assert!(news.not_seen <= lost, "{} of {lost}", news.not_seen);
                    // The first reading has nothing to compare with.
                    prop_assert!(seen == 0 || (news.not_seen > 0) == (lost > 0), "{} of {lost}", news.not_seen);
                    seen = written;
                }
            }
        }
    }
}
