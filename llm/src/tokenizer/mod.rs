//! Text to tokens and back, by the vocabulary in the model's file.
//!
//! Byte-level BPE as in LLaMA 3, GPT-2 and Qwen (`tokenizer.ggml.model` = `gpt2`). The crate `tokenizers`
//! splits and merges; tokens become bytes through a table, because a token may end within a character.

pub(crate) mod alphabet;
mod split;

use tokenizers::AddedToken;
use tokenizers::models::bpe::{BPE, Vocab};

use crate::error::{Error, Result};
use crate::gguf::Gguf;
use crate::gguf::value::{Array, Value};
use crate::tokenizer::alphabet::alphabet;

/// The values of `tokenizer.ggml.token_type` with a meaning here.
const CONTROL: u64 = 3;
const USER_DEFINED: u64 = 4;
const UNUSED: u64 = 5;

/// End-of-turn tokens that some files name by no key.
const END_TEXTS: [&str; 6] =
    ["<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|endoftext|>", "<|im_end|>", "<|end|>"];

/// A tokenizer.
#[derive(Debug)]
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    /// Bytes of each token; control tokens have their names.
    bytes: Vec<Box<[u8]>>,
    control: Vec<bool>,
    /// Bytes for which the vocabulary has a symbol.
    covered: [bool; 256],
    bos: Option<u32>,
    adds_bos: bool,
    ends: Vec<u32>,
}

impl Tokenizer {
    /// Builds the tokenizer that `gguf` describes.
    ///
    /// # Errors
    /// The key that is missing, inconsistent or of a kind that is not supported.
    pub fn from_gguf(gguf: &Gguf) -> Result<Self> {
        let model = gguf.text("tokenizer.ggml.model")?.unwrap_or("none");
        if model != "gpt2" {
            let rule = "byte-level BPE (\"gpt2\") is supported";
            return Err(Error::KeyValue { key: "tokenizer.ggml.model".into(), value: model.into(), rule });
        }
        let pre = gguf.text("tokenizer.ggml.pre")?.unwrap_or("default");
        let rule = split::rule(pre).ok_or_else(|| Error::KeyValue {
            key: "tokenizer.ggml.pre".into(),
            value: pre.into(),
            rule: "gpt-2, llama-bpe, qwen2, smollm, olmo and default are supported",
        })?;
        let tokens = required(gguf.strings("tokenizer.ggml.tokens")?, "tokenizer.ggml.tokens")?;
        let merges = required(gguf.strings("tokenizer.ggml.merges")?, "tokenizer.ggml.merges")?;
        let types = token_types(gguf, tokens.len())?;

        let mut vocab = Vocab::with_capacity(tokens.len());
        for (id, token) in tokens.iter().enumerate() {
            vocab.entry(token.clone()).or_insert(id as u32);
        }
        let merges = split_merges(merges, &vocab)?;
        let build = |e: tokenizers::Error| Error::Tokenizer { source: e };
        let bpe = BPE::builder().vocab_and_merges(vocab, merges).ignore_merges(rule.whole_pieces);
        let mut inner = tokenizers::Tokenizer::new(bpe.build().map_err(build)?);
        inner.with_pre_tokenizer(Some(rule.pre_tokenizer().map_err(build)?));
        let added = tokens.iter().zip(&types).filter(|(text, _)| !text.is_empty());
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
            .zip(&types)
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

        let id = |key: &str| -> Result<Option<u32>> {
            let Some(id) = gguf.uint(key)? else { return Ok(None) };
            match u32::try_from(id) {
                Ok(small) if (small as usize) < tokens.len() => Ok(Some(small)),
                _ => {
                    let (key, value) = (key.into(), id.to_string());
                    Err(Error::KeyValue { key, value, rule: "it must be below the number of tokens" })
                }
            }
        };
        let bos = id("tokenizer.ggml.bos_token_id")?;
        let adds_bos = gguf.bool("tokenizer.ggml.add_bos_token")?.unwrap_or(rule.adds_bos);
        let mut ends = Vec::new();
        for name in ["eos", "eot", "eom"] {
            ends.extend(id(&format!("tokenizer.ggml.{name}_token_id"))?);
        }
        for (at, token) in tokens.iter().enumerate() {
            if types[at] == CONTROL && END_TEXTS.contains(&token.as_str()) {
                ends.push(at as u32);
            }
        }
        ends.sort_unstable();
        ends.dedup();
        let control = types.iter().map(|&ty| ty == CONTROL).collect();
        Ok(Self { inner, bytes, control, covered, bos, adds_bos, ends })
    }

