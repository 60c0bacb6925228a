//! Sessions as their users have them, on the software device with the embedded model.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use crate::program::run;

/// Joins all messages.
const PLAIN: &str = "{% for m in messages %}{{ m.content }}{% endfor %}";

/// A path below `folder` as text.
fn below(folder: &Path, name: &str) -> String {
    folder.join(name).to_str().expect("UTF-8").to_owned()
}

#[test]
fn a_text_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = below(folder.path(), "story.session");
    let sim = ["run"];
    let with = |more: &[&str]| run(&[&sim[..], more].concat(), "");
    let (_, whole, _) = with(&["-n", "16"]);
    let (code, first, err) = with(&["-n", "8", "--session", &file]);
    assert_eq!(code, 0, "{err}");
    assert_eq!(fs::metadata(&file).expect("it is there").permissions().mode() & 0o777, 0o600);
    // Without a prompt the text of the session goes on.
    let (code, second, err) = with(&["-n", "8", "--session", &file]);
    assert_eq!(code, 0, "{err}");
    assert!(whole.starts_with(first.trim_end()) && second == whole, "{first} {second} {whole}");
    assert!(err.contains("12 of the session"), "{err}");
    // The same prompt again: what both begin with is kept.
    let (code, again, err) = with(&["-p", "Once upon a time, in", "-n", "3", "--session", &file]);
    assert_eq!(code, 0, "{err}");
    assert_eq!(again, with(&["-p", "Once upon a time, in", "-n", "3"]).1);
    assert!(err.contains("from there on the prompt is another"), "{err}");
    let (code, about, err) = run(&["info", &file], "");
    assert_eq!(code, 0, "{err}");
    assert!(about.contains("a text") && about.contains("checksums   good"), "{about}");
}

/// A saved text is no part of the text that a grammar constrains.
#[test]
fn a_text_goes_on_by_a_grammar() {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, grammar) = (below(folder.path(), "story.session"), below(folder.path(), "animals.lark"));
    fs::write(&grammar, "start: \" fox\" | \" dragonfly\"\n").expect("written");
    let sim = ["run", "--session", &file];
    let (code, first, err) = run(&[&sim[..], &["-n", "8"]].concat(), "");
    assert_eq!(code, 0, "{err}");
    let (code, whole, err) = run(&[&sim[..], &["-n", "20", "--grammar", &grammar]].concat(), "");
    assert_eq!(code, 0, "{err}");
    let first = first.trim_end_matches('\n');
    let wanted = [" fox", " dragonfly"].map(|animal| format!("{first}{animal}\n"));
    assert!(wanted.contains(&whole), "{first} {whole}");
    assert!(err.contains("of the session"), "{err}");
}

#[test]
fn a_session_that_does_not_suit_is_an_error_and_stays() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = below(folder.path(), "story.session");
    let sim = ["run", "-n", "3", "--session", &file];
    assert_eq!(run(&sim, "").0, 0);
    let saved = fs::read(&file).expect("it is there");
    let tiny = below(folder.path(), "tiny.gguf");
    assert_eq!(run(&["synthesize", "tiny-llama:q6_k", &tiny], "").0, 0);
    for (more, words) in [
        (&["--kv", "q8_0"][..], "a cache in f16, here it is q8_0"),
        (&["-m", &tiny], "the model \"stories\" of hash"),
    ] {
        let (code, out, err) = run(&[&sim[..], more].concat(), "");
        assert_eq!((code, out.as_str()), (1, ""), "{err}");
        assert!(err.contains(words) && err.contains("story.session"), "{err}");
        assert_eq!(fs::read(&file).expect("it is there"), saved, "it was changed");
    }
    let (code, out, _) = run(&["info", &file, "-m", &tiny], "");
    assert!(code == 1 && out.contains("it is another model"), "{out}");
    let (code, out, err) = run(&["chat", "--session", &file], "x\n");
    assert!(code == 1 && out.is_empty() && err.contains("llm-demo run --session"), "{err}");
    // One bit of the keys.
    let mut damaged = saved.clone();
    let at = damaged.len() - 100;
    damaged[at] ^= 1;
    fs::write(&file, &damaged).expect("written");
    for args in [&sim[..], &["info", &file]] {
        let (code, _, err) = run(args, "");
        assert!(code == 1 && err.contains("the session is damaged"), "{err}");
    }
    assert_eq!(fs::read(&file).expect("it is there"), damaged);
    let (code, _, err) = run(&["run", "--session", &tiny], "");
    assert!(code == 1 && err.contains("not a session"), "{err}");
    let nowhere = below(folder.path(), "no/such/file");
    let (code, out, err) = run(&["run", "--session", &nowhere], "");
    assert!(code == 1 && out.is_empty() && err.contains("no/such/file") && !err.contains("at path"), "{err}");
    fs::write(&file, "").expect("written");
    let (code, _, err) = run(&sim, "");
    assert!(code == 1 && err.contains("not a session: it is empty"), "{err}");
    let (code, _, err) = run(&["run", "-m", &file], "");
    assert!(code == 1 && err.contains("not a GGUF file: it is empty"), "{err}");
    let (code, _, err) = run(&["run", "--session", "/dev/null"], "");
    assert!(code == 1 && err.contains("not a regular file"), "{err}");
}

