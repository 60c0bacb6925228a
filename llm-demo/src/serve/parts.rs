//! The parts of a text: calls of functions, and what is before them, which stop strings end.

use crate::grammar::Calls;
use crate::serve::calls::{Part, Reader};
use crate::serve::stops::Stops;

/// Finds the parts of a text that comes in pieces. Stop strings are looked for in what is text of an answer: not in
/// calls, in their marks or in the space before them.
#[derive(Debug)]
pub struct Parts {
    /// Finds calls, if there may be some.
    reader: Option<Reader>,
    stops: Stops,
    /// Bytes of all pieces, and those whose meaning is certain.
    pushed: usize,
    certain: usize,
}

impl Parts {
    /// None of `stops` may be empty.
    pub fn new(calls: Option<Calls>, stops: Vec<String>) -> Self {
        Self { reader: calls.map(Reader::new), stops: Stops::new(stops), pushed: 0, certain: 0 }
    }

    /// Whether a stop string has ended the text.
    pub fn stopped(&self) -> bool {
        self.stops.stopped()
    }

    /// Bytes of the text whose meaning is certain, without what is after its end.
    pub fn certain(&self) -> usize {
        self.certain
    }

    /// The parts that `piece` makes certain. None after the end.
    pub fn push(&mut self, piece: &str) -> Vec<Part> {
        if self.stopped() {
            return Vec::new();
        }
        self.pushed += piece.len();
        let found = match &mut self.reader {
            Some(reader) => reader.push(piece),
            None => vec![Part::Text(piece.to_owned())],
        };
        let mut parts = Vec::new();
        for part in found {
            match part {
                Part::Text(text) => {
                    let text = self.stops.push(&text);
                    self.certain += text.len();
                    parts.push(Part::Text(text));
                }
                part => parts.extend([Part::Text(self.stops.rest()), part]),
            }
            if self.stopped() {
                break;
            }
        }
        if !self.stopped() {
            let held = self.reader.as_ref().map_or(0, Reader::held) + self.stops.held();
            self.certain = self.pushed - held;
        }
        parts.retain(|part| *part != Part::Text(String::new()));
        parts
    }

    /// The rest of a text that has ended.
    pub fn finish(&mut self) -> Vec<Part> {
        let rest = self.reader.as_mut().map_or_else(String::new, Reader::finish);
        let mut text = self.stops.push(&rest);
        text.push_str(&self.stops.rest());
        self.certain = if self.stopped() { self.certain + text.len() } else { self.pushed };
        if text.is_empty() { Vec::new() } else { vec![Part::Text(text)] }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::grammar::Form;

    /// The parts of a text, joined, the bytes that are certain, and whether it was stopped.
    fn read(stops: &[&str], pieces: &[&str]) -> (String, usize, bool) {
        let functions = vec![("go".to_owned(), json!({"type": "object"}))];
        let calls = Calls { form: Form::HERMES, functions, is_free: true, is_several: true, answer: None };
        let mut parts = Parts::new(Some(calls), stops.iter().map(|stop| (*stop).to_owned()).collect());
        let mut found: Vec<Part> = pieces.iter().flat_map(|piece| parts.push(piece)).collect();
        found.extend(parts.finish());
        let text = |part: &Part| match part {
            Part::Text(text) => text.clone(),
            Part::Call(name) => format!("|{name}|"),
            Part::Arguments(text) => format!("({text})"),
        };
        (found.iter().map(text).collect(), parts.certain(), parts.stopped())
    }

    #[test]
    fn a_stop_string_ends_the_text_before_calls_alone() {
        let call = "I go.\n<tool_call>\n{\"name\": \"go\", \"arguments\": {}}\n</tool_call>";
        let told = "I go.|go|({})".to_owned();
        for stops in [&["\n"][..], &["<"], &["{", "go\""], &["I go.\n"], &[". "]] {
            assert_eq!(read(stops, &[call]), (told.clone(), call.len(), false), "{stops:?}");
        }
        assert_eq!(read(&["go"], &[call]), ("I ".into(), 2, true));
        assert_eq!(read(&["<"], &["a <", " b"]), ("a ".into(), 2, true));
        assert_eq!(read(&["\n"], &["a\n", "b\n<tool_call>"]), ("a".into(), 1, true));
        assert_eq!(read(&["<"], &["a <"]), ("a ".into(), 2, true));
        assert_eq!(read(&["b"], &["a <tool"]), ("a <tool".into(), 7, false));
    }
}
