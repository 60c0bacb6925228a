//! Answers of the model: a request becomes texts of the engine, and they become a document or a stream.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::Request as HttpRequest;
use axum::http::StatusCode;
use axum::http::header::{HeaderMap, HeaderName, HeaderValue};
use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};
use ga10b_llm::Sampler;
use serde_json::{Map, Value};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::spawn_blocking;

use crate::serve::job::{Event, Failure, Piece, Reason, Request, Usage, Weighed};
use crate::serve::openai::answer::{Heading, Kind};
use crate::serve::openai::error::Error;
use crate::serve::openai::logprobs;
use crate::serve::openai::messages::Prompt;
use crate::serve::openai::request::{Body, Start, Wanted};
use crate::serve::state::{App, known, read};

/// Interval of empty lines in a stream whose next text takes long.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Events of the texts of a request, with their numbers.
type Events = UnboundedReceiver<(usize, Event)>;

/// Answers a request for `kind`.
pub async fn answer(app: Arc<App>, kind: Kind, request: HttpRequest) -> Result<Response, Error> {
    let mut body = Body::read(&read(&app, request).await?, &app.unknown)?;
    known(&app, body.model.as_deref())?;
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
    let (is_stream, usage, texts) = (wanted.stream, wanted.usage, wanted.texts);
    let requests = prepare(Arc::clone(&app), start, wanted).await?;
    let heading = Heading::new(kind, app.number(), &app.model);
    let id = HeaderValue::from_str(&heading.id).ok().map(|id| (HeaderName::from_static("x-request-id"), id));
    let id: HeaderMap = id.into_iter().collect();
    let open = requests.len();
    let mut events = app.scheduler.submit(requests)?;
    let mut answer = Answer { app, heading, texts, open, used: Usage::default() };
    if !is_stream {
        let document = answer.whole(&mut events).await?;
        return Ok((id, Json(document)).into_response());
    }
    // The status depends on what comes first.
    let first = match next(&mut events).await {
        (_, Event::Failed(failure)) => return Err(failure.into()),
        first => first,
    };
    Ok((id, chunks(answer, usage, first, events)).into_response())
}

/// The requests for the engine: texts become tokens.
async fn prepare(app: Arc<App>, start: Start, wanted: Wanted) -> Result<Vec<Request>, Error> {
    let field = start.field();
    let Wanted { sampling, penalties, mut bias, stops, grammar, count, reuse, .. } = wanted;
    let Wanted { endless, texts, logprobs, variables, .. } = wanted;
    // Nothing closes it. The work goes on when the client goes away, and keeps its place.
    let permit = Arc::clone(&app.own.tokenizing).acquire_owned().await.ok();
    let shared = Arc::clone(&app);
    let is_free = grammar.is_none();
    let work = move || {
        let _permit = permit;
        let constraint = grammar.map(|grammar| shared.constraint(&grammar)).transpose()?;
        Ok::<_, Error>((tokens(&shared, start, &variables)?, constraint))
    };
    let prepared = spawn_blocking(work).await;
    let (prompts, constraint) = prepared.map_err(|error| {
        Error::new(StatusCode::INTERNAL_SERVER_ERROR, format!("the tokenizer failed: {error}"))
    })??;
    let context = app.context;
    for prompt in &prompts {
        if prompt.is_empty() {
            return Err(Error::field(field, "the prompt is empty and the model has no token to begin with"));
        }
        if prompt.len() > context {
            let message = format!("the prompt has {} tokens, and the context has {context}", prompt.len());
            return Err(Error::field(field, message).with_code("context_length_exceeded"));
        }
    }
    // A text by a grammar ends with it.
    if endless && is_free {
        bias.extend(app.tokenizer.ends().iter().map(|end| (*end, f32::NEG_INFINITY)));
    }
    let request = |prompt: &Vec<u32>, number: u64| {
        let mut sampling = sampling;
        sampling.seed = sampling.seed.wrapping_add(number);
        let mut sampler = Sampler::new(sampling).with_penalties(penalties).with_bias(bias.clone());
        if let Some(constraint) = &constraint {
            sampler = sampler.with_constraint(constraint.copied());
        }
        if let Some(most) = logprobs {
            sampler = sampler.with_logprobs(most);
        }
        let count = count.unwrap_or(usize::MAX);
        Request { prompt: prompt.clone(), sampler, stops: stops.clone(), count, reuse }
    };
    Ok(prompts
        .iter()
        .flat_map(|prompt| (0..texts as u64).map(move |number| (prompt, number)))
        .map(|(prompt, number)| request(prompt, number))
        .collect())
}

