//! Writes raw logits for comparison with other engines.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::Context;
use ga10b_llm::Decoder;

use crate::cli::Cli;
use crate::outcome::Outcome;
use crate::session::{self, Session};

pub fn run(cli: &Cli, path: &Path) -> anyhow::Result<Outcome> {
    let model = session::model(cli)?;
    anyhow::ensure!(
        cli.tokens.len() <= model.config.context,
        "{} tokens do not fit the model's context of {}",
        cli.tokens.len(),
        model.config.context
    );
    let mut session = Session::open(cli, &model, cli.tokens.len())?;
    let failed = || format!("cannot write {}", path.display());
    let mut out = BufWriter::new(File::create(path).with_context(failed)?);
    for &token in &cli.tokens {
        for logit in session.engine.step(token)? {
            out.write_all(&logit.to_le_bytes()).with_context(failed)?;
        }
    }
    out.flush().with_context(failed)?;
    Ok(Outcome::Good)
}
