//! Errors in the shape that clients of OpenAI's interface expect.

use axum::Json;
use axum::http::StatusCode;
use axum::http::header::{HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::serve::job::{Failure, Refused};

/// The reason there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    pub status: StatusCode,
    message: String,
    /// The field of the request.
    param: Option<String>,
    code: Option<&'static str>,
    /// Seconds after which another try makes sense.
    retry_after: Option<u64>,
}

impl Error {
    pub fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), param: None, code: None, retry_after: None }
    }

    /// A request that cannot be served as it is.
    pub fn bad(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// A field of a request that cannot be served as it is.
    pub fn field(param: &str, message: impl Into<String>) -> Self {
        Self { param: Some(param.to_owned()), ..Self::bad(message) }
    }

    #[must_use]
    pub fn with_status(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }

    #[must_use]
    pub fn with_code(self, code: &'static str) -> Self {
        Self { code: Some(code), ..self }
    }

    /// The error of a request that was translated: `names` are fields and what they were before.
    #[must_use]
    pub fn renamed(self, names: &[(&str, &str)]) -> Self {
        let rename = |param: &str| {
            names.iter().find_map(|(name, before)| Some(format!("{before}{}", param.strip_prefix(name)?)))
        };
        // A message about a field begins with it.
        let message = rename(&self.message).filter(|_| self.param.is_some()).unwrap_or(self.message);
        let param = self.param.map(|param| rename(&param).unwrap_or(param));
        Self { message, param, ..self }
    }

    /// The document.
    pub fn json(&self) -> Value {
        let kind = match self.status {
            StatusCode::UNAUTHORIZED => "authentication_error",
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            status if status.is_server_error() => "server_error",
            _ => "invalid_request_error",
        };
        json!({"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}})
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Engine(diagnosis) => {
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, diagnosis).with_code("engine_failed")
            }
            Failure::Unavailable(reason) => Refused::Unhealthy(reason).into(),
            Failure::Constraint(field, impasse) => {
                Self::field(field, format!("{field}: {impasse}")).with_code("constraint_gave_up")
            }
            Failure::Shutdown => Refused::Shutdown.into(),
        }
    }
}

impl From<Refused> for Error {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Full { seconds } => {
                let message = format!("as many requests wait as may; try again in {seconds} s");
                let error = Self::new(StatusCode::TOO_MANY_REQUESTS, message).with_code("queue_full");
                Self { retry_after: Some(seconds), ..error }
            }
            Refused::Unhealthy(reason) => {
                let message = format!("the engine failed and cannot be set up: {reason}");
                Self::new(StatusCode::SERVICE_UNAVAILABLE, message).with_code("engine_failed")
            }
            Refused::Shutdown => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "the server is ending").with_code("shutdown")
            }
        }
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.json())).into_response();
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
