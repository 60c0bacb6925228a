//! A printf format as pieces, and a text read back through them.
//!
//! Texts come with runs of blanks squeezed to one, as logs are copied and as the table keeps its formats.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// Printed form of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
pub enum Kind {
    /// Decimal, maybe negative.
    #[serde(rename = "d")]
    Decimal,
    /// Hexadecimal digits.
    #[serde(rename = "x")]
    Hex,
    /// Hexadecimal behind `0x`, a bare 0, or the kernel's text for hidden and absent pointers.
    #[serde(rename = "p")]
    Pointer,
    /// Text.
    #[serde(rename = "s")]
    Text,
    /// One character.
    #[serde(rename = "c")]
    Character,
    /// A symbol, `name+0x10/0x40` with or without `[module]`.
    #[serde(rename = "f")]
    Symbol,
    /// Hexadecimal behind `0x`, or what the kernel prints for a zero, which has no prefix.
    #[serde(rename = "#x")]
    Prefixed,
    /// Decimal, or hexadecimal behind `0x`.
    #[serde(rename = "n")]
    Number,
}

/// A part of a format.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(untagged)]
pub enum Piece {
    /// Text that stands in every line.
    Literal(String),
    /// A value: how it is printed, and its name.
    Value(Kind, String),
}

/// Attempts after which a text counts as not matching; formats have up to 13 values.
const PATIENCE: u32 = 4096;

/// Range of a match in a text, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    /// Begin of the match.
    pub start: usize,
    /// Its end.
    pub end: usize,
    /// Whether all pieces are there; otherwise the text ends before.
    pub complete: bool,
    /// Bytes of literals that were found.
    pub literal: usize,
    /// Whether the text ends in a value of which nothing tells where it ends.
    pub is_open: bool,
    /// Begin and end of each value.
    pub values: Vec<(usize, usize)>,
}

impl Span {
    /// Whether enough of the format was found to tell it from others, where `least` bytes of its literals are
    /// enough for a line that is cut. A text without the literal behind it takes whatever stands there, so it
    /// needs more.
    pub(crate) fn tells(&self, least: usize) -> bool {
        const OF_OPEN: usize = 36;
        self.complete || self.literal >= if self.is_open { (4 * least).min(OF_OPEN) } else { least }
    }
}

/// Matches `pieces` in `text`, where the literal `pieces[anchor]` is known to begin, or to be cut off, at
/// byte `at`.
pub(super) fn around(
    pieces: &[Piece],
    anchor: usize,
    text: &str,
    at: usize,
    message: Option<usize>,
) -> Option<Span> {
    let mut walk = Walk::new(text);
    if !walk.forward(&pieces[anchor..], at, None) {
        return None;
    }
    let mut span = walk.span(at);
    if anchor > 0 {
        let before = before(&pieces[..anchor], text, at, message)?;
        span.start = before.start;
        span.literal += before.literal;
        span.values.splice(0..0, before.values);
    }
    // The frame is no part of a message.
    if message.is_some_and(|message| span.start < message) {
        return None;
    }
    let inside = |b: Option<char>| b.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let (first, last) = (text[span.start..].chars().next(), text[..span.end].chars().next_back());
    // A format never begins or ends inside of a word.
    let begins = matches!(pieces[0], Piece::Literal(_))
        && inside(first)
        && inside(text[..span.start].chars().next_back());
    let ends = span.complete && inside(last) && inside(text[span.end..].chars().next());
    (!begins && !ends).then_some(span)
}

/// Matches `pieces` from the begin of `text` on, up to where the text ends or they do.
pub(crate) fn at_start(pieces: &[Piece], text: &str) -> Option<Span> {
    let mut walk = Walk::new(text);
    walk.forward(pieces, 0, None).then(|| walk.span(0))
}

/// Matches all of `pieces` with the whole text from byte `start` on.
pub(super) fn whole(pieces: &[Piece], text: &str, start: usize) -> Option<Span> {
    let mut walk = Walk::new(text);
    walk.forward(pieces, start, Some(text.len())).then(|| walk.span(start))
}

