//! Several requests at once, on the batch engine of the software ga10b.

use std::net::TcpStream;
use std::sync::atomic::{AtomicI64, Ordering};

use serde_json::json;

use crate::serve::tests::fixture::{Plan, Reply, Server, Setup, completion, receive};

const COMPLETIONS: &str = "/v1/completions";

fn setup(parallel: usize) -> Setup {
    Setup { parallel, context: 128, ..Setup::default() }
}

fn text(reply: &Reply) -> String {
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()["choices"][0]["text"].as_str().expect("a text").to_owned()
}

/// Requests of all kinds.
fn bodies() -> Vec<String> {
    let warm = |seed: u64| json!({"temperature": 1.2, "top_k": 0, "top_p": 1, "min_p": 0, "seed": seed});
    let all = [
        ("Once upon a time", 12, json!({})),
        ("Once upon a time", 9, warm(5)),
        ("The little fox", 10, warm(6)),
        ("One morning", 14, json!({"frequency_penalty": 2, "presence_penalty": 2})),
        ("Tom had a", 8, json!({"temperature": 1, "seed": 7, "logit_bias": {"259": -100}})),
        ("The rain", 30, json!({"stop": [" the"]})),
        ("She looked in every", 6, json!({"repeat_penalty": 3})),
        ("Once upon a time, there was a small house. The rain fell on it all day, and a fox", 7, warm(8)),
    ];
    let body = |(prompt, count, more): (&str, u32, serde_json::Value)| {
        let mut body = json!({"prompt": prompt, "max_tokens": count});
        body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        body.to_string()
    };
    all.into_iter().map(body).collect()
}

#[test]
fn a_request_gets_the_same_answer_alone_and_beside_others() {
    let server = Server::start(setup(8));
    let bodies = bodies();
    let answer = |reply: &Reply| {
        let answer = reply.json();
        (
            text(reply),
            answer["choices"][0]["finish_reason"].clone(),
            answer["usage"]["completion_tokens"].clone(),
        )
    };
    let alone: Vec<_> = bodies.iter().map(|body| answer(&server.post(COMPLETIONS, body))).collect();
    assert_eq!(alone[0].0, ", a cheerful boy named Tom lived on a quiet farm.");
    assert_eq!(server.metric("llm_demo_requests_running"), 0.0);
    // All have arrived before the first has ended.
    server.plan.delay.store(20, Ordering::SeqCst);
    let steps = server.metric("llm_demo_steps_total");
    let streams: Vec<TcpStream> = bodies.iter().map(|body| server.begin(COMPLETIONS, body)).collect();
    server.until("all run", |server| server.metric("llm_demo_requests_running") >= 7.0);
    let beside: Vec<_> = streams.into_iter().map(|stream| answer(&receive(stream))).collect();
    assert_eq!(beside, alone);
    let tokens: u64 = alone.iter().filter_map(|(_, _, count)| count.as_u64()).sum();
    let steps = server.metric("llm_demo_steps_total") - steps;
    assert!(steps < tokens as f64 / 2.0, "{tokens} tokens in {steps} steps");
    server.until("pages are kept", |server| server.metric("llm_demo_pages_cached") > 0.0);
    assert!((0.0..8.0).contains(&server.metric("llm_demo_pages_free")), "of a page for each");
    assert_eq!(
        server.metric("llm_demo_step_columns_count"),
        server.metric("llm_demo_steps_total"),
        "every step is counted"
    );
}

