//! Functions that the model calls.

use ga10b_llm::chat::{Message, Template};
use serde_json::{Value, json};

use crate::serve::tests::fixture::{Reply, Server, Setup};

const CHAT: &str = "/v1/chat/completions";

/// In the way of Hermes and Qwen: the marks name the way.
const TAGGED: &str = "{% for tool in tools %}{{ tool.function.name }}{% endfor %}{# <tool_call> #}\
                      {% for m in messages %}{{ m.content }}{% for call in m.tool_calls %}\
                      {{ call.function.arguments.place }}{% endfor %}{% endfor %}";
/// In the way of LLaMA 3.
const BARE: &str = "{# {\"name\": .., \"parameters\": ..} #}{% for tool in tools %}{{ tool.function.name }}{% endfor %}\
                    {% for m in messages %}{{ m.content }}{% endfor %}";

/// In the ways of Mistral, and of Qwen3-Coder.
const LIST: &str = "{# [TOOL_CALLS] [ #}{% for tool in tools %}{{ tool.function.name }}{% endfor %}\
                    {% for m in messages %}{{ m.content }}{% endfor %}";
const NAMED: &str = "{# [TOOL_CALLS] [ARGS] #}{% for tool in tools %}{{ tool.function.name }}{% endfor %}\
                     {% for m in messages %}{{ m.content }}{% endfor %}";
const CODER: &str = "{# <function= <parameter= #}{% for tool in tools %}{{ tool.function.name }}{% endfor %}\
                     {% for m in messages %}{{ m.content }}{% endfor %}";

/// Strings that end no call.
const STOPS: [&str; 9] = ["\n", "<", "[", "{", "\"", "go", "place", "e", " "];

fn tools() -> Value {
    let place = json!({
        "type": "object", "properties": {"place": {"enum": ["here", "there"]}, "steps": {"type": "integer"}},
        "required": ["place", "steps"], "additionalProperties": false,
    });
    json!([
        {"type": "function", "function": {"name": "go", "description": "Go there", "parameters": place, "strict": true}},
        {"type": "function", "function": {"name": "wait", "parameters": {"type": "object", "additionalProperties": false}}},
    ])
}

fn body(more: Value) -> Value {
    let mut body = json!({
        "messages": [{"role": "user", "content": "Once upon a time"}], "tools": tools(),
        "max_tokens": 120, "temperature": 1.2, "top_k": 0, "top_p": 1, "min_p": 0, "seed": 3,
    });
    body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    body
}

fn choice(reply: &Reply) -> Value {
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()["choices"][0].clone()
}

/// Names and arguments of the calls of a message.
fn calls(message: &Value) -> Vec<(String, Value)> {
    let calls = message["tool_calls"].as_array().expect("calls");
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let mut ids: Vec<&Value> = calls.iter().map(|call| &call["id"]).collect();
    ids.dedup();
    assert_eq!(ids.len(), calls.len());
    let is_id = |id: &str| id.len() == 9 && id.chars().all(|c| c.is_ascii_alphanumeric());
    assert!(ids.iter().all(|id| id.as_str().is_some_and(is_id)), "{ids:?}");
    let call = |call: &Value| {
        let arguments = text(&call["function"]["arguments"]);
        let parsed = serde_json::from_str(&arguments).unwrap_or_else(|error| panic!("{error}: {arguments}"));
        (text(&call["function"]["name"]), parsed)
    };
    calls.iter().map(call).collect()
}

fn are_right(calls: &[(String, Value)]) {
    for (name, arguments) in calls {
        match name.as_str() {
            "go" => {
                assert!(matches!(arguments["place"].as_str(), Some("here" | "there")), "{arguments}");
                assert!(arguments["steps"].is_i64() || arguments["steps"].is_number(), "{arguments}");
            }
            "wait" => assert_eq!(arguments, &json!({})),
            name => panic!("{name}"),
        }
    }
}

/// The message that the deltas of a stream make, and its reason.
fn streamed(reply: &Reply) -> (Value, Value) {
    let mut message = json!({"content": "", "tool_calls": []});
    let mut reason = Value::Null;
    for event in reply.events().iter().filter(|event| *event != "[DONE]") {
        let chunk: Value = serde_json::from_str(event).expect("JSON");
        let choice = &chunk["choices"][0];
        let add = |to: &mut Value, more: &Value| {
            let text = to.as_str().unwrap_or_default().to_owned() + more.as_str().unwrap_or_default();
            *to = text.into();
        };
        add(&mut message["content"], &choice["delta"]["content"]);
        for delta in choice["delta"]["tool_calls"].as_array().into_iter().flatten() {
            let index = delta["index"].as_u64().expect("a number") as usize;
            let all = message["tool_calls"].as_array_mut().expect("a list");
            if index == all.len() {
                assert!(delta["id"].is_string() && delta["type"] == "function", "{delta}");
                all.push(delta.clone());
            } else {
                add(&mut all[index]["function"]["arguments"], &delta["function"]["arguments"]);
            }
        }
        if !choice["finish_reason"].is_null() {
            reason = choice["finish_reason"].clone();
        }
    }
    (message, reason)
}

