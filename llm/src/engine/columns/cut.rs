//! The division of a prompt into chunks and columns.
//!
//! The kernels of prompts and those of columns round differently, and what a chunk writes for a token depends
//! on where the chunk begins and on its length. So that a text depends on its request alone, which tokens are
//! in which chunk follows from the prompt's length: every whole page is a chunk, and so is what follows if it
//! is long enough; the rest, and the last token always, are columns. A page that was a whole chunk has the
//! keys and values that its tokens and those before it have in every prompt: it can be shared. The tokens of a text
//! that has steps of its own ([`Sequences::next`](crate::Sequences::next)) round otherwise too.

/// The kernels that write a position's keys and values. What they write depends on the tokens and on this alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Writer {
    /// Those of batch steps.
    Columns,
    /// Those of prompts, in a chunk.
    Chunk {
        /// Its first position.
        begin: usize,
        /// Its positions.
        len: usize,
    },
    /// Those of steps of a text that is alone.
    Alone,
}

/// The division of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Positions of a page.
    page: usize,
    /// Tokens in whole pages.
    pages: usize,
    /// Tokens of the chunk after them.
    rest: usize,
    /// From this position on tokens are those of a text that has steps of its own.
    alone: usize,
}

impl Cut {
    /// No chunks.
    pub const NONE: Self = Self { page: 1, pages: 0, rest: 0, alone: usize::MAX };

    /// Of a prompt of `tokens` tokens, with pages of `page` positions; what follows the whole pages is a
    /// chunk if it has at least `least` tokens beside the last.
    pub fn new(tokens: usize, page: usize, least: usize) -> Self {
        let before_last = tokens.saturating_sub(1);
        let rest = before_last % page;
        Self { page, pages: before_last - rest, rest: if rest >= least { rest } else { 0 }, ..Self::NONE }
    }

    /// The same of a prompt whose text, which begins at position `from`, has steps of its own.
    #[must_use]
    pub fn with_text_alone(self, from: usize) -> Self {
        Self { alone: from, ..self }
    }

    /// The same of a prompt that columns process as a whole.
    #[must_use]
    pub fn in_columns(self) -> Self {
        Self { alone: self.alone, ..Self::NONE }
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

    /// The writer of a position. Sequences that agree in their tokens up to a position, and in who writes each of
    /// these, have the same keys and values.
    pub fn writer(&self, position: usize) -> Writer {
        if position < self.pages {
            return Writer::Chunk { begin: position - position % self.page, len: self.page };
        }
        match position < self.in_chunks() {
            true => Writer::Chunk { begin: self.pages, len: self.rest },
            false if position < self.alone => Writer::Columns,
            false => Writer::Alone,
        }
    }

    /// The most tokens up to `len` after which the prompt can go on: a chunk is processed as a whole.
    pub fn boundary(&self, len: usize) -> usize {
        match self.writer(len) {
            Writer::Chunk { begin, .. } => begin,
            Writer::Columns | Writer::Alone => len,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The writer of each of the first `len` positions of a text that begins at `from`, of those processed one after
    /// the other.
    fn writers(cut: &Cut, from: usize, len: usize) -> Vec<Writer> {
        let mut all = Vec::new();
        while all.len() < len {
            let begin = all.len();
            match cut.chunk_at(begin) {
                Some(len) => all.extend(vec![Writer::Chunk { begin, len }; len]),
                None => all.push(if begin < from { Writer::Columns } else { Writer::Alone }),
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
    }

    proptest! {
        /// The writer of a position is that which a prompt has when it is processed; a prompt goes on after what it has in
        /// common with another, by tokens and by who wrote them, and not within a chunk.
        #[test]
        fn writers_are_those_of_a_prompt_that_is_processed(
            (own, other) in (1usize..200, 1usize..200),
            common in 0usize..200,
            (page, least) in (1usize..40, 1usize..20),
            alone: bool,
        ) {
            let of = |len: usize| {
                let (cut, from) = (Cut::new(len, page, least), if alone { len } else { usize::MAX });
                (cut.with_text_alone(from), writers(&cut, from, 400))
            };
            let ((cut, all), (_, of_other)) = (of(own), of(other));
            prop_assert!(cut.in_chunks() < own, "the last token is a column");
            let written: Vec<_> = (0..400).map(|at| cut.writer(at)).collect();
            prop_assert_eq!(&all, &written);
            let alike = (0..common.min(own - 1)).take_while(|at| all[*at] == of_other[*at]).count();
            let reused = cut.boundary(alike);
            let goes_on = match all[reused] {
                Writer::Chunk { begin, .. } => begin == reused,
                Writer::Columns | Writer::Alone => true,
            };
            prop_assert!(reused <= alike && goes_on);
            prop_assert!(alike - reused < page);
        }

        /// Prompts that share a beginning share its whole pages but the last token's.
        #[test]
        fn whole_pages_are_shared((own, other) in (1usize..2000, 1usize..2000), common in 0usize..2000) {
            let [cut, others] = [own, other].map(|len| Cut::new(len, 256, 33));
            let common = common.min(own - 1).min(other - 1);
            prop_assert!((0..common / 256 * 256).all(|at| cut.writer(at) == others.writer(at)));
        }
    }
}
