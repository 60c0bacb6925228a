//! The interface of responses, of texts alone: in words of chats, and in documents of its own.

use ga10b_llm::SamplerOptions;
use serde_json::{Map, Value, json};

use crate::serve::job::{Reason, Usage};
use crate::serve::openai::answer::{now, number};
use crate::serve::openai::error::Error;
use crate::serve::openai::fields::{Fields, Unknown, typed};
use crate::serve::openai::messages::given;

/// Fields of a chat, and those that they were here.
pub const NAMES: [(&str, &str); 4] = [
    ("messages", "input"),
    ("max_completion_tokens", "max_output_tokens"),
    ("response_format", "text.format"),
    ("reasoning_effort", "reasoning.effort"),
];

/// Fields that are not supported, with the values that change nothing.
const ABSENT: [(&str, &[&str]); 8] = [
    ("tools", &[]),
    ("tool_choice", &["\"none\"", "\"auto\""]),
    ("previous_response_id", &[]),
    ("conversation", &[]),
    ("prompt", &[]),
    ("background", &["false"]),
    ("truncation", &["\"disabled\""]),
    ("include", &[]),
];

/// Parts of a request that its answer repeats.
#[derive(Clone, Debug, Default)]
pub struct Echo(Map<String, Value>);

impl Echo {
    /// Adds the options of the text.
    #[must_use]
    pub fn with(mut self, sampling: &SamplerOptions) -> Self {
        self.0.insert("temperature".into(), number(sampling.temperature));
        self.0.insert("top_p".into(), number(sampling.top_p));
        self
    }
}

/// The fields of a chat that asks for the same.
///
/// # Errors
/// For what is not supported, by its name here.
pub fn translate(mut fields: Fields, unknown: &Unknown) -> Result<(Echo, Fields), Error> {
    for (name, harmless) in ABSENT {
        let value = fields.take::<Value>(name)?.unwrap_or_default();
        if given(&value) && !harmless.contains(&value.to_string().as_str()) {
            return Err(Error::field(name, format!("{name} is not supported")).with_code("unsupported"));
        }
    }
    let mut chat = Map::new();
    let mut echo = Map::new();
    let instructions: Option<String> = fields.take("instructions")?;
    let mut messages: Vec<Value> =
        instructions.iter().map(|text| json!({"role": "system", "content": text})).collect();
    match fields.take::<Value>("input")? {
        None => return Err(Error::field("input", "there is no input")),
        Some(Value::String(text)) => messages.push(json!({"role": "user", "content": text})),
        Some(input) => {
            let items = typed::<Vec<Value>>("input", input)?.into_iter().enumerate();
            let items = items.map(|(at, item)| message(&format!("input[{at}]"), item, unknown));
            messages.extend(items.collect::<Result<Vec<_>, _>>()?);
        }
    }
    chat.insert("messages".into(), messages.into());
    let most: Option<u64> = fields.take("max_output_tokens")?;
    chat.extend(most.map(|most| ("max_completion_tokens".to_owned(), most.into())));
    if let Some(text) = fields.take("text")? {
        let mut text = Fields::of("text", text)?;
        let format: Option<Value> = text.take("format")?;
        text.take::<Value>("verbosity")?;
        text.end(unknown)?;
        chat.extend(format.map(|format| ("response_format".to_owned(), of_chat(format))));
    }
    if let Some(reasoning) = fields.take("reasoning")? {
        let mut reasoning = Fields::of("reasoning", reasoning)?;
        let effort: Option<String> = reasoning.take("effort")?;
        reasoning.take::<Value>("summary")?;
        reasoning.end(unknown)?;
        chat.extend(effort.map(|effort| ("reasoning_effort".to_owned(), effort.into())));
    }
    let left = fields.left();
    echo.insert("instructions".into(), instructions.into());
    echo.insert("max_output_tokens".into(), most.into());
    echo.insert("metadata".into(), left.get("metadata").cloned().unwrap_or_else(|| json!({})));
    chat.extend(left);
    Ok((Echo(echo), Fields::translated(chat)))
}

