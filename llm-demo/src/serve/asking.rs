//! Requests for the engine, and the events that it answers with.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use axum::http::header::{HeaderMap, HeaderName, HeaderValue};
use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};
use ga10b_llm::schedule::Reading;
use ga10b_llm::{Sampler, SamplerOptions};
use serde_json::{Map, Value};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::spawn_blocking;

use crate::grammar::{Calls, Grammar};
use crate::serve::job::{Event, Failure, Request};
use crate::serve::openai::answer::Kind;
use crate::serve::openai::error::Error;
use crate::serve::openai::grammars::Wanted as Constraint;
use crate::serve::openai::messages::Prompt;
use crate::serve::openai::request::{Body, Start, Wanted};
use crate::serve::state::{App, known};

/// Interval of empty lines in a stream whose next text takes long.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Events of the texts of a request, with their numbers.
pub type Events = UnboundedReceiver<(usize, Event)>;

/// The texts that a request asks for.
pub struct Asked {
    /// One after the other for each prompt.
    pub requests: Vec<Request>,
    /// Texts of each prompt.
    pub texts: usize,
    pub sampling: SamplerOptions,
    pub is_stream: bool,
    /// Whether a stream ends with the numbers of tokens.
    pub usage: bool,
}

/// Reads what a request asks for.
pub async fn ask(app: &Arc<App>, kind: Kind, mut body: Body) -> Result<Asked, Error> {
    known(app, body.model.as_deref())?;
    let start = match kind {
        Kind::Chat => Start::Messages(body.messages()?),
        Kind::Completion => Start::Prompts(body.prompts()?),
    };
    let mut wanted = body.wanted((kind, start.texts()), &app.defaults, app.tokenizer.vocab())?;
    if let Some(effort) = body.effort() {
        match app.template.as_ref().is_some_and(|template| template.takes("reasoning_effort")) {
            true => _ = wanted.variables.insert("reasoning_effort".into(), effort.into()),
            false => app.unknown.ignore("reasoning_effort")?,
        }
    }
    let mut calls = None;
    if let Some(tools) = body.tools() {
        wanted.variables.insert("tools".into(), tools.list.clone().into());
        calls = Some(tools.calls(app.template.as_ref(), wanted.grammar.as_ref())?);
    }
    let (is_stream, usage, texts, sampling) = (wanted.stream, wanted.usage, wanted.texts, wanted.sampling);
    let requests = prepare(Arc::clone(app), start, wanted, calls).await?;
    Ok(Asked { requests, texts, sampling, is_stream, usage })
}

/// The requests for the engine: texts become tokens.
async fn prepare(
    app: Arc<App>,
    start: Start,
    wanted: Wanted,
    calls: Option<Calls>,
) -> Result<Vec<Request>, Error> {
    let Wanted { sampling, penalties, mut bias, stops, grammar, count, reuse, .. } = wanted;
    let Wanted { endless, texts, logprobs, echo, variables, .. } = wanted;
    let of_calls = |calls| Constraint { field: "tools", grammar: Grammar::Calls(calls) };
    // The format of an answer beside calls is tried alone, so that an error is about its field.
    let constraints: Vec<Constraint> = grammar.into_iter().chain(calls.clone().map(of_calls)).collect();
    let is_free = constraints.is_empty();
    let work = move |app: &App| {
        let compiled = constraints.iter().map(|one| app.constraint(one)).collect::<Result<Vec<_>, _>>()?;
        let constraint = compiled.into_iter().next_back();
        Ok((tokens(app, start, &variables)?, constraint))
    };
    let (prompts, constraint) = beside(&app, work).await?;
    // A text by a grammar ends with it.
    if endless && is_free {
        bias.extend(app.tokenizer.ends().iter().map(|end| (*end, f32::NEG_INFINITY)));
    }
    let request = |(prompt, text): &Encoded, number: u64| {
        let mut sampling = sampling;
        sampling.seed = sampling.seed.wrapping_add(number);
        let mut sampler = Sampler::new(sampling).with_penalties(penalties).with_bias(bias.clone());
        if let Some((constraint, _)) = &constraint {
            sampler = sampler.with_constraint(constraint.copied());
        }
        if let Some(most) = logprobs {
            sampler = sampler.with_logprobs(most);
        }
        let count = count.unwrap_or(usize::MAX);
        let reading = logprobs.filter(|_| echo).map_or(Reading::Nothing, Reading::Logprobs);
        let (prompt, echo) = (prompt.clone(), echo.then(|| text.clone()));
        let (stops, calls) = (stops.clone(), calls.clone());
        let constrained = constraint.as_ref().map(|(_, constrained)| constrained.clone());
        Request { prompt, sampler, stops, count, reuse, reading, echo, calls, constrained }
    };
    Ok(prompts
        .iter()
        .flat_map(|prompt| (0..texts as u64).map(move |number| (prompt, number)))
        .map(|(prompt, number)| request(prompt, number))
        .collect())
}

