//! The routes: what a request is answered.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::body::{HttpBody, to_bytes};
use axum::extract::rejection::PathRejection;
use axum::extract::{MatchedPath, Path, Request as HttpRequest, State};
use axum::http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use axum::http::{Method, StatusCode};
use axum::middleware::{self, Next};
use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures_util::stream;
use ga10b_llm::chat::Template;
use ga10b_llm::sampler::Constraint;
use ga10b_llm::{Sampler, Tokenizer};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::grammar::{Compiler, Grammar};
use crate::serve::access::{Access, is_preflight, permissions};
use crate::serve::job::{Event, Failure, Health, Request};
use crate::serve::metrics::{MEDIA_TYPE, Metrics};
use crate::serve::openai::answer::{Heading, Kind, model, now};
use crate::serve::openai::error::Error;
use crate::serve::openai::messages::Prompt;
use crate::serve::openai::request::{Body, Defaults, Start, Wanted};
use crate::serve::scheduler::Scheduler;

/// The page to chat with.
const PAGE: &str = include_str!("page.html");
/// Permissions of the page: it runs its own script, and asks this server.
const PAGE_POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; \
                           connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
/// Texts that are tokenized at the same time.
const TOKENIZING: usize = 2;
/// Interval of empty lines in a stream whose next text takes long.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

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
    pub own: Own,
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
    /// Connections at the same time; others wait.
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
    created: u64,
    answers: AtomicU64,
    tokenizing: Arc<Semaphore>,
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
    /// The constraint of a text.
    fn constraint(&self, grammar: &Grammar) -> Result<Box<dyn Constraint>, Error> {
        let compiler = self
            .own
            .grammars
            .get_or_init(|| Compiler::new(&self.tokenizer).map_err(|error| format!("{error:#}")));
        let compiled = compiler.as_ref().map_err(Clone::clone).and_then(|compiler| compiler.compile(grammar));
        compiled.map_err(|message| Error::field("response_format", message))
    }
}

/// All routes.
pub fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/", get(page))
        .route("/health", get(health))
        .route("/metrics", get(metrics))
        .route("/v1/models", get(models))
        .route("/v1/models/{id}", get(one_model))
        .route("/v1/chat/completions", post(chat))
        .route("/v1/completions", post(completion))
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        .layer(middleware::from_fn_with_state(Arc::clone(&app), guard))
        .with_state(app)
}

/// Refuses what may not ask, and counts answers.
async fn guard(
    State(app): State<Arc<App>>,
    path: Option<MatchedPath>,
    request: HttpRequest,
    next: Next,
) -> Response {
    let name = route(path.as_ref().map(MatchedPath::as_str));
    let open = matches!(name, "/" | "/health");
    let (parts, body) = request.into_parts();
    let mut response = match app.access.check(&parts, open) {
        Ok(origin) => {
            let headers = origin.map(|origin| permissions(origin, &parts.headers));
            let answer = match headers.is_some() && is_preflight(&parts) {
                true => StatusCode::NO_CONTENT.into_response(),
                false => next.run(HttpRequest::from_parts(parts, body)).await,
            };
            (headers.unwrap_or_default(), answer).into_response()
        }
        Err(error) => error.into_response(),
    };
    app.metrics.answered(name, response.status().as_u16());
    let nosniff = HeaderValue::from_static("nosniff");
    response.headers_mut().insert("x-content-type-options", nosniff);
    response
}

/// The name of a route in counters.
fn route(path: Option<&str>) -> &'static str {
    const ROUTES: [&str; 7] = [
        "/",
        "/health",
        "/metrics",
        "/v1/models",
        "/v1/models/{id}",
        "/v1/chat/completions",
        "/v1/completions",
    ];
    ROUTES.into_iter().find(|route| Some(*route) == path).unwrap_or("other")
}

async fn page() -> Response {
    let headers = [
        ("content-type", "text/html; charset=utf-8"),
        ("content-security-policy", PAGE_POLICY),
        ("referrer-policy", "no-referrer"),
        ("cache-control", "no-cache"),
    ];
    (headers, PAGE).into_response()
}

