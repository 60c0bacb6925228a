//! Prints the tokens of a text.

use std::io::{self, Write};

use anyhow::Context;
use ga10b_llm::Tokenizer;
use serde::Serialize;

use crate::cli::commands::Tokenize;
use crate::outcome::Outcome;
use crate::session;
use crate::terminal;

/// The document of `--json`. Added fields are compatible; any other change increases the number.
#[derive(Debug, Serialize)]
struct Report {
    schema: &'static str,
    tokens: Vec<Token>,
}

#[derive(Debug, Serialize)]
struct Token {
    id: u32,
    /// Its text, or the name of a control token; null for a part of a character.
    text: Option<String>,
    /// The bytes of its text; null for a control token.
    bytes: Option<Vec<u8>>,
}

impl Token {
    fn new(id: u32, tokenizer: &Tokenizer) -> Self {
        let bytes = tokenizer.bytes(id).map(<[u8]>::to_vec);
        let text = match &bytes {
            Some(bytes) => String::from_utf8(bytes.clone()).ok(),
            None => Some(tokenizer.name(id)),
        };
        Self { id, text, bytes }
    }
}

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
    if tokenize.json {
        let tokens = tokens.into_iter().map(|id| Token::new(id, &tokenizer)).collect();
        let report = Report { schema: "llm-demo.tokenize/1", tokens };
        serde_json::to_writer_pretty(&mut out, &report)?;
        writeln!(out)?;
        return Ok(Outcome::Good);
    }
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
