//! The interface of responses.

use serde_json::{Value, json};

use crate::serve::tests::fixture::{Reply, Server, Setup};

const RESPONSES: &str = "/v1/responses";
const STORY: &str = ", a cheerful boy named Tom lived on a quiet farm.";

fn ask(server: &Server, body: &Value) -> Reply {
    server.post(RESPONSES, &body.to_string())
}

#[test]
fn a_response_is_a_text() {
    let server = Server::start(Setup::default());
    let parts = json!([{"type": "input_text", "text": "Once upon a time"}]);
    for input in [
        json!("Once upon a time"),
        json!([{"role": "user", "content": "Once upon a time"}]),
        json!([{"type": "message", "role": "user", "content": parts}]),
        json!([
            {"role": "user", "content": "Once upon"},
            {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant",
             "content": [{"type": "output_text", "text": " a time"}]},
        ]),
    ] {
        let reply = ask(&server, &json!({"model": "stories", "input": input, "max_output_tokens": 12}));
        assert_eq!(reply.status, 200, "{reply:?}");
        let answer = reply.json();
        assert_eq!((&answer["object"], &answer["status"]), (&json!("response"), &json!("incomplete")));
        assert_eq!(answer["incomplete_details"]["reason"], "max_output_tokens");
        let message = &answer["output"][0];
        assert_eq!((&message["type"], &message["role"]), (&json!("message"), &json!("assistant")));
        assert_eq!(message["content"][0]["text"], STORY, "{answer}");
        assert_eq!(
            (&answer["usage"]["input_tokens"], &answer["usage"]["output_tokens"]),
            (&json!(5), &json!(12))
        );
    }
    let schema = json!({"type": "json_schema", "name": "animal", "schema": {"const": "fox"}});
    let body =
        json!({"instructions": "Once", "input": " upon", "text": {"format": schema}, "metadata": {"a": "b"}});
    let answer = ask(&server, &body).json();
    assert_eq!(
        (&answer["status"], &answer["output"][0]["content"][0]["text"]),
        (&json!("completed"), &json!("\"fox\""))
    );
    assert_eq!((&answer["instructions"], &answer["metadata"]["a"]), (&json!("Once"), &json!("b")));
    // Those of the server, or of the request.
    assert_eq!((&answer["temperature"], &answer["top_p"]), (&json!(0.0), &json!(1.0)));
    let body = json!({"input": "a", "max_output_tokens": 1, "temperature": 0.7, "top_p": 0.95});
    let answer = ask(&server, &body).json();
    assert_eq!((&answer["temperature"], &answer["top_p"]), (&json!(0.7), &json!(0.95)));
}

#[test]
fn a_stream_has_the_events_of_a_response() {
    let server = Server::start(Setup::default());
    let reply = ask(&server, &json!({"input": "Once upon a time", "max_output_tokens": 12, "stream": true}));
    assert_eq!(reply.status, 200, "{reply:?}");
    let events: Vec<Value> = reply
        .body
        .split("\n\n")
        .filter_map(|event| {
            let (name, data) = event.strip_prefix("event: ")?.split_once("\ndata: ")?;
            let data: Value = serde_json::from_str(data).expect("JSON");
            assert_eq!(data["type"], name);
            Some(data)
        })
        .collect();
    let kinds: Vec<&str> = events.iter().filter_map(|event| event["type"].as_str()).collect();
    assert_eq!(
        kinds[..4],
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added"
        ]
    );
    assert_eq!(
        kinds[kinds.len() - 4..],
        [
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.incomplete"
        ]
    );
    assert!((0..).zip(&events).all(|(number, event)| event["sequence_number"] == number));
    let text: String = events.iter().filter_map(|event| event["delta"].as_str()).collect();
    assert_eq!(text, STORY);
    let last = &events[events.len() - 1]["response"];
    assert_eq!(
        (&last["output"][0]["content"][0]["text"], &last["usage"]["total_tokens"]),
        (&json!(STORY), &json!(17))
    );
}

#[test]
fn a_response_that_cannot_be_is_refused_by_the_name_of_its_field() {
    let server = Server::start(Setup { strict: true, ..Setup::default() });
    for (more, param) in [
        (json!({"input": null}), "input"),
        (json!({"input": []}), "input"),
        (json!({"input": [{"type": "item_reference", "id": "a"}]}), "input[0]"),
        (json!({"input": [{"role": "user", "content": 5}]}), "input[0].content"),
        (json!({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}), "input[0].content[0]"),
        (json!({"input": "very ".repeat(300)}), "input"),
        (json!({"tools": [{"type": "web_search"}]}), "tools"),
        (json!({"previous_response_id": "resp_1"}), "previous_response_id"),
        (json!({"background": true}), "background"),
        (json!({"max_output_tokens": 0}), "max_output_tokens"),
        (
            json!({"text": {"format": {"type": "json_schema", "name": "a", "schema": {"type": "x"}}}}),
            "text.format",
        ),
        (json!({"temperature": 9}), "temperature"),
        (json!({"n": 2}), "n"),
        (json!({"frobnicate": 2}), "frobnicate"),
    ] {
        let mut body = json!({"input": "a", "max_output_tokens": 1});
        body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        let reply = ask(&server, &body);
        assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!(param)), "{reply:?}");
        let message = reply.message();
        assert!(!message.contains("max_completion_tokens") && !message.contains("echo"), "{message}");
    }
    let harmless = json!({
        "input": "a", "max_output_tokens": 1, "tools": [], "tool_choice": "auto", "store": false, "background": false,
        "truncation": "disabled", "text": {"format": {"type": "text"}}, "reasoning": {"summary": "auto"},
    });
    assert_eq!(ask(&server, &harmless).status, 200);
}
