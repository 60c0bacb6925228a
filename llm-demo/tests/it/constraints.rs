//! Texts by a schema or a grammar, as their users ask for them.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::program::run;

fn written(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    fs::write(&path, text).expect("written");
    path.to_str().expect("UTF-8").to_owned()
}

#[test]
fn a_text_is_json_that_its_schema_accepts() {
    let folder = tempfile::tempdir().expect("a folder");
    let schema = json!({
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 8}, "fox": {"type": "boolean"}},
        "required": ["name", "fox"],
        "additionalProperties": false,
    });
    let schema = written(folder.path(), "schema.json", &schema.to_string());
    // The GPU's engine too, which chooses tokens itself otherwise.
    for engine in ["batch", "stream"] {
        let args =
            ["run", "-p", "", "-n", "60", "--temp", "1.5", "--engine", engine, "--json-schema", &schema];
        let (code, out, err) = run(&args, "");
        assert_eq!(code, 0, "{err}");
        let value: Value = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"));
        assert!(value["name"].as_str().is_some_and(|name| name.chars().count() <= 8), "{out}");
        assert!(
            value["fox"].is_boolean() && value.as_object().is_some_and(|fields| fields.len() == 2),
            "{out}"
        );
        assert!(!err.contains("stopped after"), "{err}");
    }
    let cut = ["run", "-p", "", "-n", "2", "--json-schema", &schema];
    assert!(run(&cut, "").2.contains("stopped after 2 tokens"));
}

#[test]
fn each_answer_of_a_conversation_is_of_the_grammar() {
    let folder = tempfile::tempdir().expect("a folder");
    let grammar = written(folder.path(), "grammar.lark", "start: (\"yes\" | \"no\") \", \" /[a-z]{3}/\n");
    let plain = "{% for m in messages %}{{ m.content }}{% endfor %}";
    let template = written(folder.path(), "template.jinja", plain);
    let args = ["chat", "--template", &template, "--grammar", &grammar];
    let (code, out, err) = run(&args, "Is it a fox?\nIs it a boy?\n");
    assert_eq!(code, 0, "{err}");
    let good = |line: &str| {
        let rest = line.strip_prefix("yes, ").or_else(|| line.strip_prefix("no, "));
        rest.is_some_and(|word| word.len() == 3 && word.bytes().all(|b| b.is_ascii_lowercase()))
    };
    assert!(out.lines().count() == 2 && out.lines().all(good), "{out}");
}

#[test]
fn what_cannot_be_a_grammar_is_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let wrong = written(folder.path(), "wrong.json", "{\"properties\": {\"a\": {\"type\": \"thing\"}}}");
    let broken = written(folder.path(), "broken.json", "{");
    for (option, path, words) in [
        ("--json-schema", wrong.as_str(), "#/properties/a: "),
        ("--json-schema", &broken, "EOF"),
        ("--json-schema", "/nonexistent", "cannot read /nonexistent"),
        ("--grammar", &broken, "cannot use"),
    ] {
        let (code, out, err) = run(&["run", option, path], "");
        assert_eq!((code, out.as_str()), (1, ""), "{err}");
        assert!(err.contains(words) && err.contains(path), "{err}");
    }
    for args in [
        &["run", "--json-schema", "a", "--grammar", "b"][..],
        &["bench", "--json-schema", "a"],
        &["--grammar", "a", "run"],
        &["serve", "--grammar", "a"],
    ] {
        assert_eq!(run(args, "").0, 2, "{args:?}");
    }
}