/// Matches all of `pieces` so that they end at byte `end`.
fn before(pieces: &[Piece], text: &str, end: usize, message: Option<usize>) -> Option<Span> {
    let exactly = |start: usize| {
        let mut walk = Walk::new(text);
        walk.forward(pieces, start, Some(end)).then(|| walk.span(start))
    };
    match &pieces[0] {
        Piece::Literal(literal) => {
            text[..end].rmatch_indices(literal.as_str()).take(16).find_map(|(start, _)| exactly(start))
        }
        // A value at the head starts where the frame ends; without a frame, as far back as its characters go.
        Piece::Value(kind, _) => {
            if let Some(span) = message.filter(|start| *start < end).and_then(exactly) {
                return Some(span);
            }
            let next = match pieces.get(1) {
                Some(Piece::Literal(literal)) => text[..end].rfind(literal.as_str())?,
                _ => end,
            };
            let head = &text[..next];
            let belongs = |c: char| match kind {
                Kind::Decimal => c.is_ascii_digit() || c == '-',
                Kind::Hex => c.is_ascii_hexdigit(),
                Kind::Pointer | Kind::Prefixed | Kind::Number | Kind::Text | Kind::Symbol => {
                    !c.is_whitespace()
                }
                Kind::Character => false,
            };
            let start = match kind {
                Kind::Character => head.char_indices().next_back()?.0,
                _ => head.trim_end_matches(belongs).len(),
            };
            (start < next).then(|| exactly(start))?
        }
    }
}

/// One attempt to read a text.
struct Walk<'a> {
    text: &'a str,
    patience: u32,
    values: Vec<(usize, usize)>,
    end: usize,
    complete: bool,
    literal: usize,
    is_open: bool,
}

impl<'a> Walk<'a> {
    const fn new(text: &'a str) -> Self {
        Self {
            text,
            patience: PATIENCE,
            values: Vec::new(),
            end: 0,
            complete: false,
            literal: 0,
            is_open: false,
        }
    }

    fn span(self, start: usize) -> Span {
        let Self { end, complete, literal, values, is_open, .. } = self;
        Span { start, end, complete, literal, is_open, values }
    }

    /// Reads `pieces` from byte `at`, up to the byte `must_end` if there is one.
    fn forward(&mut self, pieces: &[Piece], at: usize, must_end: Option<usize>) -> bool {
        let Some((piece, rest)) = pieces.split_first() else {
            let ends = must_end.is_none_or(|end| end == at);
            if ends {
                (self.end, self.complete) = (at, true);
            }
            return ends;
        };
        self.patience = self.patience.saturating_sub(1);
        if self.patience == 0 {
            return false;
        }
        match piece {
            Piece::Literal(literal) => self.literal(literal, rest, at, must_end),
            Piece::Value(kind, _) => self.value(*kind, rest, at, must_end),
        }
    }

    fn literal(&mut self, literal: &str, rest: &[Piece], at: usize, must_end: Option<usize>) -> bool {
        let found = &self.text[at..];
        // Blanks that pad a value come on either side of it.
        let skipped = usize::from(found.starts_with(' ') && !literal.starts_with(' '));
        let wanted = match self.values.last() {
            Some((_, end)) if *end == at && skipped == 1 && !found.starts_with(literal) => at + 1,
            _ => at,
        };
        if self.text[wanted..].starts_with(literal) {
            self.literal += literal.len();
            if self.forward(rest, wanted + literal.len(), must_end) {
                return true;
            }
            self.literal -= literal.len();
            return false;
        }
        self.cut(literal.starts_with(self.text[wanted..].trim_end()), must_end, self.text.len() - wanted)
    }

    /// Takes the end of the text for the end of a line that was cut off.
    fn cut(&mut self, is_prefix: bool, must_end: Option<usize>, literal: usize) -> bool {
        if !is_prefix || must_end.is_some() {
            return false;
        }
        (self.end, self.complete) = (self.text.len(), false);
        self.literal += literal;
        true
    }

