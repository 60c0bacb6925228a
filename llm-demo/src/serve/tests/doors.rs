//! Access, the framing of requests, and clients that stand in the way of others.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::serve::access::Access;
use crate::serve::state::Limits;
use crate::serve::tests::fixture::{Plan, Reply, Server, Setup, completion, post, receive};

const COMPLETIONS: &str = "/v1/completions";

/// The answer to a completion with other headers than `Host: localhost`.
fn with(server: &Server, headers: &str) -> Reply {
    let request = post(COMPLETIONS, &completion("\"max_tokens\": 1"));
    receive(server.send(&request.replace("Host: localhost\r\n", headers)))
}

#[test]
fn a_key_opens_the_door_whatever_the_host() {
    let access = Access { key: Some("secret".into()), loopback: true, ..Access::default() };
    let server = Server::start(Setup { access, ..Setup::default() });
    let reply = server.complete("\"max_tokens\": 1");
    assert_eq!((reply.status, reply.json()["error"]["code"].clone()), (401, json!("invalid_api_key")));
    assert!(reply.head.contains("www-authenticate: bearer\r\n"), "{reply:?}");
    assert_eq!(server.get("/v1/models").status, 401);
    assert_eq!(server.get("/metrics").status, 401);
    assert_eq!(server.get("/").status, 200);
    server.until("healthy", |server| server.get("/health").status == 200);
    for (headers, status) in [
        ("Host: localhost\r\nAuthorization: Bearer secret\r\n", 200),
        ("Host: localhost\r\nAuthorization: Bearer other\r\n", 401),
        ("Host: chat.example\r\nAuthorization: Bearer secret\r\n", 200),
        ("Host: chat.example\r\nAuthorization: Bearer other\r\n", 401),
        ("Host: localhost\r\nOrigin: http://chat.example\r\nAuthorization: Bearer secret\r\n", 200),
    ] {
        assert_eq!(with(&server, headers).status, status, "{headers}");
    }
}

#[test]
fn an_error_names_the_host_and_the_option() {
    let server = Server::start(Setup::default());
    let reply = with(&server, "Host: box.lan:8080\r\n");
    assert_eq!(reply.status, 403);
    assert!(
        reply.message().contains("\"box.lan:8080\"") && reply.message().contains("--allow-host"),
        "{reply:?}"
    );
    let reply = with(&server, "Host: localhost\r\nOrigin: http://chat.example\r\n");
    assert_eq!(reply.status, 403);
    let message = reply.message();
    assert!(message.contains("http://chat.example") && message.contains("--allow-origin"), "{reply:?}");
}

#[test]
fn listed_hosts_and_sites_may_ask() {
    let (hosts, origins) = (vec!["box.lan".into()], vec!["https://chat.example".into()]);
    let access = Access { key: Some("secret".into()), loopback: true, hosts, origins };
    let server = Server::start(Setup { access, ..Setup::default() });
    let reply =
        with(&server, "Host: box.lan\r\nAuthorization: Bearer secret\r\nOrigin: https://chat.example\r\n");
    assert_eq!(reply.status, 200, "{reply:?}");
    assert!(reply.head.contains("access-control-allow-origin: https://chat.example\r\n"), "{reply:?}");
    let preflight = |origin: &str| {
        receive(server.send(&format!(
            "OPTIONS {COMPLETIONS} HTTP/1.0\r\nHost: box.lan\r\nOrigin: {origin}\r\nAccess-Control-Request-Method: \
             POST\r\nAccess-Control-Request-Headers: authorization,x-stainless-os\r\n\r\n"
        )))
    };
    let reply = preflight("https://chat.example");
    assert_eq!(reply.status, 204, "{reply:?}");
    assert!(
        reply.head.contains("access-control-allow-headers: authorization,x-stainless-os\r\n"),
        "{reply:?}"
    );
    assert_eq!(preflight("https://evil.example").status, 403);
}

#[test]
fn a_request_that_two_could_read_otherwise_is_none() {
    let server = Server::start(Setup::default());
    assert_eq!(with(&server, "Host: localhost\r\nHost: evil.example\r\n").status, 400);
    let body = completion("\"max_tokens\": 1");
    let chunked = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    let head =
        format!("POST {COMPLETIONS} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n");
    let (length, encoding) =
        (format!("Content-Length: {}\r\n", body.len()), "Transfer-Encoding: chunked\r\n");
    let before = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for both in [format!("{length}{encoding}"), format!("{encoding}{length}")] {
        let reply = receive(server.send(&format!("{head}{both}\r\n{chunked}")));
        assert_eq!(reply.status, 400, "{reply:?}");
        assert!(reply.message().contains("Transfer-Encoding"), "{reply:?}");
        let mut stream = server.send(before);
        std::thread::sleep(Duration::from_millis(50));
        stream.write_all(format!("{head}{both}\r\n{chunked}").as_bytes()).expect("sent");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("answers");
        assert!(text.contains("HTTP/1.1 400"), "a second request: {text}");
    }
    let close = "Connection: close\r\n";
    assert_eq!(receive(server.send(&format!("{head}{close}{encoding}\r\n{chunked}"))).status, 200);
}

#[test]
fn a_head_has_bounds() {
    let server = Server::start(Setup::default());
    let status = |headers: String| {
        let mut text = String::new();
        let _ = server
            .send(&format!("GET / HTTP/1.0\r\nHost: localhost\r\n{headers}\r\n"))
            .read_to_string(&mut text);
        text.split(' ').nth(1).and_then(|status| status.parse::<u16>().ok())
    };
    assert_eq!(status("X-A: b\r\n".repeat(99)), Some(200));
    assert_eq!(status("X-A: b\r\n".repeat(100)), Some(431));
    assert_eq!(status(format!("X-A: {}\r\n", "b".repeat(60 << 10))), Some(200));
    assert_eq!(status(format!("X-A: {}\r\n", "b".repeat(200 << 10))), Some(431));
}

#[test]
fn idle_connections_make_room() {
    let limits = Limits { connections: 4, ..Limits::default() };
    let server = Server::start(Setup { limits, ..Setup::default() });
    server.plan.delay.store(10, Ordering::SeqCst);
    let streamed = server.begin(COMPLETIONS, &completion("\"max_tokens\": 30, \"stream\": true"));
    server.until("it runs", |server| server.metric("llm_demo_requests_running") == 1.0);
    // Those that say nothing, that say half of something, and that wait for their next question.
    let idle: Vec<TcpStream> = (0..12)
        .map(|n| {
            server.send(["", "GET /health HT", "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"][n % 3])
        })
        .collect();
    let begin = Instant::now();
    server.until("healthy", |server| server.get("/health").status == 200);
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    let reply = receive(streamed);
    assert_eq!(reply.events().last().map(String::as_str), Some("[DONE]"), "who is answered stays: {reply:?}");
    drop(idle);
}

#[test]
fn the_end_waits_for_the_engine_and_for_nobody_else() {
    let server = Server::with_plan(Setup::default(), Plan::default());
    let whole = post(COMPLETIONS, &completion("\"max_tokens\": 100"));
    let held = ["", "GET /health HT", &whole[..whole.len() - 5]].map(|text| server.send(text));
    server.plan.delay.store(20, Ordering::SeqCst);
    let running = server.begin(COMPLETIONS, &completion("\"max_tokens\": 20"));
    server.until("it runs", |server| server.metric("llm_demo_requests_running") == 1.0);
    let begin = Instant::now();
    server.stop();
    assert_eq!(receive(running).json()["usage"]["completion_tokens"], 20);
    server.join();
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    drop(held);
}