/// An item of the input as a message.
fn message(path: &str, item: Value, unknown: &Unknown) -> Result<Value, Error> {
    let mut item = Fields::of(path, item)?;
    let kind = item.take("type")?.unwrap_or_else(|| "message".to_owned());
    if kind != "message" {
        let message = format!("{path} is of the type {kind:?}: messages are supported");
        return Err(Error::field(path, message).with_code("unsupported"));
    }
    let role: Option<Value> = item.take("role")?;
    let mut content: Option<Value> = item.take("content")?;
    for name in ["id", "status"] {
        item.take::<Value>(name)?;
    }
    item.end(unknown)?;
    for part in content.iter_mut().filter_map(Value::as_array_mut).flatten() {
        if let Some(kind) =
            part.get_mut("type").filter(|kind| *kind == "input_text" || *kind == "output_text")
        {
            *kind = "text".into();
        }
    }
    Ok(json!({"role": role, "content": content}))
}

/// A format in the shape that a chat has.
fn of_chat(mut format: Value) -> Value {
    match format.get("type").and_then(Value::as_str) {
        Some("json_schema") => {
            format.as_object_mut().map(|fields| fields.remove("type"));
            json!({"type": "json_schema", "json_schema": format})
        }
        _ => format,
    }
}

/// A response that is being written.
#[derive(Clone, Debug)]
pub struct Document {
    pub id: String,
    created: u64,
    model: String,
    echo: Echo,
}

impl Document {
    /// Of answer number `number` of this process.
    pub fn new(number: u64, model: &str, echo: Echo) -> Self {
        let created = now();
        Self { id: format!("resp_{created:x}_{number}"), created, model: model.to_owned(), echo }
    }

    /// The response with its message, if it has begun, and how it ended, if it has.
    pub fn response(&self, text: Option<&str>, ended: Option<(Reason, Usage)>) -> Value {
        let (status, incomplete) = match ended {
            None => ("in_progress", None),
            Some((Reason::Stop, _)) => ("completed", None),
            Some((Reason::Length, _)) => ("incomplete", Some(json!({"reason": "max_output_tokens"}))),
        };
        let usage = ended.map(|(_, used)| {
            json!({
                "input_tokens": used.prompt,
                "input_tokens_details": {"cached_tokens": used.cached},
                "output_tokens": used.generated,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": used.prompt + used.generated,
            })
        });
        let output: Vec<Value> = text.map(|text| self.item(Some(text), status)).into_iter().collect();
        let mut document = json!({
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "error": null,
            "incomplete_details": incomplete,
            "model": self.model,
            "output": output,
            "parallel_tool_calls": true,
            "previous_response_id": null,
            "tool_choice": "auto",
            "tools": [],
            "usage": usage,
        });
        if let Some(fields) = document.as_object_mut() {
            fields.extend(self.echo.0.clone());
        }
        document
    }

    fn message(&self) -> String {
        self.id.replacen("resp", "msg", 1)
    }

    /// The message, with its text if it has begun.
    pub fn item(&self, text: Option<&str>, status: &str) -> Value {
        let content: Vec<Value> = text.map(part).into_iter().collect();
        json!({
            "type": "message", "id": self.message(), "status": status, "role": "assistant", "content": content,
        })
    }

    /// An event of the response.
    pub fn event(&self, kind: &str, response: Value) -> Value {
        json!({"type": kind, "response": response})
    }

    /// An event of the message.
    pub fn of_item(&self, kind: &str, item: Value) -> Value {
        json!({"type": kind, "output_index": 0, "item": item})
    }

    /// An event of the text, whose field `name` is `value`.
    pub fn of_text(&self, kind: &str, name: &str, value: Value) -> Value {
        let message = self.message();
        let mut event = json!({"type": kind, "item_id": message, "output_index": 0, "content_index": 0});
        event[name] = value;
        if name != "part" {
            event["logprobs"] = json!([]);
        }
        event
    }
}

/// The text of a message.
pub fn part(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
}
