//! Tokens of texts, and the server's properties, by the names of llama-server and vLLM.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request as HttpRequest, State};
use serde_json::{Value, json};

use crate::grammar::Form;
use crate::serve::openai::answer::number;
use crate::serve::openai::error::Error;
use crate::serve::openai::fields::Fields;
use crate::serve::openai::messages::Token;
use crate::serve::state::{App, known, read};

/// The tokens of the text `content`, or `prompt` with the token that begins a text.
pub async fn tokenize(State(app): State<Arc<App>>, request: HttpRequest) -> Result<Json<Value>, Error> {
    let mut fields = Fields::parse(&read(&app, request).await?)?;
    known(&app, fields.take::<String>("model")?.as_deref())?;
    let content: Option<String> = fields.take("content")?;
    let prompt: Option<String> = fields.take("prompt")?;
    let (field, text, usual) = match (content, prompt) {
        (Some(text), None) => ("content", text, false),
        (None, Some(text)) => ("prompt", text, true),
        _ => return Err(Error::field("content", "a text is expected, as content or as prompt")),
    };
    let special = fields.take("add_special")?.or(fields.take("add_special_tokens")?).unwrap_or(usual);
    let with_pieces = fields.take("with_pieces")?.unwrap_or(false);
    fields.end(&app.unknown)?;
    let tokens = match special {
        true => app.tokenizer.encode_formatted(&text),
        false => app.tokenizer.encode_plain(&text),
    };
    let tokens = tokens.map_err(|error| Error::field(field, error.to_string()))?;
    let count = tokens.len();
    let tokens = match with_pieces {
        true => tokens.into_iter().map(|id| json!({"id": id, "piece": app.tokenizer.name(id)})).collect(),
        false => json!(tokens),
    };
    Ok(Json(json!({"tokens": tokens, "count": count, "max_model_len": app.context})))
}

/// The text of `tokens`.
pub async fn detokenize(State(app): State<Arc<App>>, request: HttpRequest) -> Result<Json<Value>, Error> {
    let mut fields = Fields::parse(&read(&app, request).await?)?;
    known(&app, fields.take::<String>("model")?.as_deref())?;
    let tokens: Option<Vec<Token>> = fields.take("tokens")?;
    fields.end(&app.unknown)?;
    let missing = || Error::field("tokens", "tokens is missing: a list of token numbers");
    let tokens = tokens.ok_or_else(missing)?.into_iter().map(|Token(token)| token).collect();
    let text = app.tokenizer.decode(&app.in_vocabulary("tokens", tokens)?);
    Ok(Json(json!({"content": text, "prompt": text})))
}

/// Names of tokens and the template, for clients that let the server tokenize.
pub async fn tokenizer_info(State(app): State<Arc<App>>) -> Json<Value> {
    let name = |token: Option<u32>| token.map(|token| app.tokenizer.name(token));
    Json(json!({
        "bos_token": name(app.tokenizer.bos()),
        "eos_token": name(app.tokenizer.ends().first().copied()),
        "chat_template": app.template.as_ref().map(|template| template.source()),
    }))
}

/// The server's properties.
pub async fn props(State(app): State<Arc<App>>) -> Json<Value> {
    let sampling = &app.defaults.sampling;
    let penalties = &app.defaults.penalties;
    let name = |token: Option<u32>| token.map(|token| app.tokenizer.name(token));
    Json(json!({
        "default_generation_settings": {
            "n_ctx": app.context,
            "params": {
                "temperature": number(sampling.temperature),
                "top_k": sampling.top_k,
                "top_p": number(sampling.top_p),
                "min_p": number(sampling.min_p),
                "repeat_penalty": number(penalties.repeat),
                "repeat_last_n": penalties.last,
                "presence_penalty": number(penalties.presence),
                "frequency_penalty": number(penalties.frequency),
                "max_tokens": app.defaults.count,
            },
        },
        "total_slots": app.parallel,
        "model_alias": app.model,
        "chat_template": app.template.as_ref().map(|template| template.source()),
        "tool_calls": Form::of_model(app.template.as_ref()).map(|form| form.name),
        "bos_token": name(app.tokenizer.bos()),
        "eos_token": name(app.tokenizer.ends().first().copied()),
        "modalities": {"vision": false, "audio": false},
        "build_info": concat!("llm-demo ", env!("CARGO_PKG_VERSION")),
    }))
}