#[test]
fn the_beginning_of_a_prompt_comes_from_texts_that_have_ended() {
    let server = Server::start(setup(2));
    let ask = |prompt: &str, more: &str| {
        let seeded = "\"max_tokens\": 6, \"temperature\": 1.2, \"seed\": 3";
        let body = format!("{{\"prompt\": {prompt:?}, {seeded}{more}}}");
        let reply = server.post(COMPLETIONS, &body);
        (text(&reply), reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"].clone())
    };
    let (answer, cached) = ask("Once upon a time", "");
    assert_eq!(cached, 0);
    // Others come in between.
    ask("The rain", "");
    let prompt = format!("Once upon a time{answer} and then");
    let (alone, cached) = ask(&prompt, ", \"cache_prompt\": false");
    assert_eq!(cached, 0);
    let (again, cached) = ask(&prompt, "");
    assert_eq!(again, alone);
    assert!(cached.as_u64() >= Some(7), "{cached}");
    assert_eq!(server.metric("llm_demo_cached_tokens_total"), cached.as_f64().expect("a number"));
}

#[test]
fn prompts_that_arrive_together_share_their_beginning() {
    let prompt =
        |own: &str| format!("{:?}", format!("{}{own}", "Once upon a time there was a fox. ".repeat(6)));
    let run = |caches: bool| {
        let plan = Plan::default();
        plan.delay.store(20, Ordering::SeqCst);
        let server = Server::with_plan(Setup { caches, ..setup(4) }, plan);
        let body = |own| format!("{{\"prompt\": {}, \"max_tokens\": 4}}", prompt(own));
        let streams = ["Tom", "The", "One", "She"].map(|own| server.begin(COMPLETIONS, &body(own)));
        let replies = streams.map(receive);
        let cached = |reply: &Reply| {
            reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().expect("a number")
        };
        let sum: u64 = replies.iter().map(cached).sum();
        assert_eq!(server.metric("llm_demo_cached_tokens_total"), sum as f64);
        assert_eq!(server.metric("llm_demo_pages_cached") > 0.0, caches);
        let prompts = server.metric("llm_demo_prompt_tokens_total") as u64;
        (replies.map(|reply| text(&reply)), sum, prompts)
    };
    let (texts, sum, prompts) = run(true);
    assert!(sum > prompts / 2, "{sum} of {prompts}");
    assert_eq!(run(false), (texts, 0, prompts));
}

#[test]
fn who_goes_away_makes_room_and_disturbs_nobody() {
    let plan = Plan::default();
    plan.delay.store(20, Ordering::SeqCst);
    let server = Server::with_plan(setup(2), plan);
    let gone =
        [(); 2].map(|()| server.begin(COMPLETIONS, &completion("\"max_tokens\": 100, \"stream\": true")));
    server.until("both run", |server| server.metric("llm_demo_requests_running") == 2.0);
    let waiting = server.begin(COMPLETIONS, &completion("\"max_tokens\": 12"));
    server.until("one waits", |server| server.metric("llm_demo_requests_waiting") == 1.0);
    let [first, second] = gone;
    drop(first);
    server.until("cancelled", |server| server.metric("llm_demo_cancelled_requests_total") == 1.0);
    assert_eq!(text(&receive(waiting)), ", a cheerful boy named Tom lived on a quiet farm.");
    assert_eq!(server.metric("llm_demo_requests_running"), 1.0);
    drop(second);
    server.until("cancelled", |server| server.metric("llm_demo_cancelled_requests_total") == 2.0);
    assert!(server.plan.steps.load(Ordering::SeqCst) < 95, "nothing runs for nobody");
    assert_eq!(text(&server.complete("\"max_tokens\": 3")), ", a cheerful");
}

#[test]
fn a_device_that_fails_costs_what_runs_and_not_what_waits() {
    type Fault = fn(&Plan) -> &AtomicI64;
    let faults: [(Fault, &[&str]); 3] = [
        (|plan| &plan.fail_in, &["TEST_IOCTL returned 0x7"]),
        (|plan| &plan.panic_in, &["panicked: planned"]),
        // A kernel on the software ga10b.
        (|plan| &plan.fault_in, &["unmapped", "vadd_f32"]),
    ];
    for (fault, words) in faults {
        let plan = Plan::default();
        plan.delay.store(20, Ordering::SeqCst);
        let server = Server::with_plan(setup(2), plan);
        let running = [(); 2].map(|()| server.begin(COMPLETIONS, &completion("\"max_tokens\": 60")));
        server.until("both run", |server| server.metric("llm_demo_requests_running") == 2.0);
        let waiting = server.begin(COMPLETIONS, &completion("\"max_tokens\": 12"));
        server.until("one waits", |server| server.metric("llm_demo_requests_waiting") == 1.0);
        fault(&server.plan).store(0, Ordering::SeqCst);
        for stream in running {
            let reply = receive(stream);
            assert_eq!(reply.status, 500, "{reply:?}");
            assert!(words.iter().all(|words| reply.message().contains(words)), "{reply:?}");
        }
        assert_eq!(text(&receive(waiting)), ", a cheerful boy named Tom lived on a quiet farm.");
        assert_eq!(server.plan.builds.load(Ordering::SeqCst), 2);
        assert_eq!(server.metric("llm_demo_engine_failures_total"), 1.0);
        assert_eq!(server.get("/health").status, 200);
    }
}

#[test]
fn what_is_not_a_number_ends_its_request_alone() {
    let plan = Plan::default();
    plan.delay.store(20, Ordering::SeqCst);
    // "Once", which only one of the prompts ends with.
    plan.poison.store(626, Ordering::SeqCst);
    let server = Server::with_plan(setup(4), plan);
    let body = |prompt: &str| format!("{{\"prompt\": {prompt}, \"max_tokens\": 12}}");
    let good = server.begin(COMPLETIONS, &completion("\"max_tokens\": 12"));
    let bad = server.begin(COMPLETIONS, &body("[0, 259, 626]"));
    let reply = receive(bad);
    assert_eq!(reply.status, 500, "{reply:?}");
    assert!(reply.message().contains("position 2"), "{reply:?}");
    assert_eq!(text(&receive(good)), ", a cheerful boy named Tom lived on a quiet farm.");
    assert_eq!(server.plan.builds.load(Ordering::SeqCst), 1);
}

#[test]
fn a_server_that_ends_finishes_or_cuts_what_runs() {
    let plan = Plan::default();
    plan.delay.store(10, Ordering::SeqCst);
    let server = Server::with_plan(setup(2), plan);
    let streams =
        [(); 3].map(|()| server.begin(COMPLETIONS, &completion("\"max_tokens\": 6, \"stream\": true")));
    server.until("one waits", |server| server.metric("llm_demo_requests_waiting") == 1.0);
    server.stop();
    for stream in streams {
        let reply = receive(stream);
        assert_eq!(reply.events().last().map(String::as_str), Some("[DONE]"), "{reply:?}");
    }
    server.join();

    let plan = Plan::default();
    plan.delay.store(50, Ordering::SeqCst);
    let patience = std::time::Duration::from_millis(100);
    let server = Server::with_plan(Setup { patience, ..setup(2) }, plan);
    let cut = [(); 3].map(|()| server.begin(COMPLETIONS, &completion("\"max_tokens\": 100")));
    server.until("one waits", |server| server.metric("llm_demo_requests_waiting") == 1.0);
    server.stop();
    for stream in cut {
        assert_eq!(receive(stream).status, 503);
    }
    server.join();
}
