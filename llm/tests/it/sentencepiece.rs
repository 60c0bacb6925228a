//! SentencePiece's BPE on vocabularies made for the purpose, against the rule written down a second time.

use ga10b_llm::Tokenizer;
use ga10b_llm::gguf::{Array, Gguf, Value, Writer};
use proptest::prelude::*;

/// Pieces beside the characters, with scores. Runs of spaces and of letters, several of one score.
const PIECES: [(&str, f32); 16] = [
    ("▁▁", -1.0),
    ("he", -2.0),
    ("ll", -3.0),
    ("▁▁▁▁", -4.0),
    ("▁▁▁", -5.0),
    ("hell", -6.0),
    ("hello", -7.0),
    ("▁h", -8.0),
    ("▁hello", -9.0),
    ("lo", -10.0),
    ("aa", -11.0),
    ("aaa", -11.0),
    ("aaaa", -11.0),
    ("ab", -11.5),
    ("ba", -11.5),
    ("ö", -12.0),
];
const LETTERS: [&str; 8] = ["▁", "h", "e", "l", "o", "a", "b", "<"];

fn tokens() -> (Vec<String>, Vec<f32>, Vec<i32>) {
    let mut all: Vec<(String, f32, i32)> =
        vec![("<unk>".into(), 0.0, 2), ("<s>".into(), 0.0, 3), ("</s>".into(), 0.0, 3)];
    all.extend((0..=255u8).map(|b| (format!("<0x{b:02X}>"), 0.0, 6)));
    all.extend(PIECES.map(|(text, score)| (text.to_owned(), score, 1)));
    all.extend(LETTERS.map(|text| (text.to_owned(), -100.0, 1)));
    all.push(("two  words".into(), 0.0, 4));
    let texts = all.iter().map(|t| t.0.clone()).collect();
    (texts, all.iter().map(|t| t.1).collect(), all.iter().map(|t| t.2).collect())
}

fn vocabulary(change: impl FnOnce(&mut Writer)) -> Gguf {
    scored(Value::Array(Array::F32(tokens().1)), change)
}

fn scored(scores: Value, change: impl FnOnce(&mut Writer)) -> Gguf {
    let (tokens, _, types) = tokens();
    let mut writer = Writer::new();
    writer.key("tokenizer.ggml.model", Value::String("llama".into()));
    writer.key("tokenizer.ggml.bos_token_id", Value::U32(1));
    writer.key("tokenizer.ggml.eos_token_id", Value::U32(2));
    writer.key("tokenizer.ggml.tokens", Value::Array(Array::String(tokens)));
    writer.key("tokenizer.ggml.scores", scores);
    writer.key("tokenizer.ggml.token_type", Value::Array(Array::I32(types)));
    change(&mut writer);
    let bytes = writer.begin(Vec::new()).and_then(|w| w.finish()).expect("complete");
    Gguf::from_bytes(bytes).expect("a valid file")
}

fn tokenizer() -> Tokenizer {
    Tokenizer::from_gguf(&vocabulary(|_| ())).expect("a tokenizer")
}

fn id(text: &str) -> u32 {
    tokens().0.iter().position(|t| t == text).expect("a piece") as u32
}

/// The rule, slowly: again and again the neighbours whose token has the highest score, the leftmost first.
fn by_hand(text: &str) -> Vec<u32> {
    let (tokens, scores, _) = tokens();
    let find = |text: &str| tokens.iter().position(|t| t == text);
    let mut parts: Vec<String> = format!(" {text}").replace(' ', "▁").chars().map(String::from).collect();
    loop {
        let mut best: Option<(f32, usize)> = None;
        for at in 1..parts.len() {
            let Some(token) = find(&format!("{}{}", parts[at - 1], parts[at])) else { continue };
            if best.is_none_or(|(score, _)| scores[token] > score) {
                best = Some((scores[token], at));
            }
        }
        let Some((_, at)) = best else { break };
        let right = parts.remove(at);
        parts[at - 1].push_str(&right);
    }
    let ids = |part: &String| match find(part) {
        Some(token) => vec![token as u32],
        None => part.bytes().map(|b| 3 + u32::from(b)).collect(),
    };
    parts.iter().flat_map(ids).collect()
}

#[test]
fn a_word_takes_its_space_and_the_highest_scores_first() {
    let t = tokenizer();
    assert_eq!(t.encode("hello").expect("encodes"), [1, id("▁hello")]);
    assert_eq!(t.encode("hello hello").expect("encodes"), [1, id("▁hello"), id("▁hello")]);
    assert_eq!(t.encode("").expect("encodes"), [1]);
    assert_eq!(t.decode(&[1, id("▁hello"), id("▁hello"), 2]), "hello hello");
}

#[test]
fn what_has_no_token_becomes_bytes() {
    let t = tokenizer();
    assert_eq!(t.encode_plain("ä").expect("encodes"), [id("▁"), 3 + 0xc3, 3 + 0xa4]);
    assert_eq!(t.encode_plain("ö").expect("encodes"), [id("▁"), id("ö")]);
    assert_eq!(t.encode_plain("\n").expect("encodes"), [id("▁"), 3 + 10]);
    assert_eq!(t.decode(&[id("▁"), 3 + 0xc3, 3 + 0xa4]), "ä");
}

