//! Drafts: sources of proposed tokens.

use std::fmt;

use crate::error::Result;

/// The source of a proposal. How many of its tokens are accepted is measured for each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The token after the last occurrence of the last token.
    MatchOfOne,
    /// The token after the last occurrence of the last two tokens.
    MatchOfTwo,
    /// The token after the last occurrence of the last three tokens.
    MatchOfThree,
    /// A model's most likely tokens.
    Model,
}

/// Number of kinds.
pub(super) const KINDS: usize = 4;

/// Numbers of tokens that are processed of a proposal of each kind; 0 for kinds that do not pay now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lengths([usize; KINDS]);

impl Lengths {
    /// The lengths by the order of [`Kind`].
    pub(super) fn new(lengths: [usize; KINDS]) -> Self {
        Self(lengths)
    }

    /// Up to `most` tokens of all kinds.
    pub fn all(most: usize) -> Self {
        Self([most; KINDS])
    }

    /// Tokens of a proposal of a kind.
    pub fn of(&self, kind: Kind) -> usize {
        self.0[kind as usize]
    }

    /// None longer than `most`.
    #[must_use]
    pub fn at_most(self, most: usize) -> Self {
        Self(self.0.map(|length| length.min(most)))
    }

    /// Whether no proposal is wanted.
    pub fn are_zero(&self) -> bool {
        self.0 == [0; KINDS]
    }
}

/// Tokens that may follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// The tokens; none if there is nothing to propose.
    pub tokens: Vec<u32>,
    /// Their source.
    pub kind: Kind,
}

/// A text that may go on with proposed tokens.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a> {
    /// The same in every call, and no other text's until [`Draft::forget`].
    pub name: u64,
    /// All of its tokens, at least one.
    pub tokens: &'a [u32],
    /// Most tokens that are wanted.
    pub lengths: Lengths,
}

/// Proposes how texts go on, one or several that are written together.
pub trait Draft: fmt::Debug {
    /// Tokens that may follow each of `texts`, up to `columns` for all together.
    ///
    /// # Errors
    /// A device's errors. What was held of texts is forgotten then.
    fn propose(&mut self, texts: &[Text<'_>], columns: usize) -> Result<Vec<Proposal>>;

    /// Forgets a text, if it was one.
    fn forget(&mut self, _name: u64) {}
}

/// Proposes nothing: a token per step.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoDraft;

impl Draft for NoDraft {
    fn propose(&mut self, texts: &[Text<'_>], _: usize) -> Result<Vec<Proposal>> {
        Ok(texts.iter().map(|_| Proposal { tokens: Vec::new(), kind: Kind::Model }).collect())
    }
}