/// The tokens of each prompt.
fn tokens(app: &App, start: Start, variables: &Map<String, Value>) -> Result<Vec<Vec<u32>>, Error> {
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
    let one = |prompt| match prompt {
        Prompt::Tokens(tokens) => app.in_vocabulary("prompt", tokens),
        Prompt::Text(text) => app.tokenizer.encode_formatted(&text).map_err(bad),
    };
    prompts.into_iter().map(one).collect()
}

/// The next event; a failure after the worker has gone.
async fn next(events: &mut Events) -> (usize, Event) {
    let gone = || (0, Event::Failed(Failure::Engine("the engine ended without an answer".into())));
    events.recv().await.unwrap_or_else(gone)
}

/// An answer that is being written.
struct Answer {
    app: Arc<App>,
    heading: Heading,
    /// Texts of each prompt.
    texts: usize,
    /// Texts that have not ended.
    open: usize,
    used: Usage,
}

/// A text of an answer.
#[derive(Default)]
struct Text {
    text: String,
    tokens: Vec<Weighed>,
    reason: Option<Reason>,
}

impl Answer {
    /// Ends text `number`.
    fn end(&mut self, number: usize, used: Usage) {
        self.open -= 1;
        self.used.generated += used.generated;
        // The texts of a prompt share it.
        if number.is_multiple_of(self.texts) {
            self.used.prompt += used.prompt;
            self.used.cached += used.cached;
        }
    }

    fn logprobs(&self, tokens: &[Weighed], offset: &mut usize) -> Value {
        logprobs::document(self.heading.kind, &self.app.tokenizer, tokens, offset)
    }

    /// The whole answer, when it is complete. Dropping the future cancels the request.
    async fn whole(&mut self, events: &mut Events) -> Result<Value, Error> {
        let mut texts: Vec<Text> = (0..self.open).map(|_| Text::default()).collect();
        while self.open > 0 {
            match next(events).await {
                (number, Event::Text(Piece { text, tokens })) => {
                    texts[number].text.push_str(&text);
                    texts[number].tokens.extend(tokens);
                }
                (number, Event::End(reason, used)) => {
                    texts[number].reason = Some(reason);
                    self.end(number, used);
                }
                (_, Event::Failed(failure)) => return Err(failure.into()),
            }
        }
        let choice = |(number, text): (usize, &Text)| {
            let logprobs = self.logprobs(&text.tokens, &mut 0);
            self.heading.choice(number, &text.text, text.reason, logprobs)
        };
        Ok(self.heading.whole(texts.iter().enumerate().map(choice).collect(), self.used))
    }
}

/// A stream that is being written.
struct Stream {
    answer: Answer,
    events: Events,
    /// An event that was received already.
    first: Option<(usize, Event)>,
    /// The characters of each text, once it has begun.
    offsets: Vec<Option<usize>>,
    usage: bool,
    ended: bool,
}

impl Stream {
    /// The next chunks.
    async fn next(&mut self) -> Vec<String> {
        let (number, event) = match self.first.take() {
            Some(first) => first,
            None => next(&mut self.events).await,
        };
        let Self { answer, offsets, .. } = self;
        let mut chunks = Vec::new();
        if !matches!(event, Event::Failed(_)) && offsets[number].is_none() {
            offsets[number] = Some(0);
            chunks.extend(answer.heading.first(number));
        }
        match event {
            Event::Text(Piece { text, tokens }) => {
                let logprobs = answer.logprobs(&tokens, offsets[number].get_or_insert(0));
                chunks.push(answer.heading.text(number, &text, logprobs));
            }
            Event::End(reason, used) => {
                answer.end(number, used);
                chunks.push(answer.heading.last(number, reason));
            }
            Event::Failed(failure) => {
                self.ended = true;
                chunks.push(Error::from(failure).json());
            }
        }
        let mut texts: Vec<String> = chunks.iter().map(Value::to_string).collect();
        if answer.open == 0 {
            self.ended = true;
            texts.extend(self.usage.then(|| answer.heading.usage(answer.used).to_string()));
            texts.push("[DONE]".to_owned());
        }
        texts
    }
}

/// The answer in chunks. Dropping the stream cancels the request.
fn chunks(answer: Answer, usage: bool, first: (usize, Event), events: Events) -> Response {
    let offsets = vec![None; answer.open];
    let stream = Stream { answer, events, first: Some(first), offsets, usage, ended: false };
    let chunks = stream::unfold(stream, |mut stream| async move {
        if stream.ended {
            return None;
        }
        let texts = stream.next().await.into_iter();
        let texts: Vec<_> = texts.map(|text| Ok::<_, Infallible>(SseEvent::default().data(text))).collect();
        Some((stream::iter(texts), stream))
    });
    Sse::new(chunks.flatten()).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}
