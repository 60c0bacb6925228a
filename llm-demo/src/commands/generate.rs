//! Continues a prompt.

use std::io::{self, Write};

use anyhow::Context;
use ga10b_llm::generate::{Stop, generate};
use ga10b_llm::sampler::Sampler;
use ga10b_llm::tokenizer::Tokenizer;
use ga10b_llm_tools::trace::HostSpans;

use crate::cli::Cli;
use crate::commands::recording::Recording;
use crate::outcome::Outcome;
use crate::session::{self, Session};

/// Tokens generated where the command line does not say.
const DEFAULT_COUNT: u32 = 256;

pub fn run(cli: &Cli, spans: Option<HostSpans>) -> anyhow::Result<Outcome> {
    let model = session::model(cli)?;
    let tokenizer = Tokenizer::from_gguf(&model.gguf).context("cannot read the vocabulary")?;
    let prompt = session::prompt(cli);
    let tokens = tokenizer.encode(prompt).context("cannot encode the prompt")?;
    let count = cli.count.unwrap_or(DEFAULT_COUNT) as usize;
    let mut session = Session::open(cli, &model, tokens.len() + count)?;
    let recording = match (&cli.trace, spans) {
        (Some(path), Some(spans)) => Some(Recording::start(path, spans, &mut session)?),
        _ => None,
    };

    let mut out = io::stdout().lock();
    write!(out, "{prompt}")?;
    out.flush()?;
    let made = generate(
        &mut session.engine,
        &tokenizer,
        &mut Sampler::new(cli.sampling()),
        &tokens,
        count,
        &mut |text| {
            out.write_all(text.as_bytes())?;
            out.flush()
        },
    )?;
    writeln!(out)?;

    let prefill = tokens.len() as f64 / made.prefill.as_secs_f64();
    anstream::eprint!("[{}: prompt {} tokens, {prefill:.1} tok/s", session.device.info().name, tokens.len());
    if let Some(rate) = made.tokens_per_second() {
        anstream::eprint!("; text {} tokens, {rate:.1} tok/s", made.tokens.len());
    }
    match made.stop {
        Stop::End => anstream::eprintln!("]"),
        Stop::Count => anstream::eprintln!("; stopped after {count} tokens, -n allows more]"),
        Stop::Context => anstream::eprintln!("; the context of {} tokens is full]", session.context),
    }
    if let Some(recording) = recording {
        recording.finish(&mut session, &model)?;
    }
    Ok(Outcome::Good)
}
