//! Answers that begin with their prompts, and the probabilities of prompts.

use serde_json::{Value, json};

use crate::serve::tests::fixture::{Server, Setup};

const PROMPT: &str = "Once upon a time";

fn ask(server: &Server, body: Value) -> Value {
    let reply = server.post("/v1/completions", &body.to_string());
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()["choices"][0].take()
}

fn floats(list: &Value) -> Vec<Option<f64>> {
    list.as_array().expect("a list").iter().map(Value::as_f64).collect()
}

#[test]
fn a_prompt_is_told_with_the_probabilities_that_its_tokens_have_as_a_text() {
    let server = Server::start(Setup { parallel: 2, ..Setup::default() });
    let written = ask(&server, json!({"prompt": PROMPT, "max_tokens": 6, "logprobs": 2}));
    let text = format!("{PROMPT}{}", written["text"].as_str().expect("a text"));
    let told = ask(&server, json!({"prompt": text, "max_tokens": 0, "echo": true, "logprobs": 2}));
    assert_eq!((&told["text"], &told["finish_reason"]), (&json!(text), &json!("length")));
    let (all, own) = (&told["logprobs"], &written["logprobs"]);
    let values = floats(&all["token_logprobs"]);
    assert_eq!((values.len(), values[0], &all["top_logprobs"][0]), (11, None, &Value::Null));
    assert_eq!(values[5..], floats(&own["token_logprobs"]));
    assert_eq!(
        all["top_logprobs"].as_array().map(|top| &top[5..]),
        own["top_logprobs"].as_array().map(|top| &top[..])
    );

    // The prompt and its text, the same whole and streamed.
    let body = json!({"prompt": PROMPT, "max_tokens": 6, "echo": true, "logprobs": 2});
    let both = ask(&server, body.clone());
    assert_eq!((&both["text"], &both["logprobs"]), (&told["text"], &told["logprobs"]));
    let starts: Vec<usize> =
        floats(&both["logprobs"]["text_offset"]).iter().map(|at| at.expect("one") as usize).collect();
    let tokens = both["logprobs"]["tokens"].as_array().expect("a list").iter();
    for (start, token) in starts.iter().zip(tokens) {
        let token = token.as_str().expect("a text");
        // The token that begins all texts is no part of this one.
        assert!(text[*start..].starts_with(token) || *start == 0, "{start} {token:?}");
    }
    let mut body = body;
    body["stream"] = true.into();
    let events = server.post("/v1/completions", &body.to_string()).events();
    let chunks = events.iter().filter(|event| *event != "[DONE]");
    let chunks: Vec<Value> = chunks.map(|event| serde_json::from_str(event).expect("JSON")).collect();
    let of = |chunk: &Value| chunk["choices"][0]["text"].as_str().expect("a text").to_owned();
    assert_eq!((of(&chunks[0]), chunks.iter().map(of).collect::<String>()), (PROMPT.to_owned(), text));
    let offsets: Vec<Value> = chunks
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["logprobs"]["text_offset"].as_array())
        .flatten()
        .cloned()
        .collect();
    assert_eq!(json!(offsets), both["logprobs"]["text_offset"]);
}

#[test]
fn an_echo_needs_no_probabilities() {
    let server = Server::start(Setup { parallel: 2, ..Setup::default() });
    let both =
        ask(&server, json!({"prompt": PROMPT, "max_tokens": 3, "echo": true, "n": 2, "stop": ["upon"]}));
    assert_eq!((&both["text"], &both["logprobs"]), (&json!("Once upon a time, a cheerful"), &Value::Null));
    let tokens = server.post("/tokenize", &json!({"prompt": PROMPT}).to_string()).json()["tokens"].clone();
    assert_eq!(ask(&server, json!({"prompt": tokens, "max_tokens": 0, "echo": true}))["text"], PROMPT);
    // A prompt of one token follows nothing.
    let one = ask(&server, json!({"prompt": [7], "max_tokens": 1, "echo": true, "logprobs": 1}));
    assert_eq!(floats(&one["logprobs"]["token_logprobs"]).iter().filter(|value| value.is_none()).count(), 1);
    for body in [
        json!({"prompt": PROMPT, "max_tokens": 0}),
        json!({"messages": [{"role": "user", "content": "a"}], "echo": true}),
    ] {
        let path = if body.get("prompt").is_some() { "/v1/completions" } else { "/v1/chat/completions" };
        assert_eq!(server.post(path, &body.to_string()).status, 400, "{body}");
    }
}
