//! The tokenizer on vocabularies made for the purpose.

use ga10b_llm::Tokenizer;
use ga10b_llm::gguf::{Array, Gguf, Value, Writer};
use proptest::prelude::*;

/// The file of a vocabulary: 256 byte symbols, then what `merges` make, then control tokens.
fn vocabulary(pre: &str, merges: &[(&str, &str)], control: &[&str]) -> Gguf {
    let mut tokens: Vec<String> = (0..=255u8).map(|b| symbol(b).to_string()).collect();
    tokens.extend(merges.iter().map(|(a, b)| format!("{a}{b}")));
    let normal = tokens.len();
    tokens.extend(control.iter().map(|&t| t.to_owned()));
    let types = (0..tokens.len()).map(|at| if at < normal { 1 } else { 3 }).collect();
    let mut writer = Writer::new();
    writer.key("tokenizer.ggml.model", Value::String("gpt2".into()));
    writer.key("tokenizer.ggml.pre", Value::String(pre.into()));
    if let Some(end) = control.first() {
        let at = tokens.iter().position(|t| t == end).unwrap_or_default();
        writer.key("tokenizer.ggml.eos_token_id", Value::U32(at as u32));
        writer.key("tokenizer.ggml.bos_token_id", Value::U32(at as u32));
    }
    writer.key("tokenizer.ggml.tokens", Value::Array(Array::String(tokens)));
    writer.key("tokenizer.ggml.token_type", Value::Array(Array::I32(types)));
    let merges = merges.iter().map(|(a, b)| format!("{a} {b}")).collect();
    writer.key("tokenizer.ggml.merges", Value::Array(Array::String(merges)));
    let bytes = writer.begin(Vec::new()).and_then(|w| w.finish()).expect("complete");
    Gguf::from_bytes(bytes).expect("a valid file")
}

/// GPT-2's table, in the words of its own definition.
fn symbol(byte: u8) -> char {
    let own: Vec<u8> = (0..=255).filter(|b| matches!(b, 33..=126 | 161..=172 | 174..=255)).collect();
    let moved: Vec<u8> = (0..=255).filter(|b| !own.contains(b)).collect();
    match moved.iter().position(|&b| b == byte) {
        Some(at) => char::from_u32(256 + at as u32).expect("a character"),
        None => char::from(byte),
    }
}

fn tokenizer(pre: &str, merges: &[(&str, &str)], control: &[&str]) -> Tokenizer {
    Tokenizer::from_gguf(&vocabulary(pre, merges, control)).expect("a tokenizer")
}

const MERGES: [(&str, &str); 6] =
    [("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o"), ("Ġ", "w"), ("Ã", "¼")];

#[test]
fn pairs_merge_in_the_order_of_their_rank() {
    let t = tokenizer("gpt-2", &MERGES, &[]);
    assert_eq!(t.encode("hello").expect("encodes"), [259]);
    assert_eq!(t.encode("hell").expect("encodes"), [258]);
    let space_w = t.encode(" wo").expect("encodes");
    assert_eq!(space_w, [260, u32::from(b'o')]);
    assert_eq!(t.decode(&[259, 260]), "hello w");
}

#[test]
fn control_tokens_are_cut_out_and_end_the_text() {
    let t = tokenizer("gpt-2", &MERGES, &["<|endoftext|>", "<|im_end|>"]);
    assert_eq!(t.encode("he<|im_end|>he").expect("encodes"), [256, 263, 256]);
    assert!(t.is_end(262) && t.is_end(263) && !t.is_end(256));
    assert_eq!(t.decode(&[256, 263]), "he");
}

#[test]
fn llama_and_tekken_begin_with_bos_by_default_and_gpt2_does_not() {
    let llama = tokenizer("llama-bpe", &MERGES, &["<|begin_of_text|>"]);
    assert_eq!(llama.encode("he").expect("encodes"), [262, 256]);
    assert_eq!(llama.encode_plain("he").expect("encodes"), [256]);
    let tekken = tokenizer("tekken", &MERGES, &["<s>"]);
    assert_eq!(tekken.encode("he").expect("encodes"), [262, 256]);
    let gpt2 = tokenizer("gpt-2", &MERGES, &["<|endoftext|>"]);
    assert_eq!(gpt2.encode("he").expect("encodes"), [256]);
}

#[test]
fn a_character_split_over_tokens_appears_with_its_last_byte() {
    let t = tokenizer("gpt-2", &[], &[]);
    let mut stream = t.stream();
    assert_eq!(stream.push(0xf0), "");
    assert_eq!(stream.push(0x9f), "");
    assert_eq!(stream.push(0x98), "");
    assert_eq!(stream.push(0x80), "😀");
    assert_eq!(stream.push(0xe2), "");
    assert_eq!(stream.push(u32::from(b'x')), "\u{fffd}x");
    assert_eq!(stream.push(0xff), "\u{fffd}");
    assert_eq!(stream.push(0xc3), "");
    assert_eq!(stream.finish(), "\u{fffd}");
}

#[test]
fn unknown_kinds_are_refused_by_name() {
    let refused =
        |pre: &str| Tokenizer::from_gguf(&vocabulary(pre, &[], &[])).expect_err("unknown").to_string();
    assert!(refused("viking").contains("viking"));
    let broken = vocabulary("gpt-2", &[("h", "nothing")], &[]);
    let error = Tokenizer::from_gguf(&broken).expect_err("the right half is no token");
    assert!(error.to_string().contains("merges[0]"), "{error}");
}