    fn value(&mut self, kind: Kind, rest: &[Piece], at: usize, must_end: Option<usize>) -> bool {
        let text = self.text;
        // A width pads with blanks.
        let at = at + usize::from(text[at..].starts_with(' ') && kind != Kind::Character);
        if at == text.len() && kind != Kind::Text {
            return self.cut(true, must_end, 0);
        }
        match kind {
            Kind::Symbol => {
                let length = symbol(&text[at..must_end.unwrap_or(text.len())]);
                length > 0 && self.ends_at(rest, at, at + length, must_end)
            }
            Kind::Text => self.text_value(rest, at, must_end),
            Kind::Character => {
                let length = text[at..].chars().next().map_or(0, char::len_utf8);
                length > 0 && self.ends_at(rest, at, at + length, must_end)
            }
            Kind::Decimal | Kind::Hex | Kind::Pointer | Kind::Prefixed | Kind::Number => {
                let (least, most) = digits(kind, &text[at..]);
                // The longest first; the word after a number may begin with one of its digits.
                (least..=most).rev().any(|length| length > 0 && self.ends_at(rest, at, at + length, must_end))
            }
        }
    }

    fn ends_at(&mut self, rest: &[Piece], at: usize, end: usize, must_end: Option<usize>) -> bool {
        self.values.push((at, end));
        if self.forward(rest, end, must_end) {
            return true;
        }
        self.values.pop();
        false
    }

    fn text_value(&mut self, rest: &[Piece], at: usize, must_end: Option<usize>) -> bool {
        let text = self.text;
        let limit = must_end.unwrap_or(text.len());
        if at > limit {
            return false;
        }
        let literal = match rest.first() {
            Some(Piece::Literal(literal)) => literal.as_str(),
            // Two values side by side are separated by the blank that a width leaves.
            Some(Piece::Value(..)) => " ",
            None => "",
        };
        if literal.is_empty() {
            let end = at + text[at..limit].trim_end().len();
            return self.ends_at(rest, at, end, must_end);
        }
        for (offset, _) in text[at..limit].match_indices(literal) {
            if self.ends_at(rest, at, at + offset, must_end) {
                return true;
            }
        }
        // The text is all that is left of the line, up to what its end has of the next literal.
        let left = text[at..].trim_end();
        let tail = (0..left.len()).find(|o| left.is_char_boundary(*o) && literal.starts_with(&left[*o..]));
        let end = at + tail.unwrap_or(left.len());
        if must_end.is_some() || self.patience == 0 {
            return false;
        }
        self.values.push((at, end));
        self.is_open = tail.is_none();
        self.cut(true, must_end, text.len() - end)
    }
}

/// The length of a symbol at the head of `text`, with the name of its module.
fn symbol(text: &str) -> usize {
    let name = text.find(' ').unwrap_or(text.len());
    let module = text[name..].strip_prefix(" [").and_then(|rest| rest.find(']').map(|end| &rest[..end]));
    match module {
        Some(module) if !module.contains(' ') => name + " []".len() + module.len(),
        _ => name,
    }
}

/// The least and the greatest length of a number at the head of `text`.
fn digits(kind: Kind, text: &str) -> (usize, usize) {
    let length = |text: &str, is: fn(&u8) -> bool| text.bytes().take_while(is).count();
    let hex = |prefix: usize| (prefix + 1, prefix + length(&text[prefix..], u8::is_ascii_hexdigit));
    let sign = usize::from(text.starts_with('-'));
    let decimal = (sign + 1, sign + length(&text[sign..], u8::is_ascii_digit));
    match kind {
        Kind::Decimal => decimal,
        Kind::Hex => hex(0),
        Kind::Pointer if text.starts_with('(') => {
            let end = text.find(')').map_or(0, |end| end + 1);
            (end, end)
        }
        _ if text.starts_with("0x") => hex(2),
        Kind::Number => decimal,
        Kind::Prefixed if !text.starts_with('0') => (1, 0),
        _ => hex(0),
    }
}

