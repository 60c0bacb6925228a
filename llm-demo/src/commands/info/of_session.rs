//! Shows what a session's file holds, and whether it is of a model.

use std::fs::File;
use std::io::{self, BufReader, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use ga10b_llm::gguf::Gguf;
use ga10b_llm::session::{Reader, Summary};
use serde::Serialize;

use crate::memory::size;
use crate::outcome::Outcome;
use crate::report;
use crate::terminal;

/// The document of `--json`. Added fields are compatible; any other change increases the number.
#[derive(Debug, Serialize)]
struct Report {
    schema: &'static str,
    path: String,
    bytes: u64,
    /// Messages of a conversation; null for a text.
    messages: Option<usize>,
    session: Summary,
    /// The model's file that it was compared with.
    model: Option<String>,
    /// Whether the session is of that model.
    suits: Option<bool>,
}

/// Reports on the session at `path`, and whether it is of `model`.
///
/// # Errors
/// If a file cannot be read, or the session is damaged.
pub fn run(path: &Path, model: Option<&PathBuf>, json: bool) -> anyhow::Result<Outcome> {
    let named = || format!("cannot read the session {}", path.display());
    let file = File::open(path).with_context(named)?;
    let bytes = file.metadata().with_context(named)?.len();
    let reader = Reader::begin(BufReader::new(file)).with_context(named)?;
    let session = reader.summary().clone();
    let messages = reader.session().messages.as_ref().map(Vec::len);
    reader.skip().with_context(named)?;
    let suits = model.map(|model| -> anyhow::Result<bool> {
        let gguf = Gguf::open(model).with_context(|| format!("cannot use the model {}", model.display()))?;
        Ok(gguf.fingerprint().to_string() == session.model)
    });
    let (suits, path) = (suits.transpose()?, path.display().to_string());
    let model = model.map(|model| model.display().to_string());
    let report = Report { schema: "llm-demo.info-session/1", path, bytes, messages, session, model, suits };
    report::show(&report, json, print)?;
    Ok(if suits == Some(false) { Outcome::Bad } else { Outcome::Good })
}

fn print(report: &Report, out: &mut io::StdoutLock<'static>) -> io::Result<()> {
    let of = terminal::on_stdout;
    writeln!(out, "file        {}, {}, a session", of(&report.path), size(report.bytes))?;
    match report.messages {
        None => writeln!(out, "kind        a text: llm-demo run --session goes on with it")?,
        Some(count) => {
            writeln!(
                out,
                "kind        a conversation of {count} messages: llm-demo chat --session goes on with it"
            )?;
        }
    }
    let Summary { model: hash, name, architecture, cache, layers, kv_heads, head_dim, .. } = &report.session;
    writeln!(out, "model       {}, {}, hash {}", of(name), of(architecture), of(hash))?;
    let taken = size(report.session.cache_bytes().unwrap_or(0));
    writeln!(out, "cache       {}, {layers} layers, {kv_heads} heads of {head_dim}, {taken}", of(cache))?;
    let Summary { tokens, positions, .. } = &report.session;
    writeln!(out, "tokens      {tokens}, {positions} of them with keys and values")?;
    writeln!(out, "checksums   good")?;
    if let (Some(model), Some(suits)) = (&report.model, report.suits) {
        writeln!(
            out,
            "suits       {}: {}",
            of(model),
            if suits { "yes" } else { "no, it is another model" }
        )?;
    }
    Ok(())
}
