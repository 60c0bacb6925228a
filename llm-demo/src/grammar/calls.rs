//! The grammar of texts that call functions.

use llguidance::api::{GrammarWithLexer, TopLevelGrammar};
use serde_json::Value;

use super::forms::{Form, Parameter, VALUE_END, Written, parameters};
use super::lark;
use super::wording::by_schema;

/// Texts that call functions.
#[derive(Clone, Debug, PartialEq)]
pub struct Calls {
    pub form: Form,
    /// The names of functions and the schemas of their arguments.
    pub functions: Vec<(String, Value)>,
    /// Whether there may be a text without a call, and, if it is any text, before the first.
    pub is_free: bool,
    /// Whether there may be several calls; without a mark there is one.
    pub is_several: bool,
    /// The schema of a text without a call; `None` for any text. It needs a form with a mark.
    pub answer: Option<Value>,
}

impl Calls {
    /// The grammar in Lark's notation, and those of arguments by their names in it. `controls` are the control tokens
    /// that marks may be.
    pub(super) fn source(&self, controls: &[(&'static str, u32)]) -> TopLevelGrammar {
        let literal = |text: &str| literal(text, controls);
        let mut inner: Vec<(String, Value)> = Vec::new();
        let mut bodies = Vec::new();
        for (number, (name, schema)) in self.functions.iter().enumerate() {
            let head = literal(&self.form.head(name));
            let arguments = match self.form.is_tagged {
                true => parameters(schema)
                    .unwrap_or_default()
                    .into_iter()
                    .enumerate()
                    .map(|(at, parameter)| tagged(&parameter, &format!("f{number}p{at}"), &mut inner))
                    .collect(),
                false => {
                    inner.push((format!("f{number}"), schema.clone()));
                    format!("@f{number}")
                }
            };
            bodies.push(format!("{head} {arguments} {}", literal(self.form.tail)));
        }
        let mut lark = format!("body: {}\n", bodies.join(" | "));
        if self.form.is_tagged {
            let end = escaped(VALUE_END);
            lark += &format!("TEXT: /(.|\\n)*{end}/ & ~/(.|\\n)*{end}(.|\\n)+/\n");
        }
        lark += &match self.form.mark {
            None => {
                let free = if self.is_free { "PLAIN? | " } else { "" };
                format!("start: {free}body\nPLAIN: /[^{{](.|\\n)*/\n")
            }
            Some(mark) => self.marked(mark, literal),
        };
        inner.extend(self.answer.clone().filter(|_| self.is_free).map(|schema| ("answer".into(), schema)));
        let mut grammar = TopLevelGrammar::from_grammar(GrammarWithLexer::from_lark(lark));
        grammar.grammars.extend(inner.into_iter().map(|(name, schema)| by_schema(Some(name), schema)));
        grammar
    }

    /// The rules of a text whose calls begin with a mark.
    fn marked(&self, mark: &str, literal: impl Fn(&str) -> String) -> String {
        let Form { opening, between, closing, .. } = self.form;
        let more = if self.is_several { format!("({} body)*", literal(between)) } else { String::new() };
        let calls = format!("calls: {} body {more} {}\n", literal(opening), literal(closing));
        let (begin, pattern) = (literal(mark), escaped(mark));
        let plain = format!("PLAIN: /(.|\\n)*/ & ~/(.|\\n)*{pattern}(.|\\n)*/\n");
        let start = match (self.is_free, &self.answer) {
            (false, _) => format!("start: {begin} calls\n"),
            (true, Some(_)) => format!("start: @answer | {begin} calls\n"),
            // A control token is no character of the text before it.
            (true, None) if begin.starts_with('<') => format!("start: PLAIN? ({begin} calls)?\n{plain}"),
            // The second ends at the first mark, which the first does not have.
            (true, None) => {
                format!("start: PLAIN | before calls\nbefore[suffix={begin}]: /(.|\\n)*/\n{plain}")
            }
        };
        calls + &start
    }
}

/// A parameter of a form with tags; its schema goes to `inner` by the name `name`, if its value is JSON.
fn tagged(parameter: &Parameter, name: &str, inner: &mut Vec<(String, Value)>) -> String {
    let value = match &parameter.written {
        Written::Text => "TEXT".to_owned(),
        Written::Words(words) => {
            let words: Vec<String> =
                words.iter().map(|word| lark::string(&format!("{word}{VALUE_END}"))).collect();
            format!("({})", words.join(" | "))
        }
        Written::Json(schema) => {
            inner.push((name.to_owned(), schema.clone()));
            format!("@{name} {}", lark::string(VALUE_END))
        }
    };
    let maybe = if parameter.is_required { "" } else { "?" };
    format!("({} {value}){maybe} ", lark::string(&parameter.begin()))
}

/// A text in Lark's notation, with its control tokens as such.
fn literal(text: &str, controls: &[(&'static str, u32)]) -> String {
    let found = controls.iter().filter_map(|(name, token)| Some((text.find(name)?, name.len(), token)));
    match found.min() {
        _ if text.is_empty() => String::new(),
        None => lark::string(text),
        Some((at, length, token)) => {
            let rest = literal(&text[at + length..], controls);
            let before = if at == 0 { String::new() } else { lark::string(&text[..at]) };
            format!("{before} <[{token}]> {rest}").trim().to_owned()
        }
    }
}

/// A text as a pattern.
fn escaped(text: &str) -> String {
    let one = |c: char| match c.is_ascii_alphanumeric() {
        true => c.to_string(),
        false => lark::character(c),
    };
    text.chars().map(one).collect()
}
