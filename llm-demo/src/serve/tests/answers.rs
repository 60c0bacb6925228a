//! Answers when nothing goes wrong.

use serde_json::{Value, json};

use crate::serve::access::Access;
use crate::serve::tests::fixture::{Server, Setup};

const STORY: &str = ", a cheerful boy named Tom lived on a quiet farm.";

fn text_of(events: &[String]) -> String {
    let chunks = events.iter().filter(|event| *event != "[DONE]");
    let chunks = chunks.map(|event| serde_json::from_str::<Value>(event).expect("JSON"));
    let piece = |chunk: Value| {
        let choice = &chunk["choices"][0];
        choice["text"].as_str().or(choice["delta"]["content"].as_str()).unwrap_or_default().to_owned()
    };
    chunks.map(piece).collect()
}

#[test]
fn a_completion_continues_its_prompt() {
    let server = Server::start(Setup::default());
    let reply = server.complete("\"max_tokens\": 12");
    assert_eq!(reply.status, 200, "{reply:?}");
    let answer = reply.json();
    assert_eq!(answer["object"], "text_completion");
    assert_eq!(answer["model"], "stories");
    assert_eq!(answer["choices"][0]["text"], STORY);
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
    let usage = json!({
        "prompt_tokens": 5, "completion_tokens": 12, "total_tokens": 17,
        "prompt_tokens_details": {"cached_tokens": 0},
    });
    assert_eq!(answer["usage"], usage);
    assert!(reply.head.contains(&format!("x-request-id: {}", answer["id"].as_str().expect("an id"))));
}

#[test]
fn a_stream_has_the_same_text_in_chunks() {
    let server = Server::start(Setup::default());
    let reply = server.complete("\"max_tokens\": 12, \"stream\": true");
    assert_eq!(reply.status, 200, "{reply:?}");
    assert!(reply.head.contains("content-type: text/event-stream"), "{reply:?}");
    let events = reply.events();
    assert_eq!(events.last().map(String::as_str), Some("[DONE]"));
    assert_eq!(text_of(&events), STORY);
    assert_eq!(events.len(), 12 + 2, "a chunk per token, the reason, the end");
    assert!(!reply.body.contains("usage"));

    let body = json!({
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Once upon a time"}]}],
        "max_completion_tokens": 12, "stream": true, "stream_options": {"include_usage": true},
    });
    let events = server.post("/v1/chat/completions", &body.to_string()).events();
    assert_eq!(text_of(&events), STORY);
    let chunk = |at: usize| serde_json::from_str::<Value>(&events[at]).expect("JSON");
    assert_eq!(chunk(0)["choices"][0]["delta"], json!({"role": "assistant", "content": ""}));
    assert_eq!(chunk(events.len() - 3)["choices"][0]["finish_reason"], "length");
    let last = chunk(events.len() - 2);
    assert_eq!((&last["choices"], &last["usage"]["total_tokens"]), (&json!([]), &json!(17)));
}

