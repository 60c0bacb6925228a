//! Constraints of texts: JSON, JSON by a schema, a grammar in Lark's notation or in GBNF, or calls of functions.
//!
//! `llguidance` compiles grammars, and computes before each token which ones may come next. Its work is
//! bounded, by sizes and by counts of operations; the times are at its own rates for a fast core. Tokens are
//! taken as bytes, so that a token may end within a character, and any division of a text into tokens is
//! allowed.

mod calls;
mod forms;
mod gbnf;
mod lark;
mod limits;
#[cfg(test)]
mod suite;
#[cfg(test)]
mod tests;
mod wording;

use std::collections::BTreeSet;
use std::fmt;
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;

use anyhow::{Context, ensure};
use ga10b_llm::Tokenizer;
use ga10b_llm::sampler::{Constraint, GaveUp};
use llguidance::api::{ParserLimits, StopReason, TopLevelGrammar};
use llguidance::earley::SlicedBiasComputer;
use llguidance::toktrie::{ApproximateTokEnv, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie};
use llguidance::{Matcher, ParserFactory};
use serde_json::{Value, json};

pub use crate::grammar::calls::Calls;
use crate::grammar::forms::CONTROLS;
pub use crate::grammar::forms::{Form, Parameter, VALUE_END, parameters};
use crate::text_file::{self, Input};

/// Bytes of the longest grammar, or of a schema as compact JSON.
const MOST_BYTES: usize = 128 << 10;
/// Bytes of stack for the compiler, which recurses.
const STACK: usize = 256 << 20;
/// Schemas that are compiled to find the part that is wrong.
const MOST_TRIES: usize = 256;
/// Formats that are warned of.
const MOST_WARNED: usize = 100;

/// A constraint of a text.
#[derive(Clone, Debug, PartialEq)]
pub enum Grammar {
    /// A JSON object.
    Object,
    /// JSON that a schema accepts.
    Schema(Value),
    /// Of a grammar in Lark's notation.
    Lark(String),
    /// A text that calls functions.
    Calls(Calls),
}

/// The reason a constraint gave up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Impasse {
    /// No token of the vocabulary may come next.
    NoToken,
    /// It takes more work to know which token may come next than is allowed.
    Work,
}

impl fmt::Display for Impasse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoToken => "no token of the model may come next, and the text may not end there either",
            Self::Work => "it takes more work to know which token may come next than is allowed; simplify it",
        })
    }
}

/// Compiles grammars for a vocabulary.
pub struct Compiler {
    factory: ParserFactory,
    /// The control tokens within forms of calls.
    controls: Vec<(&'static str, u32)>,
    /// Formats that were warned of.
    warned: Mutex<BTreeSet<String>>,
}

impl Grammar {
    /// Reads the file of a schema, or of a grammar, if there is one.
    ///
    /// # Errors
    /// If it cannot be read, is no JSON, or no grammar.
    pub fn read(schema: Option<&Path>, lark: Option<&Path>) -> anyhow::Result<Option<Self>> {
        let Some(path) = schema.or(lark) else { return Ok(None) };
        let named = || format!("cannot read {}", path.display());
        let text = text_file::read(path, Input::AFile).with_context(named)?;
        Ok(Some(match schema {
            Some(_) => Self::Schema(serde_json::from_str(&text).with_context(named)?),
            None => Self::of_text(&text).map_err(anyhow::Error::msg).with_context(named)?,
        }))
    }

    /// Reads a grammar in Lark's notation or in GBNF.
    ///
    /// # Errors
    /// For what is wrong or has no counterpart in a grammar in GBNF, with its place.
    pub fn of_text(text: &str) -> Result<Self, String> {
        match text {
            _ if text.len() > MOST_BYTES => {
                Err(format!("it has {} bytes, more than {MOST_BYTES}", text.len()))
            }
            _ if gbnf::is_gbnf(text) => gbnf::to_lark(text).map(Self::Lark),
            _ => Ok(Self::Lark(text.to_owned())),
        }
    }

    /// An error if it is too large to be compiled, or means something else to the compiler.
    fn check(&self) -> Result<(), String> {
        let bytes = match self {
            Self::Object => 0,
            Self::Lark(text) => {
                limits::check_lark(text)?;
                text.len()
            }
            Self::Schema(schema) => {
                limits::check_schema(schema)?;
                schema.to_string().len()
            }
            Self::Calls(Calls { form, functions, answer, .. }) => {
                let mut bytes = answer.as_ref().map_or(0, |schema| schema.to_string().len());
                answer.as_ref().map_or(Ok(()), limits::check_schema)?;
                for (name, schema) in functions {
                    if schema.get("x-guidance").is_some() {
                        return Err(format!("{name}: x-guidance is not supported"));
                    }
                    let named = |message| format!("{name}: {message}");
                    limits::check_schema(schema).map_err(named)?;
                    if form.is_tagged {
                        parameters(schema).map_err(named)?;
                    }
                    bytes += schema.to_string().len();
                }
                bytes
            }
        };
        match bytes {
            0..=MOST_BYTES => Ok(()),
            _ => Err(format!("it has {bytes} bytes, more than {MOST_BYTES}")),
        }
    }

