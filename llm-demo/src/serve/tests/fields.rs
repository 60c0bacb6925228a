//! Errors of malformed requests: in words of JSON, with the name of the field.

use serde_json::{Value, json};

use crate::serve::tests::fixture::{Reply, Server, Setup, completion, post, receive};

const COMPLETIONS: &str = "/v1/completions";
const CHAT: &str = "/v1/chat/completions";

/// Status, `param` and message of an error, none of whose words are of the parser.
fn refused(reply: &Reply) -> (u16, Value, String) {
    let message = reply.message();
    for word in ["struct", "invalid type", "expected", "u32", "i64", "f32", "enum", "variant"] {
        assert!(!message.contains(word), "{word}: {message}");
    }
    (reply.status, reply.json()["error"]["param"].clone(), message)
}

#[test]
fn a_field_of_another_type_is_named() {
    let server = Server::start(Setup { strict: true, ..Setup::default() });
    for (field, value, words) in [
        ("temperature", json!("hot"), "temperature has to be a number, it is a string"),
        ("temperature", json!([1]), "temperature has to be a number, it is a list"),
        ("max_tokens", json!(-1), "max_tokens has to be a whole number from 0 on, it is -1"),
        ("max_tokens", json!(1.5), "max_tokens has to be a whole number from 0 on, it is 1.5"),
        ("max_completion_tokens", json!(0), "max_completion_tokens has to be at least 1"),
        ("top_k", json!(1u64 << 32), "top_k has to be a whole number from 0 to 4294967295"),
        ("seed", json!(true), "seed has to be a whole number of 64 bits, it is true"),
        ("stream", json!(1), "stream has to be true or false, it is 1"),
        ("stream_options", json!([true]), "stream_options has to be an object, it is a list"),
        ("stream_options.include_usage", json!("yes"), "has to be true or false, it is a string"),
        ("stream_options.more", json!(1), "stream_options.more is not supported"),
        ("stop", json!({}), "stop has to be a string or a list of strings, it is an object"),
        ("logit_bias", json!([1]), "logit_bias has to be an object, it is a list"),
        ("logit_bias.5", json!("high"), "logit_bias.5 has to be a number, it is a string"),
        ("model", json!(5), "model has to be a string, it is 5"),
        (
            "prompt",
            json!({}),
            "prompt has to be a string or a list of token numbers, or a list of such, it is an object",
        ),
        ("prompt", json!([1024]), "token 1024 is outside the vocabulary of 1024"),
        ("prompt", json!("very ".repeat(300)), "maximum context length is 256 tokens"),
        ("n", json!("2"), "n has to be a whole number from 0 on"),
    ] {
        let mut body = json!({"prompt": "a", "max_tokens": 1});
        match field.split_once('.') {
            Some((outer, inner)) => body[outer] = json!({inner: value}),
            None => body[field] = value,
        }
        let (status, param, message) = refused(&server.post(COMPLETIONS, &body.to_string()));
        assert_eq!((status, &param), (400, &json!(field)), "{message}");
        assert!(message.contains(words), "{message}");
    }
}

#[test]
fn an_item_of_a_list_is_named() {
    let server = Server::start(Setup::default());
    for (path, field, value, param, words) in [
        (COMPLETIONS, "stop", json!(["a", null]), "stop[1]", "stop[1] has to be a string, it is null"),
        (
            COMPLETIONS,
            "prompt",
            json!([1, "a"]),
            "prompt[1]",
            "the number of a token, from 0 on, it is a string",
        ),
        (COMPLETIONS, "prompt", json!(["a", 1]), "prompt[1]", "a string or a list of token numbers, it is 1"),
        (
            COMPLETIONS,
            "prompt",
            json!([-1]),
            "prompt[0]",
            "prompt[0] has to be the number of a token, from 0 on, it is -1",
        ),
        (COMPLETIONS, "prompt", json!(["a", [1, 4294967296u64]]), "prompt[1][1]", "it is 4294967296"),
        (COMPLETIONS, "prompt", json!([[]]), "prompt[0]", "prompt[0] is empty"),
        ("/detokenize", "tokens", json!([5, -1]), "tokens[1]", "it is -1"),
        ("/v1/embeddings", "input", json!([]), "input", "input is empty"),
        ("/v1/embeddings", "input", json!([null]), "input[0]", "it is null"),
    ] {
        let mut body = if path == COMPLETIONS { json!({"prompt": "a"}) } else { json!({}) };
        body[field] = value;
        let (status, found, message) = refused(&server.post(path, &body.to_string()));
        assert_eq!((status, found), (400, json!(param)), "{message}");
        assert!(message.contains(words), "{message}");
    }
}

