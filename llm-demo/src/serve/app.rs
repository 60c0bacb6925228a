//! The routes: what a request is answered.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{MatchedPath, Path, Request as HttpRequest, State};
use axum::http::header::{CONTENT_TYPE, HeaderValue};
use axum::http::{Method, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};

use crate::serve::access::{is_preflight, permissions};
use crate::serve::answering::answer;
use crate::serve::embedding::embed;
use crate::serve::job::Health;
use crate::serve::metrics::MEDIA_TYPE;
use crate::serve::openai::answer::{Kind, model};
use crate::serve::openai::error::Error;
use crate::serve::page;
use crate::serve::responding::respond;
use crate::serve::state::{App, known};
use crate::serve::words;

/// All routes.
pub fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/", get(page::page))
        .route("/page/{file}", get(page::part))
        .route("/health", get(health))
        .route("/metrics", get(metrics))
        .route("/v1/models", get(models))
        .route("/v1/models/{id}", get(one_model))
        .route("/v1/chat/completions", post(chat))
        .route("/v1/completions", post(completion))
        .route("/v1/responses", post(respond))
        .route("/v1/embeddings", post(embed))
        .route("/tokenize", post(words::tokenize))
        .route("/detokenize", post(words::detokenize))
        .route("/props", get(words::props))
        .route("/tokenizer_info", get(words::tokenizer_info))
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
    let open = matches!(name, "/" | "/page/{file}" | "/health");
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
    const ROUTES: [&str; 14] = [
        "/",
        "/page/{file}",
        "/health",
        "/metrics",
        "/v1/models",
        "/v1/models/{id}",
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/responses",
        "/v1/embeddings",
        "/tokenize",
        "/detokenize",
        "/props",
        "/tokenizer_info",
    ];
    ROUTES.into_iter().find(|route| Some(*route) == path).unwrap_or("other")
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
