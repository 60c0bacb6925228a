//! Shows what a model's file holds, and whether it fits the device.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use ga10b_llm::gguf::{Array, Gguf, Value};
use ga10b_llm::session::{Reader, Summary, is_session};
use ga10b_llm::{Footprint, Model, embedded};
use hcq::Device;

use crate::cli::commands::Info;
use crate::cli::options::Common;
use crate::memory::size;
use crate::outcome::{Outcome, Usage};
use crate::report::ModelReport;
use crate::session::{self, Setup};
use crate::terminal;

/// The smallest context of the table.
const SMALLEST: usize = 512;
/// Characters of a value of the metadata.
const LONGEST: usize = 80;

pub fn run(info: &Info) -> anyhow::Result<Outcome> {
    let path = info.file.as_ref().or(info.common.model.path.as_ref());
    // A file that cannot be read is reported as a model.
    if let Some(path) = path
        && is_session(path).unwrap_or(false)
    {
        let model = info.common.model.path.as_ref().filter(|_| info.file.is_some());
        return about_session(path, model);
    }
    if info.file.is_some() && info.common.model.path.is_some() {
        return Err(Usage("FILE and -m both name a model; one is enough".to_owned()).into());
    }
    let gguf = match path {
        Some(path) => Gguf::open(path).with_context(|| format!("cannot use the model {}", path.display()))?,
        None => Gguf::from_bytes(embedded::STORIES)?,
    };
    let mut out = io::stdout().lock();
    let file = path.map_or("the embedded model".into(), |path| path.display().to_string());
    writeln!(
        out,
        "file        {}, {}, GGUF {}",
        terminal::on_stdout(&file),
        size(gguf.len()),
        gguf.version()
    )?;
    contents(&gguf, &mut out)?;
    if info.metadata {
        metadata(&gguf, &mut out)?;
    }
    if info.tensors {
        tensors(&gguf, &mut out)?;
    }
    let model = Model::new(gguf).context("the model cannot be run")?;
    let asked = session::context(info.ctx, &model)?;
    ModelReport::new(&model).print(&mut out)?;
    out.flush()?;
    fits(&info.common, asked, &model, &mut out)
}

/// Prints the content of a session's file, and whether it is of `model`.
fn about_session(path: &Path, model: Option<&PathBuf>) -> anyhow::Result<Outcome> {
    let named = || format!("cannot read the session {}", path.display());
    let file = File::open(path).with_context(named)?;
    let bytes = file.metadata().with_context(named)?.len();
    let reader = Reader::begin(BufReader::new(file)).with_context(named)?;
    let summary = reader.summary().clone();
    let mut out = io::stdout().lock();
    let of = |text: &str| terminal::on_stdout(text).into_owned();
    writeln!(out, "file        {}, {}, a session", of(&path.display().to_string()), size(bytes))?;
    let messages = reader.session().messages.as_ref();
    match messages {
        None => writeln!(out, "kind        a text: llm-demo run --session goes on with it")?,
        Some(messages) => {
            let count = messages.len();
            writeln!(
                out,
                "kind        a conversation of {count} messages: llm-demo chat --session goes on with it"
            )?;
        }
    }
    let Summary { model: hash, name, architecture, cache, layers, kv_heads, head_dim, .. } = &summary;
    writeln!(out, "model       {}, {}, hash {}", of(name), of(architecture), of(hash))?;
    let taken = size(summary.cache_bytes().unwrap_or(0));
    writeln!(out, "cache       {}, {layers} layers, {kv_heads} heads of {head_dim}, {taken}", of(cache))?;
    writeln!(out, "tokens      {}, {} of them with keys and values", summary.tokens, summary.positions)?;
    out.flush()?;
    reader.skip().with_context(named)?;
    writeln!(out, "checksums   good")?;
    let Some(model) = model else { return Ok(Outcome::Good) };
    let gguf = Gguf::open(model).with_context(|| format!("cannot use the model {}", model.display()))?;
    let same = gguf.fingerprint().to_string() == *hash;
    let file = of(&model.display().to_string());
    writeln!(out, "suits       {file}: {}", if same { "yes" } else { "no, it is another model" })?;
    Ok(if same { Outcome::Good } else { Outcome::Bad })
}

