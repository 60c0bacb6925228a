//! The server as its users start it, on the software device.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ga10b_llm::synthesize::{SHAPES, Synthesis};
use ga10b_oracles::sample;
use serde_json::{Value, json};

/// A server that is killed with the test.
struct Server {
    child: Child,
    address: String,
    /// Keeps the pipe open: the server may still write to it.
    log: Option<BufReader<ChildStderr>>,
}

fn program() -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("llm-demo"));
    command.env_remove("HCQ_DEVICE").env_remove("RUST_LOG").env_remove("LLM_DEMO_API_KEY");
    command.env("LLM_DEMO_TUNING", "/nonexistent/tuning.json").args(["serve", "--device", "sim"]);
    command
}

impl Server {
    fn start(args: &[&str]) -> Self {
        let mut command = program();
        command.args(["--port", "0"]).args(args).stderr(Stdio::piped());
        let child = command.spawn().expect("the program starts");
        let mut server = Self { child, address: String::new(), log: None };
        let mut log = BufReader::new(server.child.stderr.take().expect("a pipe"));
        let mut line = String::new();
        while server.address.is_empty() {
            line.clear();
            assert!(log.read_line(&mut line).expect("text") > 0, "the server ended");
            if let Some((_, address)) = line.split_once("listening on http://") {
                address.trim().clone_into(&mut server.address);
            }
        }
        server.log = Some(log);
        server
    }

    /// Status and body.
    fn post(&self, path: &str, headers: &str, body: &Value) -> (u16, String) {
        let body = body.to_string();
        let mut stream = TcpStream::connect(&self.address).expect("connected");
        stream.set_read_timeout(Some(Duration::from_secs(120))).expect("set");
        let (address, length) = (&self.address, body.len());
        let head = format!(
            "POST {path} HTTP/1.0\r\nHost: {address}\r\n{headers}Content-Type: application/json\r\n\
             Content-Length: {length}\r\n\r\n"
        );
        stream.write_all((head + &body).as_bytes()).expect("sent");
        let mut reply = String::new();
        stream.read_to_string(&mut reply).expect("an answer");
        let (head, body) = reply.split_once("\r\n\r\n").expect("a head");
        (head.split(' ').nth(1).and_then(|s| s.parse().ok()).expect("a status"), body.to_owned())
    }

    /// Sends a signal and waits for the exit code.
    fn end(mut self, signal: &str) -> Option<i32> {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().expect("kill").success());
        let code = self.child.wait().expect("it ends").code();
        self.log = None;
        code
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_model_answers_over_http_and_the_server_ends_by_a_signal() {
    let folder = tempfile::tempdir().expect("a folder");
    let template = folder.path().join("template.jinja");
    fs::write(&template, "{% for m in messages %}{{ m.content }}{% endfor %}").expect("written");
    let template = template.to_str().expect("UTF-8");
    let server = Server::start(&["--template", template, "--alias", "story", "--temp", "0"]);
    let ask = |message: &str, more: Value| {
        let mut body =
            json!({"model": "story", "messages": [{"role": "user", "content": message}], "max_tokens": 12});
        body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        server.post("/v1/chat/completions", "", &body)
    };
    let (status, body) = ask("Once upon a time", json!({}));
    assert_eq!(status, 200, "{body}");
    let answer: Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(
        answer["choices"][0]["message"]["content"],
        ", a cheerful boy named Tom lived on a quiet farm."
    );
    // The second one finds the beginning in the cache.
    let (_, body) = ask("Once upon a time, a cheerful boy", json!({}));
    let answer: Value = serde_json::from_str(&body).expect("JSON");
    assert!(answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64() >= Some(7), "{body}");
    assert!(body.contains(" named Tom lived on a quiet farm."), "{body}");
    // Penalties on the engine of the device.
    let (_, body) = ask("Once upon a time", json!({"logit_bias": {"259": -100}}));
    assert!(!body.contains(", a cheerful"), "{body}");
    assert_eq!(server.end("-TERM"), Some(0));
}

#[test]
fn requests_at_the_same_time_get_the_answers_that_they_get_one_after_the_other() {
    let bodies: Vec<Value> = ["Once upon a time", "The little fox", "One morning", "Tom had a"]
        .into_iter()
        .zip(5..)
        .map(|(prompt, seed)| json!({"prompt": prompt, "max_tokens": 10, "seed": seed, "temperature": 1}))
        .collect();
    let text = |server: &Server, body: &Value| {
        let (status, answer) = server.post("/v1/completions", "", body);
        assert_eq!(status, 200, "{answer}");
        let answer: Value = serde_json::from_str(&answer).expect("JSON");
        answer["choices"][0]["text"].as_str().expect("a text").to_owned()
    };
    let server = Server::start(&["--parallel", "4", "--ctx", "300"]);
    let alone: Vec<String> = bodies.iter().map(|body| text(&server, body)).collect();
    let beside: Vec<String> = thread::scope(|scope| {
        let threads: Vec<_> = bodies.iter().map(|body| scope.spawn(|| text(&server, body))).collect();
        threads.into_iter().map(|thread| thread.join().expect("an answer")).collect()
    });
    assert_eq!(beside, alone);
    assert_eq!(server.end("-TERM"), Some(0));
    let server = Server::start(&["--parallel", "1", "--temp", "0"]);
    let first = text(&server, &json!({"prompt": "Once upon a time", "max_tokens": 3}));
    assert_eq!(first, ", a cheerful");
    assert_eq!(server.end("-TERM"), Some(0));
}

/// Every architecture is served, several requests at once, and its texts are the same with proposals and with
/// slices of prompts between them.
#[test]
fn every_architecture_is_served() {
    let folder = tempfile::tempdir().expect("a folder");
    let shapes: Vec<&str> = SHAPES.iter().filter(|shape| shape.starts_with("tiny-")).copied().collect();
    for shape in sample("architectures that are served", shapes, 2) {
        let file = folder.path().join(format!("{shape}.gguf"));
        let synthesis: Synthesis = format!("{shape}:q8_0").parse().expect("a shape");
        synthesis.write_file(3, &file, &mut |_, _| ()).expect("a file");
        let file = file.to_str().expect("UTF-8");
        let prompt = |seed: u64| (0..30 + 25 * seed).map(|i| (i * 37 + seed) % 1000).collect::<Vec<_>>();
        let body =
            |seed: u64| json!({"prompt": prompt(seed), "max_tokens": 6, "seed": seed, "temperature": 1});
        let run = |args: &[&str]| -> Vec<Value> {
            let server = Server::start(&[&["-m", file, "--parallel", "4", "--ctx", "200"], args].concat());
            let answer = |seed| {
                let (status, answer) = server.post("/v1/completions", "", &body(seed));
                assert_eq!(status, 200, "{shape}: {answer}");
                serde_json::from_str::<Value>(&answer).expect("JSON")["choices"][0].clone()
            };
            let answers = thread::scope(|scope| {
                let threads: Vec<_> = (1..4).map(|seed| scope.spawn(move || answer(seed))).collect();
                threads.into_iter().map(|thread| thread.join().expect("an answer")).collect()
            });
            assert_eq!(server.end("-TERM"), Some(0));
            answers
        };
        let texts = run(&[]);
        assert_eq!(run(&["--lookup", "--latency-ms", "1"]), texts, "{shape}");
        assert_eq!(run(&["--draft", file, "--draft-always"]), texts, "{shape}");
    }
}

#[test]
fn a_key_from_a_file_is_asked_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let key = folder.path().join("key");
    fs::write(&key, "secret\n").expect("written");
    let server = Server::start(&["--api-key-file", key.to_str().expect("UTF-8"), "-n", "2"]);
    let body = json!({"prompt": "Once"});
    assert_eq!(server.post("/v1/completions", "", &body).0, 401);
    let (status, answer) = server.post("/v1/completions", "Authorization: Bearer secret\r\n", &body);
    assert!(status == 200 && answer.contains("\"completion_tokens\":2"), "{answer}");
    assert_eq!(server.end("-INT"), Some(0));
}

