//! Grammars that are refused before they are compiled: those that take too long, and those that the compiler
//! reads in another way than JSON Schema means.

use std::collections::HashSet;

use serde_json::{Map, Number, Value};

/// Lists and objects within each other in a schema.
const MOST_DEPTH: usize = 64;
/// Objects in a schema: the compiler's time grows with their square.
const MOST_OBJECTS: usize = 512;
/// Parts of all `allOf` that have several: the compiler's time grows with their cube.
const MOST_PARTS: usize = 16;
/// The largest magnitude up to which the compiler has every whole number: it computes in `f64`.
const MOST_EXACT: f64 = 9_007_199_254_740_992.0;

/// An error if a schema has too much of what takes time, or a number or a pattern that the compiler reads
/// otherwise.
pub fn check_schema(schema: &Value) -> Result<(), String> {
    let (place, done) = (vec!["#".into()], HashSet::new());
    let mut walk = Walk { root: schema, done, objects: 0, parts: 0, place, in_data: false };
    walk.add(schema)
}

/// An error if a grammar holds a schema, which would not be checked.
pub fn check_lark(text: &str) -> Result<(), String> {
    match text.contains("%json") {
        true => Err("%json is not supported: a schema by itself is".into()),
        false => Ok(()),
    }
}

/// Counts of the parts of a schema that take time.
struct Walk<'a> {
    root: &'a Value,
    /// Schemas that no `$ref` leads back to without a value between.
    done: HashSet<*const Value>,
    objects: usize,
    parts: usize,
    /// The place in the schema: a pointer's steps.
    place: Vec<String>,
    /// Whether it is within `const` or `enum`, where no field is a word of schemas.
    in_data: bool,
}

impl Walk<'_> {
    /// Adds the part of a schema that is at `place`.
    fn add(&mut self, value: &Value) -> Result<(), String> {
        if self.place.len() > MOST_DEPTH + 1 {
            return Err(format!("the schema is nested deeper than {MOST_DEPTH} levels"));
        }
        match value {
            Value::Array(list) => {
                list.iter().enumerate().try_for_each(|(at, value)| self.within(&at.to_string(), value))
            }
            Value::Object(fields) => {
                self.objects += 1;
                let parts = fields.get("allOf").and_then(Value::as_array).map_or(0, Vec::len);
                self.parts += if parts > 1 { parts } else { 0 };
                if self.objects > MOST_OBJECTS {
                    return Err(format!("the schema has more than {MOST_OBJECTS} objects"));
                }
                if self.parts > MOST_PARTS {
                    return Err(format!("the schema has more than {MOST_PARTS} parts in allOf"));
                }
                if !self.in_data {
                    self.check_names(fields)?;
                    let leads_back = leads_back(self.root, value, &mut Vec::new(), &mut self.done);
                    leads_back.map_err(|what| self.wrong(what))?;
                }
                fields.iter().try_for_each(|(name, value)| self.field(name, value))
            }
            Value::Number(number) if !is_exact(number) => Err(self.wrong(
                "numbers past 2^53 in magnitude are not exact; leave the bound out, or take a string with a pattern",
            )),
            _ => Ok(()),
        }
    }

    fn within(&mut self, step: &str, value: &Value) -> Result<(), String> {
        self.place.push(step.replace('~', "~0").replace('/', "~1"));
        self.add(value)?;
        self.place.pop();
        Ok(())
    }

    /// Adds the field `name` of a schema.
    fn field(&mut self, name: &str, value: &Value) -> Result<(), String> {
        match (name, value) {
            _ if self.in_data => self.within(name, value),
            // They say nothing of what is accepted.
            ("default" | "examples" | "description" | "title" | "$comment", _) => Ok(()),
            // No text is as long as the numbers that are not exact.
            ("minLength" | "maxLength" | "minItems" | "maxItems", _) => Ok(()),
            ("const" | "enum", _) => {
                self.in_data = true;
                let added = self.within(name, value);
                self.in_data = false;
                added
            }
            ("pattern", Value::String(pattern)) => {
                check_pattern(pattern).map_err(|what| self.wrong(&format!("pattern: {what}")))
            }
            // Their fields are names, not words of schemas.
            ("properties" | "patternProperties" | "$defs" | "definitions", Value::Object(all)) => {
                let patterns = all.keys().filter(|_| name == "patternProperties");
                if let Some(what) = patterns.filter_map(|pattern| check_pattern(pattern).err()).next() {
                    return Err(self.wrong(&format!("patternProperties: {what}")));
                }
                self.place.push(name.into());
                all.iter().try_for_each(|(name, value)| self.within(name, value))?;
                self.place.pop();
                Ok(())
            }
            _ => self.within(name, value),
        }
    }

    /// An error for a schema whose names for itself or for others the compiler reads otherwise.
    fn check_names(&self, fields: &Map<String, Value>) -> Result<(), String> {
        let text = |name: &str| fields.get(name).and_then(Value::as_str);
        if self.place.len() > 1 && fields.contains_key("$id") && fields.iter().any(has_reference) {
            return Err(self.wrong("a $ref below a $id within the schema is not supported"));
        }
        if text("$ref").is_some_and(|pointer| pointer.contains(['~', '%'])) {
            return Err(self.wrong("a $ref with ~ or % is not supported: name the definition otherwise"));
        }
        match text("$schema") {
            Some(draft) if !is_draft(draft) => {
                let draft: String = draft.chars().take(100).collect();
                Err(self.wrong(&format!("the $schema {draft:?} is none of the drafts 4 to 2020-12")))
            }
            _ => Ok(()),
        }
    }

    fn wrong(&self, what: &str) -> String {
        format!("{}: {what}", self.place.join("/"))
    }
}