#[test]
fn named_tokens_are_cut_out_and_the_text_after_them_begins_anew() {
    let t = tokenizer();
    let expected = [1, id("▁hello"), 2, id("▁hello")];
    assert_eq!(t.encode("hello</s>hello").expect("encodes"), expected);
    let expected = [id("▁h"), id("two  words"), id("▁h")];
    assert_eq!(t.encode_plain("htwo  wordsh").expect("encodes"), expected);
    assert_eq!(t.encode("<s>hello").expect("encodes"), [1, id("▁hello")]);
    assert!(t.is_end(2) && !t.is_end(1));
    assert_eq!(t.decode(&[0, id("▁hello"), 2]), "hello");
}

#[test]
fn no_space_is_added_where_the_file_says_so() {
    let gguf = vocabulary(|w| {
        w.key("tokenizer.ggml.add_space_prefix", Value::Bool(false));
        w.key("tokenizer.ggml.add_bos_token", Value::Bool(false));
    });
    let t = Tokenizer::from_gguf(&gguf).expect("a tokenizer");
    assert_eq!(t.encode("hello").expect("encodes"), [id("hello")]);
    assert_eq!(t.decode(&[id("▁hello")]), " hello");
}

#[test]
fn a_stream_keeps_the_space_of_a_word_that_continues_a_text() {
    let t = tokenizer();
    let mut stream = t.stream();
    assert_eq!(stream.push(id("▁hello")), " hello");
    assert_eq!(stream.push(3 + 0xc3), "");
    assert_eq!(stream.push(3 + 0xa4), "ä");
}

#[test]
fn vocabularies_that_lack_scores_or_bytes_are_refused() {
    let refused = |gguf: Gguf| Tokenizer::from_gguf(&gguf).expect_err("incomplete").to_string();
    assert!(refused(scored(Value::Array(Array::F32(vec![1.0])), |_| ())).contains("scores"));
    assert!(refused(scored(Value::String("none".into()), |_| ())).contains("scores"));
    let mut scores = tokens().1;
    scores[5] = f32::NAN;
    assert!(refused(scored(Value::Array(Array::F32(scores)), |_| ())).contains("NaN"));
    let mut writer = Writer::new();
    writer.key("tokenizer.ggml.model", Value::String("llama".into()));
    writer.key("tokenizer.ggml.tokens", Value::Array(Array::String(vec!["a".into()])));
    writer.key("tokenizer.ggml.scores", Value::Array(Array::F32(vec![0.0])));
    let bytes = writer.begin(Vec::new()).and_then(|w| w.finish()).expect("complete");
    assert!(refused(Gguf::from_bytes(bytes).expect("valid")).contains("<0x00>"));
}

proptest! {
    #[test]
    fn pairs_merge_as_the_rule_says(text in "[ heloab<ö]{1,40}") {
        prop_assert_eq!(tokenizer().encode_plain(&text).expect("encodes"), by_hand(&text));
    }

    #[test]
    fn decoding_undoes_encoding(text in "\\PC*") {
        let t = tokenizer();
        prop_assert_eq!(t.decode(&t.encode(&text).expect("encodes")), text.clone());
        prop_assert_eq!(t.decode(&t.encode_plain(&text).expect("encodes")), text);
    }
}

/// llama.cpp's own vectors: `LLAMA_CPP` is a checkout; every vocabulary of `models/` that is accepted here.
#[test]
#[ignore = "needs a checkout: LLAMA_CPP=DIR cargo test -p ga10b-llm --test it sentencepiece -- --ignored"]
fn the_vectors_of_llama_cpp_agree() {
    let folder = std::env::var("LLAMA_CPP").expect("LLAMA_CPP names a checkout of llama.cpp");
    let mut compared = Vec::new();
    for entry in std::fs::read_dir(format!("{folder}/models")).expect("a folder of vocabularies") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let (input, output) = (path.with_extension("gguf.inp"), path.with_extension("gguf.out"));
        if !name.ends_with(".gguf") || !input.exists() {
            continue;
        }
        let Ok(gguf) = Gguf::open(&path) else { continue };
        match Tokenizer::from_gguf(&gguf) {
            Err(error) => println!("{name}: {error}"),
            Ok(tokenizer) => {
                let input = std::fs::read_to_string(input).expect("text");
                let output = std::fs::read_to_string(output).expect("tokens");
                let (same, all) = agree(&tokenizer, &input, &output);
                println!("{name}: {same} of {all}");
                assert_eq!(same, all, "{name}");
                compared.push(name);
            }
        }
    }
    assert!(!compared.is_empty(), "no vocabulary in {folder}/models was compared");
}

/// The number of texts of `input` that have the tokens that `output` lists, without BOS; and the number of
/// texts. A separator ends the last text.
fn agree(tokenizer: &Tokenizer, input: &str, output: &str) -> (usize, usize) {
    let texts: Vec<&str> = input.split_terminator("\n__ggml_vocab_test__\n").collect();
    assert_eq!(texts.len(), output.lines().count());
    let same = texts.iter().zip(output.lines()).filter(|(text, line)| {
        let expected: Vec<u32> = line.split_whitespace().map(|t| t.parse().expect("a token")).collect();
        let found = tokenizer.encode_plain(text).expect("encodes");
        if found != expected {
            println!("{text:?}: {found:?} instead of {expected:?}");
        }
        found == expected
    });
    (same.count(), texts.len())
}
