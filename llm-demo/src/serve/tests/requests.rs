//! The fields of requests, beside those of every text.

use serde_json::{Value, json};

use crate::serve::tests::fixture::{Reply, Server, Setup};

const COMPLETIONS: &str = "/v1/completions";
const CHAT: &str = "/v1/chat/completions";

fn ask(server: &Server, path: &str, body: &Value) -> Value {
    let reply = server.post(path, &body.to_string());
    assert_eq!(reply.status, 200, "{body}: {reply:?}");
    reply.json()
}

/// A completion with further fields.
fn complete(server: &Server, more: Value) -> Value {
    let mut body = json!({"prompt": "Once upon a time", "max_tokens": 12});
    body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    ask(server, COMPLETIONS, &body)
}

fn texts(answer: &Value) -> Vec<String> {
    let choices = answer["choices"].as_array().expect("a list");
    (0..).zip(choices).for_each(|(index, choice)| assert_eq!(choice["index"], index));
    choices.iter().map(|choice| choice["text"].as_str().expect("a text").to_owned()).collect()
}

fn chunks(reply: &Reply) -> Vec<Value> {
    let events = reply.events();
    assert_eq!(events.last().map(String::as_str), Some("[DONE]"), "{reply:?}");
    events[..events.len() - 1].iter().map(|event| serde_json::from_str(event).expect("JSON")).collect()
}

/// The text of choice `index` in a stream.
fn streamed(chunks: &[Value], index: usize) -> String {
    let choices = chunks.iter().flat_map(|chunk| chunk["choices"].as_array().expect("a list"));
    let own = choices.filter(|choice| choice["index"] == index);
    own.filter_map(|choice| choice["text"].as_str().or(choice["delta"]["content"].as_str())).collect()
}

#[test]
fn fields_that_are_not_known_are_ignored_or_refused() {
    let more =
        json!({"frobnicate": [1], "stream": true, "stream_options": {"later": 1}, "reasoning_effort": "low"});
    for (strict, status) in [(false, 200), (true, 400)] {
        let server = Server::start(Setup { strict, ..Setup::default() });
        for field in ["frobnicate", "reasoning_effort", "stream_options"] {
            let body = json!({"prompt": "a", "max_tokens": 1, "stream": true, field: more[field]});
            let reply = server.post(COMPLETIONS, &body.to_string());
            assert_eq!(reply.status, status, "{reply:?}");
            if strict {
                assert_eq!(reply.json()["error"]["code"], "unsupported");
                assert!(reply.json()["error"]["param"].as_str().expect("a field").starts_with(field));
            }
        }
    }
}

#[test]
fn several_texts_of_a_prompt_are_those_of_seeds_one_after_the_other() {
    let server = Server::start(Setup { parallel: 4, ..Setup::default() });
    let warm = |seed: u64, n: u64| json!({"temperature": 1.5, "top_k": 0, "top_p": 1, "min_p": 0, "seed": seed, "n": n});
    let alone: Vec<String> = (5..8).flat_map(|seed| texts(&complete(&server, warm(seed, 1)))).collect();
    assert!(alone[0] != alone[1] && alone[1] != alone[2], "{alone:?}");
    let answer = complete(&server, warm(5, 3));
    assert_eq!(texts(&answer), alone);
    assert_eq!(
        (&answer["usage"]["prompt_tokens"], &answer["usage"]["completion_tokens"]),
        (&json!(5), &json!(36))
    );
    let mut body = warm(5, 3);
    body["messages"] = json!([{"role": "user", "content": "Once upon a time"}]);
    (body["max_tokens"], body["stream"]) = (12.into(), true.into());
    body["stream_options"] = json!({"include_usage": true});
    let chunks = chunks(&server.post(CHAT, &body.to_string()));
    let found: Vec<String> = (0..3).map(|index| streamed(&chunks, index)).collect();
    assert_eq!(found, alone);
    let roles = chunks.iter().filter(|chunk| chunk["choices"][0]["delta"]["role"] == "assistant");
    assert_eq!(roles.count(), 3);
    assert_eq!(chunks.last().expect("one")["usage"]["completion_tokens"], 36);
    // More than may wait, when nobody does.
    assert_eq!(texts(&complete(&server, json!({"n": 20, "max_tokens": 1}))).len(), 20);
}

