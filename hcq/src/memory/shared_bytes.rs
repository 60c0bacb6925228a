//! Copies to and from memory that others may use at the same time: the GPU, and the driver.
//!
//! Each access is a relaxed atomic one, of whole aligned words wherever a range has them and of bytes at its
//! ends, so that a concurrent writer tears data at worst. A GPU is no thread of the program, and a copy that
//! it makes meanwhile is no data race of the language; threads of the program have to be ordered by a lock,
//! because two copies may split the same bytes differently.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Bytes of a word.
const WORD: usize = size_of::<u64>();
/// Bytes of a step of the loop: a line of the CPU's caches.
const LINE: usize = 64;

/// Bytes before the first aligned word at `at`, of `len`.
fn head(at: NonNull<u8>, len: usize) -> usize {
    at.align_offset(WORD).min(len)
}

/// # Safety
/// `at` must be valid for a write of a byte.
unsafe fn store_bytes(at: NonNull<u8>, data: &[u8]) {
    for (i, byte) in data.iter().enumerate() {
        // SAFETY: inside the range that the caller vouches for.
        unsafe { AtomicU8::from_ptr(at.add(i).as_ptr()) }.store(*byte, Ordering::Relaxed);
    }
}

/// # Safety
/// As for [`store_bytes`], for reads.
unsafe fn load_bytes(at: NonNull<u8>, data: &mut [u8]) {
    for (i, byte) in data.iter_mut().enumerate() {
        // SAFETY: inside the range that the caller vouches for.
        *byte = unsafe { AtomicU8::from_ptr(at.add(i).as_ptr()) }.load(Ordering::Relaxed);
    }
}

/// Copies `data` to `to`.
///
/// # Safety
/// `to` must be valid for reads and writes of `data.len()` bytes as long as the call runs, and no other
/// thread of the program may access them meanwhile but with equal accesses of this module.
pub(crate) unsafe fn write(to: NonNull<u8>, data: &[u8]) {
    let (first, data) = data.split_at(head(to, data.len()));
    let (lines, rest) = data.as_chunks::<LINE>();
    // SAFETY: the parts lie one after the other in the range that the caller vouches for; after `first` the
    // addresses are aligned.
    unsafe {
        store_bytes(to, first);
        let mut at = to.add(first.len());
        for line in lines {
            for (i, word) in line.as_chunks::<WORD>().0.iter().enumerate() {
                let place = AtomicU64::from_ptr(at.add(WORD * i).as_ptr().cast());
                place.store(u64::from_ne_bytes(*word), Ordering::Relaxed);
            }
            at = at.add(LINE);
        }
        let (words, last) = rest.as_chunks::<WORD>();
        for word in words {
            AtomicU64::from_ptr(at.as_ptr().cast()).store(u64::from_ne_bytes(*word), Ordering::Relaxed);
            at = at.add(WORD);
        }
        store_bytes(at, last);
    }
}

