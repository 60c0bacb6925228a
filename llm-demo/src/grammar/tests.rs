//! Texts of random choices by random schemas, and schemas that are refused.

use std::sync::LazyLock;

use ga10b_llm::generate::{Stop, generate};
use ga10b_llm::gguf::{Array, Gguf, Value as Key, Writer};
use ga10b_llm::sampler::Constraint;
use ga10b_llm::{Decoder, Reference, Sampler, SamplerOptions, Tokenizer, embedded};
use proptest::prelude::*;
use proptest::sample::subsequence;
use serde_json::{Value, json};

use super::{Compiler, Grammar};

/// Logits that have nothing to do with a model: draws of a sampler among equal ones.
struct Noise(Sampler);

impl Noise {
    fn new(seed: u64) -> Self {
        Self(Sampler::new(SamplerOptions { temperature: 1.0, seed, ..SamplerOptions::GREEDY }))
    }

    fn logits(&mut self, count: usize) -> Vec<f32> {
        const EVEN: [f32; 61] = [0.0; 61];
        (0..count).map(|_| self.0.sample(&EVEN) as f32 / 10.0).collect()
    }
}

/// Of the embedded model.
pub(super) fn words() -> &'static (Tokenizer, Compiler) {
    static WORDS: LazyLock<(Tokenizer, Compiler)> = LazyLock::new(|| {
        let tokenizer = Tokenizer::from_gguf(&embedded::model().expect("a model").gguf).expect("a tokenizer");
        let compiler = Compiler::new(&tokenizer).expect("a compiler");
        (tokenizer, compiler)
    });
    &WORDS
}

/// A vocabulary of SentencePiece: bytes, and a few words with the mark of a space; `controls` are further control
/// tokens.
pub(super) fn sentencepiece(controls: &[&str]) -> Tokenizer {
    let mut tokens: Vec<String> = ["<unk>", "<s>", "</s>"].map(str::to_owned).to_vec();
    tokens.extend((0..=255).map(|byte| format!("<0x{byte:02X}>")));
    tokens.extend(
        ["\u{2581}", "\u{2581}a", "{", "}", "\"", "a", "\u{e9}", "\":", "\u{2581}\""].map(str::to_owned),
    );
    let words = tokens.len();
    tokens.extend(controls.iter().map(|name| (*name).to_owned()));
    let types = (0..tokens.len()).map(|at| match at {
        0 => 2u32,
        1 | 2 => 3,
        3..259 => 6,
        at if at < words => 1,
        _ => 3,
    });
    let mut writer = Writer::new();
    writer.key("tokenizer.ggml.model", Key::String("llama".into()));
    writer.key("tokenizer.ggml.scores", Key::Array(Array::F32(vec![0.0; tokens.len()])));
    writer.key("tokenizer.ggml.token_type", Key::Array(Array::U32(types.collect())));
    writer.key("tokenizer.ggml.tokens", Key::Array(Array::String(tokens)));
    writer.key("tokenizer.ggml.eos_token_id", Key::U32(2));
    let bytes = writer.begin(Vec::new()).and_then(|out| out.finish()).expect("a file");
    Tokenizer::from_gguf(&Gguf::from_bytes(bytes).expect("GGUF")).expect("a tokenizer")
}

fn warm(seed: u64) -> SamplerOptions {
    SamplerOptions { temperature: 1.5, seed, ..SamplerOptions::GREEDY }
}

/// A text by `grammar` of tokens that are chosen among noise; `None` if it is not complete after `most`.
fn noise(
    (tokenizer, compiler): &(Tokenizer, Compiler),
    grammar: &Grammar,
    seed: u64,
    most: usize,
) -> Option<String> {
    let constraint = compiler.compile(grammar).expect("a grammar");
    let mut sampler = Sampler::new(warm(seed)).with_constraint(constraint);
    let (mut noise, mut text, mut stream) = (Noise::new(seed), String::new(), tokenizer.stream());
    sampler.begin(&[]);
    for _ in 0..most {
        let token = sampler.sample(&noise.logits(tokenizer.vocab() + 3));
        assert!(!sampler.gave_up(), "{text}");
        if tokenizer.is_end(token) {
            assert!(sampler.is_complete(), "{text}");
            return Some(text);
        }
        text.push_str(&stream.push(token));
        if sampler.is_complete() {
            // Nothing may come but an end.
            assert!(tokenizer.is_end(sampler.sample(&noise.logits(tokenizer.vocab()))));
            return Some(text);
        }
    }
    None
}

