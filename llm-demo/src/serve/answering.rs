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

use crate::grammar::{Calls, Grammar};
use crate::serve::job::{Event, Failure, Piece, Request, Usage, Weighed};
use crate::serve::openai::answer::{Heading, Kind, Written};
use crate::serve::openai::calls::{Part, Reader};
use crate::serve::openai::error::Error;
use crate::serve::openai::grammars::Wanted as Constraint;
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
    let tools = body.tools()?;
    let calls = tools.map(|tools| tools.calls(app.template.as_ref())).transpose()?;
    if let (Some(tools), Some(calls)) = (tools, &calls) {
        wanted.variables.insert("tools".into(), tools.list.clone().into());
        wanted.grammar = Some(Constraint { field: "tools", grammar: Grammar::Calls(calls.clone()) });
    }
    let (is_stream, usage, texts) = (wanted.stream, wanted.usage, wanted.texts);
    let requests = prepare(Arc::clone(&app), start, wanted).await?;
    let heading = Heading::new(kind, app.number(), &app.model);
    let id = HeaderValue::from_str(&heading.id).ok().map(|id| (HeaderName::from_static("x-request-id"), id));
    let id: HeaderMap = id.into_iter().collect();
    let open = requests.len();
    let mut events = app.scheduler.submit(requests)?;
    let mut answer = Answer { app, heading, texts, calls, open, used: Usage::default() };
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
    /// The calls that a text may have.
    calls: Option<Calls>,
    /// Texts that have not ended.
    open: usize,
    used: Usage,
}

/// A text of an answer, and the calls in it.
struct Text {
    /// Finds them, if there may be some.
    reader: Option<Reader>,
    written: Written,
    /// Characters of the tokens.
    offset: usize,
    has_begun: bool,
}

impl Text {
    /// The parts that `piece` makes certain.
    fn read(&mut self, piece: String) -> Vec<Part> {
        match &mut self.reader {
            Some(reader) => reader.push(&piece),
            None => vec![Part::Text(piece)],
        }
    }

    /// The last part.
    fn finish(&mut self) -> Option<Part> {
        self.reader.as_mut().and_then(Reader::finish)
    }
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

    /// All texts, which are empty.
    fn all(&self) -> Vec<Text> {
        let reader = self.calls.clone().map(Reader::new);
        let one =
            || Text { reader: reader.clone(), written: Written::default(), offset: 0, has_begun: false };
        (0..self.open).map(|_| one()).collect()
    }

    fn logprobs(&self, tokens: &[Weighed], offset: &mut usize) -> Value {
        logprobs::document(self.heading.kind, &self.app.tokenizer, tokens, offset)
    }

    /// The whole answer, when it is complete. Dropping the future cancels the request.
    async fn whole(&mut self, events: &mut Events) -> Result<Value, Error> {
        let mut texts = self.all();
        while self.open > 0 {
            match next(events).await {
                (number, Event::Text(Piece { text, tokens })) => {
                    let parts = texts[number].read(text);
                    texts[number].written.add(parts);
                    texts[number].written.tokens.extend(tokens);
                }
                (number, Event::End(reason, used)) => {
                    let rest = texts[number].finish();
                    texts[number].written.add(rest);
                    texts[number].written.reason = Some(reason);
                    self.end(number, used);
                }
                (_, Event::Failed(failure)) => return Err(failure.into()),
            }
        }
        let choice = |(number, Text { written, .. }): (usize, &Text)| {
            self.heading.choice(number, written, self.logprobs(&written.tokens, &mut 0))
        };
        Ok(self.heading.whole(texts.iter().enumerate().map(choice).collect(), self.used))
    }

    /// The chunks of the parts of a text.
    fn parts(&self, (number, text): (usize, &mut Text), parts: Vec<Part>, tokens: &[Weighed]) -> Vec<Value> {
        let mut logprobs = self.logprobs(tokens, &mut text.offset);
        let nothing = (parts.is_empty() && !tokens.is_empty()).then(|| Part::Text(String::new()));
        let chunk = |part: Part| {
            let logprobs = logprobs.take();
            text.written.add([part.clone()]);
            let at = (number, text.written.calls.len().saturating_sub(1));
            match part {
                Part::Text(piece) => self.heading.text(number, &piece, logprobs),
                Part::Call(name) => self.heading.call_chunk(at, Some(&name), "", logprobs),
                Part::Arguments(piece) => self.heading.call_chunk(at, None, &piece, logprobs),
            }
        };
        parts.into_iter().chain(nothing).map(chunk).collect()
    }
}

/// A stream that is being written.
struct Stream {
    answer: Answer,
    events: Events,
    /// An event that was received already.
    first: Option<(usize, Event)>,
    texts: Vec<Text>,
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
        let Self { answer, texts, .. } = self;
        let mut chunks = Vec::new();
        if !matches!(event, Event::Failed(_)) && !texts[number].has_begun {
            texts[number].has_begun = true;
            chunks.extend(answer.heading.first(number));
        }
        match event {
            Event::Text(Piece { text, tokens }) => {
                let parts = texts[number].read(text);
                chunks.extend(answer.parts((number, &mut texts[number]), parts, &tokens));
            }
            Event::End(reason, used) => {
                let rest = texts[number].finish().into_iter().collect();
                chunks.extend(answer.parts((number, &mut texts[number]), rest, &[]));
                answer.end(number, used);
                let has_calls = !texts[number].written.calls.is_empty();
                chunks.push(answer.heading.last(number, reason, has_calls));
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
    let texts = answer.all();
    let stream = Stream { answer, events, first: Some(first), texts, usage, ended: false };
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
