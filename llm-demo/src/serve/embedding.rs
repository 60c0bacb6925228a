//! Embeddings of texts: what the hidden states of their tokens are pooled to.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request as HttpRequest, State};
use axum::response::{IntoResponse, Response};
use ga10b_llm::model::Pooling;
use ga10b_llm::schedule::Reading;
use ga10b_llm::{Sampler, SamplerOptions};
use serde::Serialize;
use serde_json::{Value, json};

use crate::serve::asking::{beside, encode, next};
use crate::serve::job::{Event, Request};
use crate::serve::openai::error::Error;
use crate::serve::openai::fields::Fields;
use crate::serve::openai::messages::Prompts;
use crate::serve::openai::request::RECORDS;
use crate::serve::state::{App, known, read};

/// Most texts of a request, as OpenAI has it.
const MOST_TEXTS: usize = 2048;

/// The length of a vector, by the numbers of llama-server's `embd_normalize`.
#[derive(Clone, Copy)]
enum Norm {
    /// As the model gives it: -1.
    None,
    /// One: 2.
    Euclidean,
}

/// The numbers of a vector, or their bytes.
#[derive(Serialize)]
#[serde(untagged)]
enum Numbers {
    Floats(Vec<f32>),
    /// Little-endian, in base64.
    Bytes(String),
}

#[derive(Serialize)]
struct Entry {
    object: &'static str,
    index: usize,
    embedding: Numbers,
}

#[derive(Serialize)]
struct Document<'a> {
    object: &'static str,
    data: Vec<Entry>,
    model: &'a str,
    usage: Value,
}

/// Fields of a request.
struct Asked {
    input: Prompts,
    in_base64: bool,
    norm: Norm,
}

/// Answers a request for embeddings.
pub async fn embed(State(app): State<Arc<App>>, request: HttpRequest) -> Result<Response, Error> {
    let Asked { input, in_base64, norm } = asked(&app, Fields::parse(&read(&app, request).await?)?)?;
    let prompts = beside(&app, move |app| encode(app, "input", input.0)).await?;
    let count = prompts.len();
    let reading = match app.embeddings.pooling {
        Pooling::Mean => Reading::States,
        Pooling::Last => Reading::LastState,
    };
    let of_prompt = |(prompt, _)| Request {
        prompt,
        sampler: Sampler::new(SamplerOptions::GREEDY),
        stops: Vec::new(),
        count: 0,
        reuse: true,
        reading,
        echo: None,
        calls: None,
        constrained: None,
    };
    let mut events = app.scheduler.submit(prompts.into_iter().map(of_prompt).collect())?;
    let (mut vectors, mut open, mut tokens) = (vec![Vec::new(); count], count, 0);
    while open > 0 {
        match next(&mut events).await {
            (number, Event::Embedding(vector)) => vectors[number] = vector,
            (_, Event::End(_, used)) => {
                tokens += used.prompt;
                open -= 1;
            }
            (_, Event::Text(_)) => {}
            (_, Event::Failed(failure)) => return Err(failure.into()),
        }
    }
    let entry = |(index, mut vector): (usize, Vec<f32>)| {
        norm.apply(&mut vector);
        let bytes =
            || base64::encode(vector.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>());
        let embedding = if in_base64 { Numbers::Bytes(bytes()) } else { Numbers::Floats(vector) };
        Entry { object: "embedding", index, embedding }
    };
    let data = vectors.into_iter().enumerate().map(entry).collect();
    let usage = json!({"prompt_tokens": tokens, "total_tokens": tokens});
    Ok(Json(Document { object: "list", data, model: &app.model, usage }).into_response())
}

/// Reads the fields.
fn asked(app: &App, mut fields: Fields) -> Result<Asked, Error> {
    known(app, fields.take::<String>("model")?.as_deref())?;
    for name in RECORDS {
        fields.take::<Value>(name)?;
    }
    let input: Prompts = fields.take("input")?.ok_or_else(|| Error::field("input", "there is no input"))?;
    if input.0.len() > MOST_TEXTS {
        return Err(Error::field("input", format!("a request has at most {MOST_TEXTS} texts")));
    }
    let in_base64 = match fields.take::<String>("encoding_format")?.as_deref() {
        None | Some("float") => false,
        Some("base64") => true,
        Some(_) => return Err(Error::field("encoding_format", "encoding_format is float or base64")),
    };
    let width = app.embeddings.width;
    if let Some(asked) = fields.take::<u64>("dimensions")?.filter(|asked| *asked != width as u64) {
        let message = format!("an embedding has {width} numbers, not {asked}: a part of them embeds nothing");
        return Err(Error::field("dimensions", message).with_code("unsupported"));
    }
    let norm = match fields.take::<i64>("embd_normalize")? {
        None | Some(2) => Norm::Euclidean,
        Some(-1) => Norm::None,
        Some(_) => {
            return Err(Error::field("embd_normalize", "embd_normalize is 2 (length one) or -1 (none)"));
        }
    };
    fields.end(&app.unknown)?;
    Ok(Asked { input, in_base64, norm })
}

impl Norm {
    fn apply(self, vector: &mut [f32]) {
        let length = vector.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt();
        if matches!(self, Self::Euclidean) && length > 0.0 {
            vector.iter_mut().for_each(|value| *value = (f64::from(*value) / length) as f32);
        }
    }
}
