//! The forms in which models write calls of functions: a mark, and calls one after the other.

use ga10b_llm::chat::Template;
use serde_json::{Map, Value};

/// The end of a parameter's value in a form with tags.
pub const VALUE_END: &str = "\n</parameter>\n";
/// Names of tokens within the forms, which some vocabularies have as control tokens.
pub const CONTROLS: [&str; 4] = ["[TOOL_CALLS]", "[ARGS]", "<tool_call>", "</tool_call>"];

/// A form of calls: `mark opening call (between call)* closing`, where a call is a head with the function's name,
/// arguments, and a tail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    /// Its name for people.
    pub name: &'static str,
    /// The text that begins calls; `None` where a call is the whole text, and begins with a brace.
    pub mark: Option<&'static str>,
    pub opening: &'static str,
    /// Before the name of the function, and after it.
    pub head: (&'static str, &'static str),
    /// After the arguments.
    pub tail: &'static str,
    pub between: &'static str,
    pub closing: &'static str,
    /// Whether arguments are parameters in tags; else they are an object of JSON.
    pub is_tagged: bool,
}

impl Form {
    /// LLaMA 3's: the text is an object with the field `parameters`.
    const PARAMETERS: Self =
        Self { name: "llama3", head: ("{\"name\": \"", "\", \"parameters\": "), ..Self::ARGUMENTS };
    const ARGUMENTS: Self = Self {
        name: "json",
        mark: None,
        opening: "",
        head: ("{\"name\": \"", "\", \"arguments\": "),
        tail: "}",
        between: "",
        closing: "",
        is_tagged: false,
    };
    /// Of Hermes and Qwen.
    pub const HERMES: Self = Self {
        name: "hermes",
        mark: Some("<tool_call>"),
        opening: "\n",
        tail: "}\n</tool_call>",
        between: "\n<tool_call>\n",
        ..Self::ARGUMENTS
    };
    /// Qwen3-Coder's, as its `chat_template.jinja` asks for it.
    pub const TAGGED: Self = Self {
        name: "qwen3-coder",
        head: ("<function=", ">\n"),
        tail: "</function>\n</tool_call>",
        is_tagged: true,
        ..Self::HERMES
    };
    /// Mistral's, a list: of the 7B v0.3, of Nemo and Small (llama.cpp's `models/templates/` has the template of
    /// Small 3.1).
    pub const LIST: Self = Self {
        name: "mistral-list",
        mark: Some("[TOOL_CALLS]"),
        opening: "[",
        between: ", ",
        closing: "]",
        ..Self::ARGUMENTS
    };
    /// Mistral's newer one, since Small 3.2.
    pub const NAMED: Self = Self {
        name: "mistral-args",
        mark: Some("[TOOL_CALLS]"),
        head: ("", "[ARGS]"),
        tail: "",
        between: "[TOOL_CALLS]",
        ..Self::ARGUMENTS
    };

    /// The form of a model with `template`; `None` if it takes no tools.
    pub fn of_model(template: Option<&Template>) -> Option<Self> {
        template
            .filter(|template| template.takes("tools"))
            .map(|template| Self::of_template(template.source()))
    }

    /// The form that a template of conversations shows.
    pub fn of_template(source: &str) -> Self {
        let has = |words: &str| source.contains(words);
        match () {
            () if has("<function=") && has("<parameter=") => Self::TAGGED,
            () if has("[TOOL_CALLS]") && has("[ARGS]") => Self::NAMED,
            () if has("[TOOL_CALLS] [") => Self { opening: " [", ..Self::LIST },
            () if has("[TOOL_CALLS]") => Self::LIST,
            () if has("<tool_call>") => Self::HERMES,
            () if has("\"parameters\"") => Self::PARAMETERS,
            () => Self::ARGUMENTS,
        }
    }

    /// The beginning of a call of the function `name`, up to its arguments.
    pub fn head(&self, name: &str) -> String {
        format!("{}{name}{}", self.head.0, self.head.1)
    }
}

/// A parameter of a form with tags.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    pub name: String,
    pub written: Written,
    pub is_required: bool,
}

/// The writing of a parameter's value.
#[derive(Clone, Debug, PartialEq)]
pub enum Written {
    /// A string as it is.
    Text,
    /// One of these strings, as it is.
    Words(Vec<String>),
    /// JSON by a schema.
    Json(Value),
}

impl Parameter {
    /// The tag before its value.
    pub fn begin(&self) -> String {
        format!("<parameter={}>\n", self.name)
    }

    pub fn is_text(&self) -> bool {
        !matches!(self.written, Written::Json(_))
    }
}