/// Whether `schema`, one of [`schemas`], accepts `value`.
fn accepts(schema: &Value, value: &Value) -> bool {
    let bound = |name: &str| schema[name].as_i64();
    let within = |n: i64, least: &str, most: &str| {
        bound(least).is_none_or(|least| n >= least) && bound(most).is_none_or(|most| n <= most)
    };
    if let Some(any) = schema["anyOf"].as_array() {
        return any.iter().any(|schema| accepts(schema, value));
    }
    if let Some(all) = schema["enum"].as_array() {
        return all.contains(value);
    }
    match schema["type"].as_str() {
        Some("null") => value.is_null(),
        Some("boolean") => value.is_boolean(),
        Some("number") => value.as_f64().is_some_and(|n| (-2.5..=100.0).contains(&n)),
        // "-0" is one too.
        Some("integer") => {
            value.as_f64().is_some_and(|n| n.fract() == 0.0 && within(n as i64, "minimum", "maximum"))
        }
        Some("string") => {
            value.as_str().is_some_and(|text| within(text.chars().count() as i64, "minLength", "maxLength"))
        }
        Some("array") => value.as_array().is_some_and(|list| {
            within(list.len() as i64, "minItems", "maxItems")
                && list.iter().all(|value| accepts(&schema["items"], value))
        }),
        Some("object") => value.as_object().is_some_and(|fields| {
            let required = schema["required"].as_array().expect("a list");
            required.iter().all(|name| fields.contains_key(name.as_str().expect("a name")))
                && fields.iter().all(|(name, value)| {
                    schema["properties"].get(name).is_some_and(|schema| accepts(schema, value))
                })
        }),
        _ => panic!("{schema}"),
    }
}

