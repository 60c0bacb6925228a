//! The level-2 cache as a count of what reaches DRAM. It holds addresses only: data is always in memory.
//!
//! Lines of 128 bytes in sectors of 32, set-associative, write-back, the least recently used line first out.
//! A sector that is written is not read from DRAM first, as the hardware's byte masks allow. Hints of the
//! program (evict-first, no-allocate) are not followed, and the L1 caches in front are left out: both matter
//! to time, hardly to what DRAM delivers of data that is read once.

use std::sync::{Mutex, PoisonError};

use crate::gpu::sm::counters::Counters;

/// Bytes of a line, as a power of two.
const LINE_BITS: u32 = 7;
/// Bytes of a sector, as a power of two.
const SECTOR_BITS: u32 = 5;

/// Size and shape of the level-2 cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheConfig {
    /// Bytes in all; rounded down to a power of two of sets.
    pub bytes: u64,
    /// Lines of a set.
    pub ways: u32,
}

impl CacheConfig {
    /// The 4 MiB of an Orin AGX ("Jetson AGX Orin Series Technical Brief"); 16 ways are an assumption.
    pub const ORIN: CacheConfig = CacheConfig { bytes: 4 << 20, ways: 16 };
}

/// A line that is in the cache.
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    /// Address without the line's own bits.
    tag: u64,
    /// Time of the last use, in accesses of its set.
    used: u64,
    /// Sectors that it holds; none for an empty place.
    valid: u8,
    /// Sectors that DRAM does not have yet.
    dirty: u8,
}

#[derive(Debug)]
struct Set {
    lines: Box<[Line]>,
    clock: u64,
}

/// The cache.
#[derive(Debug)]
pub(crate) struct L2 {
    sets: Box<[Mutex<Set>]>,
}

impl L2 {
    /// An empty cache.
    pub fn new(config: CacheConfig) -> Self {
        let ways = config.ways.max(1) as usize;
        let sets = (config.bytes >> LINE_BITS) as usize / ways;
        let sets = 1 << sets.max(1).ilog2();
        let set = |_| Mutex::new(Set { lines: vec![Line::default(); ways].into(), clock: 0 });
        L2 { sets: (0..sets).map(set).collect() }
    }

    /// Reads or writes the sectors (addresses in units of 32 bytes), each once.
    pub fn touch(&self, sectors: &[u64], write: bool, counters: &mut Counters) {
        for &sector in sectors {
            let (hit, written_back) = self.access(sector, write);
            counters.dram_read_sectors += u64::from(!hit && !write);
            counters.dram_write_sectors += u64::from(written_back);
        }
    }

    /// Whether the sector was there, and how many dirty sectors had to go.
    fn access(&self, sector: u64, write: bool) -> (bool, u32) {
        let tag = sector >> (LINE_BITS - SECTOR_BITS);
        let bit = 1u8 << (sector & 3);
        // Neighbouring lines go to different sets; large powers of two as strides are spread as well.
        let index = (tag ^ tag >> 11 ^ tag >> 23) as usize & (self.sets.len() - 1);
        let mut set = self.sets[index].lock().unwrap_or_else(PoisonError::into_inner);
        set.clock += 1;
        let clock = set.clock;
        let (mut place, mut oldest) = (0, u64::MAX);
        for (i, line) in set.lines.iter().enumerate() {
            if line.valid != 0 && line.tag == tag {
                place = i;
                break;
            }
            if line.used < oldest {
                (place, oldest) = (i, line.used);
            }
        }
        let line = &mut set.lines[place];
        let mut written_back = 0;
        if line.valid == 0 || line.tag != tag {
            written_back = line.dirty.count_ones();
            *line = Line { tag, ..Line::default() };
        }
        let hit = line.valid & bit != 0;
        line.used = clock;
        line.valid |= bit;
        if write {
            line.dirty |= bit;
        }
        (hit, written_back)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(l2: &L2, sectors: impl Iterator<Item = u64>) -> Counters {
        let mut counters = Counters::default();
        sectors.for_each(|s| l2.touch(&[s], false, &mut counters));
        counters
    }

    #[test]
    fn what_fits_is_read_once() {
        let l2 = L2::new(CacheConfig { bytes: 1 << 16, ways: 4 });
        assert_eq!(read(&l2, 0..1024).dram_read_sectors, 1024);
        assert_eq!(read(&l2, 0..1024).dram_read_sectors, 0);
    }

    #[test]
    fn a_stream_larger_than_the_cache_is_read_each_time() {
        let l2 = L2::new(CacheConfig { bytes: 1 << 16, ways: 4 });
        for _ in 0..3 {
            assert_eq!(read(&l2, 0..1 << 16).dram_read_sectors, 1 << 16);
        }
    }

    #[test]
    fn a_written_sector_goes_to_dram_when_its_line_is_needed() {
        let l2 = L2::new(CacheConfig { bytes: 128, ways: 1 });
        let mut counters = Counters::default();
        l2.touch(&[0, 1], true, &mut counters);
        assert_eq!((counters.dram_read_sectors, counters.dram_write_sectors), (0, 0));
        l2.touch(&[0], false, &mut counters);
        assert_eq!(counters.dram_read_sectors, 0);
        l2.touch(&[4], false, &mut counters);
        assert_eq!((counters.dram_read_sectors, counters.dram_write_sectors), (1, 2));
    }
}
