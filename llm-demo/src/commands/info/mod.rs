//! Shows what a model's file holds, and whether it fits the device.

mod of_session;

use std::collections::BTreeMap;
use std::io::{self, Write};

use anyhow::Context;
use ga10b_llm::engine::check;
use ga10b_llm::gguf::{Array, Gguf, Value};
use ga10b_llm::session::is_session;
use ga10b_llm::{Footprint, Model, embedded};
use hcq::Device;
use serde::Serialize;
use serde_json::json;

use crate::cli::commands::Info;
use crate::memory::size;
use crate::outcome::{Outcome, Usage};
use crate::report::{self, ModelReport};
use crate::session::{self, Setup};
use crate::terminal;

/// The document of `--json`. Added fields are compatible; any other change increases the number.
const SCHEMA: &str = "llm-demo.info/1";
/// The smallest context of the table.
const SMALLEST: usize = 512;
/// Characters of a value of the metadata.
const LONGEST: usize = 80;
/// Most elements of a list of the metadata that are written as JSON.
const MOST_ELEMENTS: usize = 64;

#[derive(Debug, Serialize)]
struct Report {
    schema: &'static str,
    file: FileReport,
    tokenizer: TokenizerReport,
    /// Whether the file has a template of conversations.
    template: bool,
    types: Vec<TypeReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<Vec<Key>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tensors: Option<Vec<TensorReport>>,
    /// Null for a file that is not a model which can be run.
    model: Option<ModelReport>,
    /// Positions past which longrope rotates by other factors.
    long_contexts_beyond: Option<usize>,
    device: Option<Memory>,
    /// Type of the key/value cache.
    kv: &'static str,
    contexts: Vec<Room>,
    /// The reason why the model cannot be run, or why the device cannot be opened.
    error: Option<String>,
}

#[derive(Debug, Serialize)]
struct FileReport {
    path: String,
    /// More than one if the model is split.
    files: usize,
    bytes: u64,
    gguf_version: u32,
    architecture: String,
}

#[derive(Debug, Serialize)]
struct TokenizerReport {
    model: String,
    pre: Option<String>,
    tokens: usize,
}

/// The tensors of a type.
#[derive(Debug, Serialize)]
struct TypeReport {
    #[serde(rename = "type")]
    ty: &'static str,
    tensors: usize,
    bytes: u64,
}

/// A pair of the metadata.
#[derive(Debug, Serialize)]
struct Key {
    key: String,
    /// A long list has its number of elements instead.
    value: serde_json::Value,
    #[serde(skip)]
    text: String,
}

#[derive(Debug, Serialize)]
struct TensorReport {
    name: String,
    #[serde(rename = "type")]
    ty: &'static str,
    dims: Vec<u64>,
    /// The number of its file, from 0.
    file: usize,
    bytes: u64,
}

/// The device's memory.
#[derive(Debug, Serialize)]
struct Memory {
    name: String,
    memory_bytes: u64,
    free_bytes: u64,
}

/// The memory of an engine at a context.
#[derive(Debug, Serialize)]
struct Room {
    context: usize,
    weight_bytes: u64,
    cache_bytes: u64,
    scratch_bytes: u64,
    bytes: u64,
    fits: bool,
}

pub fn run(info: &Info) -> anyhow::Result<Outcome> {
    let path = info.file.as_ref().or(info.common.model.path.as_ref());
    // A file that cannot be read is reported as a model.
    if let Some(path) = path
        && is_session(path).unwrap_or(false)
    {
        let model = info.common.model.path.as_ref().filter(|_| info.file.is_some());
        return of_session::run(path, model, info.json);
    }
    if info.file.is_some() && info.common.model.path.is_some() {
        return Err(Usage("FILE and -m both name a model; one is enough".to_owned()).into());
    }
    let gguf = match path {
        Some(path) => Gguf::open(path).with_context(|| format!("cannot use the model {}", path.display()))?,
        None => Gguf::from_bytes(embedded::STORIES)?,
    };
    let file = path.map_or("the embedded model".into(), |path| path.display().to_string());
    let mut report = Report::new(file, &gguf, info)?;
    let outcome = report.judge(gguf, info);
    report.error = outcome.as_ref().err().map(|error| format!("{error:#}"));
    report::show(&report, info.json, print)?;
    outcome
}