/// Copies from `from` into `data`.
///
/// # Safety
/// As for [`write()`].
pub(crate) unsafe fn read(from: NonNull<u8>, data: &mut [u8]) {
    let (first, data) = data.split_at_mut(head(from, data.len()));
    let (lines, rest) = data.as_chunks_mut::<LINE>();
    // SAFETY: as in `write`.
    unsafe {
        load_bytes(from, first);
        let mut at = from.add(first.len());
        for line in lines {
            for (i, word) in line.as_chunks_mut::<WORD>().0.iter_mut().enumerate() {
                let place = AtomicU64::from_ptr(at.add(WORD * i).as_ptr().cast());
                *word = place.load(Ordering::Relaxed).to_ne_bytes();
            }
            at = at.add(LINE);
        }
        let (words, last) = rest.as_chunks_mut::<WORD>();
        for word in words {
            *word = AtomicU64::from_ptr(at.as_ptr().cast()).load(Ordering::Relaxed).to_ne_bytes();
            at = at.add(WORD);
        }
        load_bytes(at, last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::RwLock;

    const LEN: usize = 4 * LINE;

    /// Memory that is reached through its address alone, as a mapping is.
    struct Memory(NonNull<[u64; LEN / WORD]>);
    // SAFETY: plain memory; the tests below order their accesses or make equal ones.
    unsafe impl Send for Memory {}
    // SAFETY: as above.
    unsafe impl Sync for Memory {}

    impl Memory {
        fn new() -> Self {
            Self(NonNull::from(Box::leak(Box::new([0; LEN / WORD]))))
        }

        fn at(&self, offset: usize) -> NonNull<u8> {
            assert!(offset <= LEN);
            // SAFETY: inside the memory.
            unsafe { self.0.cast::<u8>().add(offset) }
        }
    }

    impl Drop for Memory {
        fn drop(&mut self) {
            // SAFETY: leaked in `new`, and its owner is going.
            drop(unsafe { Box::from_raw(self.0.as_ptr()) });
        }
    }

    #[test]
    fn every_start_and_length_is_copied_and_nothing_else() {
        let pattern: Vec<u8> = (0..LEN).map(|i| i as u8 | 1).collect();
        let step = if cfg!(miri) { 29 } else { 1 };
        for start in 0..WORD + 1 {
            for len in (0..LEN - start).step_by(step) {
                let (memory, mut all) = (Memory::new(), vec![0; LEN]);
                // SAFETY: both ranges are inside the memory, which no other thread knows.
                unsafe {
                    write(memory.at(start), &pattern[..len]);
                    read(memory.at(0), &mut all);
                }
                assert_eq!(all[start..start + len], pattern[..len]);
                assert!(all[..start].iter().chain(&all[start + len..]).all(|byte| *byte == 0));
                let mut part = vec![0; len];
                // SAFETY: as above.
                unsafe { read(memory.at(start), &mut part) };
                assert_eq!(part, pattern[..len]);
            }
        }
    }

    #[test]
    fn what_comes_before_the_first_whole_word_is_less_than_one() {
        let memory = Memory::new();
        for (start, len) in (0..2 * WORD).flat_map(|start| (0..2 * WORD).map(move |len| (start, len))) {
            let bytes = head(memory.at(start), len);
            assert!(bytes < WORD && bytes <= len);
            assert!(bytes == len || (start + bytes).is_multiple_of(WORD), "a word at {start} + {bytes}");
        }
    }

    #[test]
    fn copies_of_the_same_range_by_two_threads_are_no_data_race() {
        let memory = Memory::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..20 {
                    // SAFETY: all of the memory, with the same words in both threads.
                    unsafe { write(memory.at(0), &[round; LEN]) };
                }
            });
            scope.spawn(|| {
                let mut all = [0; LEN];
                for _ in 0..20 {
                    // SAFETY: as above.
                    unsafe { read(memory.at(0), &mut all) };
                    assert!(all.as_chunks::<WORD>().0.iter().all(|word| word.iter().all(|b| *b == word[0])));
                }
            });
        });
    }

    #[test]
    fn copies_of_ranges_that_overlap_are_whole_with_a_lock() {
        let (memory, lock) = (Memory::new(), RwLock::new(()));
        std::thread::scope(|scope| {
            let (memory, lock) = (&memory, &lock);
            for thread in 0..2usize {
                scope.spawn(move || {
                    for round in 0..20u8 {
                        let _guard = lock.write().unwrap();
                        // SAFETY: inside the memory, and the lock keeps other threads away.
                        unsafe { write(memory.at(3 * thread), &[round; LINE]) };
                    }
                });
            }
            scope.spawn(move || {
                let mut part = [0; LINE - 3];
                for _ in 0..20 {
                    let _guard = lock.read().unwrap();
                    // SAFETY: as above.
                    unsafe { read(memory.at(3), &mut part) };
                    assert!(part.iter().all(|byte| *byte == part[0]), "{part:?}");
                }
            });
        });
    }
}
