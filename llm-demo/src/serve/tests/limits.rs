//! Requests that are refused, and the answers to them.

use std::io::{Read, Write};
use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::serve::state::Limits;
use crate::serve::tests::fixture::{Server, Setup, completion, post, receive};

const COMPLETIONS: &str = "/v1/completions";
const CHAT: &str = "/v1/chat/completions";

#[test]
fn what_is_not_supported_is_refused_by_name() {
    let server = Server::start(Setup { strict: true, ..Setup::default() });
    for (field, value) in [
        ("n", "0"),
        ("n", "129"),
        ("best_of", "3"),
        ("logprobs", "21"),
        ("logprobs", "\"all\""),
        ("top_logprobs", "2"),
        ("guided_regex", "\"a*\""),
        ("structured_outputs", "{\"regex\": \"a*\"}"),
        ("grammar", "\"root ::= root\""),
        ("guided_json", "\"{\""),
        ("functions", "[{}]"),
        ("tool_choice", "\"required\""),
        ("response_format", "{\"type\": \"xml\"}"),
        ("response_format", "{\"type\": \"json_schema\"}"),
        ("suffix", "\"end\""),
        ("modalities", "[\"audio\"]"),
        ("temperature", "-1"),
        ("temperature", "2.5"),
        ("top_p", "1.1"),
        ("min_p", "-0.1"),
        ("presence_penalty", "3"),
        ("frequency_penalty", "-3"),
        ("repeat_penalty", "0"),
        ("max_tokens", "0"),
        ("stop", "\"\""),
        ("stop", "[\"a\", \"\"]"),
        ("logit_bias", "{\"1024\": 1}"),
        ("logit_bias", "{\"one\": 1}"),
        ("logit_bias", "{\"1\": 101}"),
        ("stream_options", "{\"include_usage\": true}"),
        ("reasoning_effort", "\"high\""),
        ("messages", "[]"),
    ] {
        let reply = server.complete(&format!("\"{field}\": {value}"));
        assert_eq!(reply.status, 400, "{field}: {reply:?}");
        assert_eq!(reply.json()["error"]["param"], field, "{reply:?}");
        assert!(reply.message().contains(field) || matches!(field, "stop" | "logit_bias"), "{reply:?}");
    }
    // Harmless values of the same fields.
    let harmless = "\"n\": 1, \"logprobs\": null, \"tools\": [], \"tool_choice\": \"none\", \"echo\": false, \
                    \"response_format\": {\"type\": \"text\"}, \"user\": \"a\", \"stop\": null, \"max_tokens\": 1";
    assert_eq!(server.complete(harmless).status, 200);
    assert_eq!(server.plan.steps.load(std::sync::atomic::Ordering::SeqCst), 1, "nothing else ran");
}

#[test]
fn messages_have_to_be_messages() {
    let server = Server::start(Setup::default());
    for (messages, words) in [
        (json!([]), "no messages"),
        (json!([{"role": "user"}]), "has no text"),
        (
            json!([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}]}]),
            "image_url",
        ),
        (json!([{"role": "assistant", "content": "x", "tool_calls": [{}]}]), "tool_calls[0].function"),
        (json!("hello"), "messages has to be a list, it is a string"),
    ] {
        let reply = server.post(CHAT, &json!({"messages": messages}).to_string());
        assert_eq!(reply.status, 400, "{reply:?}");
        assert!(reply.message().contains(words), "{reply:?}");
    }
    let strict = "{{ raise_exception('roles must alternate') }}";
    let server = Server::start(Setup { template: Some(strict), ..Setup::default() });
    let reply = server.post(CHAT, &json!({"messages": [{"role": "user", "content": "x"}]}).to_string());
    assert_eq!(reply.status, 400);
    assert!(reply.message().contains("roles must alternate"), "{reply:?}");
    let server = Server::start(Setup { template: None, ..Setup::default() });
    let reply = server.post(CHAT, &json!({"messages": [{"role": "user", "content": "x"}]}).to_string());
    assert_eq!((reply.status, reply.json()["error"]["code"].clone()), (400, json!("no_template")));
}

#[test]
fn a_prompt_has_to_fit_the_context() {
    let server = Server::start(Setup { context: 16, ..Setup::default() });
    let long = json!({"prompt": "very ".repeat(100)}).to_string();
    let reply = server.post(COMPLETIONS, &long);
    assert_eq!(
        (reply.status, reply.json()["error"]["code"].clone()),
        (400, json!("context_length_exceeded"))
    );
    assert_eq!(server.post(COMPLETIONS, "{\"prompt\": \"\", \"max_tokens\": 1}").status, 200, "BOS alone");
    // Without a number of tokens the text fills the context; the last one takes no position.
    let reply = server.complete("");
    assert_eq!(reply.json()["usage"]["total_tokens"], 17, "{reply:?}");
    assert_eq!(reply.json()["choices"][0]["finish_reason"], "length");
}

