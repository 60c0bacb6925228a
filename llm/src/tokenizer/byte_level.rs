//! Byte-level BPE, as in LLaMA 3, GPT-2 and Qwen (`tokenizer.ggml.model` = `gpt2`).

use tokenizers::AddedToken;
use tokenizers::models::bpe::{BPE, Vocab};

use crate::error::{Error, Result};
use crate::gguf::Gguf;
use crate::tokenizer::alphabet::alphabet;
use crate::tokenizer::split::{self, Rule};
use crate::tokenizer::token_type::{CONTROL, UNUSED, USER_DEFINED};

/// The vocabulary and its merges.
#[derive(Debug)]
pub(super) struct ByteLevel {
    inner: tokenizers::Tokenizer,
    rule: Rule,
    /// Bytes for which the vocabulary has a symbol.
    covered: [bool; 256],
}

impl ByteLevel {
    /// The vocabulary `tokens` of `gguf`, with the bytes of each.
    pub fn new(gguf: &Gguf, tokens: &[String], types: &[u64]) -> Result<(Self, Vec<Box<[u8]>>)> {
        let pre = gguf.text("tokenizer.ggml.pre")?.unwrap_or("default");
        let rule = split::rule(pre).ok_or_else(|| Error::KeyValue {
            key: "tokenizer.ggml.pre".into(),
            value: pre.into(),
            rule: split::NAMES,
        })?;
        let key = "tokenizer.ggml.merges";
        let merges = gguf.strings(key)?.ok_or_else(|| Error::MissingKey { key: key.into() })?;

        let mut vocab = Vocab::with_capacity(tokens.len());
        for (id, token) in tokens.iter().enumerate() {
            vocab.entry(token.clone()).or_insert(id as u32);
        }
        let merges = split_merges(merges, &vocab)?;
        let build = |e: tokenizers::Error| Error::Tokenizer { source: e };
        let bpe = BPE::builder().vocab_and_merges(vocab, merges).ignore_merges(rule.whole_pieces);
        let mut inner = tokenizers::Tokenizer::new(bpe.build().map_err(build)?);
        inner.with_pre_tokenizer(Some(rule.pre_tokenizer().map_err(build)?));
        let added = tokens.iter().zip(types).filter(|(text, _)| !text.is_empty());
        let added = added.filter_map(|(text, &ty)| match ty {
            CONTROL => Some(AddedToken::from(text.as_str(), true).normalized(false)),
            USER_DEFINED => Some(AddedToken::from(text.as_str(), false).normalized(false)),
            _ => None,
        });
        inner.add_tokens(added).map_err(build)?;

        let symbols = symbols();
        let mut covered = [false; 256];
        let bytes: Vec<Box<[u8]>> = tokens
            .iter()
            .zip(types)
            .map(|(text, &ty)| match ty {
                CONTROL | USER_DEFINED => text.as_bytes().into(),
                UNUSED => Box::default(),
                _ => token_bytes(text, &symbols),
            })
            .collect();
        for (token, bytes) in tokens.iter().zip(&bytes) {
            if let ([byte], 1) = (&**bytes, token.chars().count()) {
                covered[usize::from(*byte)] = true;
            }
        }
        Ok((Self { inner, rule, covered }, bytes))
    }

    /// Whether text begins with the BOS token if the file has no key for it.
    pub fn adds_bos(&self) -> bool {
        self.rule.adds_bos
    }

    /// The tokens of `text`.
    ///
    /// # Errors
    /// [`Error::Uncovered`] if the vocabulary has no symbol for a byte of the text.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        if let Some(byte) = text.bytes().find(|b| !self.covered[usize::from(*b)]) {
            return Err(Error::Uncovered { byte });
        }
        let encoding = self.inner.encode_fast(text, false).map_err(|e| Error::Tokenizer { source: e })?;
        Ok(encoding.get_ids().to_vec())
    }
}

/// The bytes of a normal token; its UTF-8 if it has characters outside the alphabet.
fn token_bytes(text: &str, symbols: &[Option<u8>]) -> Box<[u8]> {
    let bytes: Option<Box<[u8]>> = text.chars().map(|c| *symbols.get(c as usize)?).collect();
    bytes.unwrap_or_else(|| text.as_bytes().into())
}

/// The byte that each character stands for, by the character's number.
fn symbols() -> Vec<Option<u8>> {
    let alphabet = alphabet();
    let last = alphabet.iter().map(|&c| c as usize).max().unwrap_or(0);
    let mut symbols = vec![None; last + 1];
    for (symbol, byte) in alphabet.into_iter().zip(0..=255) {
        symbols[symbol as usize] = Some(byte);
    }
    symbols
}

/// Splits each "left right" and checks that both, and their concatenation, are tokens.
fn split_merges(merges: &[String], vocab: &Vocab) -> Result<Vec<(String, String)>> {
    let mut joined = String::new();
    let split = |(at, merge): (usize, &String)| {
        let pair = merge.split_once(' ');
        let pair = pair.filter(|(a, b)| {
            joined.clear();
            joined.extend([*a, *b]);
            vocab.contains_key(*a) && vocab.contains_key(*b) && vocab.contains_key(&joined)
        });
        match pair {
            Some((a, b)) => Ok((a.to_owned(), b.to_owned())),
            None => Err(Error::KeyValue {
                key: format!("tokenizer.ggml.merges[{at}]"),
                value: format!("{merge:?}"),
                rule: "it must be two tokens with a space between that make a third",
            }),
        }
    };
    merges.iter().enumerate().map(split).collect()
}
