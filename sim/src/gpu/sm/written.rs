//! Bytes that were written, of a memory that begins as unwritten.

/// A bit for each byte of a memory; those beyond its end were not written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WrittenBytes(Vec<u64>);

/// The bits from `from` to `to` of a word, which are at most 64.
fn bits(from: usize, to: usize) -> u64 {
    u64::MAX >> (64 - (to - from)) << from
}

impl WrittenBytes {
    /// Nothing is written any more.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// The words of the map that `start..end` touches, and the bits in each.
    fn touched(start: usize, end: usize) -> impl Iterator<Item = (usize, u64)> {
        let words = if start < end { start / 64..end.div_ceil(64) } else { 0..0 };
        words.map(move |word| (word, bits(start.saturating_sub(64 * word), (end - 64 * word).min(64))))
    }

    /// The bytes `start..end` are written.
    pub fn write(&mut self, start: usize, end: usize) {
        if self.0.len() < end.div_ceil(64) {
            self.0.resize(end.div_ceil(64), 0);
        }
        for (word, bits) in Self::touched(start, end) {
            self.0[word] |= bits;
        }
    }

    /// Whether all bytes of `start..end` are written.
    pub fn holds(&self, start: usize, end: usize) -> bool {
        Self::touched(start, end).all(|(word, bits)| self.0.get(word).is_some_and(|w| w & bits == bits))
    }

    /// The bytes from `start` on, 32 at most, that are not written.
    pub fn missing(&self, start: usize, count: usize) -> u32 {
        (0..count.min(32))
            .filter(|&i| !self.holds(start + i, start + i + 1))
            .fold(0, |missing, i| missing | 1 << i)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_written_one_by_one() {
        let mut written = WrittenBytes::default();
        assert!(written.holds(5, 5) && !written.holds(0, 1));
        written.write(62, 67);
        assert!(written.holds(62, 67) && !written.holds(61, 67) && !written.holds(62, 68));
        assert_eq!(written.missing(60, 8), 0b1000_0011);
        written.write(0, 64);
        assert!(written.holds(0, 67));
        written.write(64, 256);
        assert!(written.holds(0, 256) && !written.holds(200, 257));
        written.clear();
        assert_eq!(written.missing(0, 4), 0b1111);
    }
}
