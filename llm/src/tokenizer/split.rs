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
/// Mistral's Tekken: words end where capitals follow small letters; single digits; slashes kept with what they
/// follow, as line ends.
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// GPT-4o, of which Phi-4 mini has the vocabulary: as Tekken, with contractions and numbers in groups of three.
const GPT4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Seed-Coder: as Qwen 2, without the line ends after symbols.
const SEED_CODER: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+";
/// DeepSeek-Coder: line ends, words, punctuation, Chinese and Korean, digits, one after the other.
const DEEPSEEK_CODER: [&str; 5] =
    [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-\u{d7ff}]+", r"\p{N}"];

/// The message about a name that is not known.
pub(super) const NAMES: &str = "gpt-2, mpt, olmo, phi-2, gigachat, a.x-4.0, mellum, trillion, llama-bpe, falcon3, \
                                pixtral, midm-2.0, smaug-bpe, dbrx, tekken, gpt-4o, qwen2, deepseek-r1-qwen, \
                                megrez, kormo, seed-coder, deepseek-coder, smollm, starcoder, refact, command-r, \
                                minerva-7b and default are supported";

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
        "gpt-2" | "gpt2" | "olmo" | "phi-2" | "mpt" | "gigachat" | "a.x-4.0" | "mellum" | "trillion" => {
            plain(&[GPT2])
        }
        "llama-bpe" | "llama3" | "llama-v3" | "falcon3" | "pixtral" | "midm-2.0" => {
            Some(Rule { patterns: &[LLAMA3], whole_pieces: true, adds_bos: true })
        }
        "tekken" => Some(Rule { patterns: &[TEKKEN], whole_pieces: true, adds_bos: true }),
        "smaug-bpe" | "dbrx" => plain(&[LLAMA3]),
        "gpt-4o" => plain(&[GPT4O]),
        "qwen2" | "deepseek-r1-qwen" | "megrez" | "kormo" => plain(&[QWEN2]),
        "seed-coder" => plain(&[SEED_CODER]),
        "deepseek-coder" => plain(&DEEPSEEK_CODER),
        "smollm" | "starcoder" | "refact" | "command-r" | "minerva-7b" => plain(&[r"\p{N}", GPT2]),
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

    // The pieces that the Python package `tokenizers` 0.23.3 gives with the expressions of the models' own
    // files (`tokenizer.json` of Mistral Nemo, Phi-4 mini, Seed-Coder and DeepSeek-Coder).

    #[test]
    fn tekken_and_gpt4o_end_words_at_capitals() {
        let text = "HELLOWorld camelCaseX ABCdef's WE'LL it's";
        let tekken = ["HELLOWorld", " camel", "Case", "X", " ABCdef", "'s", " WE", "'LL", " it", "'s"];
        assert_eq!(pieces("tekken", text), tekken);
        let gpt4o = ["HELLOWorld", " camel", "Case", "X", " ABCdef's", " WE'LL", " it's"];
        assert_eq!(pieces("gpt-4o", text), gpt4o);
        for name in ["tekken", "gpt-4o"] {
            let slashes = ["path", "/to", "//", "file", ".txt", "/\n//", "x"];
            assert_eq!(pieces(name, "path/to//file.txt/\n//x"), slashes, "{name}");
            // Titlecase, modifiers and marks belong to words; so do letters without case.
            let words = ["ǅungla", " ʰa", " e\u{301}te\u{301}", " नमस्ते", " ÄPFEL", " ЖУКжук", " 漢字かな"];
            assert_eq!(pieces(name, &words.concat()), words, "{name}");
            assert_eq!(pieces(name, "  \t x\r\n\r\ny  "), ["  \t", " x", "\r\n\r\n", "y", "  "], "{name}");
        }
    }

    #[test]
    fn tekken_takes_single_digits_and_gpt4o_three() {
        let text = "99,999.99€ 1e10 ١٢٣";
        let single =
            ["9", "9", ",", "9", "9", "9", ".", "9", "9", "€", " ", "1", "e", "1", "0", " ", "١", "٢", "٣"];
        assert_eq!(pieces("tekken", text), single);
        let three = ["99", ",", "999", ".", "99", "€", " ", "1", "e", "10", " ", "١٢٣"];
        assert_eq!(pieces("gpt-4o", text), three);
    }

    #[test]
    fn code_is_split_as_its_models_do() {
        let text = "if (x > 0) {\n\n  y;  // ß漢字가\n}";
        let seed = [
            "if",
            " (",
            "x",
            " >",
            " ",
            "0",
            ")",
            " {",
            "\n\n",
            " ",
            " y",
            ";",
            " ",
            " //",
            " ß漢字가",
            "\n",
            "}",
        ];
        assert_eq!(pieces("seed-coder", text), seed);
        let deepseek = [
            "if",
            " (",
            "x",
            " > ",
            "0",
            ")",
            " {",
            "\n",
            "\n",
            " ",
            " y",
            ";",
            " ",
            " //",
            " ß",
            "漢字가",
            "\n",
            "}",
        ];
        assert_eq!(pieces("deepseek-coder", text), deepseek);
    }

    #[test]
    fn names_of_one_rule_are_all_known() {
        for name in NAMES
            .trim_end_matches(" are supported")
            .split([',', ' '])
            .filter(|n| !n.is_empty() && *n != "and")
        {
            assert!(rule(name).is_some(), "{name}");
        }
        assert_eq!(rule("dbrx"), rule("smaug-bpe"));
    }
}