    /// The schema of a text of JSON.
    pub fn schema(&self) -> Option<Value> {
        match self {
            Self::Object => Some(json!({"type": "object"})),
            Self::Schema(schema) => Some(schema.clone()),
            Self::Lark(_) | Self::Calls(_) => None,
        }
    }
}

impl Compiler {
    /// A compiler for the vocabulary of `tokenizer`.
    ///
    /// # Errors
    /// If it has no token that ends text: nothing would say where JSON ends.
    pub fn new(tokenizer: &Tokenizer) -> anyhow::Result<Self> {
        let ends = tokenizer.ends();
        let count = u32::try_from(tokenizer.vocab()).context("the vocabulary is too large")?;
        ensure!(!ends.is_empty(), "the vocabulary has no token that ends text, which grammars need");
        let word = |token: u32| match tokenizer.bytes(token).filter(|_| !tokenizer.is_end(token)) {
            Some(bytes) => bytes.to_vec(),
            // Its name, which no text has.
            None => [&[TokTrie::SPECIAL_TOKEN_MARKER], tokenizer.name(token).as_bytes()].concat(),
        };
        let words: Vec<Vec<u8>> = (0..count).map(word).collect();
        let trie = TokTrie::from(&TokRxInfo::new(count, ends[0]), &words).with_eos_tokens(ends);
        let env: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        let slices = SlicedBiasComputer::json_slices();
        let mut factory = ParserFactory::new(&env, InferenceCapabilities::default(), &slices)?;
        factory.quiet();
        *factory.limits_mut() = ParserLimits {
            // States of 1 to 2 KiB.
            max_lexer_states: 16_384,
            verbose_errors: false,
            ..ParserLimits::default()
        };
        let is_control = |token: &u32| tokenizer.bytes(*token).is_none() && !tokenizer.is_end(*token);
        let named = |token| CONTROLS.into_iter().find(|name| *name == tokenizer.name(token)).zip(Some(token));
        let controls = (0..count).filter(is_control).filter_map(named).collect();
        Ok(Self { factory, controls, warned: Mutex::default() })
    }

    /// The constraint of a text by `grammar`.
    ///
    /// # Errors
    /// The fault of the grammar, and its place in a schema.
    pub fn compile(&self, grammar: &Grammar) -> Result<Box<dyn Constraint>, String> {
        self.compile_telling(grammar, Arc::default())
    }

    /// The same. The first of its copies that gives up sets `impasse`.
    ///
    /// # Errors
    /// As [`Compiler::compile`].
    pub fn compile_telling(
        &self,
        grammar: &Grammar,
        impasse: Arc<OnceLock<Impasse>>,
    ) -> Result<Box<dyn Constraint>, String> {
        grammar.check()?;
        let mut grammar = grammar.clone();
        match &mut grammar {
            Grammar::Schema(schema) => self.reword(schema),
            Grammar::Calls(Calls { functions, answer, .. }) => {
                let schemas = functions.iter_mut().map(|(_, schema)| schema).chain(answer);
                schemas.for_each(|schema| self.reword(schema));
            }
            Grammar::Object | Grammar::Lark(_) => {}
        }
        let grammar = &grammar;
        on_a_large_stack(|| match self.matcher(grammar) {
            Ok(matcher) => {
                Ok(Box::new(Text { start: matcher.clone(), matcher, impasse }) as Box<dyn Constraint>)
            }
            Err(message) => Err(match grammar {
                Grammar::Schema(schema) => format!("{}: {message}", self.blame(schema, &message)),
                Grammar::Calls(Calls { functions, .. }) => self.blame_function(functions).unwrap_or(message),
                _ => message,
            }),
        })
    }

    /// A schema in the compiler's words; warns of each unknown format once.
    fn reword(&self, schema: &mut Value) {
        let mut ignored = |format: &str| {
            let format: String = format.chars().take(100).collect();
            let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
            if warned.len() < MOST_WARNED && warned.insert(format.clone()) {
                tracing::warn!("a schema has the format {format:?}, which is not known and is ignored");
            }
        };
        wording::reword(schema, &mut ignored);
    }

    fn matcher(&self, grammar: &Grammar) -> Result<Matcher, String> {
        if let Grammar::Schema(Value::Object(fields)) = grammar
            && fields.contains_key("x-guidance")
        {
            return Err("x-guidance is not supported".into());
        }
        let source = match grammar {
            Grammar::Lark(text) => TopLevelGrammar::from_lark(text.clone()),
            Grammar::Calls(calls) => calls.source(&self.controls),
            Grammar::Object | Grammar::Schema(_) => {
                TopLevelGrammar::from_grammar(wording::by_schema(None, grammar.schema().unwrap_or_default()))
            }
        };
        let matcher = Matcher::new(self.factory.create_parser(source));
        match matcher.get_error() {
            None => Ok(matcher),
            Some(error) => Err(message(&error)),
        }
    }