async fn health(State(app): State<Arc<App>>) -> Response {
    let (status, state, reason) = match app.scheduler.health() {
        Health::Good => (StatusCode::OK, "ok", None),
        Health::Loading => (StatusCode::SERVICE_UNAVAILABLE, "loading", None),
        Health::Unhealthy(reason) => (StatusCode::SERVICE_UNAVAILABLE, "failed", Some(reason)),
        Health::Shutdown => (StatusCode::SERVICE_UNAVAILABLE, "ending", None),
    };
    (status, Json(json!({"status": state, "reason": reason}))).into_response()
}

async fn metrics(State(app): State<Arc<App>>) -> Result<Response, Error> {
    let text = app.metrics.text();
    let text = text.map_err(|e| Error::new(StatusCode::INTERNAL_SERVER_ERROR, e.to_string()))?;
    Ok(([(CONTENT_TYPE, MEDIA_TYPE)], text).into_response())
}

async fn models(State(app): State<Arc<App>>) -> Json<Value> {
    Json(json!({"object": "list", "data": [model(&app.model, app.own.created, app.context)]}))
}

async fn one_model(
    State(app): State<Arc<App>>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<Value>, Error> {
    let Path(id) = id.map_err(|rejection| Error::bad(rejection.body_text()))?;
    known(&app, Some(&id))?;
    Ok(Json(model(&app.model, app.own.created, app.context)))
}

async fn no_route(request: HttpRequest) -> Error {
    let path = request.uri().path().chars().take(100).collect::<String>();
    Error::new(StatusCode::NOT_FOUND, format!("there is no {path}"))
}

async fn no_method(method: Method) -> Error {
    Error::new(StatusCode::METHOD_NOT_ALLOWED, format!("{method} is not for this address"))
}

async fn chat(State(app): State<Arc<App>>, request: HttpRequest) -> Result<Response, Error> {
    answer(app, Kind::Chat, request).await
}

async fn completion(State(app): State<Arc<App>>, request: HttpRequest) -> Result<Response, Error> {
    answer(app, Kind::Completion, request).await
}

async fn answer(app: Arc<App>, kind: Kind, request: HttpRequest) -> Result<Response, Error> {
    let mut body = read(&app, request).await?;
    known(&app, body.model.as_deref())?;
    let start = match kind {
        Kind::Chat => Start::Messages(body.messages()?),
        Kind::Completion => Start::Prompt(body.prompt()?),
    };
    let wanted = body.wanted(&app.defaults, app.tokenizer.vocab())?;
    let (stream, usage) = (wanted.stream, wanted.usage);
    let request = prepare(Arc::clone(&app), start, wanted).await?;
    let mut events = app.scheduler.submit(request)?;
    let number = app.own.answers.fetch_add(1, Ordering::Relaxed);
    let heading = Heading::new(kind, number, &app.model);
    let id = HeaderValue::from_str(&heading.id).ok().map(|id| (HeaderName::from_static("x-request-id"), id));
    let id: HeaderMap = id.into_iter().collect();
    if !stream {
        let document = whole(&heading, &mut events).await?;
        return Ok((id, Json(document)).into_response());
    }
    // The status depends on what comes first.
    let first = match events.recv().await.unwrap_or_else(gone) {
        Event::Failed(failure) => return Err(failure.into()),
        first => first,
    };
    Ok((id, chunks(heading, usage, first, events)).into_response())
}

/// An error for a model that is not this one.
fn known(app: &App, id: Option<&str>) -> Result<(), Error> {
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
async fn read(app: &App, request: HttpRequest) -> Result<Body, Error> {
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
    let bytes = match timeout(read, to_bytes(http_body, most)).await {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(error)) if is_length_limit(&error) => return Err(too_large()),
        Ok(Err(error)) => return Err(Error::bad(format!("the body cannot be read: {error}"))),
        Err(_) => {
            let message = format!("the body did not arrive within {} s", read.as_secs());
            return Err(Error::new(StatusCode::REQUEST_TIMEOUT, message));
        }
    };
    Body::read(&bytes)
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

/// The request for the engine: texts become tokens.
async fn prepare(app: Arc<App>, start: Start, wanted: Wanted) -> Result<Request, Error> {
    let field = start.field();
    let Wanted { sampling, penalties, bias, stops, grammar, count, reuse, .. } = wanted;
    // Nothing closes it. The work goes on when the client goes away, and keeps its place.
    let permit = Arc::clone(&app.own.tokenizing).acquire_owned().await.ok();
    let shared = Arc::clone(&app);
    let work = move || {
        let _permit = permit;
        let constraint = grammar.map(|grammar| shared.constraint(&grammar)).transpose()?;
        Ok::<_, Error>((tokens(&shared, start)?, constraint))
    };
    let prepared = spawn_blocking(work).await;
    let (prompt, constraint) = prepared.map_err(|error| {
        Error::new(StatusCode::INTERNAL_SERVER_ERROR, format!("the tokenizer failed: {error}"))
    })??;
    let context = app.context;
    if prompt.is_empty() {
        return Err(Error::field(field, "the prompt is empty and the model has no token to begin with"));
    }
    if prompt.len() > context {
        let message = format!("the prompt has {} tokens, and the context has {context}", prompt.len());
        return Err(Error::field(field, message).with_code("context_length_exceeded"));
    }
    let mut sampler = Sampler::new(sampling).with_penalties(penalties).with_bias(bias);
    if let Some(constraint) = constraint {
        sampler = sampler.with_constraint(constraint);
    }
    Ok(Request { prompt, sampler, stops, count: count.unwrap_or(usize::MAX), reuse })
}

fn tokens(app: &App, start: Start) -> Result<Vec<u32>, Error> {
    let field = start.field();
    let bad = |error: ga10b_llm::Error| Error::field(field, format!("{:#}", anyhow::Error::from(error)));
    match start {
        Start::Messages(messages) => {
            let template = app.template.as_ref().ok_or_else(|| {
                let message = "the model has no template of conversations (tokenizer.chat_template): it takes \
                               prompts, /v1/completions; or start the server with --template FILE";
                Error::field(field, message).with_code("no_template")
            })?;
            let text = template.render(&messages, true).map_err(bad)?;
            app.tokenizer.encode_formatted(&text).map_err(bad)
        }
        Start::Prompt(Prompt::Tokens(tokens)) => {
            match tokens.iter().find(|t| **t as usize >= app.tokenizer.vocab()) {
                Some(token) => {
                    let message =
                        format!("token {token} is outside the vocabulary of {}", app.tokenizer.vocab());
                    Err(Error::field("prompt", message))
                }
                None => Ok(tokens),
            }
        }
        Start::Prompt(Prompt::Text(text)) => app.tokenizer.encode_formatted(&text).map_err(bad),
        Start::Prompt(Prompt::Texts(_)) => Err(Error::field("prompt", "one prompt per request is supported")),
    }
}

/// The event after the worker has gone.
fn gone() -> Event {
    Event::Failed(Failure::Engine("the engine ended without an answer".into()))
}

/// The whole answer, when it is complete. Dropping the future cancels the request.
async fn whole(heading: &Heading, events: &mut UnboundedReceiver<Event>) -> Result<Value, Error> {
    let mut text = String::new();
    loop {
        match events.recv().await.unwrap_or_else(gone) {
            Event::Text(piece) => text.push_str(&piece),
            Event::End(reason, used) => return Ok(heading.whole(&text, reason, used)),
            Event::Failed(failure) => return Err(failure.into()),
        }
    }
}

/// The answer in chunks. Dropping the stream cancels the request.
fn chunks(heading: Heading, usage: bool, first: Event, events: UnboundedReceiver<Event>) -> Response {
    const DONE: &str = "[DONE]";
    let begin: Vec<String> = heading.first().iter().map(Value::to_string).collect();
    let state = (events, Some(first), begin, false);
    let chunks = stream::unfold(state, move |(mut events, mut next, begin, ended)| {
        let heading = heading.clone();
        async move {
            if ended {
                return None;
            }
            let event = match next.take() {
                Some(event) => event,
                None => events.recv().await.unwrap_or_else(gone),
            };
            let mut texts = begin;
            let mut ended = true;
            match event {
                Event::Text(text) => {
                    texts.push(heading.text(&text).to_string());
                    ended = false;
                }
                Event::End(reason, used) => {
                    texts.push(heading.last(reason).to_string());
                    texts.extend(usage.then(|| heading.usage(used).to_string()));
                    texts.push(DONE.to_owned());
                }
                Event::Failed(failure) => texts.push(Error::from(failure).json().to_string()),
            }
            let texts = texts
                .into_iter()
                .map(|text| Ok::<_, std::convert::Infallible>(SseEvent::default().data(text)));
            Some((stream::iter(texts.collect::<Vec<_>>()), (events, None, Vec::new(), ended)))
        }
    });
    let chunks = futures_util::StreamExt::flatten(chunks);
    Sse::new(chunks).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}
