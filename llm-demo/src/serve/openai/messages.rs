//! The beginning of a text: the messages of a chat, or a prompt.

use ga10b_llm::chat::Message;
use serde_json::{Map, Value};

use crate::serve::openai::error::Error;
use crate::serve::openai::fields::{Field, Fields, typed, wrong};
use crate::serve::openai::tools::of_message;

/// A text to continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prompt {
    Text(String),
    Tokens(Vec<u32>),
}

/// The texts of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompts(pub Vec<Prompt>);

/// The number of a token.
pub struct Token(pub u32);

impl Field for Token {
    fn of(path: &str, value: Value) -> Result<Self, Error> {
        let token = value.as_u64().and_then(|token| u32::try_from(token).ok());
        token.map(Self).ok_or_else(|| wrong(path, "the number of a token, from 0 on", &value))
    }
}

impl Field for Prompts {
    fn of(path: &str, value: Value) -> Result<Self, Error> {
        const KIND: &str = "a string or a list of token numbers, or a list of such";
        match value {
            Value::Array(list) if matches!(list.first(), Some(Value::String(_) | Value::Array(_))) => {
                typed(path, list.into()).map(Self)
            }
            value @ (Value::String(_) | Value::Array(_)) => Ok(Self(vec![typed(path, value)?])),
            value => Err(wrong(path, KIND, &value)),
        }
    }
}

impl Field for Prompt {
    fn of(path: &str, value: Value) -> Result<Self, Error> {
        match value {
            Value::String(text) => Ok(Self::Text(text)),
            Value::Array(list) if list.is_empty() => Err(Error::field(path, format!("{path} is empty"))),
            list @ Value::Array(_) => {
                let tokens = typed::<Vec<Token>>(path, list)?;
                Ok(Self::Tokens(tokens.into_iter().map(|Token(token)| token).collect()))
            }
            value => Err(wrong(path, "a string or a list of token numbers", &value)),
        }
    }
}

/// The messages of the field `messages`.
pub fn messages(list: Vec<Value>) -> Result<Vec<Message>, Error> {
    list.into_iter().enumerate().map(|(at, value)| message(&format!("messages[{at}]"), value)).collect()
}

fn message(path: &str, value: Value) -> Result<Message, Error> {
    let mut fields = Fields::of(path, value)?;
    let missing = |path: &str| Error::field(path, format!("{path} is missing"));
    let role: String = fields.take("role")?.ok_or_else(|| missing(&fields.path("role")))?;
    let mut more = Map::new();
    let calls: Vec<Value> = fields.take("tool_calls")?.unwrap_or_default();
    if !calls.is_empty() {
        more.insert("tool_calls".into(), of_message(&fields.path("tool_calls"), calls)?.into());
    }
    for name in ["tool_call_id", "name"] {
        more.extend(fields.take::<String>(name)?.map(|value| (name.to_owned(), value.into())));
    }
    let path = fields.path("content");
    let content = match fields.take::<Value>("content")? {
        // A message of nothing but calls.
        None if more.contains_key("tool_calls") => String::new(),
        None => return Err(Error::field(&path, "the message has no text")),
        Some(Value::String(text)) => text,
        Some(Value::Array(parts)) => {
            let texts = parts.into_iter().enumerate().map(|(at, part)| text(&format!("{path}[{at}]"), part));
            texts.collect::<Result<Vec<_>, _>>()?.join("\n")
        }
        Some(other) => return Err(wrong(&path, "a string or a list of parts", &other)),
    };
    // OpenAI's newer name of it.
    let role = if role == "developer" { "system".to_owned() } else { role };
    Ok(Message { more, ..Message::new(role, content) })
}

/// The text of a part of a message.
fn text(path: &str, part: Value) -> Result<String, Error> {
    let mut part = Fields::of(path, part)?;
    let kind: String = part.take("type")?.unwrap_or_default();
    let text: Option<String> = part.take("text")?;
    text.filter(|_| kind == "text")
        .ok_or_else(|| Error::field(path, format!("a part is {kind:?}: the model reads text alone")))
}

/// Whether there is something: an empty list is nothing.
pub fn given(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Array(list) => !list.is_empty(),
        _ => true,
    }
}
