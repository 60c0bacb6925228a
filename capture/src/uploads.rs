//! Data of a channel's inline-to-memory (I2M) uploads, by address: QMDs that no CPU mapping shows.

use std::collections::{BTreeMap, VecDeque};

/// Longest upload that is kept.
const MOST_LENGTH: u64 = 64 << 10;
/// Bytes that are kept of all uploads; the oldest go first.
const MOST_BYTES: usize = 16 << 20;

/// Uploaded memory.
#[derive(Debug, Default)]
pub(crate) struct Uploads {
    blocks: BTreeMap<u64, Vec<u8>>,
    order: VecDeque<u64>,
    bytes: usize,
}

impl Uploads {
    /// An upload was executed.
    pub fn write(&mut self, address: u64, data: &[u8]) {
        let (len, end) = (data.len() as u64, address.saturating_add(data.len() as u64));
        if len == 0 || len > MOST_LENGTH {
            return;
        }
        let mut is_inside = false;
        for (start, block) in self.blocks.range_mut(address.saturating_sub(MOST_LENGTH)..end) {
            let block_end = start + block.len() as u64;
            let (from, to) = (address.max(*start), end.min(block_end));
            if from < to {
                let (target, source) = ((from - start) as usize, (from - address) as usize);
                let count = (to - from) as usize;
                block[target..target + count].copy_from_slice(&data[source..source + count]);
                is_inside |= from == address && to == end;
            }
        }
        if is_inside {
            return;
        }
        // A block that starts there and is shorter is replaced in its place of the order.
        match self.blocks.insert(address, data.to_vec()) {
            Some(old) => self.bytes -= old.len(),
            None => self.order.push_back(address),
        }
        self.bytes += data.len();
        while self.bytes > MOST_BYTES {
            let Some(oldest) = self.order.pop_front() else { break };
            self.bytes -= self.blocks.remove(&oldest).map_or(0, |block| block.len());
        }
    }

    /// Returns the data uploaded to the `len` bytes at `address`, if one upload covers them.
    pub fn read(&self, address: u64, len: usize) -> Option<&[u8]> {
        let before = self.blocks.range(address.saturating_sub(MOST_LENGTH)..=address).rev();
        before
            .filter_map(|(start, block)| {
                let at = (address - start) as usize;
                block.get(at..at.checked_add(len)?)
            })
            .next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_oldest_uploads_are_forgotten_first() {
        let mut uploads = Uploads::default();
        let block = vec![7; MOST_LENGTH as usize];
        let count = MOST_BYTES as u64 / MOST_LENGTH + 1;
        for i in 0..count {
            uploads.write(i << 20, &block);
        }
        assert!(uploads.read(0, 4).is_none() && uploads.read((count - 1) << 20, 4).is_some());
        assert!(uploads.bytes <= MOST_BYTES && uploads.blocks.len() == uploads.order.len());
    }

    proptest! {
        /// Reads return the last write, as in plain memory.
        #[test]
        fn reads_see_the_last_write(
            writes in proptest::collection::vec((0u64..400, 1usize..200, any::<u8>()), 1..30),
            reads in proptest::collection::vec((0u64..600, 1usize..100), 1..20),
        ) {
            let (mut uploads, mut model) = (Uploads::default(), [0u8; 700]);
            for (address, len, value) in writes {
                uploads.write(address, &vec![value; len]);
                model[address as usize..address as usize + len].fill(value);
            }
            for (address, len) in reads {
                if let Some(read) = uploads.read(address, len) {
                    prop_assert_eq!(read, &model[address as usize..address as usize + len]);
                }
            }
        }
    }
}