    /// The tokens of `text`, after the BOS token if the model takes one and the text does not begin with it,
    /// which is reported as a warning: models are trained with one.
    ///
    /// Names of control tokens in the text become those tokens.
    ///
    /// # Errors
    /// [`Error::Uncovered`] if the vocabulary has no symbol for a byte of the text.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        let mut tokens = self.encode_plain(text)?;
        let Some(bos) = self.bos.filter(|_| self.adds_bos) else { return Ok(tokens) };
        if tokens.first() == Some(&bos) {
            tracing::warn!("the text begins with the token that begins every text; no second one is added");
        } else {
            tokens.insert(0, bos);
        }
        Ok(tokens)
    }

    /// The tokens of `text` without BOS, for text that continues other text.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn encode_plain(&self, text: &str) -> Result<Vec<u32>> {
        if let Some(byte) = text.bytes().find(|b| !self.covered[usize::from(*b)]) {
            return Err(Error::Uncovered { byte });
        }
        let encoding = self.inner.encode_fast(text, false).map_err(|e| Error::Tokenizer { source: e })?;
        Ok(encoding.get_ids().to_vec())
    }

    /// The text of `tokens` without control tokens; bytes that are not UTF-8 become U+FFFD.
    pub fn decode(&self, tokens: &[u32]) -> String {
        let mut stream = self.stream();
        let mut text: String = tokens.iter().map(|&t| stream.push(t)).collect();
        text.push_str(&stream.finish());
        text
    }

    /// A decoder that takes tokens one at a time.
    pub fn stream(&self) -> TextStream<'_> {
        TextStream { tokenizer: self, pending: Vec::new() }
    }

    /// Whether text ends after `token`.
    pub fn is_end(&self, token: u32) -> bool {
        self.ends.binary_search(&token).is_ok()
    }

    /// The tokens after which text ends, sorted.
    pub fn ends(&self) -> &[u32] {
        &self.ends
    }

    /// The token at the start of a text, if the vocabulary has one.
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// Number of tokens.
    pub fn vocab(&self) -> usize {
        self.bytes.len()
    }
}

/// Decodes tokens one at a time; a character that is split over tokens appears with its last byte.
#[derive(Clone, Debug)]
pub struct TextStream<'a> {
    tokenizer: &'a Tokenizer,
    /// The first bytes of an incomplete character; at most three.
    pending: Vec<u8>,
}

impl TextStream<'_> {
    /// The text that `token` completes; empty for control tokens and numbers outside the vocabulary.
    pub fn push(&mut self, token: u32) -> String {
        let at = token as usize;
        if self.tokenizer.control.get(at) != Some(&false) {
            return String::new();
        }
        self.pending.extend_from_slice(&self.tokenizer.bytes[at]);
        let mut text = String::new();
        let mut used = 0;
        for chunk in self.pending.utf8_chunks() {
            text.push_str(chunk.valid());
            used += chunk.valid().len();
            let rest = &self.pending[used..];
            if chunk.invalid().len() == rest.len() && may_continue(rest) {
                break;
            }
            if !chunk.invalid().is_empty() {
                text.push(char::REPLACEMENT_CHARACTER);
                used += chunk.invalid().len();
            }
        }
        self.pending.drain(..used);
        text
    }

    /// The rest of the text: U+FFFD for an incomplete character.
    pub fn finish(self) -> String {
        String::from_utf8_lossy(&self.pending).into_owned()
    }
}

/// Whether `bytes`, which are not valid UTF-8, are the start of a character.
fn may_continue(bytes: &[u8]) -> bool {
    matches!(std::str::from_utf8(bytes), Err(e) if e.valid_up_to() == 0 && e.error_len().is_none())
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

fn token_types(gguf: &Gguf, count: usize) -> Result<Vec<u64>> {
    let key = "tokenizer.ggml.token_type";
    let Some(value) = gguf.value(key) else { return Ok(vec![1; count]) };
    let types = if let Value::Array(array) = value { Array::to_uints(array) } else { None };
    let Some(types) = types else {
        return Err(Error::KeyType {
            key: key.into(),
            expected: "an array of integers",
            found: value.kind(),
        });
    };
    if types.len() != count {
        let value = format!("an array of {}", types.len());
        return Err(Error::KeyValue { key: key.into(), value, rule: "it must have one entry per token" });
    }
    Ok(types)
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

fn required<T>(value: Option<T>, key: &str) -> Result<T> {
    value.ok_or_else(|| Error::MissingKey { key: key.into() })
}
