//! The grammar of texts that call functions.

use llguidance::JsonCompileOptions;
use llguidance::api::{GrammarWithLexer, TopLevelGrammar};
use serde_json::Value;

/// Texts that call functions: a call is an object with a name and arguments, between two marks if there are some.
#[derive(Clone, Debug, PartialEq)]
pub struct Calls {
    /// Marks before and after a call.
    pub marks: Option<(&'static str, &'static str)>,
    /// The field of the arguments in a call.
    pub key: &'static str,
    /// The names of functions and the schemas of their arguments.
    pub functions: Vec<(String, Value)>,
    /// Whether there may be a text without a call, and before the first.
    pub is_free: bool,
    /// Whether there may be several calls; without marks there is one.
    pub is_several: bool,
}

impl Calls {
    /// The beginning of a call of the function `name`, up to its arguments.
    pub fn head(&self, name: &str) -> String {
        format!("{{\"name\": \"{name}\", \"{}\": ", self.key)
    }

    /// The grammar in Lark's notation, and of each function's arguments as `@f0`, `@f1` ..
    pub(super) fn source(&self, options: &JsonCompileOptions) -> TopLevelGrammar {
        let call = |(number, (name, _)): (usize, &(String, Value))| {
            format!("{} @f{number} \"}}\"", quoted(&self.head(name)))
        };
        let bodies: Vec<String> = self.functions.iter().enumerate().map(call).collect();
        let mut lark = format!("body: {}\n", bodies.join(" | "));
        match self.marks {
            None => {
                let free = if self.is_free { "PLAIN? | " } else { "" };
                lark += &format!("start: {free}body\nPLAIN: /[^{{](.|\\n)*/\n");
            }
            Some((begin, end)) => {
                let (rest, begin_line) = (format!("\n{end}"), format!("\n{begin}\n"));
                let more = match self.is_several {
                    true => format!("({} body {})*", quoted(&begin_line), quoted(&rest)),
                    false => String::new(),
                };
                lark += &format!("calls: \"\\n\" body {} {more}\n", quoted(&rest));
                let mark = quoted(begin);
                lark += &match self.is_free {
                    // The second ends at the first mark, which the first does not have.
                    true => format!(
                        "start: PLAIN | before calls\nbefore[suffix={mark}]: /(.|\\n)*/\n\
                         PLAIN: /(.|\\n)*/ & ~/(.|\\n)*{begin}(.|\\n)*/\n"
                    ),
                    false => format!("start: {mark} calls\n"),
                };
            }
        }
        let arguments = |(number, (_, schema)): (usize, &(String, Value))| {
            let mut schema = schema.clone();
            options.apply_to(&mut schema);
            GrammarWithLexer {
                name: Some(format!("f{number}")),
                ..GrammarWithLexer::from_json_schema(schema)
            }
        };
        let mut grammar = TopLevelGrammar::from_grammar(GrammarWithLexer::from_lark(lark));
        grammar.grammars.extend(self.functions.iter().enumerate().map(arguments));
        grammar
    }
}

/// A text as a string of Lark's notation, which is one of JSON.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}
