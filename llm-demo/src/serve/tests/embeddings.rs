//! Embeddings of texts.

use ga10b_llm::model::Pooling;
use ga10b_llm::{Reference, Tokenizer, embedded};
use serde_json::{Value, json};

use crate::serve::tests::fixture::{Server, Setup};

const EMBEDDINGS: &str = "/v1/embeddings";

fn setup(pooling: Pooling) -> Setup {
    Setup { parallel: 4, pooling, ..Setup::default() }
}

fn vectors(answer: &Value) -> Vec<Vec<f64>> {
    let numbers = |entry: &Value| {
        let numbers = entry["embedding"].as_array().expect("a list").iter();
        numbers.map(|number| number.as_f64().expect("a number")).collect()
    };
    answer["data"].as_array().expect("a list").iter().map(numbers).collect()
}

fn length(vector: &[f64]) -> f64 {
    vector.iter().map(|value| value * value).sum::<f64>().sqrt()
}

/// The embedding of a text by the CPU reference.
fn reference(text: &str, pooling: Pooling) -> Vec<f64> {
    let model = embedded::model().expect("a model");
    let tokens = Tokenizer::from_gguf(&model.gguf).expect("a tokenizer").encode(text).expect("tokens");
    let mut reference = Reference::new(&model, 64).expect("a reference");
    let mut state = |token: &u32| reference.state(*token).expect("a state");
    let states: Vec<Vec<f32>> = tokens.iter().map(&mut state).collect();
    let states = if pooling == Pooling::Last { &states[states.len() - 1..] } else { &states[..] };
    let mean = |at: usize| states.iter().map(|state| f64::from(state[at])).sum::<f64>() / states.len() as f64;
    (0..states[0].len()).map(mean).collect()
}

#[test]
fn embeddings_are_those_of_the_reference() {
    let text = "Once upon a time there was a fox";
    for pooling in [Pooling::Mean, Pooling::Last] {
        let server = Server::start(setup(pooling));
        let answer = server.post(EMBEDDINGS, &json!({"input": text, "model": "stories"}).to_string()).json();
        assert_eq!((&answer["object"], &answer["data"][0]["object"]), (&json!("list"), &json!("embedding")));
        let tokens = answer["usage"]["prompt_tokens"].as_u64().expect("a number");
        assert_eq!(answer["usage"], json!({"prompt_tokens": tokens, "total_tokens": tokens}));
        let (found, wanted) = (&vectors(&answer)[0], reference(text, pooling));
        assert!((length(found) - 1.0).abs() < 1e-5, "{}", length(found));
        let cosine = found.iter().zip(&wanted).map(|(a, b)| a * b).sum::<f64>() / length(&wanted);
        assert!(cosine > 0.9999, "{pooling:?}: {cosine}");
        let body = json!({"input": text, "embd_normalize": -1});
        let whole = length(&vectors(&server.post(EMBEDDINGS, &body.to_string()).json())[0]);
        assert!((whole / length(&wanted) - 1.0).abs() < 0.01, "{whole} {}", length(&wanted));
    }
}

#[test]
fn an_input_is_a_text_or_tokens_or_several() {
    let server = Server::start(setup(Pooling::Mean));
    let ask = |body: Value| server.post(EMBEDDINGS, &body.to_string()).json();
    let one = |input: Value| vectors(&ask(json!({"input": input}))).remove(0);
    let texts = ["Once upon a time", "The little fox", "A small house, and a fox"];
    let alone: Vec<Vec<f64>> = texts.iter().map(|text| one(json!(text))).collect();
    // The same bits beside others, and beside a text that is written.
    let stream =
        server.begin("/v1/completions", &json!({"prompt": "The rain", "max_tokens": 20}).to_string());
    let answer = ask(json!({"input": texts}));
    assert_eq!(vectors(&answer), alone);
    assert_eq!(answer["data"][2]["index"], 2);
    assert_eq!(crate::serve::tests::fixture::receive(stream).status, 200);
    let tokens = |text: &str| {
        let reply = server.post("/tokenize", &json!({"prompt": text}).to_string());
        reply.json()["tokens"].clone()
    };
    assert_eq!(one(tokens(texts[1])), alone[1]);
    assert_eq!(
        vectors(&ask(json!({"input": [tokens(texts[2]), tokens(texts[0])]}))),
        [&alone[2], &alone[0]].map(Clone::clone)
    );

    let answer = ask(json!({"input": texts[0], "encoding_format": "base64", "user": "somebody"}));
    let bytes = base64::decode(answer["data"][0]["embedding"].as_str().expect("a text")).expect("base64");
    let values: Vec<f32> = bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    assert_eq!(values, alone[0].iter().map(|value| *value as f32).collect::<Vec<_>>());
    assert_eq!(one(json!(texts[0])).len(), values.len());
    let width = values.len();
    assert_eq!(vectors(&ask(json!({"input": texts[0], "dimensions": width})))[0], alone[0]);
}

#[test]
fn wrong_inputs_are_refused_by_name() {
    let server = Server::start(setup(Pooling::Last));
    let cases = [
        (json!({}), "input"),
        (json!({"input": []}), "input"),
        (json!({"input": {"text": "a"}}), "input"),
        (json!({"input": ["a", 7]}), "input[1]"),
        (json!({"input": [1_000_000]}), "input"),
        (json!({"input": vec!["a"; 2049]}), "input"),
        (json!({"input": "a", "encoding_format": "int8"}), "encoding_format"),
        (json!({"input": "a", "dimensions": 2}), "dimensions"),
        (json!({"input": "a", "embd_normalize": 1}), "embd_normalize"),
    ];
    for (body, param) in cases {
        let reply = server.post(EMBEDDINGS, &body.to_string());
        assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!(param)), "{reply:?}");
    }
    let reply = server.post(EMBEDDINGS, &json!({"input": "very ".repeat(300)}).to_string());
    assert_eq!(reply.json()["error"]["code"], "context_length_exceeded");
    let reply = server.post(EMBEDDINGS, &json!({"input": "a", "model": "other"}).to_string());
    assert_eq!(reply.status, 404);
    // A fault of the engine is an answer too.
    server.plan.fail_in.store(0, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(server.post(EMBEDDINGS, &json!({"input": "a"}).to_string()).status, 500);
    assert_eq!(server.post(EMBEDDINGS, &json!({"input": "a"}).to_string()).status, 200);
}
