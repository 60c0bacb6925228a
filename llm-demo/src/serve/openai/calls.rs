//! The calls of functions in a text, which the grammar of [`Calls`] has made.

use crate::grammar::Calls;

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
    /// The text whose meaning is not certain.
    rest: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// At the beginning of a text, where a call without a mark may stand.
    Begin,
    Text,
    /// After a mark, before the arguments.
    Head,
    Arguments {
        depth: usize,
        in_string: bool,
        is_escaped: bool,
    },
    /// After the arguments.
    Tail,
    /// Nothing but calls comes after a call.
    Between,
}

impl Reader {
    pub fn new(calls: Calls) -> Self {
        let state = if calls.marks.is_none() { State::Begin } else { State::Text };
        Self { calls, state, rest: String::new() }
    }

    /// The parts that `piece` makes certain.
    pub fn push(&mut self, piece: &str) -> Vec<Part> {
        self.rest.push_str(piece);
        let mut parts = Vec::new();
        while self.step(&mut parts) {}
        parts
    }

    /// The rest of a text that has ended.
    pub fn finish(&mut self) -> Option<Part> {
        let rest = std::mem::take(&mut self.rest);
        (matches!(self.state, State::Begin | State::Text) && !rest.is_empty()).then_some(Part::Text(rest))
    }

    /// Reads on to the next state. False if more of the text is needed.
    fn step(&mut self, parts: &mut Vec<Part>) -> bool {
        match self.state {
            State::Begin => match self.rest.chars().next() {
                None => return false,
                Some('{') => self.state = State::Head,
                Some(_) => self.state = State::Text,
            },
            State::Text => return self.text(parts),
            State::Head => {
                let heads = self.calls.functions.iter().map(|(name, _)| (name, self.calls.head(name)));
                let begun = self.rest.trim_start();
                let found =
                    heads.filter_map(|(name, head)| Some((name.clone(), begun.strip_prefix(&head)?.len())));
                let Some((name, left)) = found.min_by_key(|(_, left)| *left) else { return false };
                parts.push(Part::Call(name));
                self.rest.drain(..self.rest.len() - left);
                self.state = State::Arguments { depth: 0, in_string: false, is_escaped: false };
            }
            State::Arguments { .. } => return self.arguments(parts),
            State::Tail => {
                let Some((_, end)) = self.calls.marks else { return false };
                let Some(at) = self.rest.find(end) else { return false };
                self.rest.drain(..at + end.len());
                self.state = State::Between;
            }
            State::Between => {
                let Some((begin, _)) = self.calls.marks else { return false };
                let Some(at) = self.rest.find(begin) else { return false };
                self.rest.drain(..at + begin.len());
                self.state = State::Head;
            }
        }
        true
    }

    /// Reads text before a mark.
    fn text(&mut self, parts: &mut Vec<Part>) -> bool {
        let begin = self.calls.marks.map_or("", |(begin, _)| begin);
        let found = self.rest.find(begin).filter(|_| !begin.is_empty());
        // What may begin a mark is held back, and the space before it, which is none of the answer.
        let starts = self.rest.char_indices().map(|(at, _)| at);
        let held = |at: &usize| !begin.is_empty() && begin.starts_with(self.rest[*at..].trim_start());
        let certain = found.or_else(|| starts.clone().find(held)).unwrap_or(self.rest.len());
        let text: String = self.rest.drain(..certain).collect();
        let text = if found.is_some() { text.trim_end().to_owned() } else { text };
        if !text.is_empty() {
            parts.push(Part::Text(text));
        }
        if found.is_some() {
            self.rest.drain(..begin.len());
            self.state = State::Head;
        }
        found.is_some()
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
            Some(_) => State::Tail,
            None => State::Arguments { depth, in_string, is_escaped },
        };
        end.is_some()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn calls(marks: bool) -> Calls {
        let marks = marks.then_some(("<tool_call>", "</tool_call>"));
        let functions = ["go", "go_home"].map(|name| (name.to_owned(), json!({}))).to_vec();
        Calls { marks, key: "arguments", functions, is_free: true, is_several: true }
    }

    /// The text and the calls of a text that comes in pieces.
    fn read<'a>(marks: bool, pieces: impl IntoIterator<Item = &'a str>) -> (String, Vec<(String, String)>) {
        let mut reader = Reader::new(calls(marks));
        let mut parts: Vec<Part> = pieces.into_iter().flat_map(|piece| reader.push(piece)).collect();
        parts.extend(reader.finish());
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
            let two = format!(
                "I <go> now.\n<tool_call>\n{{\"name\": \"go\", \"arguments\": {one}}}\n</tool_call>\n\
                 <tool_call>\n{{\"name\": \"go_home\", \"arguments\": {{}}}}\n</tool_call>"
            );
            let begin = two.find(one).expect("it is there");
            let bare = format!("{{\"name\": \"go\", \"arguments\": {one}}}");
            for (marks, text, expected) in [
                (true, two.as_str(), ("I <go> now.", vec![of("go", one), of("go_home", "{}")])),
                (true, &two[..begin + 6], ("I <go> now.", vec![of("go", &one[..6])])),
                (true, "no <tool_ca", ("no <tool_ca", vec![])),
                (false, bare.as_str(), ("", vec![of("go", one)])),
                (false, "a {\"name\"", ("a {\"name\"", vec![])),
            ] {
                let mut ends: Vec<usize> = cuts.iter().copied().filter(|at| text.is_char_boundary(*at)).collect();
                ends.extend([0, text.len()]);
                ends.sort_unstable();
                let pieces: Vec<&str> = ends.windows(2).map(|w| &text[w[0]..w[1]]).collect();
                let (found, calls) = read(marks, pieces);
                prop_assert_eq!((found.as_str(), calls), expected);
            }
        }
    }
}