#[test]
fn a_call_is_what_its_schema_accepts() {
    for template in [TAGGED, BARE] {
        let server = Server::start(Setup { template: Some(template), parallel: 2, ..Setup::default() });
        for (tool_choice, name) in [
            (json!("required"), None),
            (json!({"type": "function", "function": {"name": "go"}}), Some("go")),
            (json!({"type": "function", "function": {"name": "wait"}}), Some("wait")),
        ] {
            let wanted =
                body(json!({"tool_choice": tool_choice, "parallel_tool_calls": false, "stop": STOPS}));
            let answer = choice(&server.post(CHAT, &wanted.to_string()));
            assert_eq!(answer["finish_reason"], "tool_calls", "{answer}");
            assert_eq!(answer["message"]["content"], Value::Null);
            let found = calls(&answer["message"]);
            are_right(&found);
            assert!(found.len() == 1 && name.is_none_or(|name| found[0].0 == name), "{found:?}");
            let mut stream = wanted.clone();
            stream["stream"] = true.into();
            let (message, reason) = streamed(&server.post(CHAT, &stream.to_string()));
            assert_eq!((calls(&message), reason), (found, json!("tool_calls")));
            assert_eq!(message["content"], "");
        }
    }
}

#[test]
fn calls_of_other_forms_are_streamed() {
    for template in [LIST, NAMED, CODER] {
        let server = Server::start(Setup { template: Some(template), ..Setup::default() });
        let only = json!({"type": "function", "function": {"name": "go"}});
        let wanted =
            json!({"tool_choice": only, "parallel_tool_calls": false, "stop": STOPS, "stream": true});
        let wanted = body(wanted);
        let (message, reason) = streamed(&server.post(CHAT, &wanted.to_string()));
        let found = calls(&message);
        are_right(&found);
        assert_eq!(
            (found.len(), reason, &message["content"]),
            (1, json!("tool_calls"), &json!("")),
            "{found:?}"
        );
    }
}