/// Does what takes the processor long on a thread for it. The work goes on when the client goes away, and keeps its
/// place.
pub async fn beside<T: Send + 'static>(
    app: &Arc<App>,
    work: impl FnOnce(&App) -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    // Nothing closes it.
    let permit = Arc::clone(&app.own.tokenizing).acquire_owned().await.ok();
    let shared = Arc::clone(app);
    let done = spawn_blocking(move || {
        let _permit = permit;
        work(&shared)
    });
    done.await.map_err(|error| {
        Error::new(StatusCode::INTERNAL_SERVER_ERROR, format!("the tokenizer failed: {error}"))
    })?
}

/// The tokens of a prompt, and its text.
pub type Encoded = (Vec<u32>, String);

/// The tokens of each prompt.
fn tokens(app: &App, start: Start, variables: &Map<String, Value>) -> Result<Vec<Encoded>, Error> {
    let field = start.field();
    let bad = |error: ga10b_llm::Error| Error::field(field, format!("{:#}", anyhow::Error::from(error)));
    let prompts = match start {
        Start::Messages(messages) => {
            let template = app.template.as_ref().ok_or_else(|| {
                let message = "the model has no template of conversations (tokenizer.chat_template): it takes \
                               prompts, /v1/completions; or start the server with --template FILE";
                Error::field(field, message).with_code("no_template")
            })?;
            vec![Prompt::Text(template.render_with(&messages, true, variables).map_err(bad)?)]
        }
        Start::Prompts(prompts) => prompts,
    };
    encode(app, field, prompts)
}

/// The tokens of each prompt, which are from `field`.
pub fn encode(app: &App, field: &str, prompts: Vec<Prompt>) -> Result<Vec<Encoded>, Error> {
    let one = |prompt| {
        let (tokens, text) = match prompt {
            Prompt::Tokens(tokens) => {
                let tokens = app.in_vocabulary(field, tokens)?;
                let text = app.tokenizer.decode(&tokens);
                (tokens, text)
            }
            Prompt::Text(text) => {
                let tokens = app.tokenizer.encode_formatted(&text);
                (
                    tokens
                        .map_err(|error| Error::field(field, format!("{:#}", anyhow::Error::from(error))))?,
                    text,
                )
            }
        };
        let (count, context) = (tokens.len(), app.context);
        match count {
            0 => Err(Error::field(field, "the prompt is empty and the model has no token to begin with")),
            _ if count > context => {
                // Clients look for these words.
                let message = format!(
                    "this model's maximum context length is {context} tokens, and the prompt has {count}"
                );
                Err(Error::field(field, message).with_code("context_length_exceeded"))
            }
            _ => Ok((tokens, text)),
        }
    };
    prompts.into_iter().map(one).collect()
}

/// The next event; a failure after the worker has gone.
pub async fn next(events: &mut Events) -> (usize, Event) {
    let gone = || (0, Event::Failed(Failure::Engine("the engine ended without an answer".into())));
    events.recv().await.unwrap_or_else(gone)
}

/// The first event, on which the status of an answer depends.
pub async fn first(events: &mut Events) -> Result<(usize, Event), Error> {
    match next(events).await {
        (_, Event::Failed(failure)) => Err(failure.into()),
        first => Ok(first),
    }
}

/// The header with the name of an answer.
pub fn request_id(id: &str) -> HeaderMap {
    let value = HeaderValue::from_str(id).ok();
    value.map(|id| (HeaderName::from_static("x-request-id"), id)).into_iter().collect()
}

/// Events of a stream.
pub trait Streamed: Send + 'static {
    /// The next ones; `None` at the end.
    fn next(&mut self) -> impl Future<Output = Option<Vec<SseEvent>>> + Send;
}

/// A stream as an answer. Dropping it cancels the request.
pub fn stream_of(streamed: impl Streamed) -> Response {
    let chunks = stream::unfold(streamed, |mut streamed| async move {
        let events = streamed.next().await?;
        Some((stream::iter(events.into_iter().map(Ok::<_, Infallible>)), streamed))
    });
    Sse::new(chunks.flatten()).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}
