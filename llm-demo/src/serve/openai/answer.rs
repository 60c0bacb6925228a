//! Answers, whole and in chunks.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::serve::job::{Reason, Usage};

/// The interface of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Chat,
    Completion,
}

/// The fields that every chunk of an answer repeats.
#[derive(Clone, Debug)]
pub struct Heading {
    pub kind: Kind,
    pub id: String,
    pub model: String,
    pub created: u64,
}

impl Heading {
    /// Of answer number `number` of this process.
    pub fn new(kind: Kind, number: u64, model: &str) -> Self {
        let prefix = match kind {
            Kind::Chat => "chatcmpl",
            Kind::Completion => "cmpl",
        };
        let created = now();
        Self { kind, id: format!("{prefix}-{created:x}-{number}"), model: model.to_owned(), created }
    }

    fn document(&self, object: &str, choices: Value) -> Value {
        json!({
            "id": self.id,
            "object": object,
            "created": self.created,
            "model": self.model,
            "choices": choices,
        })
    }

    /// The whole answer.
    pub fn whole(&self, text: &str, reason: Reason, used: Usage) -> Value {
        let mut choice = json!({"index": 0, "finish_reason": reason_name(reason), "logprobs": null});
        let object = match self.kind {
            Kind::Chat => {
                choice["message"] = json!({"role": "assistant", "content": text, "refusal": null});
                "chat.completion"
            }
            Kind::Completion => {
                choice["text"] = text.into();
                "text_completion"
            }
        };
        let mut document = self.document(object, json!([choice]));
        document["usage"] = usage(used);
        document
    }

    /// The chunk before all text, if there is one.
    pub fn first(&self) -> Option<Value> {
        match self.kind {
            Kind::Chat => Some(self.chunk(json!({"role": "assistant", "content": ""}), None)),
            Kind::Completion => None,
        }
    }

    /// A chunk of text.
    pub fn text(&self, text: &str) -> Value {
        match self.kind {
            Kind::Chat => self.chunk(json!({"content": text}), None),
            Kind::Completion => self.chunk(text.into(), None),
        }
    }

    /// The chunk after all text.
    pub fn last(&self, reason: Reason) -> Value {
        match self.kind {
            Kind::Chat => self.chunk(json!({}), Some(reason)),
            Kind::Completion => self.chunk("".into(), Some(reason)),
        }
    }

    /// The chunk with the numbers of tokens.
    pub fn usage(&self, used: Usage) -> Value {
        let mut document = self.document(self.chunk_object(), json!([]));
        document["usage"] = usage(used);
        document
    }

    fn chunk(&self, what: Value, reason: Option<Reason>) -> Value {
        let key = match self.kind {
            Kind::Chat => "delta",
            Kind::Completion => "text",
        };
        let reason = reason.map(reason_name);
        let choice = json!({"index": 0, key: what, "finish_reason": reason, "logprobs": null});
        self.document(self.chunk_object(), json!([choice]))
    }

    fn chunk_object(&self) -> &'static str {
        match self.kind {
            Kind::Chat => "chat.completion.chunk",
            Kind::Completion => "text_completion",
        }
    }
}

fn reason_name(reason: Reason) -> &'static str {
    match reason {
        Reason::Stop => "stop",
        Reason::Length => "length",
    }
}

fn usage(used: Usage) -> Value {
    json!({
        "prompt_tokens": used.prompt,
        "completion_tokens": used.generated,
        "total_tokens": used.prompt + used.generated,
        "prompt_tokens_details": {"cached_tokens": used.cached},
    })
}

/// Seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// The entry of a model in `/v1/models`; `context` is the number of tokens that a text has at most.
pub fn model(id: &str, created: u64, context: usize) -> Value {
    json!({"id": id, "object": "model", "created": created, "owned_by": "llm-demo", "context_length": context})
}