#[test]
fn malformed_requests_are_answered_and_harm_nobody() {
    let server = Server::start(Setup::default());
    let body = |body: &str| server.post(COMPLETIONS, body).status;
    let deep = format!("{{\"prompt\": \"a\", \"metadata\": {}1{}}}", "[".repeat(5000), "]".repeat(5000));
    for bad in ["", "{", "[]", "null", "{\"prompt\": 1e999}", "{\"prompt\": \"\\ud800\"}", deep.as_str()] {
        assert_eq!(body(bad), 400, "{bad:.40}");
    }
    let mut raw = post(COMPLETIONS, "xxxx").into_bytes();
    let at = raw.len() - 4;
    raw[at..].copy_from_slice(b"{\"\xff\"");
    let mut stream = server.send("");
    stream.write_all(&raw).expect("sent");
    assert_eq!(receive(stream).status, 400);

    let plain = post(COMPLETIONS, &completion("")).replace("application/json", "text/plain");
    assert_eq!(receive(server.send(&plain)).status, 415, "what a page of another site may send");
    assert_eq!(server.get("/v1/nothing").status, 404);
    assert_eq!(server.get("/../../etc/passwd").status, 404);
    let wrong = server.get(COMPLETIONS);
    assert_eq!(wrong.status, 405);
    assert!(wrong.message().contains("GET"), "{wrong:?}");
    let mut junk = String::new();
    let _ = server.send("\x00\x01 nonsense\r\n\r\n").read_to_string(&mut junk);
    assert!(junk.is_empty() || junk.starts_with("HTTP/1.1 400"), "{junk}");
    assert_eq!(server.complete("\"model\": \"gpt-4\"").status, 404);
    assert_eq!(server.complete("\"max_tokens\": 1").status, 200);
}

#[test]
fn large_and_slow_requests_are_refused() {
    let limits = Limits { body: 2000, read: Duration::from_millis(300), ..Limits::default() };
    let server = Server::start(Setup { limits, ..Setup::default() });
    let large = json!({"prompt": "a".repeat(3000)}).to_string();
    let reply = server.post(COMPLETIONS, &large);
    assert_eq!(reply.status, 413, "{reply:?}");
    let chunked = format!(
        "POST {COMPLETIONS} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{large}\r\n0\r\n\r\n",
        large.len()
    );
    assert_eq!(receive(server.send(&chunked)).status, 413, "without a length");

    let whole = post(COMPLETIONS, &completion("\"max_tokens\": 1"));
    let mut stream = server.send(&whole[..whole.len() - 5]);
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    assert!(text.starts_with("HTTP/1.0 408"), "the body never ends: {text}");
    let mut stream = server.send(&whole[..20]);
    text.clear();
    stream.read_to_string(&mut text).expect("the end");
    assert!(text.is_empty() || text.contains("408"), "the head never ends: {text}");
    assert_eq!(receive(server.send(&whole)).status, 200);
}

#[test]
fn slow_readers_and_idle_connections_stop_nobody() {
    let limits = Limits { connections: 2, read: Duration::from_millis(300), ..Limits::default() };
    let server = Server::start(Setup { limits, ..Setup::default() });
    // One that reads nothing, and one that says nothing.
    let silent = server.begin(COMPLETIONS, &completion("\"max_tokens\": 100, \"stream\": true"));
    let idle = server.send("");
    let reply = server.complete("\"max_tokens\": 3");
    assert_eq!(reply.json()["choices"][0]["text"], ", a cheerful");
    thread::sleep(Duration::from_millis(50));
    let reply = receive(silent);
    assert_eq!(reply.events().last().map(String::as_str), Some("[DONE]"), "what it did not read is not lost");
    drop(idle);
}

#[test]
fn who_takes_nothing_of_an_answer_is_disconnected() {
    let limits = Limits { connections: 1, write: Duration::from_millis(300), ..Limits::default() };
    let server = Server::start(Setup { limits, ..Setup::default() });
    let mut stream = server.send("");
    stream.set_write_timeout(Some(Duration::from_millis(100))).expect("set");
    // More of the page than the buffers between both take; the answers are never read.
    for _ in 0..20_000 {
        if stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").is_err() {
            break;
        }
    }
    // There is one place, which is free when the connection is closed.
    server.until("healthy", |server| server.get("/health").status == 200);
    drop(stream);
}
