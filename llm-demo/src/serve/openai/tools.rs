//! The tools of a request: functions that the model may call.

use ga10b_llm::chat::Template;
use serde_json::{Map, Value, json};

use crate::grammar::{Calls, Form};
use crate::serve::openai::error::Error;
use crate::serve::openai::fields::{Fields, Unknown, typed};
use crate::serve::openai::grammars::Wanted;

/// Most functions.
const MOST: usize = 128;

/// Functions, and whether they have to be called.
#[derive(Clone, Debug, PartialEq)]
pub struct Tools {
    /// As the request has them, for the template.
    pub list: Vec<Value>,
    /// Names, and schemas of arguments.
    functions: Vec<(String, Value)>,
    is_needed: bool,
    is_several: bool,
}

/// The tools that the model may call; `None` without any.
///
/// # Errors
/// For what is no function, and for a choice that names none of them.
pub fn take(fields: &mut Fields, unknown: &Unknown) -> Result<Option<Tools>, Error> {
    let list: Vec<Value> = fields.take("tools")?.unwrap_or_default();
    let choice: Option<Value> = fields.take("tool_choice")?;
    let is_several = fields.take("parallel_tool_calls")?.unwrap_or(true);
    if list.len() > MOST {
        return Err(Error::field("tools", format!("tools has at most {MOST} functions")));
    }
    let one = |(at, tool): (usize, &Value)| function(&format!("tools[{at}]"), tool.clone(), unknown);
    let mut functions: Vec<(String, Value)> = list.iter().enumerate().map(one).collect::<Result<_, _>>()?;
    let names = functions.iter().map(|(name, _)| name);
    if let Some((at, name)) =
        names.clone().enumerate().find(|(at, name)| names.clone().take(*at).any(|n| n == *name))
    {
        return Err(Error::field("tools", format!("tools[{at}]: there is another function {name:?}")));
    }
    let is_needed = match choice {
        None => false,
        Some(Value::String(choice)) if choice == "none" => return Ok(None),
        Some(Value::String(choice)) if choice == "auto" => false,
        Some(Value::String(choice)) if choice == "required" => true,
        Some(choice @ Value::Object(_)) => {
            let name = named(choice, unknown)?;
            functions.retain(|(own, _)| *own == name);
            if functions.is_empty() {
                return Err(Error::field("tool_choice", format!("tools has no function {name:?}")));
            }
            true
        }
        Some(_) => {
            let message = "tool_choice has to be \"none\", \"auto\", \"required\" or a function";
            return Err(Error::field("tool_choice", message));
        }
    };
    match (functions.is_empty(), is_needed) {
        (true, true) => Err(Error::field("tool_choice", "tool_choice needs tools")),
        (true, false) => Ok(None),
        (false, _) => Ok(Some(Tools { list, functions, is_needed, is_several })),
    }
}

/// The fields of `function` in a tool or a choice at `path`.
fn of_kind(path: &str, value: Value, unknown: &Unknown) -> Result<Fields, Error> {
    let mut fields = Fields::of(path, value)?;
    let (kind, inner) = (fields.path("type"), fields.path("function"));
    match fields.take::<String>("type")? {
        None => return Err(Error::field(&kind, format!("{kind} is missing: it has to be \"function\""))),
        Some(other) if other != "function" => {
            let other: String = other.chars().take(100).collect();
            let message = format!("{path} is of the type {other:?}: a function is supported");
            return Err(Error::field(path, message).with_code("unsupported"));
        }
        Some(_) => {}
    }
    let Some(function) = fields.take::<Value>("function")? else {
        let message = format!("{inner} is missing: an object with the function's name, as in OpenAI's chats");
        return Err(Error::field(&inner, message));
    };
    fields.end(unknown)?;
    Fields::of(&inner, function)
}

/// The name that a choice names.
fn named(choice: Value, unknown: &Unknown) -> Result<String, Error> {
    let mut function = of_kind("tool_choice", choice, unknown)?;
    let name = function.take("name")?;
    function.end(unknown)?;
    name.ok_or_else(|| Error::field("tool_choice", "tool_choice.function.name is missing"))
}

/// Name and schema of a function.
fn function(path: &str, tool: Value, unknown: &Unknown) -> Result<(String, Value), Error> {
    let mut function = of_kind(path, tool, unknown)?;
    let path = format!("{path}.function");
    let name: String = function.take("name")?.unwrap_or_default();
    function.take::<String>("description")?;
    // Whatever it says, arguments are what the schema accepts.
    function.take::<bool>("strict")?;
    let schema: Option<Map<String, Value>> = function.take("parameters")?;
    function.end(unknown)?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if name.is_empty() || name.len() > 64 || !name.chars().all(is_name) {
        let message = format!("{path}.name has to be 1 to 64 letters, digits, points, dashes or underscores");
        return Err(Error::field(&path, message));
    }
    let mut schema = schema.unwrap_or_default();
    if *schema.entry("type").or_insert_with(|| "object".into()) != "object" {
        return Err(Error::field(&path, format!("{path}.parameters has to be the schema of an object")));
    }
    Ok((name, schema.into()))
}

impl Tools {
    /// The calls, as a model with `template` writes them; a text without one is by `answer`, if it is there.
    ///
    /// # Errors
    /// If the template takes no tools, and for an answer that cannot be told from a call.
    pub fn calls(&self, template: Option<&Template>, answer: Option<&Wanted>) -> Result<Calls, Error> {
        let Some(form) = Form::of_model(template) else {
            let message = "the model's template takes no tools: start the server with --template FILE";
            return Err(Error::field("tools", message).with_code("unsupported"));
        };
        let answer = match answer.filter(|_| !self.is_needed) {
            None => None,
            Some(Wanted { field, grammar }) => match grammar.schema().filter(|_| form.mark.is_some()) {
                Some(schema) => Some(schema),
                None => {
                    let why = match form.mark {
                        Some(_) => "beside tools a text is free, or JSON by a schema",
                        None => "calls of this model's template begin as JSON does, without a mark",
                    };
                    let message = format!("tools and {field} both say what the text has to be: {why}");
                    return Err(Error::field("tools", message).with_code("unsupported"));
                }
            },
        };
        let Self { functions, is_needed, is_several, .. } = self;
        let (functions, is_free, is_several) = (functions.clone(), !is_needed, *is_several);
        Ok(Calls { form, functions, is_free, is_several, answer })
    }
}

/// The calls of a message, for a template: their arguments are objects.
pub fn of_message(path: &str, calls: Vec<Value>) -> Result<Vec<Value>, Error> {
    let call = |(at, call): (usize, Value)| {
        let path = format!("{path}[{at}]");
        let mut call = typed::<Map<String, Value>>(&path, call)?;
        let function = call.remove("function").unwrap_or_default();
        let path = format!("{path}.function");
        let mut function = typed::<Map<String, Value>>(&path, function)?;
        let arguments = match function.remove("arguments") {
            None => json!({}),
            Some(Value::String(text)) if text.trim().is_empty() => json!({}),
            Some(Value::String(text)) => serde_json::from_str(&text)
                .map_err(|error| Error::field(&path, format!("{path}.arguments is no JSON: {error}")))?,
            Some(arguments) => arguments,
        };
        function.insert("arguments".into(), arguments);
        call.insert("function".into(), function.into());
        Ok(call.into())
    };
    calls.into_iter().enumerate().map(call).collect()
}