/// The parameters that the schema of a function's arguments has, in its order.
///
/// # Errors
/// For names that no tag can have, and for words of the schema that say more than the parameters' own schemas.
pub fn parameters(schema: &Value) -> Result<Vec<Parameter>, String> {
    const SERVED: [&str; 5] = ["type", "properties", "required", "$defs", "definitions"];
    // What it adds is not written, so it matters only where it says that something has to be.
    const NARROWED: [&str; 4] =
        ["additionalProperties", "unevaluatedProperties", "patternProperties", "$schema"];
    let nothing = Map::new();
    let fields = schema.as_object().unwrap_or(&nothing);
    let is_known = |name: &str| SERVED.contains(&name) || NARROWED.contains(&name) || is_note(name);
    if let Some(name) = fields.keys().find(|name| !is_known(name)) {
        return Err(format!("#: {name} is not supported in the calls of this model's template"));
    }
    let required = fields.get("required").and_then(Value::as_array).into_iter().flatten();
    let required: Vec<&str> = required.filter_map(Value::as_str).collect();
    let properties = fields.get("properties").and_then(Value::as_object).unwrap_or(&nothing);
    let anything = Value::Bool(true);
    let others = required.iter().filter(|name| !properties.contains_key(**name));
    let all = properties.iter().map(|(name, schema)| (name.as_str(), schema));
    all.chain(others.map(|name| (*name, &anything)))
        // Nothing is of this schema.
        .filter(|(name, schema)| **schema != Value::Bool(false) || required.contains(name))
        .map(|(name, schema)| {
            if name.is_empty() || name.contains(['<', '>', '\n']) {
                return Err(format!("#/properties: {name:?} cannot be the name of a parameter in a tag"));
            }
            let is_required = required.contains(&name);
            Ok(Parameter { name: name.to_owned(), written: written(schema, fields), is_required })
        })
        .collect()
}

/// The writing of a value of `schema`, which may refer to the definitions in `whole`.
fn written(schema: &Value, whole: &Map<String, Value>) -> Written {
    let nothing = Map::new();
    let fields = schema.as_object().unwrap_or(&nothing);
    let only = |names: &[&str]| fields.keys().all(|name| names.contains(&name.as_str()) || is_note(name));
    let is_string = fields.get("type").is_none_or(|kind| kind == "string");
    let word =
        |value: &Value| value.as_str().filter(|word| !word.contains(VALUE_END.trim())).map(str::to_owned);
    let words = match (fields.get("enum"), fields.get("const")) {
        (Some(Value::Array(all)), None) => all.iter().map(word).collect(),
        (None, Some(one)) => word(one).map(|word| vec![word]),
        _ => None,
    };
    match words {
        Some(words) if is_string && !words.is_empty() && only(&["type", "enum", "const"]) => {
            Written::Words(words)
        }
        None if is_string && fields.contains_key("type") && only(&["type"]) => Written::Text,
        _ => {
            let mut schema = match schema {
                Value::Bool(true) => Value::Object(Map::new()),
                schema => schema.clone(),
            };
            if let Some(fields) = schema.as_object_mut() {
                for name in ["$defs", "definitions"] {
                    let definitions = whole.get(name).cloned();
                    definitions.map(|definitions| fields.entry(name).or_insert(definitions));
                }
            }
            Written::Json(schema)
        }
    }
}