#[test]
fn several_prompts_are_answered_in_their_order() {
    let server = Server::start(Setup { parallel: 2, ..Setup::default() });
    let prompts = ["Once upon a time", "The little fox", "One morning"];
    let alone: Vec<String> =
        prompts.iter().flat_map(|prompt| texts(&complete(&server, json!({"prompt": prompt})))).collect();
    let answer = complete(&server, json!({"prompt": prompts}));
    assert_eq!(texts(&answer), alone);
    assert_eq!(answer["usage"]["completion_tokens"], 36);
    let tokens: Vec<Value> = prompts
        .iter()
        .map(|text| ask(&server, "/tokenize", &json!({"prompt": text}))["tokens"].clone())
        .collect();
    assert_eq!(texts(&complete(&server, json!({"prompt": tokens}))), alone);
    let twice = texts(&complete(&server, json!({"prompt": prompts[..2], "n": 2})));
    assert_eq!(twice, [&alone[0], &alone[0], &alone[1], &alone[1]].map(Clone::clone));
    let reply =
        server.post(COMPLETIONS, &json!({"prompt": prompts, "max_tokens": 12, "stream": true}).to_string());
    let chunks = chunks(&reply);
    let found: Vec<String> = (0..3).map(|index| streamed(&chunks, index)).collect();
    assert_eq!(found, alone);
    let reply = server.post(COMPLETIONS, &json!({"prompt": vec!["a"; 129]}).to_string());
    assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!("prompt")));
}

#[test]
fn probabilities_are_told_with_each_token() {
    for parallel in [1, 2] {
        let server = Server::start(Setup { parallel, ..Setup::default() });
        let body = json!({
            "messages": [{"role": "user", "content": "Once upon a time"}],
            "max_tokens": 12, "logprobs": true, "top_logprobs": 3,
        });
        let choice = ask(&server, CHAT, &body)["choices"][0].clone();
        let tokens = choice["logprobs"]["content"].as_array().expect("a list").clone();
        assert_eq!(tokens.len(), 12);
        let text: String = tokens.iter().filter_map(|token| token["token"].as_str()).collect();
        assert_eq!(choice["message"]["content"], text);
        for token in &tokens {
            let top = token["top_logprobs"].as_array().expect("a list");
            assert_eq!(top.len(), 3);
            assert_eq!(top[0]["logprob"], token["logprob"], "the choice is greedy");
            assert_eq!((&top[0]["token"], &top[0]["bytes"]), (&token["token"], &token["bytes"]));
            let of = |token: &Value| token["logprob"].as_f64().expect("a number");
            assert!(of(&top[1]) <= of(&top[0]) && of(&top[2]) <= of(&top[1]));
            assert!(top.iter().map(|token| of(token).exp()).sum::<f64>() <= 1.0 + 1e-6);
        }
        let mut stream = body.clone();
        stream["stream"] = true.into();
        let chunks = chunks(&server.post(CHAT, &stream.to_string()));
        let found: Vec<Value> = chunks
            .iter()
            .filter_map(|chunk| chunk["choices"][0]["logprobs"]["content"].as_array())
            .flatten()
            .cloned()
            .collect();
        assert_eq!(found, tokens);

        let choice = complete(&server, json!({"logprobs": 2, "stop": "lived"}))["choices"][0].clone();
        let tokens = choice["logprobs"]["tokens"].as_array().expect("a list");
        let text: String = tokens.iter().filter_map(Value::as_str).collect();
        assert_eq!(choice["text"], ", a cheerful boy named Tom ");
        assert_eq!(text, ", a cheerful boy named Tom lived", "the token that the text ends in is one of it");
        assert_eq!(choice["logprobs"]["text_offset"][2], 3);
        assert_eq!(choice["logprobs"]["top_logprobs"][0].as_object().expect("an object").len(), 2);
        let without = complete(&server, json!({"logprobs": null}));
        assert_eq!(without["choices"][0]["logprobs"], Value::Null);
    }
}

