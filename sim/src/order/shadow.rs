//! Last accesses to each word of memory.

use std::ops::Range;

use rustc_hash::FxHashMap;

use crate::order::work::WorkId;

/// Words of a line.
pub(crate) const LINE: u64 = 32;
/// Lines of a page of shadows.
const PAGE: u64 = 16;
const PAGE_BYTES: u64 = 4 * LINE * PAGE;
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

/// Threads of an access to words of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Threads {
    /// That of the first word.
    pub(crate) first: u16,
    /// The first word.
    pub(crate) from: u8,
    /// Each has so many words, as a power of two, and the next thread those after them; `None`: one has all.
    pub(crate) row: Option<u8>,
}

impl Threads {
    /// One thread.
    pub(crate) const fn one(thread: u16) -> Self {
        Self { first: thread, from: 0, row: None }
    }

    /// The thread that accesses a word of the line.
    pub(crate) fn of(self, word: u32) -> u32 {
        let after = word.saturating_sub(self.from.into());
        u32::from(self.first) + self.row.map_or(0, |shift| after >> shift)
    }
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
    /// Threads of the block.
    pub(crate) threads: Threads,
    /// Bytes of each word.
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

/// The words of a line: those with one state together.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    first: (u32, Word),
    more: Vec<(u32, Word)>,
    /// Groups beside the first above which equal ones are looked for.
    most: u8,
}

impl Default for Line {
    fn default() -> Self {
        Line::of(Word::default())
    }
}

impl Line {
    /// All words have one state.
    fn of(word: Word) -> Self {
        Self { first: (u32::MAX, word), more: Vec::new(), most: 1 }
    }

    /// Shows `see` the states of the words of `mask`, which it may change, and of which words each is.
    fn each(&mut self, mask: u32, mut see: impl FnMut(u32, &mut Word)) {
        if self.first.0 & !mask == 0 && self.more.is_empty() {
            see(self.first.0, &mut self.first.1);
            return;
        }
        let groups = self.more.len();
        for at in 0..=groups {
            let (words, state) = match at {
                0 => &mut self.first,
                _ => &mut self.more[at - 1],
            };
            let part = *words & mask;
            if part == *words {
                see(part, state);
            } else if part != 0 {
                let mut apart = state.clone();
                *words &= !part;
                see(part, &mut apart);
                self.more.push((part, apart));
            }
        }
        if self.more.len() > usize::from(self.most) {
            self.unite();
            self.most = 2 * self.more.len() as u8 + 1;
        }
    }

    /// Words with equal states become one group.
    fn unite(&mut self) {
        let mut at = 0;
        while at < self.more.len() {
            let (words, state) = &self.more[at];
            let words = *words;
            if *state == self.first.1 {
                self.first.0 |= words;
            } else if let Some(same) = self.more[..at].iter().position(|(_, other)| other == state) {
                self.more[same].0 |= words;
            } else {
                at += 1;
                continue;
            }
            self.more.swap_remove(at);
        }
    }
}

/// A page of lines.
#[derive(Debug)]
enum Page {
    /// All words have the same state.
    Uniform(Word),
    Lines(Box<[Line]>),
}

impl Page {
    fn line(&mut self, at: u64) -> &mut Line {
        if let Self::Uniform(word) = self {
            let line = Line::of(std::mem::take(word));
            *self = Self::Lines(vec![line; PAGE as usize].into());
        }
        match self {
            Self::Lines(lines) => &mut lines[at as usize],
            Self::Uniform(_) => unreachable!("it has lines now"),
        }
    }
}

/// Accesses to all words, by their numbers: address / 4.
#[derive(Debug, Default)]
pub(crate) struct Shadow {
    pages: Vec<Page>,
    /// By the number of the page.
    index: FxHashMap<u64, u32>,
    /// The page that was used last.
    recent: Option<(u64, u32)>,
}

impl Shadow {
    #[inline]
    fn page(&mut self, page: u64) -> &mut Page {
        let at = match self.recent {
            Some((recent, at)) if recent == page => at,
            _ => {
                let pages = &mut self.pages;
                let at = *self.index.entry(page).or_insert_with(|| {
                    pages.push(Page::Uniform(Word::default()));
                    (pages.len() - 1) as u32
                });
                self.recent = Some((page, at));
                at
            }
        };
        &mut self.pages[at as usize]
    }

    /// Shows `see` the states of words of a line, which it may change: a word of each group with one state.
    pub(crate) fn line(&mut self, line: u64, mask: u32, mut see: impl FnMut(u32, &mut Word)) {
        let line = self.page(line / PAGE).line(line % PAGE);
        line.each(mask, |words, state| see(words.trailing_zeros(), state));
    }