/// A line with each run of blanks as one blank.
pub(crate) fn squeezed(text: &str) -> Cow<'_, str> {
    if !text.contains("  ") && !text.contains(['\t', '\r', '\n']) {
        return Cow::Borrowed(text);
    }
    let mut squeezed = String::with_capacity(text.len());
    for c in text.chars() {
        let blank = c.is_ascii_whitespace();
        if !blank || !squeezed.ends_with(' ') {
            squeezed.push(if blank { ' ' } else { c });
        }
    }
    Cow::Owned(squeezed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(parts: &[(&str, Option<Kind>)]) -> Vec<Piece> {
        let piece = |(text, kind): &(&str, Option<Kind>)| match kind {
            Some(kind) => Piece::Value(*kind, (*text).to_owned()),
            None => Piece::Literal((*text).to_owned()),
        };
        parts.iter().map(piece).collect()
    }

    fn values(pieces: &[Piece], anchor: usize, text: &str) -> Option<(Vec<String>, bool)> {
        let Piece::Literal(literal) = &pieces[anchor] else { panic!("the anchor is a literal") };
        let at = text.find(literal.as_str())?;
        let span = around(pieces, anchor, text, at, None)?;
        Some((span.values.iter().map(|(from, to)| text[*from..*to].to_owned()).collect(), span.complete))
    }

    #[test]
    fn numbers_end_where_the_next_word_begins() {
        let format = pieces(&[
            ("mme pc 0x", None),
            ("pc", Some(Kind::Hex)),
            ("data high ", None),
            ("high", Some(Kind::Decimal)),
        ]);
        let found = values(&format, 0, "x mme pc 0x000000dadata high -3 more");
        assert_eq!(found, Some((vec!["000000da".into(), "-3".into()], true)));
    }

    #[test]
    fn values_stand_at_the_head_too() {
        let format =
            pieces(&[("name", Some(Kind::Text)), (": failed, cmd 0x", None), ("cmd", Some(Kind::Hex))]);
        let found = values(&format, 1, "[1.0] gpu gk20a_open: failed, cmd 0x40 ");
        assert_eq!(found, Some((vec!["gk20a_open".into(), "40".into()], true)));
        assert_eq!(values(&format, 1, " : failed, cmd 0x40"), None);
    }

    #[test]
    fn cut_lines_give_what_they_have() {
        let format = pieces(&[
            ("fault type: ", None),
            ("t", Some(Kind::Text)),
            (", access type: ", None),
            ("a", Some(Kind::Text)),
            (",", None),
        ]);
        let all = "fault type: write, ro violation, access type: virt read,";
        assert_eq!(
            values(&format, 0, all),
            Some((vec!["write, ro violation".into(), "virt read".into()], true))
        );
        assert_eq!(
            values(&format, 0, &all[..50]),
            Some((vec!["write, ro violation".into(), "virt".into()], false))
        );
        assert_eq!(values(&format, 0, &all[..40]), Some((vec!["write, ro violation".into()], false)));
    }

    #[test]
    fn a_format_is_no_part_of_a_word() {
        let format = pieces(&[("class error", None)]);
        assert!(values(&format, 0, "ERR] class error").is_some());
        assert_eq!(values(&format, 0, "subclass error"), None);
        assert_eq!(values(&format, 0, "class errors"), None);
    }

    #[test]
    fn hostile_texts_end() {
        let format = pieces(&[
            ("a", None),
            ("1", Some(Kind::Text)),
            (" ", None),
            ("2", Some(Kind::Text)),
            (" ", None),
            ("3", Some(Kind::Text)),
            (" ", None),
            ("4", Some(Kind::Text)),
            (" end", None),
        ]);
        let text = format!("a{}", " b".repeat(2000));
        let _ = values(&format, 0, &text);
    }
}
