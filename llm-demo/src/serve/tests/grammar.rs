//! Answers that have to be JSON.

use std::net::TcpStream;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use crate::serve::tests::fixture::{Plan, Reply, Server, Setup, receive};

const COMPLETIONS: &str = "/v1/completions";
const CHAT: &str = "/v1/chat/completions";

/// The schema of a small form.
fn form() -> Value {
    json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 12},
            "age": {"type": "integer", "minimum": 0, "maximum": 120},
            "kind": {"enum": ["boy", "girl", "fox"]},
        },
        "required": ["name", "age", "kind"],
        "additionalProperties": false,
    })
}

fn format(schema: Value) -> Value {
    json!({"type": "json_schema", "json_schema": {"name": "form", "strict": true, "schema": schema}})
}

fn body(seed: u64, more: &Value) -> String {
    let mut body = json!({
        "messages": [{"role": "user", "content": "Once upon a time"}],
        "temperature": 1.5, "top_k": 0, "top_p": 1, "min_p": 0, "seed": seed, "max_tokens": 120,
        "response_format": format(form()),
    });
    body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    body.to_string()
}

fn choice(reply: &Reply) -> (String, Value) {
    assert_eq!(reply.status, 200, "{reply:?}");
    let choice = reply.json()["choices"][0].clone();
    let text = choice["message"]["content"].as_str().or(choice["text"].as_str()).expect("a text");
    (text.to_owned(), choice["finish_reason"].clone())
}

fn is_form(text: &str) {
    let form: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!(form.as_object().expect("an object").len(), 3, "{text}");
    assert!(form["name"].as_str().is_some_and(|name| name.chars().count() <= 12), "{text}");
    assert!(form["age"].as_u64() <= Some(120) && form["age"].is_u64(), "{text}");
    assert!(matches!(form["kind"].as_str(), Some("boy" | "girl" | "fox")), "{text}");
}

#[test]
fn an_answer_is_what_its_schema_accepts_and_ends_with_it() {
    // On the reference, and on the software GPU, which takes longer.
    for (parallel, seeds) in [(1, 4), (2, 1)] {
        let server = Server::start(Setup { parallel, ..Setup::default() });
        for seed in 0..seeds {
            let (text, reason) = choice(&server.post(CHAT, &body(seed, &json!({}))));
            assert_eq!(reason, "stop", "{text}");
            is_form(&text);
            let reply = server.post(CHAT, &body(seed, &json!({"stream": true})));
            let events = reply.events();
            let pieces = events.iter().filter_map(|event| serde_json::from_str::<Value>(event).ok());
            let piece = |v: Value| v["choices"][0]["delta"]["content"].as_str().map(str::to_owned);
            assert_eq!(pieces.filter_map(piece).collect::<String>(), text);
            assert_eq!(events.last().map(String::as_str), Some("[DONE]"));
        }
        let object = json!({"response_format": {"type": "json_object"}, "temperature": 0, "max_tokens": 60});
        let (text, reason) = choice(&server.post(CHAT, &body(0, &object)));
        assert!(text.starts_with('{'), "{text}");
        if reason == "stop" {
            assert!(serde_json::from_str::<Value>(&text).expect("JSON").is_object(), "{text}");
        }
        let (text, reason) = choice(&server.post(CHAT, &body(0, &json!({"max_tokens": 3}))));
        assert_eq!(reason, "length");
        assert!(text.starts_with('{') && serde_json::from_str::<Value>(&text).is_err(), "{text}");
        let prompt = json!({"prompt": "Once", "response_format": format(json!({"const": "fox"}))});
        assert_eq!(choice(&server.post(COMPLETIONS, &prompt.to_string())), ("\"fox\"".into(), json!("stop")));
    }
}

