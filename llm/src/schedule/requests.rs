//! Requests and what becomes of them.

use crate::sampler::{Logprobs, Sampler};

/// A text to write.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Tokens to continue, at least one.
    pub prompt: Vec<u32>,
    /// The sampler. Its text begins with the request ([`Sampler::begin`]).
    pub sampler: Sampler,
    /// Most tokens to write; 0 for what is told of the prompt alone.
    pub most: usize,
    /// Tokens that end the text; they are not part of it.
    pub ends: Vec<u32>,
    /// Whether the beginning of the prompt may be taken from the prefix cache
    /// ([`Scheduler::with_prefix_cache`](crate::Scheduler::with_prefix_cache)). The text is the same.
    pub reuse: bool,
    /// The results that are told of the prompt.
    pub reading: Reading,
}

/// The results that are told of a prompt, beside the text that follows it.
///
/// Of all tokens only columns tell something: such a prompt has no chunks ([`Cut`](crate::Cut)), and takes nothing
/// from the prefix cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reading {
    /// Nothing.
    #[default]
    Nothing,
    /// [`Event::Known`] of each token but the first, with as many of the most likely ones.
    Logprobs(usize),
    /// [`Event::State`] of each token.
    States,
    /// [`Event::State`] of the last token.
    LastState,
}

impl Reading {
    /// Whether something is told of all tokens.
    pub(super) fn is_of_all(self) -> bool {
        matches!(self, Self::Logprobs(_) | Self::States)
    }
}

/// The number of a request, never used twice by a scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// The reason a text ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// The model chose a token that ends text, or the text is complete by its constraint.
    End,
    /// The requested number of tokens is reached.
    Count,
    /// The context, or the whole cache, has no room for another token.
    Context,
    /// The sampler's constraint [gave up](Sampler::gave_up).
    Constraint,
    /// No logit was a number at this position.
    NotFinite {
        /// Tokens before it.
        position: usize,
    },
}

/// An event of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// It has a sequence, for the first time or again.
    Admitted {
        /// Tokens that are in the cache already.
        reused: usize,
    },
    /// Before its first token: further tokens of the prompt are in the cache, because another request has
    /// processed them meanwhile.
    Reused {
        /// Tokens that it need not process.
        tokens: usize,
    },
    /// The probabilities of the next token of the prompt, from the second one on ([`Reading::Logprobs`]).
    Known(Logprobs),
    /// The hidden state of the next token of the prompt, or of its last ([`Reading::States`], [`Reading::LastState`]).
    State(Vec<f32>),
    /// The probabilities of the token that is next, or of the one that ends the text, if the sampler keeps them
    /// ([`Sampler::with_logprobs`]).
    Logprobs(Logprobs),
    /// The next token of the text.
    Token(u32),
    /// The text has ended; nothing follows.
    Finished(Finish),
}

/// A request that is waiting or running.
#[derive(Debug)]
pub(super) struct Job {
    pub id: RequestId,
    /// The prompt, then what was written.
    pub tokens: Vec<u32>,
    /// Tokens of the prompt.
    pub prompt: usize,
    pub most: usize,
    pub ends: Vec<u32>,
    pub reuse: bool,
    pub sampler: Sampler,
    pub reading: Reading,
    /// Tokens of the prompt of which everything was told.
    pub told: usize,
}

impl Job {
    pub fn new(id: RequestId, request: Request) -> Self {
        let Request { prompt, mut sampler, most, ends, reuse, reading } = request;
        sampler.begin(&prompt);
        let reuse = reuse && !reading.is_of_all();
        Self { id, prompt: prompt.len(), tokens: prompt, most, ends, reuse, sampler, reading, told: 0 }
    }

    /// Takes the next token. Returns what to report.
    pub fn take(&mut self, token: u32, context: usize) -> (Option<Event>, Option<Finish>) {
        if self.sampler.gave_up() {
            return (None, Some(Finish::Constraint));
        }
        if self.ends.contains(&token) {
            return (None, Some(Finish::End));
        }
        self.tokens.push(token);
        if self.sampler.is_complete() {
            return (Some(Event::Token(token)), Some(Finish::End));
        }
        let finish = match self.tokens.len() - self.prompt >= self.most {
            true => Some(Finish::Count),
            false => (self.tokens.len() > context).then_some(Finish::Context),
        };
        (Some(Event::Token(token)), finish)
    }
}