    /// The first function whose schema is wrong, and its fault.
    fn blame_function(&self, functions: &[(String, Value)]) -> Option<String> {
        let fault = |(name, schema): &(String, Value)| {
            let message = self.matcher(&Grammar::Schema(schema.clone())).err()?;
            Some(format!("{name}: {}: {message}", self.blame(schema, &message)))
        };
        functions.iter().find_map(fault)
    }

    /// The innermost part of a schema that is wrong in the same way, as a pointer.
    fn blame(&self, schema: &Value, message: &str) -> String {
        let mut place = "#".to_owned();
        let mut part = schema;
        let mut tries = 0;
        'inwards: loop {
            for (name, inner) in parts(part) {
                tries += 1;
                if tries > MOST_TRIES {
                    return place;
                }
                let alone = with_definitions(inner, schema);
                if self.matcher(&Grammar::Schema(alone)).is_err_and(|other| other == message) {
                    place = format!("{place}/{name}");
                    part = inner;
                    continue 'inwards;
                }
            }
            return place;
        }
    }
}

/// The schemas within a schema, by their pointers from there.
fn parts(schema: &Value) -> Vec<(String, &Value)> {
    const ONE: [&str; 3] = ["items", "additionalProperties", "not"];
    const LISTS: [&str; 4] = ["anyOf", "oneOf", "allOf", "prefixItems"];
    const NAMED: [&str; 4] = ["properties", "patternProperties", "$defs", "definitions"];
    let step = |name: &str| name.replace('~', "~0").replace('/', "~1");
    let one = ONE.iter().filter_map(|name| Some(((*name).to_owned(), schema.get(name)?)));
    let lists = LISTS.iter().filter_map(|name| Some((name, schema.get(name)?.as_array()?)));
    let lists = lists
        .flat_map(|(name, list)| list.iter().enumerate().map(move |(at, v)| (format!("{name}/{at}"), v)));
    let named = NAMED.iter().filter_map(|name| Some((name, schema.get(name)?.as_object()?)));
    let named =
        named.flat_map(|(name, all)| all.iter().map(move |(key, v)| (format!("{name}/{}", step(key)), v)));
    one.chain(lists).chain(named).collect()
}

/// A part of a schema with the definitions that it may refer to.
fn with_definitions(part: &Value, whole: &Value) -> Value {
    let mut alone = part.clone();
    if let Some(fields) = alone.as_object_mut() {
        for name in ["$defs", "definitions"] {
            if let Some(definitions) = whole.get(name) {
                fields.entry(name).or_insert_with(|| definitions.clone());
            }
        }
    }
    alone
}

/// The compiler's message, in a line, without its own state.
fn message(text: &str) -> String {
    let words = text.lines().take_while(|line| !line.starts_with('<')).flat_map(str::split_whitespace);
    words.collect::<Vec<_>>().join(" ").chars().take(400).collect()
}

fn on_a_large_stack<T: Send>(work: impl FnOnce() -> Result<T, String> + Send) -> Result<T, String> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work);
        let thread = thread.map_err(|error| format!("no thread for the compiler can be started: {error}"))?;
        thread.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}

/// A text by a grammar.
struct Text {
    /// Before the first token.
    start: Matcher,
    matcher: Matcher,
    /// The reason that it or a copy gave up.
    impasse: Arc<OnceLock<Impasse>>,
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Text").field("stopped", &self.matcher.is_stopped()).finish_non_exhaustive()
    }
}

impl Text {
    /// Reports why `llguidance` gave up.
    fn gave_up(&self, error: &anyhow::Error) -> GaveUp {
        let message = message(&error.to_string());
        tracing::warn!("the constraint of a text: {message}");
        // Its name of the reason is all that a matcher keeps.
        let no_token = message.contains(&StopReason::NoExtensionBias.to_string());
        self.impasse.get_or_init(|| if no_token { Impasse::NoToken } else { Impasse::Work });
        GaveUp
    }
}

impl Constraint for Text {
    fn begin(&mut self) {
        self.matcher = self.start.clone();
    }

    fn restrict(&mut self, logits: &mut [f32]) -> Result<(), GaveUp> {
        let mask = self.matcher.compute_mask_or_eos().map_err(|error| self.gave_up(&error))?;
        for (token, logit) in logits.iter_mut().enumerate() {
            if token >= mask.len() || !mask.get(token) {
                *logit = f32::NEG_INFINITY;
            }
        }
        Ok(())
    }

    fn accept(&mut self, token: u32) -> Result<bool, GaveUp> {
        if self.matcher.is_stopped() {
            return Ok(true);
        }
        self.matcher.consume_token(token).map_err(|error| self.gave_up(&error))?;
        Ok(self.matcher.is_stopped())
    }

    fn copied(&self) -> Box<dyn Constraint> {
        let (matcher, impasse) = (self.matcher.deep_clone(), Arc::clone(&self.impasse));
        Box::new(Self { start: self.start.clone(), matcher, impasse })
    }
}
