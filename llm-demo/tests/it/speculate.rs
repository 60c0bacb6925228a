//! Speculative decoding as its users start it, on the software device.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command as Process, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::program::run;

/// A file of the embedded model.
fn stories(folder: &Path) -> String {
    let path = folder.join("stories.gguf");
    fs::write(&path, ga10b_llm::embedded::STORIES).expect("written");
    path.to_str().expect("UTF-8").to_owned()
}

const STORY: &str = "Once upon a time, a cheerful boy named Tom lived on a quiet farm.\n";

/// The number before `words` in a text.
fn number_before(text: &str, words: &str) -> usize {
    let before = text.split(words).next().filter(|before| before.len() < text.len());
    let last = before.and_then(|before| before.split(|c: char| !c.is_ascii_digit()).next_back());
    last.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("no number before {words}: {text}"))
}

#[test]
fn a_draft_gives_the_same_text_in_fewer_steps() {
    let folder = tempfile::tempdir().expect("a folder");
    let draft = stories(folder.path());
    let (code, out, err) =
        run(&["run", "-n", "12", "--draft", &draft, "--draft-max", "3", "--draft-always"], "");
    assert_eq!((code, out.as_str()), (0, STORY), "{err}");
    assert_eq!(number_before(&err, " tokens in "), 11, "{err}");
    assert_eq!(number_before(&err, " steps, "), 3, "{err}");
    let (code, out, err) = run(&["-n", "12", "--lookup"], "");
    assert_eq!((code, out.as_str()), (0, STORY), "{err}");
    assert!(err.contains("proposed tokens accepted"), "{err}");
    // A seed chooses the same tokens with both drafts.
    let warm = ["run", "-n", "12", "--temp", "0.9", "--seed", "3", "--repeat-penalty", "1.1"];
    let texts = [&["--lookup"][..], &["--draft", &draft]]
        .map(|draft| run(&[&warm[..], draft].concat(), ""))
        .map(|(code, out, err)| (code, out, err.contains("proposed tokens accepted")));
    assert_eq!(texts[0], texts[1]);
    assert!(texts[0].0 == 0 && texts[0].2 && texts[0].1 != STORY, "{texts:?}");
}

/// An architecture without the persistent step.
#[test]
fn mixtures_of_experts_take_drafts() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = folder.path().join("olmoe.gguf");
    let model = model.to_str().expect("UTF-8");
    assert_eq!(run(&["synthesize", "tiny-olmoe:q8_0", model], "").0, 0);
    let same = ["run", "-m", model, "-n", "6", "-p", "ab ab ab", "--temp", "0"];
    let [alone, drafted] =
        [&[][..], &["--lookup", "--draft-always"]].map(|draft| run(&[&same, draft].concat(), ""));
    assert_eq!((drafted.0, &drafted.1), (0, &alone.1), "{}", drafted.2);
    assert!(drafted.2.contains("proposed tokens accepted"), "{}", drafted.2);
}

#[test]
fn what_a_draft_gains_is_measured() {
    let folder = tempfile::tempdir().expect("a folder");
    // A text of one token again and again.
    let args = ["speculate", "--lookup", "--draft-max", "5", "-p", "Once", "--logit-bias", "626=100"];
    let bench = [&args[..], &["-n", "12", "-r", "1"]].concat();
    let (code, out, err) = run(&[&bench[..], &["--json"]].concat(), "");
    assert_eq!(code, 0, "{err}");
    let report: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(report["schema"], "llm-demo.speculation/1");
    assert_eq!((&report["same_text"], &report["draft_max"]), (&json!(true), &json!(5)));
    assert!(report["speedup"].as_f64() > Some(0.0) && report["speedup_over_engine"].as_f64() > Some(0.0));
    let rows = report["results"].as_array().expect("rows");
    let tests: Vec<&str> = rows.iter().filter_map(|row| row["test"].as_str()).collect();
    assert_eq!(tests, ["engine, batch", "columns", "columns, lookup"]);
    assert!(rows[0]["steps"].is_null());
    let number = |row: usize, field: &str| rows[row][field].as_u64().expect("a number");
    assert_eq!((number(1, "steps"), number(1, "proposed")), (11, 0));
    assert_eq!(number(2, "steps") + number(2, "accepted"), 11);
    assert!(number(2, "proposed") >= number(2, "accepted") && number(2, "accepted") > 0, "{out}");

    let draft = stories(folder.path());
    // The text does not depend on what is fastest.
    let (code, out, err) = run(&[&bench[..], &["--json", "--draft-always"]].concat(), "");
    assert_eq!(code, 0, "{err}");
    let report: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((&report["adaptive"], &report["results"][2]["steps"]), (&json!(false), &json!(2)), "{out}");
    let (code, out, err) = run(&["speculate", "--draft", &draft, "-n", "6", "-r", "1"], "");
    assert_eq!(code, 0, "{err}");
    for words in [
        "draft       a model, up to 7 tokens, as many as pay",
        "columns, draft",
        "speed-up ",
        "the same with the draft",
    ] {
        assert!(out.contains(words), "{words}: {out}");
    }
}