#[test]
fn a_constraint_is_of_one_request() {
    let plan = Plan::default();
    let server = Server::with_plan(Setup { parallel: 8, ..Setup::default() }, plan);
    let plain = |seed: u64| body(seed, &json!({"response_format": null, "max_tokens": 20}));
    let bodies: Vec<String> =
        (0..8).map(|seed| if seed % 2 == 0 { plain(seed) } else { body(seed, &json!({})) }).collect();
    let alone: Vec<_> = bodies.iter().map(|body| choice(&server.post(CHAT, body))).collect();
    server.plan.delay.store(10, Ordering::SeqCst);
    let streams: Vec<TcpStream> = bodies.iter().map(|body| server.begin(CHAT, body)).collect();
    let beside: Vec<_> = streams.into_iter().map(|stream| choice(&receive(stream))).collect();
    assert_eq!(beside, alone);
    alone.iter().skip(1).step_by(2).for_each(|(text, _)| is_form(text));
}

#[test]
fn a_schema_that_cannot_be_is_refused_with_its_place() {
    let server = Server::start(Setup { strict: true, ..Setup::default() });
    let nested = |inner: Value| json!({"type": "object", "properties": {"a": inner}});
    for (format, param, words) in [
        (format(json!({"type": "thing"})), "response_format", "#: "),
        (format(nested(json!({"not": {}}))), "response_format", "#/properties/a: "),
        (format(nested(json!({"$ref": "#/$defs/none"}))), "response_format", "#/properties/a: "),
        (format(json!([])), "response_format.json_schema.schema", "an object, it is a list"),
        (json!({"type": "json_schema"}), "response_format", "json_schema is missing"),
        (
            json!({"type": "json_schema", "json_schema": {"name": "a"}}),
            "response_format",
            "schema is missing",
        ),
        (json!({"type": "json_object", "json_schema": {}}), "response_format", "is for the type"),
        (json!({"type": "xml"}), "response_format", "\"xml\""),
        (json!({}), "response_format", "type is missing: text, json_object and json_schema"),
        (json!("json_object"), "response_format", "an object, it is a string"),
        (json!({"type": 5}), "response_format.type", "a string, it is 5"),
        (json!({"type": "text", "more": 1}), "response_format.more", "not supported"),
    ] {
        let reply = server.post(CHAT, &body(0, &json!({"response_format": format})));
        assert_eq!(reply.status, 400, "{reply:?}");
        assert_eq!(reply.json()["error"]["param"], param, "{reply:?}");
        assert!(reply.message().contains(words), "{reply:?}");
    }
    assert_eq!(server.plan.steps.load(Ordering::SeqCst), 0, "nothing ran");
}

/// An object of which so many fields may come next has more places than a step may look at.
#[test]
fn a_constraint_that_gives_up_costs_one_request() {
    let fields: serde_json::Map<String, Value> = (0..505).map(|n| (format!("p{n}"), json!({}))).collect();
    let wide = json!({"type": "object", "properties": fields});
    let schema = json!({"type": "array", "prefixItems": [{"const": "first"}, wide], "minItems": 2});
    for parallel in [1, 2] {
        let server = Server::start(Setup { parallel, ..Setup::default() });
        let wanted = json!({"response_format": format(schema.clone()), "max_tokens": 200});
        let reply = server.post(CHAT, &body(1, &wanted));
        assert_eq!(
            (reply.status, &reply.json()["error"]["code"]),
            (400, &json!("constraint_gave_up")),
            "{reply:?}"
        );
        assert_eq!(reply.json()["error"]["param"], "response_format");
        assert!(reply.message().contains("response_format: it takes more work"), "{reply:?}");
        let mut streamed = wanted;
        streamed["stream"] = true.into();
        let reply = server.post(CHAT, &body(1, &streamed));
        assert_eq!(reply.status, 200, "{reply:?}");
        assert!(reply.body.contains("constraint_gave_up") && !reply.body.contains("[DONE]"), "{reply:?}");
        // The error is about the field that the request has.
        let other = json!({"response_format": null, "grammar": "start: \"a\" B\nB: /x/ & /y/"});
        let reply = server.post(CHAT, &body(1, &other));
        assert_eq!(reply.json()["error"]["param"], "grammar", "{reply:?}");
        assert!(reply.message().contains("grammar: no token"), "{reply:?}");
        assert_eq!(server.metric("llm_demo_engine_failures_total"), 0.0);
        assert_eq!(choice(&server.post(CHAT, &body(2, &json!({})))).1, "stop");
    }
}
