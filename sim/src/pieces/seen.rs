//! Bytes of global memory of which it is known that something wrote them.
//!
//! Fresh memory holds a pattern, and a word with another value was written. What was seen to write decides about the
//! rest: a word to which the pattern's own value was written, and one of which only some bytes were. Only pages
//! with such words have an entry here.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;

use crate::poison::POISON;

/// Bytes of a page.
const PAGE: u64 = 4096;
/// All bytes of a word.
const WHOLE: u8 = 0xf;

/// A bit for each byte of a page.
type Page = [u64; (PAGE / 64) as usize];

/// Writes that were seen, in an address space.
#[derive(Debug, Default)]
pub(crate) struct SeenWrites {
    pages: Mutex<SeenPages>,
    /// Whether there are pages: without, nobody waits for the lock.
    any: AtomicBool,
}

/// The pages with words that do not show by their value what was written.
#[derive(Debug, Default)]
pub(crate) struct SeenPages(FxHashMap<u64, Box<Page>>);

impl SeenWrites {
    /// Whether the value of every word shows whether it was written.
    pub(crate) fn is_empty(&self) -> bool {
        !self.any.load(Ordering::Acquire)
    }

    /// The pages.
    pub(crate) fn pages(&self) -> MutexGuard<'_, SeenPages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `data` is about to be written at `va`; `before` gives the word that is at an address.
    pub(crate) fn store(&self, va: u64, data: &[u8], before: impl FnMut(u64) -> Option<u32>) {
        let mut pages = self.pages();
        pages.store(va, data, before);
        self.any.store(!pages.0.is_empty(), Ordering::Release);
    }

    /// `data`, which is at `from`, is about to be copied to `to`: what nothing wrote stays so.
    pub(crate) fn copy(&self, from: u64, to: u64, data: &[u8], before: impl FnMut(u64) -> Option<u32>) {
        let mut pages = self.pages();
        pages.copy(from, to, data, before);
        self.any.store(!pages.0.is_empty(), Ordering::Release);
    }

    /// The memory at these addresses is another one from now on.
    pub(crate) fn forget(&self, range: std::ops::Range<u64>) {
        if !self.is_empty() {
            self.pages().0.retain(|page, _| !range.contains(&(page * PAGE)));
        }
    }
}

/// The word of a page's map that holds the bits of the word at `va`, and their place in it.
fn place(va: u64) -> (usize, u64) {
    let at = (va % PAGE) / 4 * 4;
    ((at / 64) as usize, at % 64)
}

/// Whether `bytes` of a word with this value hold the pattern's.
fn is_fresh(value: u32, bytes: u8) -> bool {
    (0..4).all(|byte| bytes >> byte & 1 == 0 || (value ^ POISON) >> (8 * byte) & 0xff == 0)
}

impl SeenPages {
    /// Whether the page of `va` has an entry.
    pub(crate) fn holds(&self, va: u64) -> bool {
        self.0.contains_key(&(va / PAGE))
    }

    /// The bytes of the word at `va` that were seen to be written.
    fn written(&self, va: u64) -> u8 {
        let Some(page) = self.0.get(&(va / PAGE)) else { return 0 };
        let (part, shift) = place(va);
        (page[part] >> shift) as u8 & WHOLE
    }

    /// `bytes` of the word at `va` are written, of the others those that were.
    fn add(&mut self, va: u64, bytes: u8) {
        let page = self.0.entry(va / PAGE).or_insert_with(|| Box::new([0; (PAGE / 64) as usize]));
        let (part, shift) = place(va);
        page[part] |= u64::from(bytes) << shift;
    }

    /// Of `bytes` of the word at `va`, which holds `value`, those that nothing wrote.
    pub(crate) fn missing(&self, va: u64, value: u32, bytes: u8) -> u8 {
        let rest = !self.written(va) & WHOLE;
        if rest != 0 && is_fresh(value, rest) { bytes & rest } else { 0 }
    }

    fn store(&mut self, va: u64, data: &[u8], mut before: impl FnMut(u64) -> Option<u32>) {
        let end = va.saturating_add(data.len() as u64);
        let mut at = va;
        while at < end {
            let word = at & !3;
            let stop = word.saturating_add(4).min(end);
            let part = &data[(at - va) as usize..(stop - va) as usize];
            self.store_word(word, (at - word) as usize, part, &mut before);
            at = stop;
        }
    }