#[test]
fn a_conversation_goes_on_with_a_draft() {
    let folder = tempfile::tempdir().expect("a folder");
    let template = folder.path().join("template.jinja");
    fs::write(&template, "{% for m in messages %}{{ m.content }}{% endfor %}").expect("written");
    let template = template.to_str().expect("UTF-8");
    let input = "Once upon a time\n The morning was\n/retry\n";
    let (code, out, err) = run(&["chat", "--template", template, "-n", "12", "--lookup"], input);
    assert_eq!(code, 0, "{err}");
    let answers: Vec<&str> = out.lines().collect();
    assert_eq!(answers[0], ", a cheerful boy named Tom lived on a quiet farm.");
    assert!(answers[1].starts_with(" cold and bright."), "{out}");
    assert_eq!((answers.len(), answers[2]), (3, answers[1]), "{out}");
    assert!(number_before(&err, " tokens in ") >= 30, "{err}");
}

#[test]
fn what_cannot_be_a_draft_is_refused_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    let (llama, gpt2) = (path("llama.gguf"), path("gpt2.gguf"));
    for (spec, path) in [("tiny-llama:q4_0", &llama), ("tiny-gpt2:q8_0", &gpt2)] {
        assert_eq!(run(&["synthesize", spec, path], "").0, 0);
    }
    for (args, words) in [
        (&["run", "--draft", &llama][..], &["llama.gguf", "another vocabulary", "its token "][..]),
        (&["run", "--draft", "/nonexistent.gguf"], &["cannot use the draft model /nonexistent.gguf"]),
    ] {
        let (code, out, err) = run(args, "");
        assert_eq!((code, out.as_str()), (1, ""), "{args:?}: {err}");
        assert!(words.iter().all(|words| err.contains(words)), "{args:?}: {err}");
    }
    let (code, _, err) = run(&["serve", "--draft", &llama, "--parallel", "2", "--port", "0"], "");
    assert!(code == 1 && err.contains("another vocabulary"), "{err}");
    let file = path("story.session");
    for args in [
        &["run", "--session", &file, "--lookup"][..],
        &["--session", &file, "--draft", &llama],
        &["chat", "--session", &file, "--lookup"],
    ] {
        let (code, out, err) = run(args, "");
        assert_eq!((code, out.as_str()), (2, ""), "{args:?}: {err}");
        assert!(err.contains("cannot be used with"), "{args:?}: {err}");
    }
    assert!(!folder.path().join("story.session").exists());
    // The draft may be of another architecture.
    let (code, _, err) = run(&["run", "-m", &llama, "--draft", &gpt2, "-n", "4", "-p", "the"], "");
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("proposed tokens accepted"), "{err}");
}

/// A server that is killed with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_server_answers_with_a_draft() {
    let mut command = Process::new(assert_cmd::cargo::cargo_bin!("llm-demo"));
    command.env_remove("HCQ_DEVICE").env_remove("RUST_LOG").env_remove("LLM_DEMO_API_KEY");
    command.args(["serve", "--device", "sim", "--port", "0", "--lookup", "--temp", "0"]);
    let mut server = Server(command.stderr(Stdio::piped()).spawn().expect("the program starts"));
    let mut log = BufReader::new(server.0.stderr.take().expect("a pipe"));
    let mut line = String::new();
    let address = loop {
        line.clear();
        assert!(log.read_line(&mut line).expect("text") > 0, "the server ended");
        if let Some((_, address)) = line.split_once("listening on http://") {
            break address.trim().to_owned();
        }
    };
    let ask = |body: Value| -> Value {
        let body = body.to_string();
        let mut stream = TcpStream::connect(&address).expect("connected");
        stream.set_read_timeout(Some(Duration::from_secs(120))).expect("set");
        let head = format!(
            "POST /v1/completions HTTP/1.0\r\nHost: {address}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all((head + &body).as_bytes()).expect("sent");
        let mut reply = String::new();
        stream.read_to_string(&mut reply).expect("an answer");
        let (_, body) = reply.split_once("\r\n\r\n").expect("a head");
        serde_json::from_str(body).expect("JSON")
    };
    let story = "Once upon a time, a cheerful boy named Tom lived on a quiet farm.";
    let plain = ask(json!({ "prompt": "Once upon a time", "max_tokens": 12 }));
    assert_eq!(plain["choices"][0]["text"], &story["Once upon a time".len()..], "{plain}");
    let again =
        json!({ "prompt": format!("{story} Once upon a time"), "max_tokens": 12, "stop": [" quiet"] });
    let (first, second) = (ask(again.clone()), ask(again));
    assert_eq!(first["choices"], second["choices"]);
    assert!(second["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64() > Some(10), "{second}");
}
