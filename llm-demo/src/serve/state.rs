//! The state that all requests share, and the reading of their bodies.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::body::{Bytes, HttpBody, to_bytes};
use axum::extract::Request as HttpRequest;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use ga10b_llm::Tokenizer;
use ga10b_llm::chat::Template;
use ga10b_llm::model::Pooling;
use ga10b_llm::sampler::Constraint;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::grammar::Compiler;
use crate::serve::access::Access;
use crate::serve::job::Constrained;
use crate::serve::metrics::Metrics;
use crate::serve::openai::answer::now;
use crate::serve::openai::error::Error;
use crate::serve::openai::fields::Unknown;
use crate::serve::openai::grammars::Wanted;
use crate::serve::openai::request::Defaults;
use crate::serve::scheduler::Scheduler;

/// Texts that are tokenized at the same time.
const TOKENIZING: usize = 2;

/// State that all requests share.
pub struct App {
    pub scheduler: Scheduler,
    pub tokenizer: Arc<Tokenizer>,
    /// `None` for a model without one: it takes no messages.
    pub template: Option<Template>,
    pub metrics: Arc<Metrics>,
    /// The model's name in requests and answers.
    pub model: String,
    /// Tokens of a prompt and its text together.
    pub context: usize,
    pub defaults: Defaults,
    pub limits: Limits,
    pub access: Access,
    pub unknown: Unknown,
    /// Requests that are processed at the same time.
    pub parallel: usize,
    pub embeddings: Embeddings,
    pub own: Own,
}

/// The embeddings of a model.
#[derive(Clone, Copy, Debug)]
pub struct Embeddings {
    pub pooling: Pooling,
    /// Numbers of each.
    pub width: usize,
}

/// Limits of a request.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of a body.
    pub body: usize,
    /// Time to send the head, and to send the body.
    pub read: Duration,
    /// Time for the client to take the next part of an answer.
    pub write: Duration,
    /// Connections at the same time.
    pub connections: usize,
}

impl Default for Limits {
    fn default() -> Self {
        let (read, write) = (Duration::from_secs(30), Duration::from_secs(30));
        Self { body: 2 << 20, read, write, connections: 256 }
    }
}

/// Parts that an [`App`] makes by itself.
pub struct Own {
    pub created: u64,
    answers: AtomicU64,
    pub tokenizing: Arc<Semaphore>,
    /// For the first request that needs it.
    grammars: OnceLock<Result<Compiler, String>>,
}

impl Default for Own {
    fn default() -> Self {
        let tokenizing = Arc::new(Semaphore::new(TOKENIZING));
        Self { created: now(), answers: AtomicU64::new(1), tokenizing, grammars: OnceLock::new() }
    }
}

impl App {
    /// The constraint of a text, which is from a field.
    pub fn constraint(&self, wanted: &Wanted) -> Result<(Box<dyn Constraint>, Constrained), Error> {
        let Wanted { field, grammar } = wanted;
        let impasse = Arc::default();
        let compiler = self
            .own
            .grammars
            .get_or_init(|| Compiler::new(&self.tokenizer).map_err(|error| format!("{error:#}")));
        let compiled = compiler
            .as_ref()
            .map_err(Clone::clone)
            .and_then(|compiler| compiler.compile_telling(grammar, Arc::clone(&impasse)));
        let constraint = compiled.map_err(|message| Error::field(field, message))?;
        Ok((constraint, Constrained { field, impasse }))
    }

    /// The tokens of `field`, all of which are of the vocabulary.
    pub fn in_vocabulary(&self, field: &str, tokens: Vec<u32>) -> Result<Vec<u32>, Error> {
        let vocab = self.tokenizer.vocab();
        match tokens.iter().find(|token| **token as usize >= vocab) {
            Some(token) => {
                Err(Error::field(field, format!("token {token} is outside the vocabulary of {vocab}")))
            }
            None => Ok(tokens),
        }
    }

    /// The number of the next answer.
    pub fn number(&self) -> u64 {
        self.own.answers.fetch_add(1, Ordering::Relaxed)
    }
}

/// An error for a model that is not this one.
pub fn known(app: &App, id: Option<&str>) -> Result<(), Error> {
    match id {
        Some(id) if id != app.model => {
            let id: String = id.chars().take(100).collect();
            let message = format!("there is no model {id:?}; this server has {:?}", app.model);
            let error = Error::field("model", message).with_status(StatusCode::NOT_FOUND);
            Err(error.with_code("model_not_found"))
        }
        _ => Ok(()),
    }
}

/// The body of a request.
pub async fn read(app: &App, request: HttpRequest) -> Result<Bytes, Error> {
    let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    is_json(kind).map_err(|message| Error::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message))?;
    let Limits { body: most, read, .. } = app.limits;
    let too_large = || {
        let message = format!("the body has more than {most} bytes");
        Error::new(StatusCode::PAYLOAD_TOO_LARGE, message)
    };
    let http_body = request.into_body();
    if http_body.size_hint().lower() > most as u64 {
        return Err(too_large());
    }
    match timeout(read, to_bytes(http_body, most)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(error)) if is_length_limit(&error) => Err(too_large()),
        Ok(Err(error)) => Err(Error::bad(format!("the body cannot be read: {error}"))),
        Err(_) => {
            let message = format!("the body did not arrive within {} s", read.as_secs());
            Err(Error::new(StatusCode::REQUEST_TIMEOUT, message))
        }
    }
}

/// Whether a `Content-Type` is JSON in UTF-8.
fn is_json(kind: &str) -> Result<(), &'static str> {
    let mut parts = kind.split(';').map(str::trim);
    // Pages of other sites may send what needs no permission: forms and plain text.
    if !parts.next().is_some_and(|kind| kind.eq_ignore_ascii_case("application/json")) {
        return Err("a request has the Content-Type application/json");
    }
    let charset = |part: &str| {
        let (name, value) = part.split_once('=')?;
        name.trim()
            .eq_ignore_ascii_case("charset")
            .then(|| value.trim().trim_matches('"').to_ascii_lowercase())
    };
    match parts.find_map(charset) {
        Some(charset) if !matches!(charset.as_str(), "utf-8" | "utf8" | "us-ascii") => {
            Err("JSON is UTF-8: the Content-Type names another charset")
        }
        _ => Ok(()),
    }
}

fn is_length_limit(error: &axum::Error) -> bool {
    let source = std::error::Error::source(error);
    source.is_some_and(|source| source.is::<http_body_util::LengthLimitError>())
}
