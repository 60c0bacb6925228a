//! Failures: clients go, the queue is full, the device fails, or the server ends.

use std::io::Read;
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::serve::tests::fixture::{Plan, Server, Setup, completion, receive, try_receive};

const COMPLETIONS: &str = "/v1/completions";

fn slow(milliseconds: u64) -> Plan {
    let plan = Plan::default();
    plan.delay.store(milliseconds, Ordering::SeqCst);
    plan
}

/// Reads until `words` have come.
fn read_until(stream: &mut TcpStream, words: &str) -> String {
    let (mut text, mut byte) = (Vec::new(), [0]);
    while !String::from_utf8_lossy(&text).contains(words) {
        assert!(stream.read(&mut byte).expect("more") > 0, "{}", String::from_utf8_lossy(&text));
        text.push(byte[0]);
    }
    String::from_utf8_lossy(&text).into_owned()
}

#[test]
fn who_goes_away_is_cancelled() {
    for more in ["\"stream\": true", "\"stream\": false"] {
        let server = Server::with_plan(Setup::default(), slow(5));
        let mut stream = server.begin(COMPLETIONS, &completion(&format!("\"max_tokens\": 200, {more}")));
        if more.contains("true") {
            read_until(&mut stream, "cheerful");
        } else {
            server.until("it runs", |server| server.metric("llm_demo_requests_running") == 1.0);
        }
        drop(stream);
        server.until("cancelled", |server| server.metric("llm_demo_cancelled_requests_total") == 1.0);
        let after = server.plan.steps.load(Ordering::SeqCst);
        assert!(after < 100, "{after} steps");
        let reply = server.complete("\"max_tokens\": 3");
        assert_eq!(reply.json()["choices"][0]["text"], ", a cheerful");
    }
}

#[test]
fn who_waits_and_goes_away_leaves_the_queue() {
    let server = Server::with_plan(Setup { waiting: 2, ..Setup::default() }, slow(20));
    let running = server.begin(COMPLETIONS, &completion("\"max_tokens\": 40"));
    server.until("it runs", |server| server.metric("llm_demo_requests_running") == 1.0);
    let waiting: Vec<TcpStream> =
        (0..2).map(|_| server.begin(COMPLETIONS, &completion("\"max_tokens\": 3"))).collect();
    server.until("they wait", |server| server.metric("llm_demo_requests_waiting") == 2.0);
    let refused = server.complete("\"max_tokens\": 3");
    assert_eq!(refused.status, 429, "{refused:?}");
    assert!(refused.head.contains("retry-after: "), "{refused:?}");
    assert_eq!(refused.json()["error"]["type"], "rate_limit_error");
    drop(waiting);
    // Their places are free as soon as somebody needs them.
    server.until("there is room", |server| server.complete("\"max_tokens\": 3").status == 200);
    assert_eq!(receive(running).json()["usage"]["completion_tokens"], 40);
}

#[test]
fn requests_are_answered_in_order_of_arrival() {
    let server = Server::with_plan(Setup::default(), slow(3));
    let streams: Vec<TcpStream> = (1..=4)
        .map(|n| {
            let stream = server.begin(COMPLETIONS, &completion(&format!("\"max_tokens\": {}", 3 * n)));
            let waiting = f64::from(n - 1);
            server.until("it arrived", |server| {
                server.metric("llm_demo_requests_waiting")
                    + server.metric("llm_demo_request_duration_seconds_count")
                    >= waiting
            });
            stream
        })
        .collect();
    for (stream, n) in streams.into_iter().zip(1..) {
        let reply = receive(stream);
        assert_eq!(reply.json()["usage"]["completion_tokens"], 3 * n, "{reply:?}");
    }
}