/// Whether a word of schemas says nothing of what is accepted.
fn is_note(name: &str) -> bool {
    matches!(name, "title" | "description" | "default" | "examples" | "$comment" | "deprecated" | "$id")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::grammar::tests::{accepts_text, accepts_tokens, sentencepiece, words};
    use crate::grammar::{Calls, Compiler, Grammar};

    fn calls(form: Form) -> Calls {
        let place = json!({
            "type": "object", "properties": {"place": {"enum": ["here", "there"]}},
            "required": ["place"], "additionalProperties": false,
        });
        let functions = vec![("go".to_owned(), place), ("stop".to_owned(), json!({"type": "object"}))];
        Calls { form, functions, is_free: true, is_several: true, answer: None }
    }

    /// Whether texts are accepted: free, with a call that has to be, and with one call at most.
    fn obeys(calls: &Calls, text: &str) -> (bool, bool, bool) {
        let (needed, one) =
            (Calls { is_free: false, ..calls.clone() }, Calls { is_several: false, ..calls.clone() });
        let accepts = |calls: Calls| {
            let mut constraint = words().1.compile(&Grammar::Calls(calls)).expect("a grammar");
            accepts_text(&mut constraint, text)
        };
        (accepts(calls.clone()), accepts(needed), accepts(one))
    }

    #[test]
    fn the_form_is_the_templates() {
        // As the templates of these models write the calls of a conversation.
        for (source, form) in [
            ("'<tool_call>\\n{\"name\": \"' + tool_call.name", Form::HERMES),
            (
                "'\\n<tool_call>\\n<function=' + name + '>\\n' '<parameter=' + args_name + '>\\n'",
                Form::TAGGED,
            ),
            ("{{- \"[TOOL_CALLS] [\" }}", Form { opening: " [", ..Form::LIST }),
            ("{{- \"[TOOL_CALLS][\" }}", Form::LIST),
            ("'[TOOL_CALLS]' + name + '[CALL_ID]' + id + '[ARGS]' + arguments", Form::NAMED),
            ("'{\"name\": \"' + name + '\", \"parameters\": '", Form::PARAMETERS),
            ("{{ messages }}", Form::ARGUMENTS),
        ] {
            assert_eq!(Form::of_template(source), form, "{source}");
        }
    }

    #[test]
    fn a_text_calls_functions_by_their_schemas() {
        let go = "<tool_call>\n{\"name\": \"go\", \"arguments\": {\"place\": \"here\"}}\n</tool_call>";
        let stop = "<tool_call>\n{\"name\": \"stop\", \"arguments\": {}}\n</tool_call>";
        let hermes = calls(Form::HERMES);
        for (text, expected) in [
            (go.to_owned(), (true, true, true)),
            (format!("{go}\n{stop}"), (true, true, false)),
            (format!("I am going.\n{go}"), (true, false, true)),
            ("I <stay> here.\n".to_owned(), (true, false, true)),
            (String::new(), (true, false, true)),
            (go.replace("here", "nowhere"), (false, false, false)),
            (go.replace("go\"", "fly\""), (false, false, false)),
            (format!("{go} and so on"), (false, false, false)),
            ("<tool_call>no".to_owned(), (false, false, false)),
        ] {
            assert_eq!(obeys(&hermes, &text), expected, "{text}");
        }
        for (text, expected) in [
            ("{\"name\": \"stop\", \"parameters\": {\"now\": true}}", (true, true, true)),
            ("I stay.", (true, false, true)),
            ("", (true, false, true)),
            ("{}", (false, false, false)),
            ("{\"name\": \"go\", \"parameters\": {}}", (false, false, false)),
        ] {
            assert_eq!(obeys(&calls(Form::PARAMETERS), text), expected, "{text}");
        }
    }

    #[test]
    fn mistrals_calls_are_a_list_or_named() {
        let go = "{\"name\": \"go\", \"arguments\": {\"place\": \"here\"}}";
        let stop = "{\"name\": \"stop\", \"arguments\": {}}";
        let list = calls(Form { opening: " [", ..Form::LIST });
        for (text, expected) in [
            (format!("[TOOL_CALLS] [{go}]"), (true, true, true)),
            (format!("[TOOL_CALLS] [{go}, {stop}]"), (true, true, false)),
            (format!("I go. [TOOL_CALLS] [{go}]"), (true, false, true)),
            ("[TOOL]".to_owned(), (true, false, true)),
            ("[TOOL_CALLS] []".to_owned(), (false, false, false)),
            (format!("[TOOL_CALLS] [{go}"), (false, false, false)),
            (format!("[TOOL_CALLS] [{}]", go.replace("here", "nowhere")), (false, false, false)),
        ] {
            assert_eq!(obeys(&list, &text), expected, "{text}");
        }
        let named = calls(Form::NAMED);
        let go = "[TOOL_CALLS]go[ARGS]{\"place\": \"here\"}";
        for (text, expected) in [
            (go.to_owned(), (true, true, true)),
            (format!("{go}[TOOL_CALLS]stop[ARGS]{{}}"), (true, true, false)),
            (format!("I go.{go}"), (true, false, true)),
            (go.replace("here", "nowhere"), (false, false, false)),
            ("[TOOL_CALLS]fly[ARGS]{}".to_owned(), (false, false, false)),
            ("[TOOL_CALLS]".to_owned(), (false, false, false)),
        ] {
            assert_eq!(obeys(&named, &text), expected, "{text}");
        }
        // Marks that are control tokens are these tokens, and nothing but they.
        let controls = ["[TOOL_CALLS]", "[ARGS]", "[IMG]"];
        let tokenizer = sentencepiece(&controls);
        let first = tokenizer.vocab() - controls.len();
        let compiler = Compiler::new(&tokenizer).expect("a compiler");
        // Of characters that are bytes, which the tokens after the first three are.
        let tokens = |pieces: &[&str]| -> Vec<u32> {
            let of = |piece: &&str| match controls.iter().position(|name| name == piece) {
                Some(at) => vec![(first + at) as u32],
                None => piece.bytes().map(|byte| u32::from(byte) + 3).collect(),
            };
            pieces.iter().flat_map(of).collect()
        };
        let (mark, args, here) = ("[TOOL_CALLS]", "[ARGS]", "{\"place\": \"here\"}");
        for (text, free, must) in [
            (tokens(&[mark, "go", args, here]), true, true),
            (tokens(&["I go.", mark, "go", args, here, mark, "stop", args, "{}"]), true, false),
            (tokens(&["I go."]), true, false),
            (tokens(&["I", "[IMG]"]), false, false),
            (tokens(&[mark, "go", here]), false, false),
            (tokens(&[&format!("{mark}go{args}{here}")]), false, false),
        ] {
            for (is_free, expected) in [(true, free), (false, must)] {
                let calls = Calls { is_free, ..named.clone() };
                let mut constraint = compiler.compile(&Grammar::Calls(calls)).expect("a grammar");
                assert_eq!(accepts_tokens(&tokenizer, &mut constraint, &text), expected, "{text:?}");
            }
        }
    }

    #[test]
    fn qwen_coders_parameters_are_in_tags() {
        let schema = json!({
            "type": "object", "required": ["path", "n"], "$defs": {"kind": {"enum": ["a", 1]}},
            "properties": {
                "path": {"type": "string", "description": "A file"}, "n": {"type": "integer", "maximum": 9},
                "mode": {"enum": ["read", "write"]}, "kind": {"$ref": "#/$defs/kind"},
                "date": {"type": "string", "pattern": "^[0-9]{4}$"},
            },
        });
        let functions = vec![("edit".to_owned(), schema), ("stop".to_owned(), json!({"type": "object"}))];
        let tagged = Calls { functions, ..calls(Form::TAGGED) };
        let of = |parameters: &[(&str, &str)]| {
            let one = |(name, value): &(&str, &str)| format!("<parameter={name}>\n{value}\n</parameter>\n");
            let all: String = parameters.iter().map(one).collect();
            format!("<tool_call>\n<function=edit>\n{all}</function>\n</tool_call>")
        };
        let (all, none) = ((true, true, true), (false, false, false));
        let text = "a \"quoted\"\n</parameter> <parameter=n>\n\ttext";
        let stop = "<tool_call>\n<function=stop>\n</function>\n</tool_call>";
        for (text, expected) in [
            (of(&[("path", text), ("n", "3")]), all),
            (of(&[("path", ""), ("n", "3"), ("mode", "read")]), all),
            (of(&[("path", "x"), ("n", "3"), ("kind", "\"a\"")]), all),
            (of(&[("path", "x"), ("n", "3"), ("date", "\"2026\"")]), all),
            (format!("{}\n{stop}", of(&[("path", "x"), ("n", "3")])), (true, true, false)),
            (format!("Wait.\n{stop}"), (true, false, true)),
            (of(&[("path", "x")]), none),
            (of(&[("path", "x"), ("n", "10")]), none),
            (of(&[("path", "x"), ("n", "3"), ("mode", "run")]), none),
            (of(&[("path", "x"), ("n", "3"), ("kind", "2")]), none),
            (of(&[("path", "x"), ("n", "3"), ("date", "2026")]), none),
            (of(&[("path", "x"), ("n", "3"), ("other", "1")]), none),
        ] {
            assert_eq!(obeys(&tagged, &text), expected, "{text}");
        }
        for (schema, words) in [
            (json!({"properties": {"a>b": {}}}), "a>b"),
            (json!({"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}), "anyOf"),
            (json!({"properties": {"a": {"type": "thing"}}}), "#/properties/a: "),
        ] {
            let calls = Calls { functions: vec![("go".into(), schema)], ..tagged.clone() };
            let error = words_of(&calls);
            assert!(error.starts_with("go: #") && error.contains(words), "{error}");
        }
    }

    fn words_of(calls: &Calls) -> String {
        words().1.compile(&Grammar::Calls(calls.clone())).expect_err("no grammar")
    }

    #[test]
    fn an_answer_without_a_call_is_by_its_schema() {
        let answer =
            Some(json!({"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}));
        let stop = "<tool_call>\n{\"name\": \"stop\", \"arguments\": {}}\n</tool_call>";
        let either = Calls { answer, ..calls(Form::HERMES) };
        for (text, expected) in [
            ("{\"ok\": true}", (true, false, true)),
            ("{\"ok\": true, \"b\": \"<tool_call>\"}", (true, false, true)),
            (stop, (true, true, true)),
            ("{\"ok\": 1}", (false, false, false)),
            ("Yes.", (false, false, false)),
            ("", (false, false, false)),
        ] {
            assert_eq!(obeys(&either, text), expected, "{text}");
        }
        let list = Some(json!({"type": "array", "items": {"type": "boolean"}}));
        let either = Calls { answer: list, ..calls(Form::LIST) };
        for (text, expected) in [
            ("[true]", (true, false, true)),
            ("[]", (true, false, true)),
            ("[TOOL_CALLS][{\"name\": \"stop\", \"arguments\": {}}]", (true, true, true)),
            ("[TOOL", (false, false, false)),
        ] {
            assert_eq!(obeys(&either, text), expected, "{text}");
        }
    }
}
