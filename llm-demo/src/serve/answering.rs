//! Answers of the model: a request becomes texts of the engine, and they become a document or a stream.

use std::sync::Arc;

use axum::Json;
use axum::extract::Request as HttpRequest;
use axum::response::sse::Event as SseEvent;
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use crate::serve::asking::{Asked, Events, Streamed, ask, first, next, request_id, stream_of};
use crate::serve::calls::Part;
use crate::serve::job::{Event, Piece, Usage, Weighed};
use crate::serve::openai::answer::{Heading, Kind, Written};
use crate::serve::openai::error::Error;
use crate::serve::openai::fields::Fields;
use crate::serve::openai::logprobs;
use crate::serve::openai::request::Body;
use crate::serve::state::{App, read};

/// Answers a request for `kind`.
pub async fn answer(app: Arc<App>, kind: Kind, request: HttpRequest) -> Result<Response, Error> {
    let body = Body::of(Fields::parse(&read(&app, request).await?)?, &app.unknown)?;
    let Asked { requests, texts, is_stream, usage, .. } = ask(&app, kind, body).await?;
    let heading = Heading::new(kind, app.number(), &app.model);
    let id = request_id(&heading.id);
    let open = requests.len();
    let mut events = app.scheduler.submit(requests)?;
    let mut answer = Answer { app, heading, texts, open, used: Usage::default() };
    if !is_stream {
        let document = answer.whole(&mut events).await?;
        return Ok((id, Json(document)).into_response());
    }
    let first = first(&mut events).await?;
    Ok((id, chunks(answer, usage, first, events)).into_response())
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
    written: Written,
    /// Characters of the tokens.
    offset: usize,
    has_begun: bool,
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
        (0..self.open).map(|_| Text::default()).collect()
    }

    fn logprobs(&self, tokens: &[Weighed], offset: &mut usize) -> Value {
        logprobs::document(self.heading.kind, &self.app.tokenizer, tokens, offset)
    }

    /// The whole answer, when it is complete. Dropping the future cancels the request.
    async fn whole(&mut self, events: &mut Events) -> Result<Value, Error> {
        let mut texts = self.all();
        while self.open > 0 {
            match next(events).await {
                (number, Event::Text(Piece { parts, tokens })) => {
                    texts[number].written.add(parts);
                    texts[number].written.tokens.extend(tokens);
                }
                (number, Event::End(reason, used)) => {
                    texts[number].written.reason = Some(reason);
                    self.end(number, used);
                }
                (_, Event::Embedding(_)) => {}
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

impl Streamed for Stream {
    async fn next(&mut self) -> Option<Vec<SseEvent>> {
        if self.ended {
            return None;
        }
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
            Event::Text(Piece { parts, tokens }) => {
                chunks.extend(answer.parts((number, &mut texts[number]), parts, &tokens));
            }
            Event::End(reason, used) => {
                answer.end(number, used);
                let has_calls = !texts[number].written.calls.is_empty();
                chunks.push(answer.heading.last(number, reason, has_calls));
            }
            Event::Embedding(_) => {}
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
        Some(texts.into_iter().map(|text| SseEvent::default().data(text)).collect())
    }
}

/// The answer in chunks. Dropping the stream cancels the request.
fn chunks(answer: Answer, usage: bool, first: (usize, Event), events: Events) -> Response {
    let texts = answer.all();
    let stream = Stream { answer, events, first: Some(first), texts, usage, ended: false };
    stream_of(stream)
}