/// Architecture, vocabulary, and the types of the tensors.
fn contents(gguf: &Gguf, out: &mut impl Write) -> anyhow::Result<()> {
    let text = |key| anyhow::Ok(gguf.text(key)?.unwrap_or("none"));
    let architecture = text("general.architecture")?;
    writeln!(out, "kind        {}", terminal::on_stdout(architecture))?;
    let tokens = gguf.strings("tokenizer.ggml.tokens")?.map_or(0, <[String]>::len);
    let tokenizer = text("tokenizer.ggml.model")?;
    writeln!(out, "tokenizer   {}, {tokens} tokens", terminal::on_stdout(tokenizer))?;
    let template = match gguf.text("tokenizer.chat_template")? {
        Some(_) => "yes: llm-demo chat and serve take messages",
        None => "none: it continues texts; chat and serve need --template FILE for messages",
    };
    writeln!(out, "template    {template}")?;
    let mut types: BTreeMap<String, (usize, u64)> = BTreeMap::new();
    for tensor in gguf.tensors() {
        let (count, bytes) = types.entry(tensor.ty.to_string()).or_default();
        (*count, *bytes) = (*count + 1, *bytes + tensor.bytes);
    }
    for (name, (count, bytes)) in types {
        writeln!(out, "tensors     {count:>4} {name:<6} {:>10}", size(bytes))?;
    }
    Ok(())
}

fn metadata(gguf: &Gguf, out: &mut impl Write) -> io::Result<()> {
    for (key, value) in gguf.metadata() {
        let text = match value {
            Value::String(text) => format!("{text:?}"),
            Value::Array(Array::String(list)) => format!("{} strings", list.len()),
            Value::Array(list) => format!("{} numbers", list.len()),
            value => {
                let text = format!("{value:?}");
                text.split_once('(').map_or(text.clone(), |(_, inner)| inner.trim_end_matches(')').to_owned())
            }
        };
        let mut short: String = text.chars().take(LONGEST).collect();
        if short.len() < text.len() {
            short.push('…');
        }
        writeln!(out, "{} = {}", terminal::on_stdout(key), terminal::on_stdout(&short))?;
    }
    Ok(())
}

fn tensors(gguf: &Gguf, out: &mut impl Write) -> io::Result<()> {
    for tensor in gguf.tensors() {
        let dims: Vec<String> = tensor.dims.iter().map(u64::to_string).collect();
        let (name, dims) = (terminal::on_stdout(&tensor.name), dims.join(" x "));
        writeln!(out, "{name:<32} {:<6} {dims:>16} {:>10}", tensor.ty.to_string(), size(tensor.bytes))?;
    }
    Ok(())
}

/// Prints the memory of an engine at each context, and at the one that was `asked` for, beside that which the
/// device has left.
fn fits(
    common: &Common,
    asked: Option<usize>,
    model: &Model,
    out: &mut impl Write,
) -> anyhow::Result<Outcome> {
    let device: Device = session::device(&common.device)?;
    let about = device.info();
    let free = device.free_memory().context("the driver does not say how much memory is free")?;
    let memory = size(about.memory);
    writeln!(out, "device      {}: {} of {memory} are free", about.name, size(free))?;
    let most = model.config.context;
    let mut contexts: Vec<usize> =
        std::iter::successors(Some(SMALLEST), |n| n.checked_mul(2)).take_while(|n| *n < most).collect();
    contexts.extend([most, asked.unwrap_or(most)]);
    contexts.sort_unstable();
    contexts.dedup();
    writeln!(out)?;
    writeln!(
        out,
        "{:>8} {:>10} {:>12} {:>10} {:>10}  with a cache in {}",
        "context",
        "weights",
        "cache",
        "scratch",
        "together",
        common.launching.kv.name()
    )?;
    let mut any = false;
    for context in contexts {
        let (options, _) = Setup::of(&common.launching).options(&device, model, context)?;
        let needed = Footprint::of(model, &options, &device)?;
        let Footprint { cache, scratch, .. } = needed;
        let weights = needed.weights + needed.expanded;
        let good = needed.total() <= free;
        any |= good && asked.is_none_or(|n| context == n);
        writeln!(
            out,
            "{context:>8} {:>10} {:>12} {:>10} {:>10}  {}",
            size(weights),
            size(cache),
            size(scratch),
            size(needed.total()),
            if good { "fits" } else { "does not fit" }
        )?;
    }
    Ok(if any { Outcome::Good } else { Outcome::Bad })
}
