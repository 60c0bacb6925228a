//! Messages to text, by the template in the model's file.
//!
//! A template is a Jinja program (`tokenizer.chat_template`) that the model's authors wrote for the library
//! `transformers`; `minijinja` runs it, with the functions and options that `transformers` gives it. Templates
//! come from files that nobody checked: they reach no files and no network, and their length, the depth of their
//! expressions, their operations and what they write are bounded. The memory of values in between is not.

use std::collections::HashSet;
use std::io;
use std::panic::resume_unwind;
use std::sync::LazyLock;
use std::thread;

use jiff::Zoned;
use jiff::fmt::strtime;
use minijinja::value::{Kwargs, Value, merge_maps};
use minijinja::{Environment, ErrorKind, context};
use regex::{Captures, Regex};
use serde::{Deserialize, Serialize};
use serde_json::ser::{Formatter, PrettyFormatter};
use serde_json::{Map, Serializer};

use crate::chat::methods;
use crate::error::{Error, Result};
use crate::gguf::Gguf;
use crate::tokenizer::Tokenizer;

/// Operations after which a template is stopped: far more than a long conversation takes.
const FUEL: u64 = 10_000_000;
/// Bytes of the longest template; published ones have up to some ten thousand.
const MOST_SOURCE: usize = 64 << 10;
/// Bytes of the longest text of a conversation.
const MOST_TEXT: usize = 64 << 20;
/// Bytes of stack for the deepest expression of a template of that length.
const STACK: usize = 512 << 20;

/// A message and its role.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// `system`, `user`, `assistant`, or what else the template knows.
    pub role: String,
    /// The text.
    pub content: String,
    /// Further fields for the template: `tool_calls`, `tool_call_id`.
    #[serde(flatten)]
    pub more: Map<String, serde_json::Value>,
}

impl Message {
    /// A message of `role`.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: content.into(), more: Map::new() }
    }
}

/// A model's template.
#[derive(Debug)]
pub struct Template {
    environment: Environment<'static>,
    source: String,
    /// Names that it takes from outside.
    names: HashSet<String>,
    bos: String,
    eos: String,
}

const NAME: &str = "tokenizer.chat_template";

impl Template {
    /// The template of a model's file; `None` if it has none.
    ///
    /// # Errors
    /// [`Error::Template`] if it is not a template.
    pub fn from_gguf(gguf: &Gguf, tokenizer: &Tokenizer) -> Result<Option<Self>> {
        let Some(source) = gguf.text(NAME)? else { return Ok(None) };
        Self::for_model(source, gguf, tokenizer).map(Some)
    }

    /// Another template for the model of a file.
    ///
    /// # Errors
    /// As [`Template::from_gguf`].
    pub fn for_model(source: &str, gguf: &Gguf, tokenizer: &Tokenizer) -> Result<Self> {
        let name = |token: Option<u32>| token.map(|t| tokenizer.name(t)).unwrap_or_default();
        let eos = gguf.uint("tokenizer.ggml.eos_token_id")?.and_then(|id| u32::try_from(id).ok());
        Self::new(source, &name(tokenizer.bos()), &name(eos))
    }

    /// A template in Jinja; `bos` and `eos` are the texts of its variables `bos_token` and `eos_token`.
    ///
    /// # Errors
    /// As [`Template::from_gguf`].
    pub fn new(source: &str, bos: &str, eos: &str) -> Result<Self> {
        let mut environment = Environment::new();
        environment.set_trim_blocks(true);
        environment.set_lstrip_blocks(true);
        environment.set_fuel(Some(FUEL));
        environment.set_unknown_method_callback(methods::call);
        environment.add_function("raise_exception", raise_exception);
        environment.add_function("strftime_now", strftime_now);
        environment.add_filter("tojson", to_json);
        if source.len() > MOST_SOURCE {
            let what = format!("it has {} bytes, more than {MOST_SOURCE}", source.len());
            return Err(unusable(minijinja::Error::new(ErrorKind::SyntaxError, what)));
        }
        let names = on_a_large_stack(|| {
            environment.add_template_owned(NAME, without_marks(source))?;
            Ok(environment.get_template(NAME)?.undeclared_variables(false))
        })?;
        Ok(Self { environment, source: source.into(), names, bos: bos.into(), eos: eos.into() })
    }

    /// The text of a conversation. With `answer` it ends where the assistant's next message begins.
    ///
    /// The text may begin with the name of the BOS token; [`Tokenizer::encode`] adds no second one.
    ///
    /// # Errors
    /// [`Error::Template`] with what the template says, such as roles that have to alternate.
    pub fn render(&self, messages: &[Message], answer: bool) -> Result<String> {
        self.render_with(messages, answer, &Map::new())
    }

