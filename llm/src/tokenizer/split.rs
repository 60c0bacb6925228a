//! Patterns that split text before byte pairs are merged, by `tokenizer.ggml.pre`.
//!
//! The patterns are those of the models' training; the names are llama.cpp's (`llama-vocab.cpp`).

use tokenizers::SplitDelimiterBehavior::Isolated;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};

/// GPT-2: contractions, words, numbers, other symbols, each with one leading space; whitespace.
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
/// LLaMA 3: contractions in either case, numbers in groups of three, line ends kept with what they follow.
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Qwen 2: as LLaMA 3, with single digits.
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// The message about a name that is not known.
pub(super) const NAMES: &str = "gpt-2, mpt, olmo, phi-2, llama-bpe, falcon3, pixtral, smaug-bpe, qwen2, \
                                deepseek-r1-qwen, smollm, starcoder, refact, command-r and default are \
                                supported";

/// A way to split text, named by `tokenizer.ggml.pre`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    /// Applied in order, each to the pieces of the one before.
    patterns: &'static [&'static str],
    /// Whether a piece that is a token is not split for merging.
    pub whole_pieces: bool,
    /// Whether text begins with the BOS token if the file has no key for it.
    pub adds_bos: bool,
}

/// The rule called `name`.
pub(super) fn rule(name: &str) -> Option<Rule> {
    let plain = |patterns| Some(Rule { patterns, whole_pieces: false, adds_bos: false });
    match name {
        "gpt-2" | "gpt2" | "olmo" | "phi-2" | "mpt" => plain(&[GPT2]),
        "llama-bpe" | "llama3" | "llama-v3" | "falcon3" | "pixtral" => {
            Some(Rule { patterns: &[LLAMA3], whole_pieces: true, adds_bos: true })
        }
        "smaug-bpe" => plain(&[LLAMA3]),
        "qwen2" | "deepseek-r1-qwen" => plain(&[QWEN2]),
        "smollm" | "starcoder" | "refact" | "command-r" => plain(&[r"\p{N}", GPT2]),
        "default" => plain(&[r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"]),
        _ => None,
    }
}

impl Rule {
    /// The splitter, which also maps bytes to the printable alphabet.
    pub fn pre_tokenizer(self) -> tokenizers::Result<Sequence> {
        let mut steps: Vec<PreTokenizerWrapper> = Vec::new();
        for pattern in self.patterns {
            steps.push(Split::new(SplitPattern::Regex((*pattern).into()), Isolated, false)?.into());
        }
        steps.push(ByteLevel::new(false, false, false).into());
        Ok(Sequence::new(steps))
    }
}

#[cfg(test)]
mod tests {
    use tokenizers::{OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer as _};

    use super::*;

    fn pieces(name: &str, text: &str) -> Vec<String> {
        let mut cut = PreTokenizedString::from(text);
        let cutter = rule(name).expect("a known rule").pre_tokenizer().expect("valid patterns");
        cutter.pre_tokenize(&mut cut).expect("pieces");
        let splits = cut.get_splits(OffsetReferential::Original, OffsetType::Byte);
        splits.into_iter().map(|(_, (from, to), _)| text[from..to].to_owned()).collect()
    }

    // The token boundaries that the published vocabularies of these models show for this text.
    const TEXT: &str = "Hello, world! 123456 don't  x";

    #[test]
    fn llama3_groups_digits_by_three() {
        let expected = ["Hello", ",", " world", "!", " ", "123", "456", " don", "'t", " ", " x"];
        assert_eq!(pieces("llama-bpe", TEXT), expected);
        assert_eq!(pieces("smaug-bpe", TEXT), expected);
    }

    #[test]
    fn qwen2_takes_single_digits() {
        let expected =
            ["Hello", ",", " world", "!", " ", "1", "2", "3", "4", "5", "6", " don", "'t", " ", " x"];
        assert_eq!(pieces("qwen2", TEXT), expected);
    }

    #[test]
    fn gpt2_takes_numbers_with_their_space() {
        let expected = ["Hello", ",", " world", "!", " 123456", " don", "'t", " ", " x"];
        assert_eq!(pieces("gpt-2", TEXT), expected);
    }

    #[test]
    fn line_ends_stay_together() {
        assert_eq!(pieces("llama-bpe", "a.\n\n  b\n"), ["a", ".\n\n", " ", " b", "\n"]);
        assert_eq!(pieces("gpt-2", "a.\n\n  b\n"), ["a", ".", "\n\n ", " b", "\n"]);
    }
}
