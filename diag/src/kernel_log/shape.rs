//! Message shapes: a printf-like pattern that reads a line back into named fields, complete or cut short.
//!
//! A pattern is literal text with fields in braces, `{name:form}`. A run of blanks in the pattern stands for any run of
//! blanks in the line, since tools that copy logs squeeze them.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::hex::Hex;

/// Printed form of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `{:d}`: decimal, maybe negative.
    Decimal,
    /// `{:x}`: hexadecimal behind `0x`.
    Hex,
    /// `{:r}`: hexadecimal behind `0x`, eight digits; the text behind may begin with a digit.
    Register,
    /// `{:h}`: hexadecimal without a prefix.
    BareHex,
    /// `{:n}`: decimal, or hexadecimal behind `0x`, as releases of the driver differ.
    Number,
    /// `{:t}`: text, up to the next literal of the pattern.
    Text,
}

/// A field's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Printed in decimal.
    Decimal(i64),
    /// Printed in hexadecimal.
    Hex(u64),
    /// Text.
    Text(String),
}

/// The fields of one line, in the order of its pattern.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields(Vec<(&'static str, Value)>);

impl Fields {
    /// The field of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(n, _)| *n == name).map(|(_, value)| value)
    }

    /// A number, as 64 bits; negative ones wrap.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<u64> {
        match self.get(name)? {
            Value::Decimal(n) => Some(*n as u64),
            Value::Hex(n) => Some(*n),
            Value::Text(_) => None,
        }
    }

    /// A register of 32 bits, printed in hexadecimal or as a decimal of either sign.
    #[must_use]
    pub fn register(&self, name: &str) -> Option<u32> {
        match self.get(name)? {
            Value::Decimal(n) if (i64::from(i32::MIN)..=i64::from(u32::MAX)).contains(n) => Some(*n as u32),
            Value::Hex(n) => u32::try_from(*n).ok(),
            Value::Decimal(_) | Value::Text(_) => None,
        }
    }

    /// A number that is not negative, such as an id.
    #[must_use]
    pub fn id(&self, name: &str) -> Option<u32> {
        match self.get(name)? {
            Value::Decimal(n) => u32::try_from(*n).ok(),
            Value::Hex(n) => u32::try_from(*n).ok(),
            Value::Text(_) => None,
        }
    }

    /// Text.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.get(name)? {
            Value::Text(text) => Some(text),
            Value::Decimal(_) | Value::Hex(_) => None,
        }
    }

    /// Names and values, in the order of the line.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &Value)> {
        self.0.iter().map(|(name, value)| (*name, value))
    }

    /// Returns their number.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<(&'static str, Value)> for Fields {
    fn from_iter<I: IntoIterator<Item = (&'static str, Value)>>(fields: I) -> Self {
        Self(fields.into_iter().collect())
    }
}

impl Serialize for Fields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            match value {
                Value::Decimal(n) => map.serialize_entry(name, n)?,
                Value::Hex(n) => map.serialize_entry(name, &Hex(*n))?,
                Value::Text(text) => map.serialize_entry(name, text)?,
            }
        }
        map.end()
    }
}

/// A piece of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token {
    /// Text that stands there as it is.
    Literal(&'static str),
    /// A field.
    Field(&'static str, Form),
}

/// A pattern, taken apart.
#[derive(Clone, Debug)]
pub struct Shape(Vec<Token>);

/// A line read by a shape.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Values that were read.
    pub fields: Fields,
    /// Fields that the line was cut before, or in.
    pub missing: Vec<&'static str>,
    /// Bytes of the line that the shape accounts for.
    pub covered: usize,
}

impl Shape {
    /// Takes a pattern apart. A brace that is not closed, or a form that does not exist, is literal text.
    #[must_use]
    pub fn new(pattern: &'static str) -> Self {
        let mut tokens = Vec::new();
        let mut rest = pattern;
        while let Some((literal, (name, form), after)) = next_field(rest) {
            if !literal.is_empty() {
                tokens.push(Token::Literal(literal));
            }
            tokens.push(Token::Field(name, form));
            rest = after;
        }
        if !rest.is_empty() {
            tokens.push(Token::Literal(rest));
        }
        Self(tokens)
    }

    /// Its pieces.
    #[must_use]
    pub fn tokens(&self) -> &[Token] {
        &self.0
    }

    /// Reads `line`. `None` if it is not of this shape; a line that ends early is, once its first literal is whole.
    #[must_use]
    pub fn read(&self, line: &str) -> Option<Reading> {
        let (reading, rest) = self.walk(line)?;
        // Text behind the last literal is not part of the shape.
        rest.trim().is_empty().then_some(reading)
    }