    /// As [`Template::render`], with further variables: `tools`, or what else the template takes.
    ///
    /// # Errors
    /// As [`Template::render`].
    pub fn render_with(
        &self,
        messages: &[Message],
        answer: bool,
        more: &Map<String, serde_json::Value>,
    ) -> Result<String> {
        on_a_large_stack(|| {
            let usual = context! {
                add_generation_prompt => answer,
                bos_token => self.bos,
                eos_token => self.eos,
                tools => (),
                documents => (),
            };
            // What stands last counts.
            let values = merge_maps([usual, Value::from_serialize(more), context! { messages }]);
            let mut text = Bounded(Vec::new());
            self.environment.get_template(NAME)?.render_captured_to(values, &mut text)?;
            Ok(String::from_utf8_lossy(&text.0).into_owned())
        })
    }

    /// The program.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Whether the template takes a variable from outside.
    pub fn takes(&self, variable: &str) -> bool {
        self.names.contains(variable)
    }

    /// Whether the template takes a message of the role `system` first.
    pub fn takes_system(&self) -> bool {
        const WORD: &str = "Xylograph";
        let (system, user) = (Message::new("system", WORD), Message::new("user", "x"));
        self.render(&[system, user], true).is_ok_and(|text| text.contains(WORD))
    }
}

/// The template without the tags `generation` and `endgeneration`, which mark the assistant's words for training.
fn without_marks(source: &str) -> String {
    static MARKS: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"\{%([-+]?)\s*(end)?generation\s*([-+]?)%\}").expect("a pattern"));
    let always = |mark: &Captures<'_>| {
        let word = if mark.get(2).is_some() { "endif" } else { "if true" };
        format!("{{%{} {word} {}%}}", &mark[1], &mark[3])
    };
    MARKS.replace_all(source, always).into_owned()
}

/// Runs `work` where expressions may be deep: the template engine's parser and its values recurse.
fn on_a_large_stack<T: Send>(
    work: impl FnOnce() -> std::result::Result<T, minijinja::Error> + Send,
) -> Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work);
        let thread = thread.map_err(|source| {
            let what = "no thread for it can be started";
            unusable(minijinja::Error::new(ErrorKind::InvalidOperation, what).with_source(source))
        })?;
        thread.join().unwrap_or_else(|panic| resume_unwind(panic)).map_err(unusable)
    })
}

/// A text that does not grow for ever.
struct Bounded(Vec<u8>);

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MOST_TEXT {
            return Err(io::Error::other(format!("the text has more than {MOST_TEXT} bytes")));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn unusable(source: minijinja::Error) -> Error {
    Error::Template { source }
}

/// The function that templates call for conversations that they do not take.
fn raise_exception(message: String) -> std::result::Result<Value, minijinja::Error> {
    Err(minijinja::Error::new(ErrorKind::InvalidOperation, message))
}

/// Today's date, in the format of `strftime`.
fn strftime_now(format: &str) -> std::result::Result<String, minijinja::Error> {
    strtime::format(format, &Zoned::now()).map_err(|e| {
        let what = format!("{format:?} is no format of a date");
        minijinja::Error::new(ErrorKind::InvalidOperation, what).with_source(e)
    })
}

/// `tojson` as `transformers` has it: HTML is not escaped, `indent` is a number of spaces.
fn to_json(value: Value, options: Kwargs) -> std::result::Result<Value, minijinja::Error> {
    let indent: Option<usize> = options.get("indent")?;
    // Characters outside ASCII stay as they are, whatever it says: tokenizers take them so.
    let _: Option<bool> = options.get("ensure_ascii")?;
    options.assert_all_used()?;
    let mut out = Vec::new();
    let written = match indent {
        None => value.serialize(&mut Serializer::with_formatter(&mut out, Python)),
        Some(width) => {
            let indent = " ".repeat(width.min(16));
            let formatter = PrettyFormatter::with_indent(indent.as_bytes());
            value.serialize(&mut Serializer::with_formatter(&mut out, formatter))
        }
    };
    written.map_err(|e| {
        minijinja::Error::new(ErrorKind::InvalidOperation, "cannot write as JSON").with_source(e)
    })?;
    Ok(Value::from_safe_string(String::from_utf8_lossy(&out).into_owned()))
}

/// JSON with a space after commas and colons, as Python writes it.
struct Python;

impl Formatter for Python {
    fn begin_array_value<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }
}