/// The message and the reason of an answer, whole and streamed, which have to be the same.
fn both(server: &Server, more: Value) -> (Value, Value) {
    let mut wanted = body(more);
    let whole = choice(&server.post(CHAT, &wanted.to_string()));
    wanted["stream"] = true.into();
    let (streamed, reason) = streamed(&server.post(CHAT, &wanted.to_string()));
    assert_eq!(whole["finish_reason"], reason);
    assert_eq!(whole["message"]["content"].as_str().unwrap_or_default(), streamed["content"]);
    let texts = |message: &Value| {
        let calls = message["tool_calls"].as_array().into_iter().flatten();
        calls.map(|call| call["function"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(texts(&whole["message"]), texts(&streamed));
    (whole["message"].clone(), reason)
}

#[test]
fn stop_strings_are_of_texts_and_not_of_calls() {
    let server = Server::start(Setup { template: Some(TAGGED), ..Setup::default() });
    let only = json!({"type": "function", "function": {"name": "wait"}});
    let two = body(json!({"tool_choice": only, "parallel_tool_calls": false, "stop": STOPS, "n": 2}));
    for choice in server.post(CHAT, &two.to_string()).json()["choices"].as_array().expect("choices") {
        are_right(&calls(&choice["message"]));
    }
    // Text that is no call is subject to them.
    let (message, reason) = both(&server, json!({"temperature": 0, "max_tokens": 12, "stop": [" boy", "<"]}));
    assert_eq!((&message["content"], reason), (&json!(", a quiet"), json!("stop")));
}

#[test]
fn a_call_that_is_cut_leaves_nothing_in_the_text() {
    for template in [TAGGED, BARE, LIST, NAMED, CODER] {
        let server = Server::start(Setup { template: Some(template), ..Setup::default() });
        for most in [3, 8] {
            let wanted = json!({"tool_choice": "required", "max_tokens": most});
            let (message, reason) = both(&server, wanted);
            let content = message["content"].as_str().unwrap_or_default();
            assert_eq!((content, reason), ("", json!("length")), "{most}: {message}");
        }
    }
}

/// The template that the documentation has to copy.
fn documented() -> &'static str {
    let docs = include_str!("../../../../docs/server.md");
    let (_, rest) = docs.split_once("```jinja\n").expect("a template");
    rest.split_once("```").expect("an end").0
}

#[test]
fn the_template_of_the_documentation_takes_tools() {
    let template = Template::new(documented(), "", "").expect("a template");
    let call = json!({"type": "function", "function": {"name": "go", "arguments": {"place": "here"}}});
    let asked = Message {
        more: json!({"tool_calls": [call, call]}).as_object().expect("an object").clone(),
        ..Message::new("assistant", "")
    };
    let messages = [
        Message::new("user", "Go."),
        asked,
        Message::new("tool", "Done."),
        Message::new("assistant", "I went."),
    ];
    let more = json!({"tools": [{"type": "function", "function": {"name": "go"}}]});
    let text = template.render_with(&messages, true, more.as_object().expect("an object")).expect("rendered");
    let call = "<tool_call>\n{\"name\": \"go\", \"arguments\": {\"place\": \"here\"}}\n</tool_call>";
    assert_eq!(
        text,
        format!(
            "<|im_start|>system\nYou are a helpful assistant.\n\nYou may call functions. Their signatures:\n<tools>\n\
             {{\"type\": \"function\", \"function\": {{\"name\": \"go\"}}}}\n</tools>\nWrite each call as an object of JSON \
             with the function's name and its arguments:\n<tool_call>\n{{\"name\": NAME, \"arguments\": ARGUMENTS}}\n\
             </tool_call><|im_end|>\n<|im_start|>user\nGo.<|im_end|>\n<|im_start|>assistant\n{call}\n{call}<|im_end|>\n\
             <|im_start|>user\n<tool_response>\nDone.\n</tool_response><|im_end|>\n\
             <|im_start|>assistant\nI went.<|im_end|>\n<|im_start|>assistant\n"
        )
    );
    let system = [Message::new("system", "Be brief."), Message::new("user", "Go.")];
    assert_eq!(
        template.render(&system, true).expect("rendered"),
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nGo.<|im_end|>\n<|im_start|>assistant\n"
    );
}

#[test]
fn the_form_of_calls_is_a_property() {
    let plain = "{% for m in messages %}{{ m.content }}{% endfor %}";
    for (template, form) in [
        (documented(), json!("hermes")),
        (BARE, json!("llama3")),
        (LIST, json!("mistral-list")),
        (NAMED, json!("mistral-args")),
        (CODER, json!("qwen3-coder")),
        (plain, Value::Null),
    ] {
        let server = Server::start(Setup { template: Some(template), ..Setup::default() });
        assert_eq!(server.get("/props").json()["tool_calls"], form);
    }
}

#[test]
fn a_text_may_have_several_calls_or_none() {
    let server = Server::start(Setup { template: Some(TAGGED), context: 512, ..Setup::default() });
    let mark =
        server.post("/tokenize", &json!({"content": "\n"}).to_string()).json()["tokens"][0].to_string();
    // What a call may follow is a line feed, which is as likely as can be.
    let wanted = body(json!({
        "tool_choice": {"type": "function", "function": {"name": "wait"}}, "logit_bias": {mark: 100}, "max_tokens": 150,
    }));
    let answer = choice(&server.post(CHAT, &wanted.to_string()));
    let found = calls(&answer["message"]);
    assert!(found.len() > 1, "{answer}");
    let auto = choice(&server.post(CHAT, &body(json!({"temperature": 0, "max_tokens": 12})).to_string()));
    assert!(auto["message"]["content"].as_str().is_some_and(|text| !text.is_empty()), "{auto}");
    assert!(auto["message"].get("tool_calls").is_none() && auto["finish_reason"] == "length", "{auto}");
    let none =
        choice(&server.post(CHAT, &body(json!({"tool_choice": "none", "max_tokens": 12})).to_string()));
    assert!(none["message"]["content"].is_string(), "{none}");
    let cut =
        choice(&server.post(CHAT, &body(json!({"tool_choice": "required", "max_tokens": 40})).to_string()));
    assert_eq!(cut["finish_reason"], "length", "{cut}");
}

#[test]
fn the_template_gets_tools_calls_and_results() {
    let server = Server::start(Setup { template: Some(TAGGED), ..Setup::default() });
    let count = |messages: Value, tools: Value| {
        let body = json!({"messages": messages, "tools": tools, "max_tokens": 1});
        let reply = server.post(CHAT, &body.to_string());
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.json()["usage"]["prompt_tokens"].as_u64().expect("a number")
    };
    let question = json!({"role": "user", "content": "Once"});
    let plain = count(json!([question]), json!([]));
    assert!(count(json!([question]), tools()) > plain);
    let call = json!({"id": "call_1", "type": "function", "function": {"name": "go", "arguments": "{\"place\": \" upon\"}"}});
    let asked = json!({"role": "assistant", "content": null, "tool_calls": [call]});
    assert_eq!(count(json!([question, asked]), json!([])), plain + 1);
    let result = json!({"role": "tool", "tool_call_id": "call_1", "content": " a time"});
    assert_eq!(count(json!([question, asked, result]), json!([])), plain + 3);
}

#[test]
fn tools_that_cannot_be_are_refused_by_name() {
    let server = Server::start(Setup { template: Some(TAGGED), strict: true, ..Setup::default() });
    let function = |function: Value| json!([{"type": "function", "function": function}]);
    let twice = json!([tools()[0], tools()[0]]);
    for (more, param, words) in [
        (json!({"tools": [{"type": "web_search"}]}), "tools[0]", "web_search"),
        (json!({"tools": [5]}), "tools[0]", "an object, it is 5"),
        (
            json!({"tools": [{"type": "function", "name": "a"}]}),
            "tools[0].function",
            "tools[0].function is missing",
        ),
        (json!({"tools": [{"function": {"name": "a"}}]}), "tools[0].type", "tools[0].type is missing"),
        (
            json!({"tool_choice": {"type": "function", "name": "go"}}),
            "tool_choice.function",
            "tool_choice.function is missing",
        ),
        (json!({"tools": function(json!({"name": "a b"}))}), "tools[0].function", "letters"),
        (
            json!({"tools": function(json!({"name": "a", "more": 1}))}),
            "tools[0].function.more",
            "not supported",
        ),
        (
            json!({"tools": function(json!({"name": "a", "parameters": {"type": "string"}}))}),
            "tools[0].function",
            "object",
        ),
        (
            json!({"tools": function(json!({"name": "a", "parameters": {"properties": {"b": {"type": "thing"}}}}))}),
            "tools",
            "a: #/properties/b: ",
        ),
        (json!({"tools": twice}), "tools", "another function \"go\""),
        (json!({"tool_choice": "always"}), "tool_choice", "\"required\""),
        (json!({"tool_choice": {"type": "function", "function": {"name": "fly"}}}), "tool_choice", "\"fly\""),
        (json!({"tool_choice": {"type": "allowed_tools"}}), "tool_choice", "allowed_tools"),
        (json!({"tools": [], "tool_choice": "required"}), "tool_choice", "needs tools"),
        (json!({"grammar": "start: \"a\""}), "tools", "grammar"),
        (json!({"guided_json": {"type": "thing"}}), "guided_json", "#: "),
        (
            json!({"messages": [{"role": "assistant", "tool_calls": [{"function": {"arguments": "{"}}]}]}),
            "messages[0].tool_calls[0].function",
            "no JSON",
        ),
    ] {
        let reply = server.post(CHAT, &body(more).to_string());
        assert_eq!(reply.status, 400, "{reply:?}");
        assert_eq!(reply.json()["error"]["param"], param, "{reply:?}");
        assert!(reply.message().contains(words), "{reply:?}");
    }
    let bare = Server::start(Setup { template: Some(BARE), ..Setup::default() });
    let reply = bare.post(CHAT, &body(json!({"response_format": {"type": "json_object"}})).to_string());
    assert!(reply.status == 400 && reply.message().contains("without a mark"), "{reply:?}");
    let server = Server::start(Setup::default());
    let reply = server.post(CHAT, &body(json!({})).to_string());
    assert!(reply.status == 400 && reply.message().contains("takes no tools"), "{reply:?}");
}

#[test]
fn beside_a_format_the_model_calls_or_answers_by_it() {
    let server = Server::start(Setup { template: Some(TAGGED), ..Setup::default() });
    let schema = json!({"const": {"ok": true}});
    let format = json!({"type": "json_schema", "json_schema": {"name": "ok", "schema": schema}});
    let token = |text: &str| {
        let reply = server.post("/tokenize", &json!({"content": text}).to_string());
        reply.json()["tokens"][0].to_string()
    };
    let of = |more: Value| choice(&server.post(CHAT, &body(more).to_string()));
    // A brace begins the answer, and another sign the mark.
    let likely = json!({token("{"): 100});
    let answer = of(json!({"response_format": format, "logit_bias": likely}));
    let content = answer["message"]["content"].as_str().expect("a text");
    assert_eq!(serde_json::from_str::<Value>(content).expect("JSON"), json!({"ok": true}));
    assert_eq!((&answer["finish_reason"], answer["message"].get("tool_calls")), (&json!("stop"), None));
    for more in [json!({"logit_bias": {token("<"): 100}}), json!({"tool_choice": "required"})] {
        let mut wanted = json!({"response_format": format, "parallel_tool_calls": false});
        wanted.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        let called = of(wanted);
        are_right(&calls(&called["message"]));
        assert_eq!(called["finish_reason"], "tool_calls");
    }
}