    /// Reads a line that is whole and has something behind it that a tool or a person put there.
    #[must_use]
    pub fn read_start(&self, line: &str) -> Option<Reading> {
        /// Text behind a message begins with one of these.
        const MARKS: [char; 10] = ['"', '\'', '<', ',', ';', '|', '\\', '}', '(', '#'];
        let (reading, rest) = self.walk(line)?;
        let is_known = reading.missing.is_empty() && reading.covered >= 12;
        (is_known && rest.trim_start().starts_with(MARKS)).then_some(reading)
    }

    /// The reading, and the rest of a line that is whole.
    fn walk<'a>(&self, line: &'a str) -> Option<(Reading, &'a str)> {
        let mut reading = Reading::default();
        let mut rest = line;
        for (index, token) in self.0.iter().enumerate() {
            match *token {
                Token::Literal(literal) => match literal_at(rest, literal) {
                    Prefix::Whole(len) => rest = &rest[len..],
                    Prefix::Ends if index > 0 => return Some((self.cut(reading, index, line), "")),
                    Prefix::Ends | Prefix::Differs => return None,
                },
                Token::Field(name, form) => {
                    let next = match self.0.get(index + 1) {
                        Some(Token::Literal(literal)) => Some(*literal),
                        _ => None,
                    };
                    if rest.trim_start().is_empty() && form != Form::Text {
                        return (index > 0).then(|| (self.cut(reading, index, line), ""));
                    }
                    if form == Form::Text {
                        match next.map(|next| find(rest, next)) {
                            None => {
                                reading.fields.0.push((name, Value::Text(rest.trim_end().to_owned())));
                                rest = "";
                            }
                            Some(Found::At(at)) => {
                                reading.fields.0.push((name, Value::Text(rest[..at].to_owned())));
                                rest = &rest[at..];
                            }
                            // The text extends to the end of the line, which may hold the start of the next
                            // literal.
                            Some(Found::EndsAt(_)) if index == 0 => return None,
                            Some(Found::EndsAt(at)) => {
                                let text = rest[..at].trim_end();
                                if !text.is_empty() {
                                    reading.fields.0.push((name, Value::Text(text.to_owned())));
                                }
                                let closing = next.is_some_and(|n| n.trim_matches([',', ' ']).is_empty());
                                let last = index + 2 == self.0.len();
                                let after =
                                    if closing && last && at < rest.len() { self.0.len() } else { index + 1 };
                                let mut cut = self.cut(reading, after, line);
                                if after == index + 1 {
                                    cut.missing.insert(0, name);
                                }
                                return Some((cut, ""));
                            }
                        }
                    } else {
                        let Some((value, len)) = number(rest, form) else {
                            let begun = form == Form::Register && rest.trim_start().len() < 10 && index > 0;
                            return begun.then(|| (self.cut(reading, index, line), ""));
                        };
                        // A number at the very end of a line that should go on may have lost digits.
                        let last = index + 2 >= self.0.len();
                        let closing = next.is_none_or(|n| n.trim_matches([',', ' ']).is_empty());
                        let whole = len < rest.len() || last && closing;
                        if !whole {
                            return Some((self.cut(reading, index, line), ""));
                        }
                        reading.fields.0.push((name, value));
                        rest = &rest[len..];
                    }
                }
            }
        }
        reading.covered = line.len() - rest.len();
        Some((reading, rest))
    }

    /// A reading that ended before token `from`.
    fn cut(&self, mut reading: Reading, from: usize, line: &str) -> Reading {
        let missing = self.0.iter().skip(from).filter_map(|token| match token {
            Token::Field(name, _) => Some(*name),
            Token::Literal(_) => None,
        });
        reading.missing.extend(missing);
        reading.covered = line.len();
        reading
    }
}