#[test]
fn a_device_that_fails_costs_one_request() {
    let server = Server::start(Setup::default());
    server.complete("\"max_tokens\": 2");
    server.plan.fail_in.store(1, Ordering::SeqCst);
    let failed = server.complete("\"max_tokens\": 12");
    assert_eq!(failed.status, 500, "{failed:?}");
    assert!(failed.message().contains("TEST_IOCTL returned 0x7"), "{failed:?}");
    let reply = server.complete("\"max_tokens\": 3");
    assert_eq!(reply.json()["choices"][0]["text"], ", a cheerful");
    // The cache of the failed engine is gone.
    assert_eq!(reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    assert_eq!(server.plan.builds.load(Ordering::SeqCst), 2);
    assert_eq!(server.metric("llm_demo_engine_failures_total"), 1.0);
    assert_eq!(server.get("/health").status, 200);
}

#[test]
fn a_stream_that_fails_says_so_and_does_not_end_well() {
    let server = Server::start(Setup::default());
    server.plan.fail_in.store(8, Ordering::SeqCst);
    let failed = server.complete("\"max_tokens\": 12, \"stream\": true");
    // The status was sent with the first text.
    assert_eq!(failed.status, 200, "{failed:?}");
    let last = failed.events().pop().expect("events");
    assert!(last.contains("TEST_IOCTL") && last.contains("\"error\""), "{last}");
    assert!(
        !failed.body.contains("[DONE]") && !failed.body.contains("\"finish_reason\":\"stop\""),
        "{failed:?}"
    );
    server.plan.fail_in.store(0, Ordering::SeqCst);
    let failed = server.complete("\"max_tokens\": 12, \"stream\": true");
    assert_eq!(failed.status, 500, "before the first text the status says it: {failed:?}");
}

#[test]
fn a_panic_of_the_engine_costs_one_request() {
    let server = Server::start(Setup::default());
    server.plan.panic_in.store(6, Ordering::SeqCst);
    let failed = server.complete("\"max_tokens\": 12");
    assert_eq!(failed.status, 500);
    assert!(failed.message().contains("panicked: planned"), "{failed:?}");
    assert_eq!(server.complete("\"max_tokens\": 3").status, 200);
}

#[test]
fn an_engine_that_cannot_be_set_up_again_makes_the_server_unhealthy_until_it_can() {
    let server = Server::start(Setup::default());
    server.complete("\"max_tokens\": 1");
    server.plan.broken.store(true, Ordering::SeqCst);
    server.plan.fail_in.store(0, Ordering::SeqCst);
    server.plan.delay.store(50, Ordering::SeqCst);
    let failing = server.begin(COMPLETIONS, &completion("\"max_tokens\": 3, \"cache_prompt\": false"));
    let waiting = server.begin(COMPLETIONS, &completion("\"max_tokens\": 3"));
    let mut statuses = [receive(failing).status, receive(waiting).status];
    statuses.sort_unstable();
    assert_eq!(statuses, [500, 503]);
    server.plan.delay.store(0, Ordering::SeqCst);
    server.until("unhealthy", |server| server.get("/health").json()["status"] == "failed");
    let health = server.get("/health");
    assert_eq!(health.status, 503);
    assert!(health.body.contains("fallen off the bus"), "{health:?}");
    let refused = server.complete("\"max_tokens\": 3");
    assert_eq!(refused.status, 503);
    assert!(refused.message().contains("fallen off the bus"), "{refused:?}");
    server.plan.broken.store(false, Ordering::SeqCst);
    server.until("healthy", |server| server.get("/health").status == 200);
    assert_eq!(server.complete("\"max_tokens\": 3").json()["choices"][0]["text"], ", a cheerful");
}

#[test]
fn a_server_that_ends_finishes_what_it_has() {
    let server = Server::with_plan(Setup::default(), slow(10));
    let streams: Vec<TcpStream> = (0..3)
        .map(|_| server.begin(COMPLETIONS, &completion("\"max_tokens\": 12, \"stream\": true")))
        .collect();
    server.until("they wait", |server| server.metric("llm_demo_requests_waiting") == 2.0);
    let address = server.address;
    server.stop();
    for stream in streams {
        let reply = receive(stream);
        assert_eq!(reply.events().last().map(String::as_str), Some("[DONE]"), "{reply:?}");
    }
    server.join();
    assert!(TcpStream::connect(address).is_err(), "nobody listens");
}

#[test]
fn a_server_that_ends_cuts_what_takes_too_long() {
    let setup = Setup { patience: Duration::from_millis(200), ..Setup::default() };
    let server = Server::with_plan(setup, slow(20));
    let mut running = server.begin(COMPLETIONS, &completion("\"max_tokens\": 200, \"stream\": true"));
    read_until(&mut running, "cheerful");
    let waiting = server.begin(COMPLETIONS, &completion("\"max_tokens\": 200"));
    server.until("it waits", |server| server.metric("llm_demo_requests_waiting") == 1.0);
    let begin = Instant::now();
    server.stop();
    let mut rest = String::new();
    running.read_to_string(&mut rest).expect("the rest");
    assert!(rest.contains("the server is ending") && !rest.contains("[DONE]"), "{rest}");
    let refused = try_receive(waiting).expect("an answer");
    assert_eq!(refused.status, 503, "{refused:?}");
    server.join();
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
}