#[test]
fn a_vocabulary_without_a_byte_says_so() {
    let mut writer = Writer::new();
    writer.key("tokenizer.ggml.model", Value::String("gpt2".into()));
    writer.key("tokenizer.ggml.tokens", Value::Array(Array::String(vec!["a".into()])));
    writer.key("tokenizer.ggml.merges", Value::Array(Array::String(vec![])));
    let bytes = writer.begin(Vec::new()).and_then(|w| w.finish()).expect("complete");
    let t = Tokenizer::from_gguf(&Gguf::from_bytes(bytes).expect("valid")).expect("a tokenizer");
    assert_eq!(t.encode("aa").expect("encodes"), [0, 0]);
    assert!(t.encode("ab").expect_err("no b").to_string().contains("0x62"));
}

/// A vocabulary with one more key, or another value.
fn with_key(key: &str, value: Value) -> ga10b_llm::Result<Tokenizer> {
    let base = vocabulary("gpt-2", &MERGES, &["<|endoftext|>", "<end_of_turn>"]);
    let mut writer = Writer::new();
    base.metadata().iter().filter(|(k, _)| *k != key).for_each(|(k, v)| writer.key(k, v.clone()));
    writer.key(key, value);
    let bytes = writer.begin(Vec::new()).and_then(|w| w.finish()).expect("complete");
    Tokenizer::from_gguf(&Gguf::from_bytes(bytes).expect("a valid file"))
}

#[test]
fn keys_that_would_change_tokens_are_refused_by_name() {
    for (key, value) in [
        ("add_eos_token", Value::Bool(true)),
        ("add_sep_token", Value::Bool(true)),
        ("remove_extra_whitespaces", Value::Bool(true)),
        ("precompiled_charsmap", Value::Array(Array::U8(vec![1]))),
        ("normalizer.lowercase", Value::Bool(true)),
        ("suppress_tokens", Value::Array(Array::I32(vec![7]))),
        ("bos_token_id", Value::I32(-1)),
        ("eos_token_id", Value::U32(u32::MAX)),
    ] {
        let key = format!("tokenizer.ggml.{key}");
        let error = with_key(&key, value).expect_err(&key);
        assert!(error.to_string().contains(&key), "{error}");
    }
    let error = with_key("tokenizer.ggml.bos_token_id", Value::I32(-1)).expect_err("-1");
    assert!(error.to_string().contains("negative integer"), "{error}");
    for (key, value) in [
        ("add_eos_token", Value::Bool(false)),
        ("suppress_tokens", Value::Array(Array::I32(vec![]))),
        ("padding_token_id", Value::U32(0)),
    ] {
        with_key(&format!("tokenizer.ggml.{key}"), value).expect(key);
    }
}

#[test]
fn token_types_that_are_not_known_are_refused() {
    let count = vocabulary("gpt-2", &MERGES, &["<|endoftext|>", "<end_of_turn>"])
        .strings("tokenizer.ggml.tokens")
        .expect("strings")
        .map_or(0, <[_]>::len);
    for ty in [0, 7, 99] {
        let mut types = vec![1; count];
        types[5] = ty;
        let error = with_key("tokenizer.ggml.token_type", Value::Array(Array::I32(types))).expect_err("type");
        let text = error.to_string();
        assert!(text.contains("token_type[5]") && text.contains(&format!(" {ty}, ")), "{text}");
    }
    // The end of a turn is one by its text, as a control token and as one that users define.
    for (ty, ends) in [(3, true), (4, true), (1, false)] {
        let mut types = vec![1; count];
        types[count - 1] = ty;
        let t = with_key("tokenizer.ggml.token_type", Value::Array(Array::I32(types))).expect("a tokenizer");
        assert_eq!(t.is_end(count as u32 - 1), ends, "type {ty}");
    }
}

proptest! {
    #[test]
    fn decoding_undoes_encoding(text in "\\PC*", pre in prop::sample::select(
        vec!["gpt-2", "llama-bpe", "qwen2", "smollm", "tekken", "gpt-4o", "deepseek-coder", "default"],
    )) {
        let t = tokenizer(pre, &MERGES, &[]);
        prop_assert_eq!(t.decode(&t.encode(&text).expect("every byte is covered")), text);
    }

    #[test]
    fn whitespace_and_odd_text_survive(text in "[ \\t\\r\\n'0-9a-zA-ZäßЖ漢😀\u{0}\u{85}\u{2028}]{0,40}") {
        let t = tokenizer("llama-bpe", &MERGES, &[]);
        prop_assert_eq!(t.decode(&t.encode(&text).expect("every byte is covered")), text);
    }

    #[test]
    fn any_tokens_decode_to_the_same_text_at_once_and_one_by_one(tokens in prop::collection::vec(0u32..300, 0..40)) {
        let t = tokenizer("gpt-2", &MERGES, &["<|endoftext|>"]);
        let bytes: Vec<u8> = tokens.iter().flat_map(|&token| match token {
            0..=255 => vec![token as u8],
            256 => b"he".to_vec(),
            257 => b"ll".to_vec(),
            258 => b"hell".to_vec(),
            259 => b"hello".to_vec(),
            260 => b" w".to_vec(),
            261 => "ü".as_bytes().to_vec(),
            _ => Vec::new(),
        }).collect();
        prop_assert_eq!(t.decode(&tokens), String::from_utf8_lossy(&bytes));
    }
}
