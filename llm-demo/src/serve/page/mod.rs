//! The page to chat with: files that are part of the program. It loads nothing from elsewhere.

use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use crate::serve::openai::error::Error;

/// The page, and what it consists of: name, media type, content.
const PARTS: [(&str, &str, &str); 13] = [
    ("page.html", "text/html; charset=utf-8", include_str!("page.html")),
    ("style.css", "text/css; charset=utf-8", include_str!("style.css")),
    ("icon.svg", "image/svg+xml", include_str!("icon.svg")),
    ("answer.js", SCRIPT, include_str!("answer.js")),
    ("dom.js", SCRIPT, include_str!("dom.js")),
    ("main.js", SCRIPT, include_str!("main.js")),
    ("markdown.js", SCRIPT, include_str!("markdown.js")),
    ("meter.js", SCRIPT, include_str!("meter.js")),
    ("render.js", SCRIPT, include_str!("render.js")),
    ("server.js", SCRIPT, include_str!("server.js")),
    ("settings.js", SCRIPT, include_str!("settings.js")),
    ("store.js", SCRIPT, include_str!("store.js")),
    ("thread.js", SCRIPT, include_str!("thread.js")),
];
const SCRIPT: &str = "text/javascript; charset=utf-8";
/// Permissions of the page: it has scripts, a style and an icon of this server alone, asks this server alone, and
/// cannot make nodes of texts.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types 'none'";

pub async fn page() -> Result<Response, Error> {
    named("page.html")
}

/// A file of the page.
pub async fn part(file: Result<Path<String>, PathRejection>) -> Result<Response, Error> {
    let Path(file) = file.map_err(|rejection| Error::bad(rejection.body_text()))?;
    named(&file)
}

fn named(file: &str) -> Result<Response, Error> {
    let Some((_, kind, content)) = PARTS.into_iter().find(|(name, ..)| *name == file) else {
        let file: String = file.chars().take(100).collect();
        return Err(Error::new(StatusCode::NOT_FOUND, format!("the page has no file {file:?}")));
    };
    let headers = [
        ("content-type", kind),
        ("content-security-policy", POLICY),
        ("referrer-policy", "no-referrer"),
        // Files of different programs don't mix.
        ("cache-control", "no-cache"),
    ];
    Ok((headers, content).into_response())
}