impl Report {
    /// The content of `gguf`.
    fn new(path: String, gguf: &Gguf, info: &Info) -> anyhow::Result<Self> {
        let text = |key| anyhow::Ok(gguf.text(key)?.map(str::to_owned));
        let none = || "none".to_owned();
        let mut types: BTreeMap<&'static str, (usize, u64)> = BTreeMap::new();
        for tensor in gguf.tensors() {
            let (count, bytes) = types.entry(tensor.ty.name()).or_default();
            (*count, *bytes) = (*count + 1, *bytes + tensor.bytes);
        }
        let tensor = |t: &ga10b_llm::gguf::TensorInfo| TensorReport {
            name: t.name.clone(),
            ty: t.ty.name(),
            dims: t.dims.clone(),
            file: t.file,
            bytes: t.bytes,
        };
        Ok(Self {
            schema: SCHEMA,
            file: FileReport {
                path,
                files: gguf.files(),
                bytes: gguf.len(),
                gguf_version: gguf.version(),
                architecture: text("general.architecture")?.unwrap_or_else(none),
            },
            tokenizer: TokenizerReport {
                model: text("tokenizer.ggml.model")?.unwrap_or_else(none),
                pre: text("tokenizer.ggml.pre")?,
                tokens: gguf.strings("tokenizer.ggml.tokens")?.map_or(0, <[String]>::len),
            },
            template: text("tokenizer.chat_template")?.is_some(),
            types: types
                .into_iter()
                .map(|(ty, (tensors, bytes))| TypeReport { ty, tensors, bytes })
                .collect(),
            metadata: info.metadata.then(|| gguf.metadata().iter().map(Key::new).collect()),
            tensors: info.tensors.then(|| gguf.tensors().iter().map(tensor).collect()),
            model: None,
            long_contexts_beyond: None,
            device: None,
            kv: info.common.launching.kv.name(),
            contexts: Vec::new(),
            error: None,
        })
    }

    /// Adds the model, and the memory of an engine at each context and at the one that is asked for, beside that which
    /// the device has left.
    fn judge(&mut self, gguf: Gguf, info: &Info) -> anyhow::Result<Outcome> {
        let model = Model::new(gguf).context("the model cannot be run")?;
        let asked = session::context(info.ctx, &model)?;
        self.model = Some(ModelReport::new(&model));
        self.long_contexts_beyond = model.config.rope_long.as_ref().map(|long| long.beyond);
        check(&model, info.common.launching.kv).context("the model cannot be run")?;
        let device: Device = session::device(&info.common.device)?;
        let about = device.info();
        let free = device.free_memory().context("the driver does not say how much memory is free")?;
        self.device = Some(Memory { name: about.name.clone(), memory_bytes: about.memory, free_bytes: free });
        let most = model.config.context;
        let mut contexts: Vec<usize> =
            std::iter::successors(Some(SMALLEST), |n| n.checked_mul(2)).take_while(|n| *n < most).collect();
        contexts.extend([most, asked.unwrap_or(most)]);
        contexts.sort_unstable();
        contexts.dedup();
        for context in contexts {
            let (options, _) = Setup::of(&info.common.launching).options(&device, &model, context)?;
            let needed = Footprint::of(&model, &options, &device)?;
            self.contexts.push(Room {
                context,
                weight_bytes: needed.weights + needed.expanded,
                cache_bytes: needed.cache,
                scratch_bytes: needed.scratch,
                bytes: needed.total(),
                fits: needed.total() <= free,
            });
        }
        let any = self.contexts.iter().any(|room| room.fits && asked.is_none_or(|n| room.context == n));
        Ok(if any { Outcome::Good } else { Outcome::Bad })
    }
}

impl Key {
    fn new((key, value): (&String, &Value)) -> Self {
        let number = || {
            let text = format!("{value:?}");
            text.split_once('(').map_or(text.clone(), |(_, inner)| inner.trim_end_matches(')').to_owned())
        };
        let text = match value {
            Value::String(text) => format!("{text:?}"),
            Value::Array(Array::String(list)) => format!("{} strings", list.len()),
            Value::Array(list) => format!("{} numbers", list.len()),
            _ => number(),
        };
        Self { key: key.clone(), value: value_json(value), text }
    }
}

