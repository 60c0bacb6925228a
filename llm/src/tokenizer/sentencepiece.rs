//! SentencePiece's BPE, as in LLaMA 2, TinyLlama, Mistral and Gemma (`tokenizer.ggml.model` = `llama`).
//!
//! The pair of neighbours whose token has the highest score is merged first, of equal scores the leftmost. The
//! crate `tokenizers` ranks merges instead of tokens, which decides differently between pairs that make the
//! same token (runs of spaces), and a table of all merges would have to be made from the vocabulary first. So
//! merging is here; the rule is `llm_tokenizer_spm` of llama.cpp's `llama-vocab.cpp`.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};

use aho_corasick::{AhoCorasick, MatchKind};

use crate::error::{Error, Result};
use crate::gguf::Gguf;
use crate::gguf::value::{Array, Value};

/// Stands for a space.
const SPACE: char = '\u{2581}';

/// The vocabulary, and how text is prepared for it.
#[derive(Debug)]
pub(super) struct SentencePiece {
    ids: HashMap<Box<str>, u32>,
    scores: Vec<f32>,
    /// The tokens `<0x00>` to `<0xFF>`.
    bytes: [u32; 256],
    /// Finds the names of tokens that are cut out of the text before anything is merged.
    names: AhoCorasick,
    /// The token of each name.
    named: Vec<u32>,
    /// Whether text, and what follows a named token, begins with a space.
    space_prefix: bool,
}

impl SentencePiece {
    /// The vocabulary `tokens` of `gguf`; those in `named` are cut out of the text.
    pub fn new(gguf: &Gguf, tokens: &[String], named: Vec<u32>) -> Result<Self> {
        let scores = scores(gguf, tokens.len())?;
        let mut ids = HashMap::with_capacity(tokens.len());
        for (id, token) in tokens.iter().enumerate() {
            ids.entry(token.as_str().into()).or_insert(id as u32);
        }
        let mut bytes = [0; 256];
        for (byte, id) in bytes.iter_mut().enumerate() {
            let name = format!("<0x{byte:02X}>");
            *id = *ids.get(name.as_str()).ok_or_else(|| Error::KeyValue {
                key: "tokenizer.ggml.tokens".into(),
                value: format!("a list without {name}"),
                rule: "SentencePiece vocabularies with a token for every byte are supported",
            })?;
        }
        let names = named.iter().map(|id| &tokens[*id as usize]);
        let names = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(names)
            .map_err(|e| Error::Tokenizer { source: e.into() })?;
        let space_prefix = gguf.bool("tokenizer.ggml.add_space_prefix")?.unwrap_or(true);
        Ok(Self { ids, scores, bytes, names, named, space_prefix })
    }

    /// Whether the text of a first token begins with a space that the text did not have.
    pub fn space_prefix(&self) -> bool {
        self.space_prefix
    }

    /// The tokens of `text`.
    pub fn encode(&self, text: &str) -> Vec<u32> {
        let mut tokens = Vec::new();
        let mut from = 0;
        for name in self.names.find_iter(text) {
            self.plain(&text[from..name.start()], &mut tokens);
            tokens.push(self.named[name.pattern().as_usize()]);
            from = name.end();
        }
        self.plain(&text[from..], &mut tokens);
        tokens
    }

    /// The tokens of a text without names.
    fn plain(&self, text: &str, tokens: &mut Vec<u32>) {
        if text.is_empty() {
            return;
        }
        let mut spaced = String::with_capacity(text.len() + text.len() / 2);
        if self.space_prefix {
            spaced.push(SPACE);
        }
        spaced.extend(text.chars().map(|c| if c == ' ' { SPACE } else { c }));
        for piece in Merging::new(self, &spaced).run() {
            match self.ids.get(piece) {
                Some(id) => tokens.push(*id),
                None => tokens.extend(piece.bytes().map(|byte| self.bytes[usize::from(byte)])),
            }
        }
    }
}

/// The text of a normal token.
pub(super) fn token_bytes(text: &str) -> Box<[u8]> {
    text.replace(SPACE, " ").into_bytes().into()
}

