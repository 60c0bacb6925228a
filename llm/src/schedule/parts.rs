//! The parts of a step: tokens of requests that run, and the columns after which their next tokens are chosen.

use crate::engine::{Cut, To};
use crate::schedule::requests::{Job, Reading};
use crate::speculate::Kind;

/// An admitted request.
#[derive(Debug)]
pub(super) struct Running<I> {
    pub job: Job,
    pub id: I,
    /// The division of its prompt.
    pub cut: Cut,
    /// Tokens that are in the cache.
    pub done: usize,
    /// [`Prefixes::stored`](crate::schedule::prefixes::Prefixes::stored) when the prefix cache was searched last.
    pub searched: u64,
}

impl<I> Running<I> {
    /// Tokens that are not yet in the cache: what is left of the prompt, or the newest token.
    pub fn left(&self) -> &[u32] {
        &self.job.tokens[self.done..]
    }

    /// Whether the next `count` tokens are all that are left: the logits after them give the next token.
    pub fn ends_in(&self, count: usize) -> bool {
        self.left().len() == count
    }

    /// Whether its text goes on after the next `count` tokens.
    pub fn chooses_after(&self, count: usize) -> bool {
        self.ends_in(count) && self.job.most > 0
    }

    /// The results that a step with the next `count` tokens has to have.
    pub fn needs(&self, count: usize) -> To {
        let reading = if self.is_text() { Reading::Nothing } else { self.job.reading };
        match reading {
            _ if self.chooses_after(count) => To::Logits,
            Reading::Logprobs(_) => To::Logits,
            Reading::States => To::States,
            Reading::LastState if self.ends_in(count) => To::States,
            Reading::LastState | Reading::Nothing => To::Cache,
        }
    }

    /// Whether its prompt is in the cache.
    pub fn is_text(&self) -> bool {
        self.done >= self.job.prompt
    }

    /// Tokens of the chunk that is next, if one is.
    pub fn chunk(&self) -> Option<usize> {
        self.cut.chunk_at(self.done)
    }
}

/// Tokens of a running request that a step processes.
#[derive(Debug)]
pub(super) struct Part {
    /// Number of the request.
    pub number: usize,
    /// How many of those that are left.
    pub count: usize,
    /// Tokens that may follow them, and where they are from.
    pub proposed: Vec<u32>,
    pub kind: Kind,
}

/// Tokens of a prompt that a step processes first.
#[derive(Clone, Copy)]
pub(super) struct Chunk {
    /// Number of the request.
    pub number: usize,
    pub count: usize,
}

/// A column after which a request's next token is chosen.
pub(super) struct Choice {
    /// Number of the part, and of the request.
    pub part: usize,
    pub number: usize,
    pub column: usize,
    /// Tokens that were proposed and chosen.
    pub accepted: usize,
}

/// The tokens that a step processes.
pub(super) struct Wanted {
    /// First, a chunk of the oldest prompt that has one left.
    pub chunk: Option<Chunk>,
    /// Columns.
    pub parts: Vec<Part>,
    /// The text that the step after it begins with.
    pub turn: usize,
}
