//! Schemas and the values that they accept by JSON Schema, draft 2020-12: the official suite, and cases of our own.
//!
//! A value is a text here in the order of fields that the schema names them in, or in another one; whole numbers
//! have no fraction.

use std::path::Path;
use std::{env, fs};

use serde_json::{Map, Value, json};

use super::tests::{accepts_text, words};
use super::{Grammar, wording};

/// Fields of an object in all orders, up to so many.
const MOST_FIELDS: usize = 4;

/// A schema's verdicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// It is as JSON Schema says.
    Supported,
    /// Not compiled, with a reason.
    Refused,
    /// Values that are valid are not accepted; none that is not valid is.
    Narrower,
    /// Values that are not valid are accepted.
    Wrong,
}

/// The verdict on a schema of which values are valid or not, and why.
fn judge(schema: &Value, tests: &[(Value, bool)]) -> (Verdict, String) {
    let mut constraint = match words().1.compile(&Grammar::Schema(schema.clone())) {
        Ok(constraint) => constraint,
        Err(message) => return (Verdict::Refused, message),
    };
    let mut verdict = (Verdict::Supported, String::new());
    for (value, is_valid) in tests {
        let accepted = texts(schema, value).into_iter().find(|text| accepts_text(&mut constraint, text));
        match (accepted, is_valid) {
            (Some(text), false) => return (Verdict::Wrong, format!("accepts {text}")),
            (None, true) => verdict = (Verdict::Narrower, format!("does not accept {value}")),
            _ => {}
        }
    }
    verdict
}

/// The texts of a value.
fn texts(schema: &Value, value: &Value) -> Vec<String> {
    let mut names = Vec::new();
    named(schema, &mut names);
    let mut value = value.clone();
    wording::whole(&mut value);
    let ordered = in_order(&value, &names);
    let mut all = vec![ordered.to_string(), value.to_string()];
    if let Value::Object(fields) = &ordered
        && (2..=MOST_FIELDS).contains(&fields.len())
    {
        let fields: Vec<(&String, &Value)> = fields.iter().collect();
        let orders = orders(fields.len()).into_iter().map(|order| {
            let fields = order.into_iter().map(|at| (fields[at].0.clone(), fields[at].1.clone()));
            Value::Object(fields.collect::<Map<_, _>>()).to_string()
        });
        all.extend(orders);
    }
    all.dedup();
    all
}

/// The fields that a schema names, in its order.
fn named(schema: &Value, names: &mut Vec<String>) {
    match schema {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::Object(all) if name == "properties" => names.extend(all.keys().cloned()),
                    Value::Array(all) if name == "required" => {
                        names.extend(all.iter().filter_map(Value::as_str).map(str::to_owned));
                    }
                    _ => {}
                }
                named(value, names);
            }
        }
        Value::Array(list) => list.iter().for_each(|value| named(value, names)),
        _ => {}
    }
}

fn in_order(value: &Value, names: &[String]) -> Value {
    match value {
        Value::Array(list) => list.iter().map(|value| in_order(value, names)).collect(),
        Value::Object(fields) => {
            let mut fields: Vec<_> =
                fields.iter().map(|(name, v)| (name.clone(), in_order(v, names))).collect();
            fields.sort_by_key(|(name, _)| names.iter().position(|n| n == name).unwrap_or(names.len()));
            Value::Object(fields.into_iter().collect())
        }
        other => other.clone(),
    }
}

/// All orders of so many.
fn orders(count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let shorter = orders(count - 1);
    let with = |order: &Vec<usize>, at: usize| {
        let mut order = order.clone();
        order.insert(at, count - 1);
        order
    };
    shorter.iter().flat_map(|order| (0..count).map(move |at| with(order, at))).collect()
}

/// A description, a schema, and instances with whether they are valid.
type Case = (String, Value, Vec<(Value, bool)>);

