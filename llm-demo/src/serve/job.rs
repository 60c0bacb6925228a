//! The interface between HTTP and the generator of texts: a request goes in, events come out. Dropping the
//! receiver of the events cancels the request.

use std::sync::{Arc, OnceLock};

use ga10b_llm::Sampler;
use ga10b_llm::sampler::Logprobs;
use ga10b_llm::schedule::Reading;

use crate::grammar::{Calls, Impasse};
use crate::serve::calls::Part;

/// A text to generate, or to embed.
#[derive(Debug)]
pub struct Request {
    /// The tokens that it continues; at least one.
    pub prompt: Vec<u32>,
    /// The sampler.
    pub sampler: Sampler,
    /// Strings before which the text ends, if they are not in a call; none is empty.
    pub stops: Vec<String>,
    /// Most tokens.
    pub count: usize,
    /// Whether the beginning of the prompt may come from the cache, if the request before had it.
    pub reuse: bool,
    /// The results that are told of the prompt. Hidden states become its [`Event::Embedding`].
    pub reading: Reading,
    /// The text of the prompt, if the answer begins with it.
    pub echo: Option<String>,
    /// The calls that the text may have.
    pub calls: Option<Calls>,
    /// The constraint of the sampler, if it has one.
    pub constrained: Option<Constrained>,
}

/// The constraint of a text, as its request knows it.
#[derive(Clone, Debug)]
pub struct Constrained {
    /// The field that it is from.
    pub field: &'static str,
    /// The reason it gave up, when it has.
    pub impasse: Arc<OnceLock<Impasse>>,
}

/// Events of a request, in order. The last one is `End` or `Failed`.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// More text.
    Text(Piece),
    /// The mean of the prompt's hidden states, or the last of them.
    Embedding(Vec<f32>),
    End(Reason, Usage),
    Failed(Failure),
}

/// A piece of a text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Piece {
    /// Whole characters of text, and of calls.
    pub parts: Vec<Part>,
    /// Its tokens, if their probabilities are told.
    pub tokens: Vec<Weighed>,
}

/// A token and its probability.
#[derive(Clone, Debug, PartialEq)]
pub struct Weighed {
    pub token: u32,
    /// Characters of the text that end with it.
    pub characters: usize,
    /// `None` for the first token of a prompt, which follows nothing.
    pub logprobs: Option<Logprobs>,
}

impl Piece {
    /// Its text.
    pub fn text(&self) -> String {
        self.parts
            .iter()
            .map(|part| match part {
                Part::Text(text) => text.as_str(),
                Part::Call(_) | Part::Arguments(_) => "",
            })
            .collect()
    }
}

impl Weighed {
    /// The token of `logprobs`, with which so many characters end.
    pub fn of(logprobs: Logprobs, characters: usize) -> Self {
        Self { token: logprobs.token, characters, logprobs: Some(logprobs) }
    }
}

/// The reason a text ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The model ended it, a stop string did, or it is complete by its constraint.
    Stop,
    /// It has as many tokens as were asked for, or as the context has room for.
    Length,
}

/// Numbers of tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub prompt: usize,
    /// Of these, the tokens that came from the cache.
    pub cached: usize,
    /// Tokens of the text, also those of a stop string.
    pub generated: usize,
}

/// The reason there is no text, or no more of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The device, the engine or the model failed; with the diagnosis.
    Engine(String),
    /// The engine failed in an earlier request and cannot be set up again; with the diagnosis.
    Unavailable(String),
    /// The constraint, which is from a field of the request, gave up.
    Constraint(&'static str, Impasse),
    /// The server ends.
    Shutdown,
}

impl Failure {
    /// A constraint that gave up.
    pub fn of_constraint(constrained: Option<&Constrained>) -> Self {
        match constrained {
            Some(Constrained { field, impasse }) => {
                Self::Constraint(field, impasse.get().copied().unwrap_or(Impasse::Work))
            }
            None => Self::Engine("a text without a constraint gave up".into()),
        }
    }
}

/// The reason a request is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// As many requests wait as may; the estimated time until one has been served.
    Full { seconds: u64 },
    /// The engine failed and could not be set up again.
    Unhealthy(String),
    /// The server ends.
    Shutdown,
}

/// Whether requests are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// The engine is set up, for the first time or again.
    Loading,
    Good,
    Unhealthy(String),
    Shutdown,
}
