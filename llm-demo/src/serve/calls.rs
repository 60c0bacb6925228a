//! The calls of functions in a text, which the grammar of [`Calls`] has made.

use serde_json::Value;

use crate::grammar::{Calls, Parameter, VALUE_END, parameters};

/// A part of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    Text(String),
    /// A call of a function begins.
    Call(String),
    /// More of the arguments of the last call.
    Arguments(String),
}

/// Finds the calls in a text that comes in pieces.
#[derive(Clone, Debug)]
pub struct Reader {
    calls: Calls,
    state: State,
    /// The parameters of each function, in a form with tags.
    parameters: Vec<Vec<Parameter>>,
    /// The text whose meaning is not certain.
    rest: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// At the beginning of a text that is a call or has none.
    Begin,
    /// Text, before a mark if there is one.
    Text {
        may_call: bool,
    },
    /// Before the head of a call.
    Head {
        is_first: bool,
    },
    Arguments {
        depth: usize,
        in_string: bool,
        is_escaped: bool,
    },
    /// Between the parameters of a function.
    Parameters {
        function: usize,
        is_first: bool,
    },
    /// The value of a parameter.
    Value {
        function: usize,
        is_text: bool,
    },
}

impl Reader {
    pub fn new(calls: Calls) -> Self {
        let state = match (calls.form.mark, &calls.answer) {
            (Some(_), None) => State::Text { may_call: true },
            (None, _) | (_, Some(_)) => State::Begin,
        };
        let of = |(_, schema): &(String, Value)| parameters(schema).unwrap_or_default();
        let parameters = match calls.form.is_tagged {
            true => calls.functions.iter().map(of).collect(),
            false => Vec::new(),
        };
        Self { calls, state, parameters, rest: String::new() }
    }

    /// The parts that `piece` makes certain.
    pub fn push(&mut self, piece: &str) -> Vec<Part> {
        self.rest.push_str(piece);
        let mut parts = Vec::new();
        while self.step(&mut parts) {}
        parts
    }

    /// Bytes of the text whose meaning is not certain.
    pub fn held(&self) -> usize {
        self.rest.len()
    }

    /// The rest of a text that has ended. A part of a mark or of a tag is nothing; where there may be a text, what
    /// could begin a mark is text.
    pub fn finish(&mut self) -> String {
        let rest = std::mem::take(&mut self.rest);
        match self.state {
            State::Begin | State::Text { .. } if self.calls.is_free => rest,
            _ => String::new(),
        }
    }

    /// Reads on to the next state. False if more of the text is needed.
    fn step(&mut self, parts: &mut Vec<Part>) -> bool {
        match self.state {
            State::Begin => self.begin(),
            State::Text { may_call } => self.text(may_call, parts),
            State::Head { is_first } => self.head(is_first, parts),
            State::Arguments { .. } => self.arguments(parts),
            State::Parameters { function, is_first } => self.parameter((function, is_first), parts),
            State::Value { function, is_text } => self.value((function, is_text), parts),
        }
    }

    /// Reads the beginning, which says whether the text is a call.
    fn begin(&mut self) -> bool {
        let begin = self.calls.form.mark.unwrap_or("{");
        self.state = match () {
            () if self.rest.starts_with(begin) => {
                self.rest.drain(..self.calls.form.mark.map_or(0, str::len));
                State::Head { is_first: true }
            }
            () if begin.starts_with(&self.rest) => return false,
            () => State::Text { may_call: false },
        };
        true
    }

    /// Reads text before a mark.
    fn text(&mut self, may_call: bool, parts: &mut Vec<Part>) -> bool {
        let mark = self.calls.form.mark.filter(|_| may_call);
        let found = mark.and_then(|mark| self.rest.find(mark));
        // The space before a mark is none of the answer.
        let may_begin = |end: &str| mark.is_some_and(|mark| mark.starts_with(end.trim_start()));
        let certain = found.unwrap_or_else(|| self.rest.len() - self.beginning(may_begin));
        let text: String = self.rest.drain(..certain).collect();
        let text = if found.is_some() { text.trim_end().to_owned() } else { text };
        if !text.is_empty() {
            parts.push(Part::Text(text));
        }
        if found.is_some() {
            self.rest.drain(..mark.map_or(0, str::len));
            self.state = State::Head { is_first: true };
        }
        found.is_some()
    }

    /// Bytes of the longest end of the text that may begin something.
    fn beginning(&self, may_begin: impl Fn(&str) -> bool) -> usize {
        let mut ends = self.rest.char_indices().map(|(at, _)| &self.rest[at..]);
        ends.find(|end| may_begin(end)).map_or(0, str::len)
    }