fn cases(file: &Path) -> Vec<Case> {
    let text = fs::read_to_string(file).expect("a file of the suite");
    let cases: Vec<Value> = serde_json::from_str(&text).expect("JSON");
    let case = |case: &Value| {
        let tests = case["tests"].as_array().expect("tests").iter();
        let tests = tests.map(|test| (test["data"].clone(), test["valid"] == json!(true))).collect();
        (case["description"].as_str().unwrap_or_default().to_owned(), case["schema"].clone(), tests)
    };
    cases.iter().map(case).collect()
}

/// Prints the table of docs/server.md: `JSON_SCHEMA_SUITE` is `tests/draft2020-12` of a clone of
/// github.com/json-schema-org/JSON-Schema-Test-Suite.
#[test]
#[ignore = "needs the official suite: JSON_SCHEMA_SUITE names its folder tests/draft2020-12"]
fn the_official_suite() {
    let folder = env::var("JSON_SCHEMA_SUITE").expect("JSON_SCHEMA_SUITE");
    let entries = fs::read_dir(folder).expect("the folder").map(|entry| entry.expect("a file").path());
    let mut files: Vec<_> = entries.filter(|path| path.extension().is_some_and(|e| e == "json")).collect();
    files.sort();
    let mut wrong = 0;
    for file in files {
        let name = file.file_stem().expect("a name").to_string_lossy();
        let mut counts = [0; 4];
        for (description, schema, tests) in cases(&file) {
            let (verdict, why) = judge(&schema, &tests);
            counts[verdict as usize] += 1;
            if verdict != Verdict::Supported {
                eprintln!("{name}: {description}: {verdict:?}: {why}");
            }
        }
        wrong += counts[Verdict::Wrong as usize];
        let [supported, refused, narrower, wrong] = counts;
        println!("| `{name}` | {supported} | {narrower} | {refused} | {wrong} |");
    }
    assert_eq!(wrong, 0);
}

#[test]
fn what_the_official_suite_showed_stays_mended() {
    for (schema, valid, invalid) in [
        (json!({"format": "no-such-format"}), json!("x"), None),
        (json!({"type": "string", "format": "regex", "maxLength": 2}), json!("^("), Some(json!("abc"))),
        (json!({"minItems": 1.0, "maxItems": 2.0}), json!([1]), Some(json!([]))),
        (json!({"const": -2.0}), json!(-2), Some(json!(2))),
        (json!({"type": "array", "uniqueItems": false}), json!([1, 1]), Some(json!({}))),
        (
            json!({"properties": {"format": {"type": "null"}}}),
            json!({"format": null}),
            Some(json!({"format": 1})),
        ),
        (json!({"items": {"$ref": "#"}, "type": "array"}), json!([[], [[]]]), Some(json!([1]))),
        (json!(true), json!({"a": 1}), None),
        (json!({"properties": {"a": true, "b": false}}), json!({"a": 1}), Some(json!({"b": 1}))),
        (
            json!({"allOf": [{"properties": {"a": {"type": "null"}}, "required": ["a"]}], "required": ["b"]}),
            json!({"a": null, "b": 1}),
            Some(json!({"b": 1})),
        ),
    ] {
        let mut tests = vec![(valid, true)];
        tests.extend(invalid.map(|value| (value, false)));
        assert_eq!(judge(&schema, &tests), (Verdict::Supported, String::new()), "{schema}");
    }
    for (schema, words) in [
        (json!(false), "false"),
        (json!({"$ref": "#"}), "#: a $ref leads back to itself"),
        (json!({"items": {"anyOf": [{"$ref": "#/items"}, {"type": "null"}]}}), "leads back to itself"),
        (
            json!({"$ref": "#/$defs/a", "$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}}),
            "leads back to itself",
        ),
        (json!({"$ref": "#/$defs/a~1b", "$defs": {"a/b": true}}), "#: a $ref with ~ or %"),
        (
            json!({"items": {"$id": "x", "$ref": "#/$defs/a"}, "$defs": {"a": true}}),
            "#/items: a $ref below a $id",
        ),
        (json!({"$schema": "https://example.com/own", "minimum": 1}), "the $schema"),
    ] {
        let (verdict, why) = judge(&schema, &[]);
        assert!(verdict == Verdict::Refused && why.contains(words), "{schema}: {why}");
    }
}