/// The byte of a token `<0xNN>`.
pub(super) fn byte_of(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    if digits.len() == 2 { u8::from_str_radix(digits, 16).ok() } else { None }
}

fn scores(gguf: &Gguf, count: usize) -> Result<Vec<f32>> {
    let key = "tokenizer.ggml.scores";
    let Some(value) = gguf.value(key) else { return Err(Error::MissingKey { key: key.into() }) };
    let Value::Array(Array::F32(scores)) = value else {
        let (expected, found) = ("an array of numbers in single precision", value.kind());
        return Err(Error::KeyType { key: key.into(), expected, found });
    };
    if scores.len() != count {
        let value = format!("an array of {}", scores.len());
        return Err(Error::KeyValue { key: key.into(), value, rule: "it must have one entry per token" });
    }
    if let Some(score) = scores.iter().find(|score| !score.is_finite()) {
        return Err(Error::KeyValue {
            key: key.into(),
            value: score.to_string(),
            rule: "scores are finite numbers",
        });
    }
    Ok(scores.clone())
}

/// A part of the text that is a token or a character; its neighbours by index.
#[derive(Clone, Copy)]
struct Symbol {
    from: usize,
    /// Its end; `from` once it is merged into its left neighbour.
    to: usize,
    left: Option<usize>,
    right: Option<usize>,
}

/// Two neighbours that make a token. The greatest is merged first.
#[derive(Clone, Copy, PartialEq)]
struct Pair {
    score: f32,
    left: usize,
    right: usize,
    /// Bytes of both: others if one of them has changed since.
    length: usize,
}

impl Eq for Pair {}

impl Ord for Pair {
    fn cmp(&self, other: &Self) -> Ordering {
        self.score.total_cmp(&other.score).then(other.left.cmp(&self.left))
    }
}

impl PartialOrd for Pair {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A text while its symbols are merged.
struct Merging<'a> {
    vocabulary: &'a SentencePiece,
    text: &'a str,
    symbols: Vec<Symbol>,
    pairs: BinaryHeap<Pair>,
}

impl<'a> Merging<'a> {
    fn new(vocabulary: &'a SentencePiece, text: &'a str) -> Self {
        let symbols: Vec<Symbol> = text
            .char_indices()
            .enumerate()
            .map(|(at, (from, c))| {
                let to = from + c.len_utf8();
                Symbol { from, to, left: at.checked_sub(1), right: (to < text.len()).then_some(at + 1) }
            })
            .collect();
        let mut merging = Self { vocabulary, text, symbols, pairs: BinaryHeap::new() };
        for right in 1..merging.symbols.len() {
            merging.consider(Some(right - 1), Some(right));
        }
        merging
    }

    /// Queues the pair if it makes a token.
    fn consider(&mut self, left: Option<usize>, right: Option<usize>) {
        let (Some(left), Some(right)) = (left, right) else { return };
        let text = &self.text[self.symbols[left].from..self.symbols[right].to];
        if let Some(id) = self.vocabulary.ids.get(text) {
            let score = self.vocabulary.scores[*id as usize];
            self.pairs.push(Pair { score, left, right, length: text.len() });
        }
    }

    /// Merges until no pair makes a token; the parts of the text that are left, in order.
    fn run(mut self) -> impl Iterator<Item = &'a str> {
        while let Some(pair) = self.pairs.pop() {
            let (left, right) = (self.symbols[pair.left], self.symbols[pair.right]);
            let is_merged = left.from == left.to || right.from == right.to;
            if is_merged || right.to - left.from != pair.length {
                continue;
            }
            self.symbols[pair.left] = Symbol { to: right.to, right: right.right, ..left };
            self.symbols[pair.right].to = right.from;
            if let Some(next) = right.right {
                self.symbols[next].left = Some(pair.left);
            }
            self.consider(left.left, Some(pair.left));
            self.consider(Some(pair.left), right.right);
        }
        let Self { text, symbols, .. } = self;
        symbols.into_iter().filter(|s| s.from < s.to).map(move |s| &text[s.from..s.to])
    }
}