#[test]
fn a_message_of_another_type_is_named() {
    let server = Server::start(Setup::default());
    for (messages, param) in [
        (json!(["hi"]), "messages[0]"),
        (json!([["user", "hi"]]), "messages[0]"),
        (json!([{"role": "user", "content": "a"}, {"content": "hi"}]), "messages[1].role"),
        (json!([{"role": 1, "content": "hi"}]), "messages[0].role"),
        (json!([{"role": "user", "content": 5}]), "messages[0].content"),
        (json!([{"role": "user", "content": null}]), "messages[0].content"),
        (json!([{"role": "user", "content": ["hi"]}]), "messages[0].content[0]"),
        (json!([{"role": "user", "content": [{"type": "text", "text": 1}]}]), "messages[0].content[0].text"),
        (json!([{"role": "user", "content": [{"type": "audio"}]}]), "messages[0].content[0]"),
    ] {
        let (status, found, _) = refused(&server.post(CHAT, &json!({"messages": messages}).to_string()));
        assert_eq!((status, found), (400, json!(param)));
    }
    let parts = json!([{"type": "text", "text": "Once upon"}, {"type": "text", "text": "a time"}]);
    let good = json!({"messages": [{"role": "user", "content": parts, "name": "Tom"}], "max_tokens": 1});
    assert_eq!(server.post(CHAT, &good.to_string()).status, 200);
}

#[test]
fn a_body_is_an_object_whose_fields_are_there_once() {
    let server = Server::start(Setup::default());
    for (body, words) in [
        ("[\"stories\", null, \"a\"]", "has to be a JSON object"),
        ("\"a\"", "has to be a JSON object"),
        ("null", "has to be a JSON object"),
        ("", "no JSON"),
        ("{\"prompt\": ", "no JSON"),
        ("{\"prompt\": \"a\", \"prompt\": \"b\"}", "the field \"prompt\" is there twice"),
    ] {
        let reply = server.post(COMPLETIONS, body);
        assert_eq!(reply.status, 400, "{reply:?}");
        assert!(reply.message().contains(words), "{reply:?}");
    }
    let spaced = format!("\n\t {}", completion("\"max_tokens\": 1"));
    assert_eq!(server.post(COMPLETIONS, &spaced).status, 200);
}

#[test]
fn a_token_has_one_number() {
    let server = Server::start(Setup::default());
    for token in ["05", "+5", " 5", "5.0", "-0", "1024"] {
        let (status, param, _) = refused(&server.complete(&format!("\"logit_bias\": {{{token:?}: 1}}")));
        assert_eq!((status, param), (400, json!("logit_bias")), "{token}");
    }
    let reply = server.complete("\"logit_bias\": {\"0\": 1, \"5\": -1.5}, \"max_tokens\": 1");
    assert_eq!(reply.status, 200, "{reply:?}");
}

#[test]
fn json_is_utf_8() {
    let server = Server::start(Setup::default());
    let status = |kind: &str| {
        let request = post(COMPLETIONS, &completion("\"max_tokens\": 1"));
        let reply = receive(server.send(&request.replace("application/json", kind)));
        if reply.status != 200 {
            reply.message();
        }
        reply.status
    };
    for good in
        ["application/json; charset=utf-8", "Application/JSON;charset=\"UTF-8\"", "application/json; a=b"]
    {
        assert_eq!(status(good), 200, "{good}");
    }
    for bad in ["application/json; charset=utf-16", "application/json; a=b; Charset=latin1", "text/json", ""]
    {
        assert_eq!(status(bad), 415, "{bad}");
    }
}

#[test]
fn errors_of_addresses_have_the_shape_of_all_errors() {
    let server = Server::start(Setup::default());
    for (path, status) in [("/v1/models/%ff", 400), ("/v1/models/other", 404), ("/%ff", 404), ("/v1", 404)] {
        let reply = server.get(path);
        assert_eq!(reply.status, status, "{reply:?}");
        assert!(!reply.message().is_empty());
        assert!(reply.head.contains("content-type: application/json"), "{reply:?}");
    }
    let reply = server.complete("\"model\": \"gpt-4\"");
    assert_eq!((reply.status, reply.json()["error"]["param"].clone()), (404, json!("model")));
}
