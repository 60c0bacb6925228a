//! Numbers and inputs past a limit: refused or said, never changed in silence.

use std::fs;

use ga10b_llm::synthesize::{MIXES, SHAPES};

use crate::program::run;

#[test]
fn a_number_that_cannot_be_says_what_can() {
    for (args, words) in [
        (&["run", "-n", "-1"][..], "a whole number from 1 to"),
        (&["-n", "0"], "a whole number from 1 to"),
        (&["serve", "--ctx", "-1"], "a whole number from 1 to"),
        (&["chat", "--ctx", "-1"], "-1 is not in 64.."),
        (&["run", "--temp", "-1"], "a number that is 0 or more"),
        (&["--temp", "-1"], "a number that is 0 or more"),
        (&["run", "--top-k", "-1"], "a whole number from 0 to"),
        (&["run", "--top-p", "-1"], "a number from 0 to 1"),
        (&["run", "--seed", "-1"], "a whole number from 0 to 18446744073709551615"),
        (&["bench", "-p", "-1"], "a whole number from 0 to"),
        (&["bench", "-n", "3,-1"], "a whole number from 0 to"),
        (&["bench", "-b", "33"], "a whole number from 1 to 32"),
        (&["profile", "--pp", "0"], "a whole number from 1 to"),
        (&["predict", "--orin", "ipc=1e300"], "from 1e-6 to 1000000000.0, not 1e300"),
        (&["serve", "--port", "-1"], "-1 is not in 0..=65535"),
        (&["tune", "--budget", "-1"], "invalid value '-1' for '--budget"),
        (&["logits", "x", "--tokens", "-1"], "invalid value '-1' for '--tokens"),
        (&["--lookup", "--draft-max", "-1"], "-1 is not in 1..=31"),
        (&["bench", "-p", "0", "-n", "0"], "nothing to measure: -p and -n are all 0"),
        (&["bench", "-b", "1", "-p", "0"], "a prompt of at least 1 token"),
        (&["info", "x", "-m", "y"], "FILE and -m both name a model"),
    ] {
        let (code, out, err) = run(args, "");
        assert_eq!((code, out.as_str()), (2, ""), "{args:?}: {err}");
        assert!(err.contains(words), "{args:?}: {err}");
    }
}

#[test]
fn more_than_the_context_is_refused_and_all_of_it_is_not() {
    for (args, words) in [
        (&["info", "--ctx", "99999999"][..], "--ctx 99999999 is more than the model's context of 1024"),
        (&["chat", "--ctx", "1025"], "--ctx 1025 is more"),
        (&["serve", "--ctx", "1025", "--port", "0"], "--ctx 1025 is more"),
        (&["profile", "-n", "5000"], "-n 5000 does not fit the model's context of 1024"),
        (&["profile", "--pp", "1025"], "--pp 1025 does not fit"),
        (&["predict", "-n", "1025"], "position 1024 is past the model's context of 1024"),
        (&["bench", "-b", "1", "-p", "1000", "-n", "25"], "1025 tokens do not fit"),
        (&["profile", "-b", "1", "--pp", "1024"], "1025 tokens do not fit"),
    ] {
        let (code, _, err) = run(args, "");
        assert_eq!(code, 1, "{args:?}: {err}");
        assert!(err.contains(words), "{args:?}: {err}");
    }
    for args in [&["bench", "-b", "1", "-p", "1022", "-n", "2", "-r", "1"][..], &["info", "--ctx", "1024"]] {
        let (code, _, err) = run(args, "");
        assert_eq!(code, 0, "{args:?}: {err}");
    }
}

#[test]
fn verify_says_how_much_of_the_prompt_it_compares() {
    let (code, out, err) = run(&["verify", "-n", "2", "-p", "Once upon a time"], "");
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("its first 2 of 5 tokens: -n 5 compares all of them"), "{out}");
    let (_, out, _) = run(&["verify", "-n", "5", "-p", "Once upon a time"], "");
    assert!(!out.contains("its first"), "{out}");
}

#[test]
fn a_prompt_that_is_not_there_is_no_empty_one() {
    // The result of a closed standard input.
    let (code, out, err) = run(&["run", "-f", "-", "-n", "3"], "");
    assert_eq!((code, out.as_str()), (1, ""), "{err}");
    assert!(err.contains("cannot read the prompt from -: it is empty"), "{err}");
    let (code, out, err) = run(&["run", "-p", "", "-n", "3"], "");
    assert_eq!(code, 0, "{err}");
    assert!(!out.trim().is_empty(), "{out}");
}

#[test]
fn a_template_that_fails_is_named_and_ends_the_program_with_1() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("mine.jinja");
    let source =
        "{% if messages[-1].content == 'no' %}{{ raise_exception('not that') }}{% endif %}Once upon a time";
    fs::write(&path, source).expect("written");
    let path = path.to_str().expect("UTF-8");
    let chat = ["chat", "-n", "3", "--template", path];
    let (code, out, err) = run(&chat, "no\nyes\n");
    assert_eq!((code, out.as_str()), (1, ", a cheerful\n"), "{err}");
    assert!(err.contains("not that") && err.contains(&format!("(--template {path})")), "{err}");
    assert!(!err.contains("the model's template"), "{err}");
    assert_eq!(run(&chat, "yes\n").0, 0);
}

#[test]
fn the_manual_lists_all_shapes_and_quants() {
    let manual = include_str!("../../../docs/llm-demo.md");
    let (_, list) = manual.split_once("Synthesized models have random weights").expect("there");
    let (list, _) = list.split_once("\n\n").expect("a paragraph");
    for name in SHAPES.iter().chain(&MIXES) {
        assert!(list.contains(&format!("`{name}`")), "{name}");
    }
}
