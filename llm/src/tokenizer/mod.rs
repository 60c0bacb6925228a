//! Text to tokens and back, by the vocabulary in the model's file.
//!
//! Two kinds: byte-level BPE as in LLaMA 3, GPT-2 and Qwen (`tokenizer.ggml.model` = `gpt2`), which the crate
//! `tokenizers` splits and merges, and SentencePiece's BPE (`llama`). Tokens become bytes through a table,
//! because a token may end within a character.

pub(crate) mod alphabet;
mod byte_level;
mod keys;
mod sentencepiece;
mod split;
mod token_type;

use crate::error::{Error, Result};
use crate::gguf::Gguf;
use crate::tokenizer::byte_level::ByteLevel;
use crate::tokenizer::sentencepiece::SentencePiece;
use crate::tokenizer::token_type::{BYTE, CONTROL, UNKNOWN, UNUSED, USER_DEFINED, token_types};

/// End-of-turn tokens that some files name by no key.
const END_TEXTS: [&str; 7] = [
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<|endoftext|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
];

/// The algorithm that splits text into tokens.
#[derive(Debug)]
enum Kind {
    ByteLevel(Box<ByteLevel>),
    SentencePiece(Box<SentencePiece>),
}

/// A tokenizer.
#[derive(Debug)]
pub struct Tokenizer {
    kind: Kind,
    /// Bytes of each token; control tokens have their names.
    bytes: Vec<Box<[u8]>>,
    /// Tokens without a text.
    control: Vec<bool>,
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
        keys::check(gguf)?;
        let model = gguf.text("tokenizer.ggml.model")?.unwrap_or("none");
        let tokens = required(gguf.strings("tokenizer.ggml.tokens")?, "tokenizer.ggml.tokens")?;
        let types = token_types(gguf, tokens.len())?;
        let (kind, bytes, adds_bos) = match model {
            "gpt2" => {
                let (inner, bytes) = ByteLevel::new(gguf, tokens, &types)?;
                let adds_bos = inner.adds_bos();
                (Kind::ByteLevel(Box::new(inner)), bytes, adds_bos)
            }
            "llama" => {
                let named = (0..tokens.len() as u32).filter(|&id| {
                    let at = id as usize;
                    matches!(types[at], UNKNOWN | CONTROL | USER_DEFINED) && !tokens[at].is_empty()
                });
                let inner = SentencePiece::new(gguf, tokens, named.collect())?;
                (Kind::SentencePiece(Box::new(inner)), sentencepiece_bytes(tokens, &types), true)
            }
            _ => {
                let rule = "byte-level BPE (\"gpt2\") and SentencePiece's BPE (\"llama\") are supported";
                return Err(Error::KeyValue {
                    key: "tokenizer.ggml.model".into(),
                    value: model.into(),
                    rule,
                });
            }
        };

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
        let adds_bos = gguf.bool("tokenizer.ggml.add_bos_token")?.unwrap_or(adds_bos);
        let mut ends = Vec::new();
        for name in ["eos", "eot", "eom"] {
            ends.extend(id(&format!("tokenizer.ggml.{name}_token_id"))?);
        }
        for (at, token) in tokens.iter().enumerate() {
            if matches!(types[at], CONTROL | USER_DEFINED) && END_TEXTS.contains(&token.as_str()) {
                ends.push(at as u32);
            }
        }
        ends.sort_unstable();
        ends.dedup();
        // "<unk>" of a SentencePiece vocabulary stands for no text.
        let is_silent = |ty| ty == CONTROL || (ty == UNKNOWN && model == "llama");
        let control = types.iter().map(|&ty| is_silent(ty)).collect();
        Ok(Self { kind, bytes, control, bos, adds_bos, ends })
    }

    /// The tokens of `text`, after the BOS token if the model takes one and the text does not begin with it,
    /// which is reported as a warning: models are trained with one.
    ///
    /// Names of control tokens in the text become those tokens.
    ///
    /// # Errors
    /// [`Error::Uncovered`] if the vocabulary has no symbol for a byte of the text.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        let (tokens, was_there) = self.begun(text)?;
        if was_there {
            tracing::warn!("the text begins with the token that begins every text; no second one is added");
        }
        Ok(tokens)
    }

    /// As [`encode`](Self::encode), without a warning: for a text that a template made, which may begin with it.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn encode_formatted(&self, text: &str) -> Result<Vec<u32>> {
        self.begun(text).map(|(tokens, _)| tokens)
    }

    /// The tokens with BOS, if the model takes one, and whether the text itself begins with it then.
    fn begun(&self, text: &str) -> Result<(Vec<u32>, bool)> {
        let mut tokens = self.encode_plain(text)?;
        let Some(bos) = self.bos.filter(|_| self.adds_bos) else { return Ok((tokens, false)) };
        let was_there = tokens.first() == Some(&bos);
        if !was_there {
            tokens.insert(0, bos);
        }
        Ok((tokens, was_there))
    }

    /// The tokens of `text` without BOS. SentencePiece vocabularies may add a space before its first word.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn encode_plain(&self, text: &str) -> Result<Vec<u32>> {
        match &self.kind {
            Kind::ByteLevel(inner) => inner.encode(text),
            Kind::SentencePiece(inner) => Ok(inner.encode(text)),
        }
    }

    /// The text of `tokens` without control tokens; bytes that are not UTF-8 become U+FFFD. The space that
    /// [`encode`](Self::encode) adds before a first word is removed.
    pub fn decode(&self, tokens: &[u32]) -> String {
        let mut stream = self.stream();
        let mut text: String = tokens.iter().map(|&t| stream.push(t)).collect();
        text.push_str(&stream.finish());
        match &self.kind {
            Kind::SentencePiece(inner) if inner.space_prefix() && text.starts_with(' ') => text.split_off(1),
            _ => text,
        }
    }

    /// A decoder that takes tokens one at a time, of a text that continues another.
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

    /// The name of a control token, the text of another one; empty for a number outside the vocabulary.
    pub fn name(&self, token: u32) -> String {
        self.bytes.get(token as usize).map(|b| String::from_utf8_lossy(b).into_owned()).unwrap_or_default()
    }

    /// The exact bytes of a token's text, which may be a part of a character; `None` for a token without a
    /// text and for a number outside the vocabulary.
    pub fn bytes(&self, token: u32) -> Option<&[u8]> {
        let at = token as usize;
        (self.control.get(at) == Some(&false)).then(|| &*self.bytes[at])
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
        let Some(bytes) = self.tokenizer.bytes(token) else { return String::new() };
        self.pending.extend_from_slice(bytes);
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

/// The bytes of each token of a SentencePiece vocabulary.
fn sentencepiece_bytes(tokens: &[String], types: &[u64]) -> Vec<Box<[u8]>> {
    let bytes = |(text, &ty): (&String, &u64)| match ty {
        UNKNOWN | CONTROL | USER_DEFINED => text.as_bytes().into(),
        UNUSED => Box::default(),
        BYTE if let Some(byte) = sentencepiece::byte_of(text) => [byte].into(),
        _ => sentencepiece::token_bytes(text),
    };
    tokens.iter().zip(types).map(bytes).collect()
}

fn required<T>(value: Option<T>, key: &str) -> Result<T> {
    value.ok_or_else(|| Error::MissingKey { key: key.into() })
}
