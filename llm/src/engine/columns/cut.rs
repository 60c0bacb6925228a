//! The division of a prompt into chunks and columns.
//!
//! The kernels of prompts and those of columns round differently, and what a chunk writes for a token depends
//! on where the chunk begins and on its length. So that a text depends on its request alone, which tokens are
//! in which chunk follows from the prompt's length: every whole page is a chunk, and so is what follows if it
//! is long enough; the rest, and the last token always, are columns. A page that was a whole chunk has the
//! keys and values that its tokens and those before it have in every prompt: it can be shared.

/// The division of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Positions of a page.
    page: usize,
    /// Tokens in whole pages.
    pages: usize,
    /// Tokens of the chunk after them.
    rest: usize,
}

impl Cut {
    /// No chunks.
    pub const NONE: Self = Self { page: 1, pages: 0, rest: 0 };

    /// Of a prompt of `tokens` tokens, with pages of `page` positions; what follows the whole pages is a
    /// chunk if it has at least `least` tokens beside the last.
    pub fn new(tokens: usize, page: usize, least: usize) -> Self {
        let before_last = tokens.saturating_sub(1);
        let rest = before_last % page;
        Self { page, pages: before_last - rest, rest: if rest >= least { rest } else { 0 } }
    }

    /// Tokens in whole pages that are chunks. Their keys and values are those of every prompt that begins
    /// with the same tokens and has these pages too.
    pub fn in_pages(&self) -> usize {
        self.pages
    }

    /// Tokens in chunks.
    pub fn in_chunks(&self) -> usize {
        self.pages + self.rest
    }

    /// The length of the chunk that begins after `done` tokens; `None` if no chunk does.
    pub fn chunk_at(&self, done: usize) -> Option<usize> {
        if done < self.pages {
            return Some(self.page - done % self.page);
        }
        self.in_chunks().checked_sub(done).filter(|left| *left > 0)
    }

    /// The chunk that writes a position, its first position and its length; `None` for a column. Sequences that
    /// agree in their tokens up to a position, and in who writes each of these, have the same keys and values.
    pub fn writer(&self, position: usize) -> Option<(usize, usize)> {
        if position < self.pages {
            return Some((position - position % self.page, self.page));
        }
        (position < self.in_chunks()).then_some((self.pages, self.rest))
    }

    /// The most tokens up to `len` after which the prompt can go on: a chunk is processed as a whole.
    pub fn boundary(&self, len: usize) -> usize {
        self.writer(len).map_or(len, |(begin, _)| begin)
    }

    /// The number of its first `common` tokens that a prompt may take from a sequence whose prompt was
    /// divided like `other` and which begins with the same `common` tokens: their keys and values then are
    /// those that the prompt itself would write, and the next token begins a chunk or is not in one.
    pub fn reusable(&self, other: &Self, common: usize) -> usize {
        if self == other && common >= self.in_chunks() {
            return common;
        }
        let whole = common.min(self.pages).min(other.pages);
        whole - whole % self.page
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The chunk that writes each of the first `len` positions, of those processed one after the other.
    fn writers(cut: &Cut, len: usize) -> Vec<Option<(usize, usize)>> {
        let mut all = Vec::new();
        while all.len() < len {
            let done = all.len();
            match cut.chunk_at(done) {
                Some(chunk) => all.extend(vec![Some((done, chunk)); chunk]),
                None => all.push(None),
            }
        }
        all
    }

    #[test]
    fn whole_pages_and_long_rests_are_chunks() {
        let cut = |tokens| Cut::new(tokens, 256, 33);
        assert_eq!((cut(33).in_chunks(), cut(34).in_chunks()), (0, 33));
        assert_eq!((cut(256).in_pages(), cut(256).chunk_at(0)), (0, Some(255)));
        assert_eq!(
            (cut(257).in_pages(), cut(257).chunk_at(0), cut(257).chunk_at(256)),
            (256, Some(256), None)
        );
        assert_eq!(
            (cut(600).chunk_at(256), cut(600).chunk_at(512), cut(600).chunk_at(599)),
            (Some(256), Some(87), None)
        );
        assert_eq!(cut(0).in_chunks(), 0);
        assert_eq!(Cut::NONE.chunk_at(0), None);
        assert_eq!(Cut::NONE.reusable(&Cut::NONE, 77), 77);
    }

    proptest! {
        /// Positions taken from another sequence equal those that the prompt itself would have written, and
        /// the rest of the prompt is divided as it would have been.
        #[test]
        fn what_is_reused_was_written_alike(
            (own, other) in (1usize..200, 1usize..200),
            common in 0usize..200,
            page in 1usize..40,
            least in 1usize..20,
        ) {
            let (cut, others) = (Cut::new(own, page, least), Cut::new(other, page, least));
            let common = common.min(own - 1);
            let reused = cut.reusable(&others, common);
            prop_assert!(reused <= common);
            prop_assert!(cut.in_chunks() < own, "the last token is a column");
            let (all, of_other) = (writers(&cut, 400), writers(&others, 400));
            prop_assert_eq!(&all[..reused], &of_other[..reused]);
            prop_assert!(all[reused].is_none_or(|(begin, _)| begin == reused), "goes on within a chunk");
            // No less than what both wrote alike, as far as the prompt can go on there.
            let alike = (0..common).take_while(|at| all[*at] == of_other[*at]).count();
            prop_assert_eq!(reused, cut.boundary(alike));
            let written: Vec<_> = (0..400).map(|at| cut.writer(at)).collect();
            prop_assert_eq!(all, written);
        }

        /// Prompts that share a beginning share its whole pages but the last token's.
        #[test]
        fn whole_pages_are_shared((own, other) in (1usize..2000, 1usize..2000), common in 0usize..2000) {
            let (cut, others) = (Cut::new(own, 256, 33), Cut::new(other, 256, 33));
            let common = common.min(own - 1).min(other - 1);
            prop_assert!(cut.reusable(&others, common) >= common / 256 * 256);
        }
    }
}
