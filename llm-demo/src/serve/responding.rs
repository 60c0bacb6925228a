//! Responses: a text of the engine in documents and events of their own.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request as HttpRequest, State};
use axum::response::sse::Event as SseEvent;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::serve::asking::{Asked, Events, Streamed, ask, first, next, request_id, stream_of};
use crate::serve::job::{Event, Reason, Usage};
use crate::serve::openai::answer::Kind;
use crate::serve::openai::error::Error;
use crate::serve::openai::fields::Fields;
use crate::serve::openai::request::Body;
use crate::serve::openai::responses::{Document, NAMES, part, translate};
use crate::serve::state::{App, read};

/// Answers a request for a response.
pub async fn respond(State(app): State<Arc<App>>, request: HttpRequest) -> Result<Response, Error> {
    let fields = Fields::parse(&read(&app, request).await?)?;
    let (echo, fields) = translate(fields, &app.unknown)?;
    let body = Body::of(fields, &app.unknown).map_err(|error| error.renamed(&NAMES))?;
    let Asked { requests, sampling, is_stream, .. } =
        ask(&app, Kind::Chat, body).await.map_err(|error| error.renamed(&NAMES))?;
    if requests.len() != 1 {
        return Err(Error::field("n", "a response is one text"));
    }
    let mut events = app.scheduler.submit(requests)?;
    let document = Document::new(app.number(), &app.model, echo.with(&sampling));
    let id = request_id(&document.id);
    if !is_stream {
        let (text, reason, used) = whole(&mut events).await?;
        return Ok((id, Json(document.response(Some(&text), Some((reason, used))))).into_response());
    }
    let first = Some(first(&mut events).await.map_err(|error| error.renamed(&NAMES))?);
    let stream = Stream { document, events, first, text: String::new(), number: 0, ended: false };
    Ok((id, stream_of(stream)).into_response())
}

async fn whole(events: &mut Events) -> Result<(String, Reason, Usage), Error> {
    let mut text = String::new();
    loop {
        match next(events).await.1 {
            Event::Text(piece) => text.push_str(&piece.text()),
            Event::Embedding(_) => {}
            Event::End(reason, used) => return Ok((text, reason, used)),
            Event::Failed(failure) => return Err(Error::from(failure).renamed(&NAMES)),
        }
    }
}

/// A response in events.
struct Stream {
    document: Document,
    events: Events,
    /// An event of the engine that was received already.
    first: Option<(usize, Event)>,
    text: String,
    /// The number of the next event.
    number: u64,
    ended: bool,
}

impl Stream {
    fn begin(&self) -> Vec<Value> {
        let document = &self.document;
        vec![
            document.event("response.created", document.response(None, None)),
            document.event("response.in_progress", document.response(None, None)),
            document.of_item("response.output_item.added", document.item(None, "in_progress")),
            document.of_text("response.content_part.added", "part", part("")),
        ]
    }

    fn end(&self, reason: Reason, used: Usage) -> Vec<Value> {
        let (document, text) = (&self.document, self.text.as_str());
        let (kind, status) = match reason {
            Reason::Stop => ("response.completed", "completed"),
            Reason::Length => ("response.incomplete", "incomplete"),
        };
        vec![
            document.of_text("response.output_text.done", "text", text.into()),
            document.of_text("response.content_part.done", "part", part(text)),
            document.of_item("response.output_item.done", document.item(Some(text), status)),
            document.event(kind, document.response(Some(text), Some((reason, used)))),
        ]
    }
}

impl Streamed for Stream {
    async fn next(&mut self) -> Option<Vec<SseEvent>> {
        if self.ended {
            return None;
        }
        let event = match self.first.take() {
            Some(first) => first,
            None => next(&mut self.events).await,
        };
        let mut events = if self.number == 0 { self.begin() } else { Vec::new() };
        match event.1 {
            Event::Text(piece) => {
                let text = piece.text();
                self.text.push_str(&text);
                let delta = self.document.of_text("response.output_text.delta", "delta", text.into());
                events.push(delta);
            }
            Event::End(reason, used) => {
                events.extend(self.end(reason, used));
                self.ended = true;
            }
            Event::Embedding(_) => {}
            Event::Failed(failure) => {
                let mut error = Error::from(failure).renamed(&NAMES).json()["error"].take();
                error["type"] = "error".into();
                events.push(error);
                self.ended = true;
            }
        }
        let number = |mut event: Value| {
            event["sequence_number"] = json!(self.number);
            self.number += 1;
            SseEvent::default().event(event["type"].as_str().unwrap_or_default()).data(event.to_string())
        };
        Some(events.into_iter().map(number).collect())
    }
}
