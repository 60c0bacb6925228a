//! The interface between HTTP and the generator of texts: a request goes in, events come out. Dropping the
//! receiver of the events cancels the request.

use ga10b_llm::Sampler;
use ga10b_llm::sampler::Logprobs;
use ga10b_llm::schedule::Reading;

/// A text to generate, or to embed.
#[derive(Debug)]
pub struct Request {
    /// The tokens that it continues; at least one.
    pub prompt: Vec<u32>,
    /// The sampler.
    pub sampler: Sampler,
    /// Strings before which the text ends; none is empty.
    pub stops: Vec<String>,
    /// Most tokens.
    pub count: usize,
    /// Whether the beginning of the prompt may come from the cache, if the request before had it.
    pub reuse: bool,
    /// The results that are told of the prompt. Hidden states become its [`Event::Embedding`].
    pub reading: Reading,
    /// The text of the prompt, if the answer begins with it.
    pub echo: Option<String>,
    /// Whether control tokens that are not its end are part of the text, by their names: marks of calls may be some.
    pub has_marks: bool,
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
    /// Whole characters.
    pub text: String,
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
    /// The constraint allows no further token.
    Constraint,
    /// The server ends.
    Shutdown,
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