/// Connections that say nothing, half a head, half a body, and that read nothing of an answer.
#[test]
fn idle_clients_keep_nobody_out_and_hold_no_end_back() {
    let server = Server::start(&["--host", "localhost", "--allow-host", "box.lan", "--parallel", "2"]);
    let connect = |text: &str| {
        let mut stream = TcpStream::connect(&server.address).expect("connected");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
        stream.write_all(text.as_bytes()).expect("sent");
        stream
    };
    let post = "POST /v1/completions HTTP/1.1\r\nHost: box.lan\r\nContent-Type: application/json\r\n";
    let body = json!({"prompt": "Once", "max_tokens": 4000, "stream": true, "ignore_eos": true}).to_string();
    let whole = format!("{post}Content-Length: {}\r\n\r\n{body}", body.len());
    let texts = [whole.as_str(), &whole[..whole.len() - 9], "GET / HTTP/1.1\r\nHost: lo", ""];
    let held: Vec<TcpStream> = (0..300).map(|n| connect(texts[if n < 4 { n } else { 3 }])).collect();
    let mut reply = String::new();
    connect("GET /health HTTP/1.0\r\nHost: box.lan\r\n\r\n").read_to_string(&mut reply).expect("an answer");
    assert!(reply.starts_with("HTTP/1.0 200"), "{reply}");
    let begin = Instant::now();
    assert_eq!(server.end("-TERM"), Some(0));
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    drop(held);
}

#[test]
fn what_cannot_be_served_is_said_at_once() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port().to_string();
    let ends = |args: &[&str], with: i32, words: &str| {
        let output = program().args(args).output().expect("the program starts");
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(with), "{err}");
        assert!(err.contains(words), "{err}");
    };
    let fails = |args: &[&str], words: &str| ends(args, 1, words);
    fails(&["--port", &port], "cannot listen on 127.0.0.1");
    fails(&["--port", "0", "--template", "/nonexistent"], "cannot use the template");
    ends(&["--port", "0", "--api-key", ""], 2, "the key is empty");
    let both = ["--port", "0", "--parallel", "2", "--engine", "batch"];
    ends(&both, 2, "--engine is for --parallel 1, not 2");
    let alone = ["--port", "0", "--parallel", "1", "--latency-ms", "20"];
    ends(&alone, 2, "--latency-ms is for several requests at a time");
    ends(&["--port", "0", "--latency-ms", "0"], 2, "latency-ms");
    let draft = ["--port", "0", "--draft", "Cargo.toml", "--latency-ms", "20"];
    ends(&draft, 2, "--draft processes one without --parallel");
    // Found when the engine is set up, with a listening port.
    fails(
        &["--port", "0", "--engine", "stream", "--kv", "q8_0", "-m", "/nonexistent.gguf"],
        "cannot use the model",
    );
}
