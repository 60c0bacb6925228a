//! A vocabulary of any size: bytes, some words, fillers, control tokens.

use std::collections::HashSet;

/// Words with tokens of their own, most useful first.
const WORDS: &str = "the of and to in is that it was for on with he she they you we are as at be this have from or \
    one had by not but what all were when your can there use an each which do how their if will up other about out \
    many then them these so some her would make like him into time has look two more write go see number no way \
    could people my than first water been call who its now find long down day did get come made may part";

/// The values of a file's tokenizer keys.
#[derive(Debug)]
pub(super) struct Vocabulary {
    pub tokens: Vec<String>,
    /// 1 normal, 3 control, 5 unused.
    pub types: Vec<i32>,
    pub merges: Vec<String>,
    pub bos: u32,
    pub eos: u32,
    pub eot: u32,
}

impl Vocabulary {
    /// `size` tokens; at least 300.
    pub fn new(size: usize) -> Self {
        let mut tokens: Vec<String> =
            crate::tokenizer::alphabet::alphabet().iter().map(char::to_string).collect();
        let mut known: HashSet<String> = tokens.iter().cloned().collect();
        let mut merges = Vec::new();
        for word in WORDS.split_ascii_whitespace() {
            // U+0120 stands for the space.
            let mut left = "\u{120}".to_owned();
            for letter in word.chars() {
                let joined = format!("{left}{letter}");
                if tokens.len() + 16 < size && known.insert(joined.clone()) {
                    merges.push(format!("{left} {letter}"));
                    tokens.push(joined.clone());
                }
                left = joined;
            }
        }
        let mut types = vec![1; tokens.len()];
        for filler in tokens.len()..size {
            tokens.push(format!("[PAD{filler}]"));
            types.push(5);
        }
        // The numbers of LLaMA 3's control tokens; the last ones in smaller vocabularies.
        let places =
            if size > 128_009 { [128_000, 128_001, 128_009] } else { [size - 4, size - 3, size - 2] };
        for (place, text) in places.into_iter().zip(["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"]) {
            tokens[place] = text.into();
            types[place] = 3;
        }
        let [bos, eos, eot] = places.map(|place| place as u32);
        Self { tokens, types, merges, bos, eos, eot }
    }
}
