//! The fields that say what a text has to be: `response_format`, and those of other servers.

use serde_json::{Map, Value};

use crate::grammar::Grammar;
use crate::serve::openai::error::Error;
use crate::serve::openai::fields::{Fields, Unknown};

/// A constraint, and the field that it is from.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    pub field: &'static str,
    pub grammar: Grammar,
}

/// The constraint of a request, if it names one.
///
/// # Errors
/// For several, and for a grammar that cannot be read.
pub fn take(fields: &mut Fields, unknown: &Unknown) -> Result<Option<Wanted>, Error> {
    let mut found = Vec::new();
    let format = fields.take("response_format")?.map(|format| of_format(format, unknown)).transpose()?;
    found.extend(format.flatten().map(|grammar| Wanted { field: "response_format", grammar }));
    // vLLM's name, and llama-server's.
    for field in ["guided_json", "json_schema"] {
        let schema = match fields.take::<Value>(field)? {
            None => continue,
            Some(Value::String(text)) => {
                let bad = |error| Error::field(field, format!("{field} is no JSON: {error}"));
                serde_json::from_str(&text).map_err(bad)?
            }
            Some(schema) => schema,
        };
        found.push(Wanted { field, grammar: Grammar::Schema(schema) });
    }
    if let Some(text) = fields.take::<String>("grammar")? {
        let bad = |message| Error::field("grammar", format!("grammar: {message}"));
        let grammar = Grammar::of_text(&text).map_err(bad)?;
        found.push(Wanted { field: "grammar", grammar });
    }
    match found.len() {
        0 | 1 => Ok(found.pop()),
        _ => {
            let message =
                format!("{} and {} both say what the text has to be", found[0].field, found[1].field);
            Err(Error::field(found[1].field, message))
        }
    }
}

/// The constraint that `response_format` names.
fn of_format(format: Value, unknown: &Unknown) -> Result<Option<Grammar>, Error> {
    const FIELD: &str = "response_format";
    let mut format = Fields::of(FIELD, format)?;
    let kind: Option<String> = format.take("type")?;
    let schema: Option<Value> = format.take("json_schema")?;
    format.end(unknown)?;
    let grammar = match (kind.as_deref(), schema) {
        (Some("text"), None) => None,
        (Some("json_object"), None) => Some(Grammar::Object),
        (Some("json_schema"), Some(schema)) => {
            let mut named = Fields::of("response_format.json_schema", schema)?;
            // Whatever `strict` says, the text is what the schema accepts.
            named.take::<bool>("strict")?;
            named.take::<String>("name")?;
            named.take::<String>("description")?;
            let schema: Option<Map<String, Value>> = named.take("schema")?;
            named.end(unknown)?;
            let missing = || Error::field(FIELD, "response_format.json_schema.schema is missing");
            Some(Grammar::Schema(schema.ok_or_else(missing)?.into()))
        }
        (Some("json_schema"), None) => {
            return Err(Error::field(FIELD, "response_format.json_schema is missing"));
        }
        (Some("text" | "json_object"), Some(_)) => {
            return Err(Error::field(FIELD, "response_format.json_schema is for the type \"json_schema\""));
        }
        (kind, _) => {
            let kind = kind.map(|kind| format!("{:?}", kind.chars().take(100).collect::<String>()));
            let kind = kind.as_deref().unwrap_or("missing");
            let message =
                format!("response_format.type is {kind}: text, json_object and json_schema are supported");
            return Err(Error::field(FIELD, message).with_code("unsupported"));
        }
    };
    Ok(grammar)
}