/// Whether a field, or one within it, is a `$ref`.
fn has_reference((name, value): (&String, &Value)) -> bool {
    match value {
        Value::String(_) => name == "$ref",
        Value::Array(list) => list.iter().any(|value| has_reference((name, value))),
        Value::Object(fields) => fields.iter().any(has_reference),
        _ => false,
    }
}

fn is_draft(name: &str) -> bool {
    let name = name.trim_end_matches('#');
    let path = name.split_once("://json-schema.org/").map(|(_, path)| path);
    matches!(
        path,
        Some(
            "draft/2020-12/schema"
                | "draft/2019-09/schema"
                | "draft-07/schema"
                | "draft-06/schema"
                | "draft-04/schema"
                | "schema"
        )
    )
}

/// An error if `schema` asks of a value, by `$ref`s alone, that it is what `schema` asks: JSON Schema gives that no
/// meaning, and no text would end.
fn leads_back(
    root: &Value,
    schema: &Value,
    path: &mut Vec<*const Value>,
    done: &mut HashSet<*const Value>,
) -> Result<(), &'static str> {
    let this: *const Value = schema;
    if path.contains(&this) {
        return Err("a $ref leads back to itself without a value between");
    }
    // A path of more is through more objects than a schema may have.
    if done.contains(&this) || path.len() > MOST_OBJECTS {
        return Ok(());
    }
    path.push(this);
    let target = schema.get("$ref").and_then(Value::as_str).and_then(|pointer| target(root, pointer));
    let lists = ["allOf", "anyOf", "oneOf"].into_iter().filter_map(|name| schema.get(name)?.as_array());
    for next in target.into_iter().chain(lists.flatten()) {
        leads_back(root, next, path, done)?;
    }
    path.pop();
    done.insert(this);
    Ok(())
}

/// The schema at a pointer, which has no escapes.
fn target<'a>(root: &'a Value, pointer: &str) -> Option<&'a Value> {
    match pointer.strip_prefix('#')? {
        "" | "/" => Some(root),
        path => root.pointer(path),
    }
}

fn is_exact(number: &Number) -> bool {
    match (number.as_i64(), number.as_u64(), number.as_f64()) {
        (Some(whole), ..) => whole.unsigned_abs() <= MOST_EXACT as u64,
        (None, Some(_), _) => false,
        (None, None, float) => float.is_some_and(|float| float.abs() <= MOST_EXACT),
    }
}

/// An error if a pattern means one thing in ECMA 262, which JSON Schema refers to, and another in the syntax of
/// the compiler.
fn check_pattern(pattern: &str) -> Result<(), &'static str> {
    let mut in_class = false;
    let mut rest = pattern;
    while let Some(next) = rest.chars().next() {
        let after = &rest[next.len_utf8()..];
        let mut taken = next.len_utf8();
        match next {
            '\\' => {
                if after.starts_with(['A', 'z', 'Z', 'a', 'x', 'h', 'H', 'R', '<', '>']) && !is_hex(after) {
                    return Err("an escape that ECMA 262 has not");
                }
                taken += after.chars().next().map_or(0, char::len_utf8);
            }
            '[' if in_class => return Err("a bracket within a class is a class of its own here: write \\["),
            '&' | '-' | '~' if in_class && after.starts_with(next) => {
                return Err("&&, -- and ~~ within a class are operators here: escape the second");
            }
            '[' => {
                in_class = true;
                // A bracket right after the beginning is a character here, and the end in ECMA 262.
                let first = after.strip_prefix('^').unwrap_or(after);
                if first.starts_with(']') {
                    return Err("an empty class: write \\] for a bracket");
                }
            }
            ']' => in_class = false,
            '(' if !in_class && after.starts_with('?') => {
                let kind = after.get(1..2).unwrap_or_default();
                if !matches!(kind, ":" | "=" | "!" | "<") {
                    return Err("flags in a pattern are not supported");
                }
            }
            _ => {}
        }
        rest = &rest[taken..];
    }
    Ok(())
}

/// Whether an escape is one of two hexadecimal digits.
fn is_hex(escape: &str) -> bool {
    let digits = escape.strip_prefix('x').and_then(|digits| digits.get(..2));
    digits.is_some_and(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
}