    /// Reads up to the arguments of a call.
    fn head(&mut self, is_first: bool, parts: &mut Vec<Part>) -> bool {
        let form = self.calls.form;
        let before =
            if is_first { form.opening.to_owned() } else { format!("{}{}", form.tail, form.between) };
        let Some(begun) = self.rest.strip_prefix(&before) else { return false };
        let ends = |(name, _): &(String, Value)| Some(begun.strip_prefix(&form.head(name))?.len());
        let mut functions = self.calls.functions.iter().map(ends).enumerate();
        let Some((function, left)) = functions.find_map(|(at, left)| Some((at, left?))) else { return false };
        parts.push(Part::Call(self.calls.functions[function].0.clone()));
        self.rest.drain(..self.rest.len() - left);
        self.state = match form.is_tagged {
            true => State::Parameters { function, is_first: true },
            false => State::Arguments { depth: 0, in_string: false, is_escaped: false },
        };
        true
    }

    /// Reads arguments up to the end of their object.
    fn arguments(&mut self, parts: &mut Vec<Part>) -> bool {
        let State::Arguments { mut depth, mut in_string, mut is_escaped } = self.state else { return false };
        let mut end = None;
        for (at, c) in self.rest.char_indices() {
            match c {
                _ if is_escaped => is_escaped = false,
                '\\' if in_string => is_escaped = true,
                '"' => in_string = !in_string,
                '{' | '[' if !in_string => depth += 1,
                '}' | ']' if !in_string => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth == 0 && c == '}' && !in_string {
                end = Some(at + 1);
                break;
            }
        }
        let text: String = self.rest.drain(..end.unwrap_or(self.rest.len())).collect();
        if !text.is_empty() {
            parts.push(Part::Arguments(text));
        }
        self.state = match end {
            Some(_) => State::Head { is_first: false },
            None => State::Arguments { depth, in_string, is_escaped },
        };
        end.is_some()
    }

    /// Reads the tag before a parameter's value, or up to the end of a function's parameters.
    fn parameter(&mut self, (function, is_first): (usize, bool), parts: &mut Vec<Part>) -> bool {
        if self.rest.starts_with("</") {
            parts.push(Part::Arguments(if is_first { "{}" } else { "}" }.into()));
            self.state = State::Head { is_first: false };
            return true;
        }
        let mut all = self.parameters[function].iter();
        let Some((parameter, left)) =
            all.find_map(|parameter| Some((parameter, self.rest.strip_prefix(&parameter.begin())?.len())))
        else {
            return false;
        };
        let before = if is_first { "{" } else { ", " };
        let quote = if parameter.is_text() { "\"" } else { "" };
        let name = Value::from(parameter.name.as_str());
        parts.push(Part::Arguments(format!("{before}{name}: {quote}")));
        self.state = State::Value { function, is_text: parameter.is_text() };
        self.rest.drain(..self.rest.len() - left);
        true
    }

    /// Reads a parameter's value.
    fn value(&mut self, (function, is_text): (usize, bool), parts: &mut Vec<Part>) -> bool {
        let found = self.rest.find(VALUE_END);
        let certain =
            found.unwrap_or_else(|| self.rest.len() - self.beginning(|end| VALUE_END.starts_with(end)));
        let mut text = as_json(&self.rest.drain(..certain).collect::<String>(), is_text);
        if found.is_some() {
            self.rest.drain(..VALUE_END.len());
            text.push_str(if is_text { "\"" } else { "" });
            self.state = State::Parameters { function, is_first: false };
        }
        if !text.is_empty() {
            parts.push(Part::Arguments(text));
        }
        found.is_some()
    }
}

/// A piece of a value as one of JSON, without quotes.
fn as_json(piece: &str, is_text: bool) -> String {
    match is_text {
        true => {
            let quoted = Value::from(piece).to_string();
            quoted[1..quoted.len() - 1].to_owned()
        }
        false => piece.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::grammar::Form;

    fn calls(form: Form, answer: Option<Value>) -> Calls {
        let schema = json!({"properties": {"a": {"type": "string"}, "b": {"type": "array"}}});
        let functions = ["go", "go_home"].map(|name| (name.to_owned(), schema.clone())).to_vec();
        Calls { form, functions, is_free: true, is_several: true, answer }
    }

    /// The text and the calls of a text that comes in pieces.
    fn read<'a>(calls: Calls, pieces: impl IntoIterator<Item = &'a str>) -> (String, Vec<(String, String)>) {
        let mut reader = Reader::new(calls);
        let mut parts: Vec<Part> = pieces.into_iter().flat_map(|piece| reader.push(piece)).collect();
        parts.push(Part::Text(reader.finish()));
        let (mut text, mut calls) = (String::new(), Vec::<(String, String)>::new());
        for part in parts {
            match part {
                Part::Text(more) => text.push_str(&more),
                Part::Call(name) => calls.push((name, String::new())),
                Part::Arguments(more) => calls.last_mut().expect("a call").1.push_str(&more),
            }
        }
        (text, calls)
    }

    proptest! {
        #[test]
        fn the_pieces_make_no_difference(cuts in prop::collection::vec(0usize..200, 0..12)) {
            let of = |name: &str, arguments: &str| (name.to_owned(), arguments.to_owned());
            let one = r#"{"a": "}\"{é", "b": [{}]}"#;
            let [bare, hermes, tagged, list, named] = [
                "{# \"arguments\" #}", "<tool_call>", "<function= <parameter=", "[TOOL_CALLS] [", "[TOOL_CALLS] [ARGS]",
            ].map(Form::of_template);
            let call = |name: &str, arguments: &str| format!("{{\"name\": \"{name}\", \"arguments\": {arguments}}}");
            let (go, home) = (call("go", one), call("go_home", "{}"));
            let marked = format!("I <go> now.\n<tool_call>\n{go}\n</tool_call>\n<tool_call>\n{home}\n</tool_call>");
            let begin = marked.find(one).expect("it is there");
            let parameters = "I <go>\n<tool_call>\n<function=go>\n<parameter=a>\n}\"{é\n</parameter>\n<parameter=b>\n[{}]\n\
                              </parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=go_home>\n</function>\n</tool_call>";
            let listed = format!("I[TOOL_CALLS] [{go}, {home}]");
            let args = format!("I[TOOL[TOOL_CALLS]go[ARGS]{one}[TOOL_CALLS]go_home[ARGS]{{}}");
            let both = vec![of("go", one), of("go_home", "{}")];
            let cut = parameters.find("é").expect("it is there");
            let closing = parameters.rfind("\n</parameter>").expect("it is there");
            let needed = |text| in_pieces(Calls { is_free: false, ..calls(hermes, None) }, text, &cuts);
            prop_assert_eq!(needed("<tool_c"), (String::new(), vec![]));
            for (form, text, expected) in [
                (hermes, marked.as_str(), ("I <go> now.", both.clone())),
                (hermes, &marked[..begin + 6], ("I <go> now.", vec![of("go", &one[..6])])),
                (hermes, "no <tool_ca", ("no <tool_ca", vec![])),
                (bare, go.as_str(), ("", vec![of("go", one)])),
                (bare, "a {\"name\"", ("a {\"name\"", vec![])),
                // Who may write a text may have meant it.
                (hermes, "I <tool", ("I <tool", vec![])),
                (tagged, parameters, ("I <go>", both.clone())),
                (tagged, &parameters[..cut], ("I <go>", vec![of("go", "{\"a\": \"}\\\"{")])),
                (tagged, &parameters[..cut + 7], ("I <go>", vec![of("go", "{\"a\": \"}\\\"{é")])),
                (tagged, &parameters[..closing + 4], ("I <go>", vec![of("go", "{\"a\": \"}\\\"{é\", \"b\": [{}]")])),
                (list, listed.as_str(), ("I", both.clone())),
                (named, args.as_str(), ("I[TOOL", both.clone())),
            ] {
                prop_assert_eq!(in_pieces(calls(form, None), text, &cuts), (expected.0.to_owned(), expected.1));
            }
            let answer = "{\"a\": \"<tool_call>\"}";
            let by_schema = |text| in_pieces(calls(hermes, Some(json!({}))), text, &cuts);
            prop_assert_eq!(by_schema(answer), (answer.to_owned(), vec![]));
            prop_assert_eq!(by_schema(&marked[12..]), (String::new(), both));
        }
    }

    /// The text and the calls of a text that is cut.
    fn in_pieces(calls: Calls, text: &str, cuts: &[usize]) -> (String, Vec<(String, String)>) {
        let mut ends: Vec<usize> = cuts.iter().copied().filter(|at| text.is_char_boundary(*at)).collect();
        ends.extend([0, text.len()]);
        ends.sort_unstable();
        read(calls, ends.windows(2).map(|w| &text[w[0]..w[1]]))
    }
}