    /// `part` is about to be written to the word at `va`, from its byte `first` on.
    fn store_word(&mut self, va: u64, first: usize, part: &[u8], before: impl FnOnce(u64) -> Option<u32>) {
        let written = self.written(va);
        let bytes = (((1u32 << part.len()) - 1) << first) as u8;
        let merged = |old: u32| {
            let mut new = old.to_le_bytes();
            new[first..first + part.len()].copy_from_slice(part);
            u32::from_le_bytes(new)
        };
        if written != 0 {
            self.add(va, bytes);
        } else if bytes == WHOLE {
            if merged(0) == POISON {
                self.add(va, WHOLE);
            }
        } else if let Some(old) = before(va) {
            if old == POISON {
                self.add(va, bytes);
            } else if merged(old) == POISON {
                self.add(va, WHOLE);
            }
        }
    }

    fn copy(&mut self, from: u64, to: u64, data: &[u8], mut before: impl FnMut(u64) -> Option<u32>) {
        let end = to.saturating_add(data.len() as u64);
        let mut at = to;
        while at < end {
            let word = at & !3;
            let stop = word.saturating_add(4).min(end);
            let part = &data[(at - to) as usize..(stop - to) as usize];
            let source = from.wrapping_add(at - to);
            let missing = match part.try_into() {
                Ok(value) if source.is_multiple_of(4) && at == word => {
                    self.missing(source, u32::from_le_bytes(value), WHOLE)
                }
                _ => 0,
            };
            if missing == 0 {
                self.store_word(word, (at - word) as usize, part, &mut before);
            } else {
                self.replace(word, WHOLE & !missing);
            }
            at = stop;
        }
    }

    /// These bytes of the word at `va` are written, and no others.
    fn replace(&mut self, va: u64, bytes: u8) {
        if self.holds(va) || bytes != 0 {
            self.add(va, bytes);
            let (part, shift) = place(va);
            if let Some(page) = self.0.get_mut(&(va / PAGE)) {
                page[part] &= !(u64::from(WHOLE & !bytes) << shift);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_was_written_in_part_lacks_the_rest() {
        let seen = SeenWrites::default();
        assert_eq!(seen.pages().missing(0x1000, POISON, WHOLE), WHOLE);
        assert_eq!(seen.pages().missing(0x1000, 7, WHOLE), 0);
        seen.store(0x1001, &[1, 2], |_| Some(POISON));
        let value = POISON & 0xff00_00ff | 0x2_0100;
        assert_eq!(seen.pages().missing(0x1000, value, WHOLE), 0b1001);
        assert_eq!(seen.pages().missing(0x1000, value, 0b0110), 0);
        // The program wrote the rest.
        assert_eq!(seen.pages().missing(0x1000, 0x2_0100, WHOLE), 0);
        seen.store(0x1000, &POISON.to_le_bytes(), |_| None);
        assert_eq!(seen.pages().missing(0x1000, POISON, WHOLE), 0);
    }

    #[test]
    fn the_pattern_itself_may_be_written_whole_or_byte_by_byte() {
        let seen = SeenWrites::default();
        seen.store(0x1000, &[0; 8], |_| None);
        assert!(seen.is_empty());
        seen.store(0x1000, &POISON.to_le_bytes(), |_| None);
        assert_eq!(seen.pages().missing(0x1000, POISON, WHOLE), 0);
        seen.store(0x1013, &[0xff], |_| Some(POISON & 0x00ff_ffff));
        assert_eq!(seen.pages().missing(0x1010, POISON, WHOLE), 0);
        seen.forget(0x1000..0x2000);
        assert_eq!(seen.pages().missing(0x1000, POISON, WHOLE), WHOLE);
    }

    #[test]
    fn a_copy_of_what_nothing_wrote_is_not_written_either() {
        let seen = SeenWrites::default();
        seen.store(0x1000, &POISON.to_le_bytes(), |_| None);
        let data: Vec<u8> = [POISON, POISON].iter().flat_map(|word| word.to_le_bytes()).collect();
        seen.store(0x2004, &data[..4], |_| None);
        seen.copy(0x1000, 0x2000, &data, |_| None);
        let pages = seen.pages();
        assert_eq!((pages.missing(0x2000, POISON, WHOLE), pages.missing(0x2004, POISON, WHOLE)), (0, WHOLE));
    }
}
