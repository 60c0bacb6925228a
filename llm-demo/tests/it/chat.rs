//! Conversations as their users have them, on the software device.

use std::fs;
use std::path::Path;

use assert_cmd::Command;

/// Exit code, standard output and standard error of a conversation with the embedded model.
fn chat(folder: &Path, template: &str, args: &[&str], input: &str) -> (i32, String, String) {
    let path = folder.join("template.jinja");
    fs::write(&path, template).expect("writable");
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("llm-demo"));
    command.env_remove("HCQ_DEVICE").env("RUST_LOG", "llm_demo=debug");
    command.env("LLM_DEMO_TUNING", "/nonexistent/tuning.json");
    command.args(["chat", "--device", "sim", "--template"]).arg(&path).args(args);
    let output = command.write_stdin(input).output().expect("the program starts");
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
    (output.status.code().expect("it exits"), text(&output.stdout), text(&output.stderr))
}

/// All texts, one after the other.
const PLAIN: &str = "{% for m in messages %}{{ m.content }}{% endfor %}";

#[test]
fn an_answer_continues_the_text_of_the_template() {
    let folder = tempfile::tempdir().expect("a folder");
    let (code, out, err) = chat(folder.path(), PLAIN, &["-n", "12"], "Once upon a time\n");
    assert_eq!(code, 0, "{err}");
    assert_eq!(out, ", a cheerful boy named Tom lived on a quiet farm.\n");
    assert!(err.contains("stopped after 12 tokens"), "{err}");
}

#[test]
fn a_second_message_processes_only_what_is_new() {
    let folder = tempfile::tempdir().expect("a folder");
    let input = "Once upon a time\n The morning was\n";
    let (code, out, err) = chat(folder.path(), PLAIN, &["-n", "12"], input);
    assert_eq!(code, 0, "{err}");
    let answers: Vec<&str> = out.lines().collect();
    assert_eq!(answers.len(), 2, "{out}");
    assert!(answers[1].starts_with(" cold and bright."), "{out}");
    let processed: Vec<&str> = err.lines().filter(|line| line.contains("tokens processed")).collect();
    let number = |line: &str, at: usize| -> usize {
        let words: Vec<&str> = line.split_whitespace().skip_while(|w| w.parse::<usize>().is_err()).collect();
        words[at].parse().expect("a number")
    };
    assert_eq!(processed.len(), 2, "{err}");
    assert_eq!(number(processed[0], 0), number(processed[0], 2));
    // The last token of an answer was never processed.
    assert!(number(processed[1], 0) <= number(processed[1], 2) - number(processed[0], 2) - 11, "{err}");
}

#[test]
fn commands_change_the_conversation() {
    let folder = tempfile::tempdir().expect("a folder");
    let input = "/retry\nOnce upon a time\n/retry\n/undo\nOnce upon a time\n/new\nOnce upon a time\n/nothing\n/exit\nnever\n";
    let (code, out, err) = chat(folder.path(), PLAIN, &["-n", "3"], input);
    assert_eq!(code, 0, "{err}");
    assert_eq!(out, ", a cheerful\n".repeat(4), "{err}");
    for words in ["there is no answer yet", "are removed", "a new conversation", "no command /nothing"] {
        assert!(err.contains(words), "{words}: {err}");
    }
}

#[test]
fn the_oldest_messages_go_when_the_context_is_full() {
    let folder = tempfile::tempdir().expect("a folder");
    let input = "Once upon a time, in a small house\n".repeat(6);
    let (code, out, err) = chat(folder.path(), PLAIN, &["-n", "10", "--ctx", "64"], &input);
    assert_eq!((code, out.lines().count()), (0, 6), "{err}");
    assert!(err.contains("oldest messages were removed"), "{err}");
    let long = format!("{}\nOnce upon a time\n", "very ".repeat(200));
    let (code, out, err) = chat(folder.path(), PLAIN, &["-n", "3", "--ctx", "64"], &long);
    assert_eq!((code, out.as_str()), (0, ", a cheerful\n"), "{err}");
    assert!(err.contains("context"), "{err}");
}

#[test]
fn a_system_message_needs_a_template_that_takes_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let system = ["-n", "3", "--system", "Once upon"];
    let (code, out, err) = chat(folder.path(), PLAIN, &system, " a time\n");
    assert_eq!((code, out.as_str()), (0, ", a cheerful\n"), "{err}");
    let (code, _, err) = chat(folder.path(), "{{ messages[-1].content }}", &system, " a time\n");
    assert_eq!(code, 1);
    assert!(err.contains("takes no system message"), "{err}");
}

#[test]
fn what_cannot_be_used_is_said_before_the_first_message() {
    let folder = tempfile::tempdir().expect("a folder");
    let (code, _, err) = chat(folder.path(), "{% for %}", &[], "x\n");
    assert_eq!(code, 1);
    assert!(err.contains("template.jinja"), "{err}");
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("llm-demo"));
    let output = command.args(["chat", "--device", "sim"]).write_stdin("x\n").output().expect("it starts");
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(err.contains("no template of conversations") && err.contains("--template"), "{err}");
}