fn value_json(value: &Value) -> serde_json::Value {
    match value {
        Value::String(text) => json!(text),
        Value::Bool(value) => json!(value),
        Value::Array(list) => list_json(list),
        Value::I8(v) => json!(v),
        Value::I16(v) => json!(v),
        Value::I32(v) => json!(v),
        Value::I64(v) => json!(v),
        value => value.as_uint().map_or_else(|| json!(value.as_real()), |n| json!(n)),
    }
}

fn list_json(list: &Array) -> serde_json::Value {
    if list.len() > MOST_ELEMENTS {
        return json!({ "elements": list.len() });
    }
    match list {
        Array::String(v) => json!(v),
        Array::Bool(v) => json!(v),
        Array::F32(v) => json!(v),
        Array::F64(v) => json!(v),
        Array::U8(v) => json!(v),
        Array::U16(v) => json!(v),
        Array::U32(v) => json!(v),
        Array::U64(v) => json!(v),
        Array::I8(v) => json!(v),
        Array::I16(v) => json!(v),
        Array::I32(v) => json!(v),
        Array::I64(v) => json!(v),
        Array::Array(v) => v.iter().map(list_json).collect(),
    }
}

fn print(report: &Report, out: &mut io::StdoutLock<'static>) -> io::Result<()> {
    let shown = terminal::on_stdout;
    let FileReport { path, files, bytes, gguf_version, architecture } = &report.file;
    let parts = if *files > 1 { format!(" in {files} files") } else { String::new() };
    writeln!(out, "file        {}, {}{parts}, GGUF {gguf_version}", shown(path), size(*bytes))?;
    writeln!(out, "kind        {}", shown(architecture))?;
    let TokenizerReport { model, tokens, .. } = &report.tokenizer;
    writeln!(out, "tokenizer   {}, {tokens} tokens", shown(model))?;
    let template = match report.template {
        true => "yes: llm-demo chat and serve take messages",
        false => "none: it continues texts; chat and serve need --template FILE for messages",
    };
    writeln!(out, "template    {template}")?;
    for TypeReport { ty, tensors, bytes } in &report.types {
        writeln!(out, "tensors     {tensors:>4} {ty:<6} {:>10}", size(*bytes))?;
    }
    for Key { key, text, .. } in report.metadata.iter().flatten() {
        let mut short: String = text.chars().take(LONGEST).collect();
        if short.len() < text.len() {
            short.push('…');
        }
        writeln!(out, "{} = {}", shown(key), shown(&short))?;
    }
    for TensorReport { name, ty, dims, bytes, .. } in report.tensors.iter().flatten() {
        let dims: Vec<String> = dims.iter().map(u64::to_string).collect();
        writeln!(out, "{:<32} {ty:<6} {:>16} {:>10}", shown(name), dims.join(" x "), size(*bytes))?;
    }
    if let Some(model) = &report.model {
        model.print(out)?;
    }
    if let Some(beyond) = report.long_contexts_beyond {
        writeln!(out, "longrope    other rotations in contexts of more than {beyond} positions")?;
    }
    let Some(Memory { name, memory_bytes, free_bytes }) = &report.device else { return Ok(()) };
    writeln!(out, "device      {name}: {} of {} are free", size(*free_bytes), size(*memory_bytes))?;
    writeln!(out)?;
    let [context, weights, cache, scratch, together] = ["context", "weights", "cache", "scratch", "together"];
    writeln!(
        out,
        "{context:>8} {weights:>10} {cache:>12} {scratch:>10} {together:>10}  with a cache in {}",
        report.kv
    )?;
    for room in &report.contexts {
        writeln!(
            out,
            "{:>8} {:>10} {:>12} {:>10} {:>10}  {}",
            room.context,
            size(room.weight_bytes),
            size(room.cache_bytes),
            size(room.scratch_bytes),
            size(room.bytes),
            if room.fits { "fits" } else { "does not fit" }
        )?;
    }
    Ok(())
}
