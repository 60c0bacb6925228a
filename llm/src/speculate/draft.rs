//! Drafts: sources of proposed tokens.

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

/// Proposes how a text goes on.
pub trait Draft {
    /// Tokens that may follow `tokens`, which are all of the context and at least one. What is longer than
    /// `lengths` says for its kind is cut.
    ///
    /// # Errors
    /// A device's errors.
    fn propose(&mut self, tokens: &[u32], lengths: &Lengths) -> Result<Proposal>;
}

/// Proposes nothing: a token per step.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoDraft;

impl Draft for NoDraft {
    fn propose(&mut self, _: &[u32], _: &Lengths) -> Result<Proposal> {
        Ok(Proposal { tokens: Vec::new(), kind: Kind::Model })
    }
}