    /// Shows `see` the words of `len` bytes at an address, and which bytes of each: words with one state once, by
    /// the first of them.
    pub(crate) fn range(&mut self, address: u64, len: u64, mut see: impl FnMut(u64, u8, &mut Word)) {
        let end = address.saturating_add(len);
        let mut at = address;
        while at < end {
            let next = (at / PAGE_BYTES + 1) * PAGE_BYTES;
            if at.is_multiple_of(PAGE_BYTES)
                && next <= end
                && let Page::Uniform(word) = self.page(at / PAGE_BYTES)
            {
                see(at / 4, 15, word);
                at = next;
                continue;
            }
            let line = at / 4 / LINE;
            let part = ((line + 1) * LINE * 4).min(end) - at;
            let mut whole = 0;
            for (word, bytes) in words(at, part) {
                match bytes {
                    15 => whole |= 1 << (word % LINE),
                    _ => self.line(line, 1 << (word % LINE), |_, state| see(word, bytes, state)),
                }
            }
            if whole != 0 {
                self.line(line, whole, |first, state| see(line * LINE + u64::from(first), 15, state));
            }
            at += part;
        }
    }

    /// Forgets words: memory that is new.
    pub(crate) fn forget(&mut self, words: Range<u64>) {
        let page = PAGE * LINE;
        for (at, number) in &self.index {
            if (at + 1) * page > words.start && at * page < words.end {
                self.pages[*number as usize] = Page::Uniform(Word::default());
            }
        }
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
    use proptest::prelude::*;

    const MARK: Mark = Mark {
        work: WorkId(1),
        site: 0,
        block: 0,
        threads: Threads::one(0),
        bytes: 15,
        strength: Strength::Weak,
        emptied: 3,
    };
    const WORDS: u64 = PAGE * LINE;

    #[test]
    fn a_write_of_what_a_cache_holds_leaves_an_old_value_there() {
        let mut word = Word::default();
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

    /// The state of one word.
    fn state(shadow: &mut Shadow, word: u64) -> Word {
        let mut seen = Vec::new();
        shadow.line(word / LINE, 1 << (word % LINE), |_, state| seen.push(state.clone()));
        assert_eq!(seen.len(), 1);
        seen.remove(0)
    }

    #[test]
    fn ranges_are_seen_by_the_states_of_their_words() {
        let mut shadow = Shadow::default();
        shadow.line(PAGE, 1 << 3, |_, word| word.read(MARK));
        let mut seen = Vec::new();
        // Half a page, one in which a word differs, two with one state, and two bytes.
        let (from, len) = (PAGE_BYTES / 2, PAGE_BYTES / 2 + 3 * PAGE_BYTES + 2);
        shadow.range(from, len, |at, bytes, word| {
            word.write(MARK);
            seen.push((at, bytes));
        });
        assert_eq!(seen.len() as u64, PAGE / 2 + PAGE + 1 + 2 + 1);
        assert_eq!(seen.last(), Some(&(4 * WORDS, 0b11)));
        for (word, written) in
            [(WORDS / 2 - 1, false), (WORDS / 2, true), (3 * WORDS + 7, true), (4 * WORDS, true)]
        {
            assert_eq!(state(&mut shadow, word).writer.is_some(), written, "{word}");
        }
        shadow.forget(WORDS..2 * WORDS);
        assert!(
            state(&mut shadow, WORDS + 3).writer.is_none() && state(&mut shadow, 2 * WORDS).writer.is_some()
        );
    }

    #[test]
    fn bytes_of_words_are_named() {
        assert_eq!(words(6, 7).collect::<Vec<_>>(), [(1, 0b1100), (2, 0b1111), (3, 0b0001)]);
        assert_eq!(words(8, 0).count(), 0);
    }

    #[test]
    fn threads_of_a_row_are_those_of_its_words() {
        let row = Threads { first: 40, from: 4, row: Some(1) };
        assert_eq!([4, 5, 6, 9].map(|word| row.of(word)), [40, 40, 41, 42]);
        assert_eq!(Threads::one(7).of(31), 7);
    }

    proptest! {
        /// Lines give the states that words would have one by one.
        #[test]
        fn words_of_a_line_have_their_own_states(
            accesses in prop::collection::vec((any::<u32>(), any::<bool>(), 0u32..3), 0..40),
        ) {
            let mut shadow = Shadow::default();
            let mut model = vec![Word::default(); LINE as usize];
            for (mask, writes, work) in accesses {
                let mark = Mark { work: WorkId(work), ..MARK };
                let access = |word: &mut Word| if writes { word.write(mark) } else { word.read(mark) };
                shadow.line(5, mask, |_, word| access(word));
                model.iter_mut().enumerate().filter(|(n, _)| mask >> n & 1 != 0).for_each(|(_, word)| access(word));
            }
            for (n, word) in model.iter().enumerate() {
                prop_assert_eq!(&state(&mut shadow, 5 * LINE + n as u64), word);
            }
        }
    }
}
