//! Last accesses to each word of memory.

use std::collections::HashMap;
use std::ops::Range;

use crate::order::work::WorkId;

/// Words of a page of shadows.
const PAGE: u64 = 512;
const PAGE_BYTES: u64 = 4 * PAGE;
/// Readers since the last write that are remembered.
const READERS: usize = 16;

/// Strength of an access: how it orders others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strength {
    /// A load or store of a kernel, which the level-1 cache may serve.
    Weak,
    /// One that synchronizes: atomic, volatile, relaxed, acquire, release.
    Strong,
    /// One by another unit than an SM.
    Unit,
}

/// An access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// The work that made it.
    pub(crate) work: WorkId,
    /// Instruction: number of a site.
    pub(crate) site: u32,
    /// Block of the grid.
    pub(crate) block: u32,
    /// Thread of the block.
    pub(crate) thread: u16,
    /// Bytes of the word.
    pub(crate) bytes: u8,
    /// Strength of the access.
    pub(crate) strength: Strength,
    /// Number of times that the level-1 caches had been emptied.
    pub(crate) emptied: u32,
}

/// Accesses to a word.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Word {
    /// The last write.
    pub(crate) writer: Option<Mark>,
    /// Reads since: one, and more.
    reader: Option<Mark>,
    readers: Vec<Mark>,
    /// A level-1 cache held the word when it was last written, and these had been emptied this often.
    pub(crate) cached: Option<u32>,
}

impl Word {
    /// Reads since the last write.
    pub(crate) fn readers(&self) -> impl Iterator<Item = &Mark> {
        self.reader.iter().chain(&self.readers)
    }

    /// Notes a read.
    pub(crate) fn read(&mut self, mark: Mark) {
        let same =
            |old: &Mark| (old.work, old.strength, old.emptied) == (mark.work, mark.strength, mark.emptied);
        if let Some(old) = self.reader.iter_mut().chain(&mut self.readers).find(|old| same(old)) {
            old.bytes |= mark.bytes;
        } else if self.reader.is_none() {
            self.reader = Some(mark);
        } else if self.readers.len() < READERS {
            self.readers.push(mark);
        }
    }

    /// Notes a write.
    pub(crate) fn write(&mut self, mark: Mark) {
        let cached = |old: &Mark| old.strength == Strength::Weak && old.emptied == mark.emptied;
        if self.readers().any(cached) {
            self.cached = Some(mark.emptied);
        }
        self.reader = None;
        self.readers.clear();
        self.writer = Some(mark);
    }
}

/// A page of words.
#[derive(Debug)]
enum Page {
    /// All words have the same state.
    Uniform(Word),
    Words(Box<[Word]>),
}

impl Page {
    fn word(&mut self, at: u64) -> &mut Word {
        if let Self::Uniform(word) = self {
            *self = Self::Words(vec![word.clone(); PAGE as usize].into());
        }
        match self {
            Self::Words(words) => &mut words[at as usize],
            Self::Uniform(word) => word,
        }
    }
}

/// Accesses to all words, by their numbers: address / 4.
#[derive(Debug, Default)]
pub(crate) struct Shadow {
    pages: HashMap<u64, Page>,
}

impl Shadow {
    /// A word.
    pub(crate) fn word(&mut self, word: u64) -> &mut Word {
        let page = self.pages.entry(word / PAGE).or_insert_with(|| Page::Uniform(Word::default()));
        page.word(word % PAGE)
    }

    /// Shows `see` the words of `len` bytes at an address, and which bytes of each: words of whole pages with
    /// one state once, by the first of them.
    pub(crate) fn range(&mut self, address: u64, len: u64, mut see: impl FnMut(u64, u8, &mut Word)) {
        let end = address.saturating_add(len);
        let mut at = address;
        while at < end {
            let next = (at / PAGE_BYTES + 1) * PAGE_BYTES;
            if at.is_multiple_of(PAGE_BYTES) && next <= end {
                let page = self.pages.entry(at / PAGE_BYTES);
                if let Page::Uniform(word) = page.or_insert_with(|| Page::Uniform(Word::default())) {
                    see(at / 4, 15, word);
                    at = next;
                    continue;
                }
            }
            let part = next.min(end) - at;
            for (word, bytes) in words(at, part) {
                see(word, bytes, self.word(word));
            }
            at += part;
        }
    }

    /// Forgets words: memory that is new.
    pub(crate) fn forget(&mut self, words: Range<u64>) {
        self.pages.retain(|page, _| (page + 1) * PAGE <= words.start || page * PAGE >= words.end);
    }
}

/// The words that `len` bytes at an address touch: number of each, and the bytes within it.
pub(crate) fn words(address: u64, len: u64) -> impl Iterator<Item = (u64, u8)> {
    let end = address.saturating_add(len);
    (address / 4..end.div_ceil(4)).map(move |word| {
        let from = address.saturating_sub(word * 4).min(4);
        let to = (end - word * 4).min(4);
        (word, ((1u32 << to) - (1u32 << from)) as u8)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARK: Mark = Mark {
        work: WorkId(1),
        site: 0,
        block: 0,
        thread: 0,
        bytes: 15,
        strength: Strength::Weak,
        emptied: 3,
    };

    #[test]
    fn a_write_of_what_a_cache_holds_leaves_an_old_value_there() {
        let mut shadow = Shadow::default();
        let word = shadow.word(77);
        word.write(MARK);
        assert_eq!(word.cached, None);
        word.read(Mark { strength: Strength::Strong, ..MARK });
        word.write(MARK);
        assert_eq!(word.cached, None, "a strong read goes past the caches");
        word.read(MARK);
        word.write(Mark { emptied: 4, ..MARK });
        assert_eq!(word.cached, None, "emptied in between");
        word.read(Mark { emptied: 4, ..MARK });
        word.write(Mark { emptied: 4, ..MARK });
        assert_eq!(word.cached, Some(4));
        assert_eq!(word.readers().count(), 0);
    }

    #[test]
    fn ranges_are_seen_word_by_word_where_words_differ() {
        let mut shadow = Shadow::default();
        shadow.word(PAGE + 3).read(MARK);
        let mut seen = Vec::new();
        // Half a page, one whose words differ, two with one state, and two bytes.
        let (from, len) = (PAGE_BYTES / 2, PAGE_BYTES / 2 + 3 * PAGE_BYTES + 2);
        shadow.range(from, len, |at, bytes, word| {
            word.write(MARK);
            seen.push((at, bytes));
        });
        assert_eq!(seen.len() as u64, PAGE / 2 + PAGE + 2 + 1);
        assert_eq!(seen.last(), Some(&(4 * PAGE, 0b11)));
        for (word, written) in
            [(PAGE / 2 - 1, false), (PAGE / 2, true), (3 * PAGE + 7, true), (4 * PAGE, true)]
        {
            assert_eq!(shadow.word(word).writer.is_some(), written, "{word}");
        }
        shadow.forget(PAGE..2 * PAGE);
        assert!(shadow.word(PAGE + 3).writer.is_none() && shadow.word(2 * PAGE).writer.is_some());
    }

    #[test]
    fn bytes_of_words_are_named() {
        assert_eq!(words(6, 7).collect::<Vec<_>>(), [(1, 0b1100), (2, 0b1111), (3, 0b0001)]);
        assert_eq!(words(8, 0).count(), 0);
    }
}