#[test]
fn a_conversation_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let template = below(folder.path(), "story.jinja");
    fs::write(&template, PLAIN).expect("written");
    let base = ["chat", "--template", &template, "-n", "12"];
    let chat = |more: &[&str], input: &str| run(&[&base[..], more].concat(), input);
    let file = below(folder.path(), "talk.session");
    let (_, whole, _) = chat(&[], "Once upon a time\n The morning was\n Then\n");
    let session = ["--session", &file];
    let (code, first, err) = chat(&session, "Once upon a time\n The morning was\n");
    assert_eq!(code, 0, "{err}");
    let (code, then, err) = chat(&session, " Then\n");
    assert_eq!((code, first + &then), (0, whole), "{err}");
    assert!(err.contains("4 messages") && !err.contains("tokens were kept"), "{err}");
    let (_, about, _) = run(&["info", &file], "");
    assert!(about.contains("a conversation of 6 messages"), "{about}");

    let (code, out, err) = run(&["run", "--session", &file], "");
    assert!(code == 1 && out.is_empty() && err.contains("llm-demo chat --session"), "{err}");
    let (code, _, err) = chat(&["--session", &file, "--system", "Be brief."], "x\n");
    assert!(code == 1 && err.contains("another system message"), "{err}");
    // More positions than a context of 64.
    assert_eq!(chat(&session, " And so\n In the end\n").0, 0);
    let (code, _, err) = chat(&["--session", &file, "--ctx", "64"], "x\n");
    assert!(code == 1 && err.contains("a larger context has room"), "{err}");
    let (code, _, err) = run(&["--session", &file, "chat"], "x\n");
    assert!(code == 2 && err.contains("options follow the subcommand"), "{err}");
    // Another template: what both begin with is kept.
    fs::write(&template, "{% for m in messages %}{{ m.content }} {% endfor %}").expect("written");
    let (code, _, err) = chat(&session, "and so\n");
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("from there on the template writes others"), "{err}");
    let (code, _, err) = chat(&session, "/new\nOnce upon\n");
    assert!(code == 0 && !err.contains("the template writes others"), "{err}");
}

#[test]
fn what_there_is_after_ctrl_c_is_saved() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = below(folder.path(), "story.session");
    let sim = ["run", "--session", &file];
    let mut child = std::process::Command::new(assert_cmd::cargo::cargo_bin!("llm-demo"));
    child.env("HCQ_DEVICE", "sim").args(sim).args(["-n", "400"]);
    let mut child = child.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
    let mut out = child.stdout.take().expect("a pipe");
    let mut byte = [0; 30];
    // After some of the text.
    std::io::Read::read_exact(&mut out, &mut byte).expect("a text");
    let id = i32::try_from(child.id()).expect("small").to_string();
    assert!(std::process::Command::new("kill").args(["-INT", &id]).status().expect("kill").success());
    let reader = thread::spawn(move || std::io::read_to_string(out).expect("UTF-8"));
    let begin = Instant::now();
    let status = loop {
        match child.try_wait().expect("it can be asked") {
            Some(status) => break status,
            None if begin.elapsed() > Duration::from_secs(60) => {
                child.kill().expect("killed");
                panic!("Ctrl-C did not end it");
            }
            None => thread::sleep(Duration::from_millis(20)),
        }
    };
    assert_eq!(status.code(), Some(130));
    let printed = String::from_utf8(byte.to_vec()).expect("UTF-8") + &reader.join().expect("read");
    let (code, text, err) = run(&[&sim[..], &["-n", "1"]].concat(), "");
    assert_eq!(code, 0, "{err}");
    assert!(
        text.starts_with(printed.trim_end()) && text.len() > printed.trim_end().len(),
        "{printed} {text}"
    );
}
