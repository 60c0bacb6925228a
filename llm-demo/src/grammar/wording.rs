//! Schemas in the words of the compiler: it refuses some that say nothing, and reads whole numbers alone as such.

use llguidance::JsonCompileOptions;
use llguidance::api::GrammarWithLexer;
use serde_json::{Value, json};

/// The formats that the compiler knows. JSON Schema says of no other one that a text has to have it.
const FORMATS: [&str; 10] =
    ["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"];
/// The largest magnitude up to which `f64` has every whole number.
const MOST_EXACT: f64 = 9_007_199_254_740_992.0;
/// The space between the tokens of JSON: nothing, a space, or a line feed and the indent of the next line. A
/// model that writes nothing but spaces would never end.
const SPACES: &str = r"( |\n[ \t]{0,20})";

/// The grammar of JSON that `schema` accepts.
pub fn by_schema(name: Option<String>, schema: Value) -> GrammarWithLexer {
    let options = JsonCompileOptions { whitespace_pattern: Some(SPACES.into()), ..Default::default() };
    let mut schema = match schema {
        Value::Bool(all) => json!({"allOf": [all]}),
        schema => schema,
    };
    if schema.is_object() {
        options.apply_to(&mut schema);
    }
    GrammarWithLexer { name, ..GrammarWithLexer::from_json_schema(schema) }
}

/// Takes out of a schema what says nothing, and writes whole numbers as such; `ignored` gets unknown formats.
pub fn reword(schema: &mut Value, ignored: &mut dyn FnMut(&str)) {
    let fields = match schema {
        Value::Object(fields) => fields,
        Value::Array(list) => return list.iter_mut().for_each(|value| reword(value, ignored)),
        other => return whole(other),
    };
    if let Some(Value::String(format)) = fields.get("format")
        && !FORMATS.contains(&format.as_str())
    {
        ignored(format);
        fields.shift_remove("format");
    }
    if fields.get("uniqueItems") == Some(&Value::Bool(false)) {
        fields.shift_remove("uniqueItems");
    }
    for (name, value) in fields.iter_mut() {
        match (name.as_str(), value) {
            ("const" | "enum", value) => whole(value),
            ("default" | "examples", _) => {}
            // Their fields are names.
            ("properties" | "patternProperties" | "$defs" | "definitions", Value::Object(all)) => {
                all.values_mut().for_each(|value| reword(value, ignored));
            }
            (_, value) => reword(value, ignored),
        }
    }
}

/// Writes `1.0` as `1`, which JSON Schema takes for the same.
pub fn whole(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            let float = number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() <= MOST_EXACT);
            if let Some(float) = float {
                *value = Value::from(float as i64);
            }
        }
        Value::Array(list) => list.iter_mut().for_each(whole),
        Value::Object(fields) => fields.values_mut().for_each(whole),
        _ => {}
    }
}