#[test]
fn a_chat_answers_and_its_beginning_comes_from_the_cache() {
    let server = Server::start(Setup::default());
    let ask = |messages: Value, more: Value| {
        let mut body =
            json!({"model": "stories", "messages": messages, "max_tokens": 12, "user": "somebody"});
        body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        server.post("/v1/chat/completions", &body.to_string()).json()
    };
    let question = json!({"role": "user", "content": "Once upon a time"});
    let first = ask(json!([question]), json!({}));
    assert_eq!(first["choices"][0]["message"]["role"], "assistant");
    assert_eq!(first["choices"][0]["message"]["content"], STORY);
    let answer = first["choices"][0]["message"].clone();
    let messages = json!([question, answer, {"role": "user", "content": " The morning was"}]);
    let second = ask(messages.clone(), json!({}));
    let text = second["choices"][0]["message"]["content"].clone();
    assert!(text.as_str().expect("a text").starts_with(" cold and bright."), "{second}");
    // All but the last token of the answer, which was never processed.
    assert_eq!(second["usage"]["prompt_tokens_details"]["cached_tokens"], 16);
    let third = ask(messages, json!({"cache_prompt": false}));
    assert_eq!(third["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    assert_eq!(third["choices"][0]["message"]["content"], text);
}

#[test]
fn stop_strings_end_a_text_and_are_not_part_of_it() {
    let server = Server::start(Setup::default());
    for stream in [false, true] {
        for (stop, expected) in [
            (json!("named"), ", a cheerful boy "),
            (json!(["l boy na", "quiet"]), ", a cheerfu"),
            (json!(["farm"]), ", a cheerful boy named Tom lived on a quiet "),
        ] {
            let reply =
                server.complete(&format!("\"max_tokens\": 30, \"stop\": {stop}, \"stream\": {stream}"));
            let (text, body) = match stream {
                true => (text_of(&reply.events()), reply.events().join(" ")),
                false => (
                    reply.json()["choices"][0]["text"].as_str().expect("a text").to_owned(),
                    reply.body.clone(),
                ),
            };
            assert_eq!(text, expected, "{stop}");
            assert!(body.contains("\"finish_reason\":\"stop\""), "{body}");
        }
        // Text that may begin one is not lost.
        let reply = server.complete("\"max_tokens\": 12, \"stop\": [\"farm.X\"]");
        assert_eq!(reply.json()["choices"][0]["text"], STORY);
    }
    // The next request has a whole context.
    assert_eq!(server.complete("\"max_tokens\": 12").json()["choices"][0]["text"], STORY);
}

#[test]
fn sampling_options_change_the_choice_and_a_seed_repeats_it() {
    let server = Server::start(Setup::default());
    let text = |more: &str| {
        let reply = server.complete(&format!("\"max_tokens\": 10, {more}"));
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.json()["choices"][0]["text"].as_str().expect("a text").to_owned()
    };
    let warm = "\"temperature\": 1.5, \"top_p\": 1, \"top_k\": 0, \"min_p\": 0, \"cache_prompt\": false";
    let seeded = |seed: i64| text(&format!("{warm}, \"seed\": {seed}"));
    assert_eq!(seeded(5), seeded(5));
    assert_eq!(seeded(-5), seeded(-5));
    assert_ne!(seeded(5), seeded(6));
    let unseeded: std::collections::BTreeSet<String> = (0..4).map(|_| text(warm)).collect();
    assert!(unseeded.len() > 1, "{unseeded:?}");
    let long = |more: &str| {
        server.complete(&format!("\"max_tokens\": 60{more}")).json()["choices"][0]["text"].clone()
    };
    let repeats = |text: &Value| {
        let mut words: Vec<&str> = text.as_str().expect("a text").split(' ').collect();
        let all = words.len();
        words.sort_unstable();
        words.dedup();
        all - words.len()
    };
    let (greedy, penalized) = (long(""), long(", \"frequency_penalty\": 2, \"presence_penalty\": 2"));
    assert!(repeats(&penalized) < repeats(&greedy), "{penalized} {greedy}");
    assert!(repeats(&long(", \"repeat_penalty\": 3")) < repeats(&greedy));
    // Token 259 is " a", the second one of the text.
    assert!(!text("\"logit_bias\": {\"259\": -100}").starts_with(", a"), "biased");
    assert!(text("\"logit_bias\": {\"626\": 100}").starts_with("OnceOnceOnce"), "biased");
}

#[test]
fn tokens_are_a_prompt_too() {
    let server = Server::start(Setup::default());
    let ask = |prompt: &str| {
        server.post("/v1/completions", &format!("{{\"prompt\": {prompt}, \"max_tokens\": 12}}"))
    };
    for prompt in ["[0,626,627,259,404]", "[\"Once upon a time\"]"] {
        assert_eq!(ask(prompt).json()["choices"][0]["text"], STORY, "{prompt}");
    }
    for prompt in ["[]", "[0,1024]", "[[0,626],[1024]]", "[\"a\",1]", "[[]]", "7"] {
        let reply = ask(prompt);
        assert_eq!(reply.status, 400, "{prompt}: {reply:?}");
    }
}

#[test]
fn models_health_metrics_and_the_page_are_there() {
    let server = Server::start(Setup::default());
    server.until("healthy", |server| server.get("/health").status == 200);
    let models = server.get("/v1/models").json();
    assert_eq!((&models["object"], &models["data"][0]["id"]), (&json!("list"), &json!("stories")));
    assert_eq!(models["data"][0]["context_length"], 256);
    assert_eq!(server.get("/v1/models/stories").json()["object"], "model");
    let unknown = server.get("/v1/models/gpt-4");
    assert_eq!((unknown.status, unknown.json()["error"]["code"].clone()), (404, json!("model_not_found")));
    server.complete("\"max_tokens\": 3");
    assert_eq!(server.metric("llm_demo_generated_tokens_total"), 3.0);
    assert_eq!(server.metric("llm_demo_time_to_first_token_seconds_count"), 1.0);
    assert_eq!(server.metric("llm_demo_time_per_token_seconds_count"), 2.0);
    assert_eq!(server.metric("llm_demo_answers_total{path=\"/v1/completions\",status=\"200\"}"), 1.0);
    let metrics = server.get("/metrics");
    assert!(metrics.head.contains("openmetrics-text") && metrics.body.ends_with("# EOF\n"), "{metrics:?}");
}

#[test]
fn the_page_has_all_its_files_and_may_use_no_others() {
    let access = Access { key: Some("secret".into()), ..Access::default() };
    let server = Server::start(Setup { access, ..Setup::default() });
    let page = server.get("/");
    assert!(page.head.contains("content-security-policy: default-src 'none'; script-src 'self'"), "{page:?}");
    assert!(page.head.contains("require-trusted-types-for 'script'; trusted-types 'none'"), "{page:?}");
    assert!(
        page.body.contains("<title>llm-demo</title>") && !page.head.contains("access-control"),
        "{page:?}"
    );
    let mut files: Vec<String> = quoted(&page.body, "\"page/");
    let mut seen = 0;
    while let Some(file) = files.get(seen).cloned() {
        let part = server.get(&format!("/page/{file}"));
        assert_eq!(part.status, 200, "{file}: {part:?}");
        assert!(part.head.contains("content-security-policy: default-src 'none'"), "{file}: {part:?}");
        let imported = quoted(&part.body, "from \"./").into_iter().filter(|name| !files.contains(name));
        let imported: Vec<String> = imported.collect();
        files.extend(imported);
        for word in
            ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "\"//", "@import"]
        {
            assert!(!part.body.contains(word) && !page.body.contains(word), "{file}: {word}");
        }
        seen += 1;
    }
    assert_eq!(seen, 12, "{files:?}");
    let missing = server.get("/page/other.js");
    assert_eq!(
        (missing.status, missing.json()["error"]["message"].clone()),
        (404, json!("the page has no file \"other.js\""))
    );
    assert_eq!(server.get("/page/..%2fpage.html").status, 404);
    assert_eq!(server.get("/page/%ff").status, 400);
}

/// The pieces of a text between each `before` and the next quotation mark.
fn quoted(text: &str, before: &str) -> Vec<String> {
    let rest = text.split(before).skip(1);
    rest.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())).collect()
}