fn schemas() -> impl Strategy<Value = Value> {
    let words = prop_oneof![
        Just(json!("a \"word\"")),
        Just(json!("caf\u{e9} \u{4e2d}\u{1f600}")),
        Just(json!("")),
        Just(json!(17)),
        Just(json!({"a": [1, null]})),
    ];
    let leaf = prop_oneof![
        Just(json!({"type": "null"})),
        Just(json!({"type": "boolean"})),
        // Without bounds it may have an exponent that no reader takes.
        Just(json!({"type": "number", "minimum": -2.5, "maximum": 100})),
        (-50i64..50, 0i64..2000).prop_map(|(least, more)| {
            json!({"type": "integer", "minimum": least, "maximum": least + more})
        }),
        (0i64..4, 0i64..9).prop_map(|(least, more)| {
            json!({"type": "string", "minLength": least, "maxLength": least + more})
        }),
        prop::collection::vec(words, 1..4).prop_map(|all| json!({"enum": all})),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        let fields = prop::collection::btree_map("[a-z\u{e9} \"/~]{0,6}", inner.clone(), 1..4);
        let objects = fields.prop_flat_map(|fields| {
            let names: Vec<String> = fields.keys().cloned().collect();
            let count = names.len();
            (Just(fields), subsequence(names, 0..=count)).prop_map(|(properties, required)| {
                json!({
                    "type": "object", "properties": properties, "required": required,
                    "additionalProperties": false,
                })
            })
        });
        prop_oneof![
            objects,
            (inner.clone(), 0i64..2, 0i64..3).prop_map(|(items, least, more)| {
                json!({"type": "array", "items": items, "minItems": least, "maxItems": least + more})
            }),
            prop::collection::vec(inner, 1..3).prop_map(|any| json!({"anyOf": any})),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn whatever_is_chosen_the_schema_accepts_it(schema in schemas(), seed: u64) {
        let grammar = Grammar::Schema(schema.clone());
        let text = noise(words(), &grammar, seed, 4000).expect("it ends");
        let value: Value = serde_json::from_str(&text).map_err(|e| TestCaseError::fail(format!("{e}: {text}")))?;
        prop_assert!(accepts(&schema, &value), "{schema}\n{text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn whatever_a_model_writes_the_schema_accepts_it(schema in schemas(), seed: u64) {
        let (tokenizer, compiler) = words();
        let model = embedded::model().expect("a model");
        let constraint = compiler.compile(&Grammar::Schema(schema.clone()));
        let mut sampler = Sampler::new(warm(seed)).with_constraint(constraint.expect("a grammar"));
        let mut decoder = Reference::new(&model, 1024).expect("a decoder");
        let prompt = tokenizer.encode("Once upon a time").expect("tokens");
        // The second text begins anew.
        for _ in 0..2 {
            decoder.reset().expect("empty");
            let mut text = String::new();
            let mut emit = |piece: &str| {
                text.push_str(piece);
                Ok(())
            };
            let made = generate(&mut decoder, tokenizer, &mut sampler, &prompt, 900, &mut emit).expect("a text");
            prop_assert_eq!(made.stop, Stop::End, "{}", text);
            let value: Value = serde_json::from_str(&text).map_err(|e| TestCaseError::fail(format!("{e}: {text}")))?;
            prop_assert!(accepts(&schema, &value), "{schema}\n{text}");
        }
    }
}

#[test]
fn bytes_of_both_kinds_of_vocabularies_are_exact() {
    let sentencepiece = sentencepiece(&[]);
    let compiler = Compiler::new(&sentencepiece).expect("a compiler");
    for words in [words(), &(sentencepiece, compiler)] {
        for text in ["caf\u{e9}", "\u{4e2d} a \u{1f600}", " a", ""] {
            let grammar = Grammar::Schema(json!({"const": {"a": text}}));
            for seed in 0..3 {
                let made = noise(words, &grammar, seed, 400).expect("it ends");
                let value: Value = serde_json::from_str(&made).expect("JSON");
                assert_eq!(value, json!({"a": text}), "{made}");
            }
        }
    }
}

#[test]
fn a_grammar_of_larks_notation_is_obeyed() {
    let grammar = Grammar::Lark("start: \"yes\" | \"no\" | /[0-9]{3}/ \"!\"\n".into());
    let made: Vec<String> =
        (0..20).map(|seed| noise(words(), &grammar, seed, 20).expect("it ends")).collect();
    let number = |text: &str| {
        text.strip_suffix('!').is_some_and(|n| n.len() == 3 && n.bytes().all(|b| b.is_ascii_digit()))
    };
    assert!(made.iter().all(|text| text == "yes" || text == "no" || number(text)), "{made:?}");
    assert!(made.iter().any(|text| number(text)) && made.iter().any(|text| text == "no"), "{made:?}");
    let object = noise(words(), &Grammar::Object, 3, 4000).expect("it ends");
    assert!(serde_json::from_str::<Value>(&object).expect("JSON").is_object(), "{object}");
}

/// Whether a constraint, from its beginning, accepts a whole text.
pub(super) fn accepts_text(constraint: &mut Box<dyn Constraint>, text: &str) -> bool {
    let (tokenizer, _) = words();
    accepts_tokens(tokenizer, constraint, &tokenizer.encode_plain(text).expect("tokens"))
}

/// The same of the tokens of a vocabulary.
pub(super) fn accepts_tokens(
    tokenizer: &Tokenizer,
    constraint: &mut Box<dyn Constraint>,
    tokens: &[u32],
) -> bool {
    constraint.begin();
    let allowed = |constraint: &mut Box<dyn Constraint>, token: u32| {
        let mut logits = vec![0.0; tokenizer.vocab()];
        constraint.restrict(&mut logits).is_ok() && logits[token as usize] == 0.0
    };
    let mut complete = false;
    for &token in tokens {
        if complete || !allowed(constraint, token) {
            return false;
        }
        complete = constraint.accept(token).expect("it may come");
    }
    complete || allowed(constraint, tokenizer.ends()[0])
}

#[test]
fn a_copy_of_a_sampler_has_its_own_place() {
    let (tokenizer, compiler) = words();
    let constraint = compiler.compile(&Grammar::Lark("start: \"abc\"".into())).expect("a grammar");
    let mut one = Sampler::new(SamplerOptions::GREEDY).with_constraint(constraint);
    let even = vec![0.0; tokenizer.vocab()];
    let text = |sampler: &mut Sampler| {
        let mut text = String::new();
        while !sampler.is_complete() {
            text += &tokenizer.name(sampler.sample(&even));
        }
        text
    };
    let first = tokenizer.name(one.sample(&even));
    let mut two = one.clone();
    assert!(one == one && one != two, "what they allow is not compared");
    assert_eq!(text(&mut one), text(&mut two));
    assert!(two.is_complete());
    two.begin(&[]);
    assert_eq!(tokenizer.name(two.sample(&even)), first);
}

#[test]
fn what_is_wrong_with_a_schema_is_said_with_its_place() {
    let (_, compiler) = words();
    let refused = |schema: Value| compiler.compile(&Grammar::Schema(schema)).expect_err("no schema");
    let person =
        |name: Value| json!({"type": "object", "properties": {"age": {"type": "integer"}, "a/b": name}});
    for (schema, place, words) in [
        (json!({"type": "thing"}), "#: ", "thing"),
        (person(json!({"type": "thing"})), "#/properties/a~1b: ", "thing"),
        (person(json!({"items": {"pattern": "("}, "type": "array"})), "#/properties/a~1b/items: ", "("),
        (json!({"anyOf": [{"type": "null"}, {"not": {"type": "null"}}]}), "#/anyOf/1: ", "not"),
        (json!({"$ref": "#/$defs/a", "$defs": {"b": {}}}), "#: ", "#/$defs/a"),
        (json!({"$ref": "https://example.com/schema.json"}), "#: ", "https://example.com"),
        (json!({"type": "object", "x-guidance": {"lenient": true}}), "#: ", "x-guidance"),
        (json!({"enum": []}), "#: ", ""),
        (json!({"type": "integer", "minimum": 5, "maximum": 4}), "#: ", ""),
    ] {
        let message = refused(schema.clone());
        assert!(message.starts_with(place) && message.contains(words), "{schema}: {message}");
        assert!(!message.contains('\n') && message.len() < 500, "{message}");
    }
    let deep = (0..70).fold(json!({}), |inner, _| json!({"items": inner}));
    assert!(refused(deep).contains("deeper than 64"));
    let large = json!({"enum": ["x".repeat(200_000)]});
    assert!(refused(large).contains("more than 131072"));
    let lark = |text: &str| compiler.compile(&Grammar::Lark(text.into())).expect_err("no grammar");
    assert!(lark("start: nothing").contains("nothing"));
    assert!(!lark("").is_empty());
    for grammar in [json!({}), json!(true), json!({"title": "all"})] {
        assert!(compiler.compile(&Grammar::Schema(grammar.clone())).is_ok(), "{grammar}");
    }
}

#[test]
fn hostile_schemas_end_in_an_error_or_in_a_grammar() {
    let (_, compiler) = words();
    let chain = |count: usize| {
        let link = |n: usize| (n.to_string(), json!({"$ref": format!("#/$defs/{}", n + 1)}));
        let mut all: serde_json::Map<String, Value> = (0..count).map(link).collect();
        all.insert(count.to_string(), json!({"type": "null"}));
        json!({"$ref": "#/$defs/0", "$defs": all})
    };
    let optional =
        |count: usize| (0..count).map(|n| (format!("p{n}"), json!({}))).collect::<serde_json::Map<_, _>>();
    let enums: Vec<String> = (0..8000).map(|n| format!("word {n}")).collect();
    let all_of =
        |count: usize| (0..count).map(|n| json!({"pattern": format!("^.*{n}.*$")})).collect::<Vec<_>>();
    let either = |n: usize| json!({"properties": {format!("a{n}"): {"type": "null"}}});
    let cross = |n: usize| json!({"anyOf": [either(2 * n), either(2 * n + 1)]});
    let string = |pattern: &str| json!({"type": "string", "pattern": pattern});
    for (schema, refused) in [
        (chain(20), ""),
        (chain(500), ""),
        (chain(2500), "more than 512 objects"),
        (json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}), "leads back to itself"),
        (json!({"type": "string", "minLength": 1_000_000_000, "maxLength": 2_000_000_000u64}), ""),
        (json!({"type": "string", "maxLength": u64::MAX}), "decimal"),
        (json!({"type": "array", "minItems": 10_000_000, "items": {"type": "null"}}), ""),
        (json!({"type": "array", "maxItems": u64::MAX}), ""),
        (json!({"type": "integer", "minimum": i64::MIN, "maximum": u64::MAX}), "past 2^53"),
        (json!({"type": "number", "minimum": -1e308, "maximum": 1e308}), "past 2^53"),
        (json!({"type": "number", "multipleOf": 1e-300}), "too many digits"),
        (json!({"type": "integer", "multipleOf": 7_919}), ""),
        (string("((((((a{1,90}){1,90}){1,90}){1,90}){1,90}){1,90})"), ""),
        (string(&"(".repeat(5000)), "regex parse error"),
        (string(&"(a?){100}".repeat(50)), ""),
        (json!({"type": "object", "properties": optional(500)}), ""),
        (json!({"type": "object", "properties": optional(2000)}), "more than 512 objects"),
        (json!({"enum": enums}), ""),
        (json!({"type": "string", "allOf": all_of(16)}), "regex is empty"),
        (json!({"type": "string", "allOf": all_of(300)}), "more than 16 parts in allOf"),
        (json!({"allOf": (0..8).map(cross).collect::<Vec<_>>()}), ""),
        (json!({"allOf": (0..16).map(cross).collect::<Vec<_>>()}), "schema too large"),
        ((0..60).fold(json!({}), |inner, _| json!({"anyOf": [inner]})), "deeper than 64"),
    ] {
        let name: String = schema.to_string().chars().take(60).collect();
        let compiled = compiler.compile(&Grammar::Schema(schema));
        if !refused.is_empty() {
            let message = compiled.expect_err(&name);
            assert!(message.contains(refused) && message.len() < 500, "{name}: {message}");
            continue;
        }
        let constraint = compiled.unwrap_or_else(|message| panic!("{name}: {message}"));
        let mut sampler = Sampler::new(warm(1)).with_constraint(constraint);
        let mut noise = Noise::new(1);
        // Three tokens, or as many as it allows before the end or before it gives up.
        for _ in 0..3 {
            if !sampler.is_complete() && !sampler.gave_up() {
                let token = sampler.sample(&noise.logits(words().0.vocab()));
                assert!((token as usize) < words().0.vocab(), "{name}");
            }
        }
    }
}

/// Requests bring grammars too.
#[test]
fn hostile_grammars_end_in_an_error_or_in_a_grammar() {
    let (_, compiler) = words();
    let nested = |count: usize| format!("start: {}\"a\"{}", "(".repeat(count), ")".repeat(count));
    let rules = |count: usize| {
        let rule = |n: usize| format!("r{n}: r{}\n", n + 1);
        format!("start: r0\n{}r{count}: \"a\"", (0..count).map(rule).collect::<String>())
    };
    let doubled = |count: usize| {
        let rule = |n: usize| format!("r{n}: r{} r{}\n", n + 1, n + 1);
        format!("start: r0\n{}r{count}: \"a\"", (0..count).map(rule).collect::<String>())
    };
    for (text, refused) in [
        (nested(50), ""),
        (nested(60_000), "too deeply nested"),
        (format!("start: \"a\" {}", "| (\"b\" ".repeat(15_000)), "too deeply nested"),
        (rules(4000), ""),
        (doubled(40), ""),
        ("start: \"a\"{1000000000}".to_owned(), ""),
        ("start: ((\"a\"{5000}){5000}){5000}".to_owned(), ""),
        ("start: /(.*a.{200}){200}/".to_owned(), ""),
        ("start: A\nA: /a{1,90000}/ & ~/(a{7}){1,90000}/".to_owned(), ""),
        ("start: start start | \"a\" | \"\"".to_owned(), ""),
        ("start: start".to_owned(), ""),
        ("start: a\na: %lark { start: %json {} }".to_owned(), "%json"),
        ("start: @0".to_owned(), ""),
        ("start: @7".to_owned(), ""),
        ("start: <|endoftext|>".to_owned(), ""),
        ("start: <[0-1000000000]>".to_owned(), ""),
        ("%import common.NUMBER\nstart: NUMBER".to_owned(), ""),
        ("{\"grammars\": []}".to_owned(), ""),
        (String::new(), ""),
    ] {
        let name: String = text.chars().take(60).collect();
        let compiled = compiler.compile(&Grammar::Lark(text));
        match compiled {
            Err(message) => assert!(message.contains(refused) && message.len() < 500, "{name}: {message}"),
            Ok(constraint) => {
                assert!(refused.is_empty(), "{name}");
                let mut sampler = Sampler::new(warm(1)).with_constraint(constraint);
                let mut noise = Noise::new(1);
                for _ in 0..3 {
                    if !sampler.is_complete() && !sampler.gave_up() {
                        sampler.sample(&noise.logits(words().0.vocab()));
                    }
                }
            }
        }
    }
}

#[test]
fn what_the_compiler_reads_otherwise_is_refused_with_its_place() {
    let (_, compiler) = words();
    let big = 9_007_199_254_740_993i64;
    for (schema, place) in [
        (
            json!({"type": "integer", "minimum": i64::MIN, "maximum": i64::MIN}),
            "#/minimum: numbers past 2^53",
        ),
        (json!({"type": "integer", "minimum": 1e19, "maximum": 2e19}), "#/minimum: numbers past 2^53"),
        (json!({"properties": {"a/b": {"enum": [1, big]}}}), "#/properties/a~1b/enum/1: numbers past"),
        (json!({"properties": {"title": {"const": u64::MAX}}}), "#/properties/title/const: numbers past"),
        (json!({"const": {"title": -1e300}}), "#/const/title: numbers past"),
        (json!({"type": "string", "pattern": "^[[a]b]$"}), "#: pattern: a bracket within a class"),
        (json!({"items": {"type": "string", "pattern": "^[a&&b]+$"}}), "#/items: pattern: &&"),
        (json!({"type": "string", "pattern": "(?i)a"}), "#: pattern: flags"),
        (json!({"type": "string", "pattern": "a\\z"}), "#: pattern: an escape"),
        (json!({"type": "object", "patternProperties": {"[[]": {}}}), "#: patternProperties: a bracket"),
    ] {
        let message = compiler.compile(&Grammar::Schema(schema.clone())).expect_err("refused");
        assert!(message.starts_with(place), "{schema}: {message}");
    }
    let lark = Grammar::Lark("start: x\nx: %json {\"type\": \"null\"}".into());
    let message = compiler.compile(&lark).expect_err("refused");
    assert!(message.starts_with("%json is not supported"), "{message}");
    // What both mean alike, and numbers that say nothing.
    for schema in [
        json!({"type": "string", "pattern": "^(?:a|[^\\]\\[-]b|\\x41|(c))$"}),
        json!({"type": "integer", "minimum": -9_007_199_254_740_992i64, "default": 1e300}),
        json!({"type": "object", "properties": {"pattern": {"type": "null"}, "default": {"type": "null"}}}),
    ] {
        compiler.compile(&Grammar::Schema(schema.clone())).unwrap_or_else(|m| panic!("{schema}: {m}"));
    }
}