#[test]
fn what_other_servers_take_is_taken() {
    let server = Server::start(Setup::default());
    let end = server_end(&server);
    let biased = |more: Value| {
        let mut body = json!({"logit_bias": {end.as_str(): 100}});
        body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        complete(&server, body)["usage"]["completion_tokens"].clone()
    };
    assert_eq!((biased(json!({})), biased(json!({"ignore_eos": true}))), (json!(0), json!(12)));
    let words = |answer: &Value| {
        let text = texts(answer).remove(0);
        let mut words: Vec<String> = text.split(' ').map(str::to_owned).collect();
        let all = words.len();
        words.sort_unstable();
        words.dedup();
        all - words.len()
    };
    let long = |more: Value| {
        let mut body = json!({"max_tokens": 60});
        body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        complete(&server, body)
    };
    assert!(words(&long(json!({"repetition_penalty": 3}))) < words(&long(json!({}))));
    let fox = json!({"const": "fox"});
    for more in
        [json!({"guided_json": fox}), json!({"json_schema": fox}), json!({"guided_json": fox.to_string()})]
    {
        assert_eq!(texts(&complete(&server, more)), ["\"fox\""]);
    }
    assert_eq!(texts(&complete(&server, json!({"grammar": "start: \"a fox\" | \"an owl\""}))).len(), 1);
    let both = json!({"prompt": "a", "guided_json": fox, "grammar": "start: \"a\""});
    let reply = server.post(COMPLETIONS, &both.to_string());
    assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!("grammar")));
    let wrong = json!({"prompt": "a", "guided_json": {"type": "thing"}});
    assert_eq!(server.post(COMPLETIONS, &wrong.to_string()).json()["error"]["param"], "guided_json");
}

/// The number of the token that ends a text.
fn server_end(server: &Server) -> String {
    let name = server.get("/props").json()["eos_token"].clone();
    ask(server, "/tokenize", &json!({"content": name}))["tokens"][0].to_string()
}

#[test]
fn a_template_gets_its_variables() {
    let template = "{{ messages[0].content }}{{ style }}{{ reasoning_effort }}";
    let server = Server::start(Setup { template: Some(template), strict: true, ..Setup::default() });
    let tokens = |more: Value| {
        let mut body = json!({"messages": [{"role": "user", "content": "Once"}], "max_tokens": 1});
        body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        ask(&server, CHAT, &body)["usage"]["prompt_tokens"].as_u64().expect("a number")
    };
    let plain = tokens(json!({}));
    assert_eq!(tokens(json!({"chat_template_kwargs": {"style": " upon a time"}})), plain + 3);
    assert!(tokens(json!({"reasoning_effort": "high"})) > plain);
    assert_eq!(server.get("/props").json()["chat_template"], template);
}

#[test]
fn texts_become_tokens_and_back() {
    let server = Server::start(Setup::default());
    let tokens = ask(&server, "/tokenize", &json!({"content": "Once upon a time", "add_special": true}));
    assert_eq!(tokens["tokens"], json!([0, 626, 627, 259, 404]));
    assert_eq!((&tokens["count"], &tokens["max_model_len"]), (&json!(5), &json!(256)));
    assert_eq!(ask(&server, "/tokenize", &json!({"prompt": "Once upon a time"})), tokens);
    let plain = ask(&server, "/tokenize", &json!({"content": "Once upon a time", "with_pieces": true}));
    assert_eq!(plain["tokens"][1], json!({"id": 627, "piece": " upon"}));
    let text = ask(&server, "/detokenize", &json!({"tokens": [626, 627, 259, 404]}));
    assert_eq!(text["content"], "Once upon a time");
    for (path, body) in [
        ("/tokenize", json!({})),
        ("/tokenize", json!({"content": 5})),
        ("/detokenize", json!({"tokens": "Once"})),
        ("/detokenize", json!({"tokens": [1024]})),
        ("/detokenize", json!({})),
    ] {
        assert_eq!(server.post(path, &body.to_string()).status, 400, "{body}");
    }
    let props = server.get("/props").json();
    assert_eq!(props["default_generation_settings"]["n_ctx"], 256);
    assert_eq!((&props["total_slots"], &props["model_alias"]), (&json!(1), &json!("stories")));
}
