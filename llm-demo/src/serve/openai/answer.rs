//! Answers, whole and in chunks.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::iter;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::serve::calls::Part;
use crate::serve::job::{Reason, Usage, Weighed};

/// The interface of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Chat,
    Completion,
}

/// A text of an answer.
#[derive(Clone, Debug, Default)]
pub struct Written {
    pub text: String,
    /// Names of functions, and their arguments.
    pub calls: Vec<(String, String)>,
    pub tokens: Vec<Weighed>,
    pub reason: Option<Reason>,
}

impl Written {
    /// Adds parts.
    pub fn add(&mut self, parts: impl IntoIterator<Item = Part>) {
        for part in parts {
            match part {
                Part::Text(text) => self.text.push_str(&text),
                Part::Call(name) => self.calls.push((name, String::new())),
                Part::Arguments(text) => {
                    if let Some((_, arguments)) = self.calls.last_mut() {
                        arguments.push_str(&text);
                    }
                }
            }
        }
    }
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
    pub fn whole(&self, choices: Vec<Value>, used: Usage) -> Value {
        let object = match self.kind {
            Kind::Chat => "chat.completion",
            Kind::Completion => "text_completion",
        };
        let mut document = self.document(object, choices.into());
        document["usage"] = usage(used);
        document
    }

    /// A whole text, for the answer.
    pub fn choice(&self, index: usize, text: &Written, logprobs: Value) -> Value {
        let reason = text.reason.map(|reason| self.reason(reason, !text.calls.is_empty()));
        let mut choice = json!({"index": index, "finish_reason": reason, "logprobs": logprobs});
        match self.kind {
            Kind::Chat => {
                let content = (text.calls.is_empty() || !text.text.is_empty()).then_some(&text.text);
                let mut message = json!({"role": "assistant", "content": content, "refusal": null});
                let call = |(number, call): (usize, &(String, String))| {
                    self.call((index, number), Some(&call.0), &call.1)
                };
                let calls: Vec<Value> = text.calls.iter().enumerate().map(call).collect();
                if !calls.is_empty() {
                    message["tool_calls"] = calls.into();
                }
                choice["message"] = message;
            }
            Kind::Completion => choice["text"] = text.text.as_str().into(),
        }
        choice
    }

    /// The name of call `number` of text `index`: nine letters and digits, as templates of Mistral's models want it.
    fn call_id(&self, index: usize, number: usize) -> String {
        let mut hasher = DefaultHasher::new();
        (&self.id, index, number).hash(&mut hasher);
        let digits = iter::successors(Some(hasher.finish()), |rest| Some(rest / 36));
        digits.take(9).filter_map(|rest| char::from_digit((rest % 36) as u32, 36)).collect()
    }

    /// Call `number` of text `index`: with its name, or more of its arguments alone.
    fn call(&self, (index, number): (usize, usize), name: Option<&str>, arguments: &str) -> Value {
        match name {
            None => json!({"function": {"arguments": arguments}}),
            Some(name) => json!({
                "id": self.call_id(index, number),
                "type": "function",
                "function": {"name": name, "arguments": arguments},
            }),
        }
    }

    /// A chunk of a call.
    pub fn call_chunk(
        &self,
        (index, number): (usize, usize),
        name: Option<&str>,
        arguments: &str,
        logprobs: Value,
    ) -> Value {
        let mut call = self.call((index, number), name, arguments);
        call["index"] = number.into();
        self.chunk(index, json!({"tool_calls": [call]}), None, logprobs)
    }

    fn reason(&self, reason: Reason, has_calls: bool) -> &'static str {
        match reason {
            Reason::Stop if has_calls => "tool_calls",
            Reason::Stop => "stop",
            Reason::Length => "length",
        }
    }

    /// The chunk before all text, if there is one.
    pub fn first(&self, index: usize) -> Option<Value> {
        match self.kind {
            Kind::Chat => {
                let delta = json!({"role": "assistant", "content": ""});
                Some(self.chunk(index, delta, None, Value::Null))
            }
            Kind::Completion => None,
        }
    }

    /// A chunk of text.
    pub fn text(&self, index: usize, text: &str, logprobs: Value) -> Value {
        match self.kind {
            Kind::Chat => self.chunk(index, json!({"content": text}), None, logprobs),
            Kind::Completion => self.chunk(index, text.into(), None, logprobs),
        }
    }

    /// The chunk after all text, which may have calls.
    pub fn last(&self, index: usize, reason: Reason, has_calls: bool) -> Value {
        let reason = self.reason(reason, has_calls);
        match self.kind {
            Kind::Chat => self.chunk(index, json!({}), Some(reason), Value::Null),
            Kind::Completion => self.chunk(index, "".into(), Some(reason), Value::Null),
        }
    }

    /// The chunk with the numbers of tokens.
    pub fn usage(&self, used: Usage) -> Value {
        let mut document = self.document(self.chunk_object(), json!([]));
        document["usage"] = usage(used);
        document
    }

    fn chunk(&self, index: usize, what: Value, reason: Option<&str>, logprobs: Value) -> Value {
        let key = match self.kind {
            Kind::Chat => "delta",
            Kind::Completion => "text",
        };
        let choice = json!({"index": index, key: what, "finish_reason": reason, "logprobs": logprobs});
        self.document(self.chunk_object(), json!([choice]))
    }

    fn chunk_object(&self) -> &'static str {
        match self.kind {
            Kind::Chat => "chat.completion.chunk",
            Kind::Completion => "text_completion",
        }
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

/// A number with the digits that it was written with: 0.8, and not the nearest of 64 bits to that of 32.
pub fn number(value: f32) -> Value {
    value.to_string().parse::<f64>().map_or(Value::Null, Value::from)
}

/// Seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// The entry of a model in `/v1/models`; `context` is the number of tokens that a text has at most.
pub fn model(id: &str, created: u64, context: usize) -> Value {
    json!({"id": id, "object": "model", "created": created, "owned_by": "llm-demo", "context_length": context})
}