/// The literal before the first field, the field, and the rest.
fn next_field(pattern: &'static str) -> Option<(&'static str, (&'static str, Form), &'static str)> {
    let (literal, rest) = pattern.split_once('{')?;
    let (field, after) = rest.split_once('}')?;
    let (name, form) = field.split_once(':')?;
    let form = match form {
        "d" => Form::Decimal,
        "x" => Form::Hex,
        "r" => Form::Register,
        "h" => Form::BareHex,
        "n" => Form::Number,
        "t" => Form::Text,
        _ => return None,
    };
    Some((literal, (name, form), after))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Prefix {
    /// The literal is there and takes that many bytes.
    Whole(usize),
    /// The text ends inside the literal.
    Ends,
    /// Something else is there.
    Differs,
}

/// Whether `text` begins with `literal`; runs of blanks count as one.
fn literal_at(text: &str, literal: &str) -> Prefix {
    let (t, l) = (text.as_bytes(), literal.as_bytes());
    let (mut i, mut j) = (0, 0);
    while j < l.len() {
        if l[j] == b' ' {
            while l.get(j) == Some(&b' ') {
                j += 1;
            }
            let blanks = i;
            while t.get(i) == Some(&b' ') {
                i += 1;
            }
            if i == blanks {
                // Blanks at the end of a line are often lost.
                return if i < t.len() {
                    Prefix::Differs
                } else if j == l.len() {
                    Prefix::Whole(i)
                } else {
                    Prefix::Ends
                };
            }
        } else {
            match t.get(i) {
                None => return Prefix::Ends,
                Some(b) if *b == l[j] => (i, j) = (i + 1, j + 1),
                Some(_) => return Prefix::Differs,
            }
        }
    }
    Prefix::Whole(i)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// The literal begins there.
    At(usize),
    /// The text ends; the start of the literal, if any, begins there.
    EndsAt(usize),
}

/// Returns the first place of `literal` in `text`.
fn find(text: &str, literal: &str) -> Found {
    let bytes = text.as_bytes();
    for (at, c) in text.char_indices() {
        // Inside a run of blanks the answer is that of its start: no run is walked twice.
        if c == ' ' && at > 0 && bytes[at - 1] == b' ' {
            continue;
        }
        match literal_at(&text[at..], literal) {
            Prefix::Whole(_) => return Found::At(at),
            Prefix::Ends => return Found::EndsAt(at),
            Prefix::Differs => {}
        }
    }
    Found::EndsAt(text.len())
}

/// The number at the start of `text`, behind blanks, and how many bytes both take.
fn number(text: &str, form: Form) -> Option<(Value, usize)> {
    let trimmed = text.trim_start_matches(' ');
    let blanks = text.len() - trimmed.len();
    let hex = |digits: &str| {
        let len = digits.bytes().take_while(u8::is_ascii_hexdigit).count();
        let value = u64::from_str_radix(digits.get(..len)?, 16).ok()?;
        Some((Value::Hex(value), len))
    };
    let decimal = || {
        let sign = usize::from(trimmed.starts_with('-'));
        let len = sign + trimmed.bytes().skip(sign).take_while(u8::is_ascii_digit).count();
        let value: i64 = trimmed.get(..len)?.parse().ok()?;
        Some((Value::Decimal(value), len))
    };
    let (value, len) = match (form, trimmed.strip_prefix("0x")) {
        (Form::Register, Some(digits)) => {
            hex(digits.get(..8)?).filter(|(_, len)| *len == 8).map(|(value, len)| (value, len + 2))?
        }
        (Form::Hex | Form::Number, Some(digits)) => hex(digits).map(|(value, len)| (value, len + 2))?,
        // The kernel prints a zero pointer or a zero of %#x without its prefix.
        (Form::Hex, None) if trimmed.starts_with('0') => hex(trimmed)?,
        (Form::Decimal | Form::Number, _) => decimal()?,
        (Form::BareHex, _) => hex(trimmed)?,
        (Form::Hex | Form::Register | Form::Text, _) => return None,
    };
    Some((value, blanks + len))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pattern: &'static str, line: &str) -> Option<Reading> {
        Shape::new(pattern).read(line)
    }

    #[test]
    fn fields_are_read_by_their_forms() {
        let r = read("a {d:d} b {x:x}, {h:h}M {t:t}: {n:n}", "a -5 b 0x10, ffcM text, and more: -3")
            .expect("matches");
        assert_eq!(r.fields.get("d"), Some(&Value::Decimal(-5)));
        assert_eq!(r.fields.number("x"), Some(16));
        assert_eq!(r.fields.get("h"), Some(&Value::Hex(0xffc)));
        assert_eq!(r.fields.text("t"), Some("text, and more"));
        assert_eq!(r.fields.register("n"), Some(0xffff_fffd));
        assert!(r.missing.is_empty());
    }

    #[test]
    fn a_line_cut_in_a_number_does_not_give_the_number() {
        let pattern = "addr: {addr:x}, type: {kind:t}, access: {access:t}, ";
        let r = read(pattern, "addr: 0x12").expect("a cut line");
        assert!(r.fields.is_empty());
        assert_eq!(r.missing, ["addr", "kind", "access"]);
        let r = read(pattern, "addr: 0x1234, type: write, ro vio").expect("a cut line");
        assert_eq!(r.fields.text("kind"), Some("write, ro vio"));
        assert_eq!(r.missing, ["kind", "access"]);
        let r = read(pattern, "addr: 0x1234, type: write, ro violation, acc").expect("a cut line");
        assert_eq!(r.fields.text("kind"), Some("write, ro violation"));
        let r = read(pattern, "addr: 0x1234, type: pte, access: read, ").expect("a whole line");
        assert_eq!((r.fields.text("access"), r.missing.len()), (Some("read"), 0));
        assert_eq!(
            read(pattern, "addr: 0x1234, type: pte, access: read,").expect("blank lost").missing.len(),
            0
        );
    }

    #[test]
    fn other_lines_and_numbers_out_of_range_do_not_match() {
        assert_eq!(read("id {n:d}", "id 99999999999999999999"), None);
        assert_eq!(read("id {n:d}", "id x"), None);
        assert_eq!(read("id {n:d}", "i"), None);
        assert_eq!(read("id {n:d}", "id 5 and more"), None);
    }
}
