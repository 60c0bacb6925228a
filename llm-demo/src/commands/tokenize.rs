//! Prints the tokens of a text.

use std::io::{self, Write};

use anyhow::Context;
use ga10b_llm::Tokenizer;

use crate::cli::commands::Tokenize;
use crate::outcome::Outcome;
use crate::session;
use crate::terminal;

pub fn run(tokenize: &Tokenize) -> anyhow::Result<Outcome> {
    let model = session::model(&tokenize.model)?;
    let tokenizer = Tokenizer::from_gguf(&model.gguf).context("cannot read the vocabulary")?;
    let text = session::prompt(&tokenize.text)?;
    let tokens = match tokenize.no_bos {
        true => tokenizer.encode_plain(&text),
        false => tokenizer.encode_formatted(&text),
    };
    let tokens = tokens.context("cannot encode the text")?;
    let mut out = io::stdout().lock();
    if tokenize.ids {
        let numbers: Vec<String> = tokens.iter().map(u32::to_string).collect();
        writeln!(out, "{}", numbers.join(","))?;
        return Ok(Outcome::Good);
    }
    for token in tokens {
        let name = tokenizer.name(token);
        writeln!(out, "{token:>8}  {}", terminal::on_stdout(&format!("{name:?}")))?;
    }
    Ok(Outcome::Good)
}
