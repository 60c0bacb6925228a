//! Drafts of several texts at once.

use std::fmt;

use crate::error::Result;
use crate::speculate::draft::{Draft, Kind, Lengths};
use crate::speculate::lookup::Lookup;

/// A text that may go on with proposed tokens.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a> {
    /// The same in every call, and no other text's until [`Drafts::forget`].
    pub name: u64,
    /// All of its tokens, at least one.
    pub tokens: &'a [u32],
    /// Most tokens that are wanted.
    pub most: usize,
}

/// Proposes how texts go on that are written together.
pub trait Drafts: fmt::Debug {
    /// The kind of its proposals, for the count of what is accepted.
    fn kind(&self) -> Kind;

    /// Tokens that may follow each of `texts`, up to `columns` for all together.
    ///
    /// # Errors
    /// A device's errors. What was held of texts is forgotten then.
    fn propose(&mut self, texts: &[Text<'_>], columns: usize) -> Result<Vec<Vec<u32>>>;

    /// Forgets a text, if it was one.
    fn forget(&mut self, _name: u64) {}
}

impl Drafts for Lookup {
    fn kind(&self) -> Kind {
        Kind::MatchOfThree
    }

    /// Each text gets an equal part of the columns, and of those that the texts before it left.
    fn propose(&mut self, texts: &[Text<'_>], mut columns: usize) -> Result<Vec<Vec<u32>>> {
        let mut all = Vec::new();
        for (number, text) in texts.iter().enumerate() {
            let share = columns.div_ceil(texts.len() - number);
            let lengths = Lengths::all(text.most.min(share));
            let tokens = match lengths.are_zero() {
                true => Vec::new(),
                false => Draft::propose(self, text.tokens, &lengths)?.tokens,
            };
            columns -= tokens.len();
            all.push(tokens);
        }
        Ok(all)
    }
}
