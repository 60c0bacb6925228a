//! Writes raw logits for comparison with other engines.

use std::fs::File;
use std::io::{self, BufWriter, Write};

use anyhow::Context;
use ga10b_llm::{Decoder, Error};

use crate::cli::commands::Logits;
use crate::outcome::Outcome;
use crate::session::{self, Session};

pub fn run(logits: &Logits) -> anyhow::Result<Outcome> {
    let Logits { common, out: path, tokens } = logits;
    let model = session::model_to_run(&common.model, common.launching.kv)?;
    let (context, vocab) = (model.config.context, model.config.vocab);
    anyhow::ensure!(
        tokens.len() <= context,
        "{} tokens do not fit the model's context of {context}",
        tokens.len()
    );
    if let Some(&token) = tokens.iter().find(|token| **token as usize >= vocab) {
        return Err(Error::Token { token, vocab }.into());
    }
    let mut session = Session::open(common, &model, tokens.len())?;
    let failed = || format!("cannot write {}", path.display());
    // Only now: what was in the file is lost.
    let out: Box<dyn Write> = match path.to_str() {
        Some("-") => Box::new(io::stdout().lock()),
        _ => Box::new(File::create(path).with_context(failed)?),
    };
    let mut out = BufWriter::new(out);
    for &token in tokens {
        for logit in session.engine.step(token)? {
            out.write_all(&logit.to_le_bytes()).with_context(failed)?;
        }
    }
    out.flush().with_context(failed)?;
    Ok(Outcome::Good)
}
