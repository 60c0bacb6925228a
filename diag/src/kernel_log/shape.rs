//! Message shapes: a printf-like pattern that reads a line back into named fields, complete or cut short.
//!
//! A pattern is literal text with fields in braces, `{name:form}`. The forms are `d` decimal, maybe negative; `x`
//! hexadecimal behind `0x`; `h` hexadecimal without a prefix; `n` either of `d` and `x`, as releases of the driver
//! differ; `t` text, up to what follows it in the pattern.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::hex::Hex;
use crate::known_lines::pieces::{self, Kind, Piece, Span, squeezed};

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

impl Value {
    /// The value that a driver printed as `text`. `None` for a number out of range.
    fn read(kind: Kind, text: &str) -> Option<Self> {
        let hex = text.strip_prefix("0x");
        Some(match kind {
            Kind::Text | Kind::Character | Kind::Symbol => Self::Text(text.to_owned()),
            Kind::Decimal => Self::Decimal(text.parse().ok()?),
            Kind::Number if hex.is_none() => Self::Decimal(text.parse().ok()?),
            Kind::Hex | Kind::Pointer | Kind::Prefixed | Kind::Number => {
                Self::Hex(u64::from_str_radix(hex.unwrap_or(text), 16).ok()?)
            }
        })
    }
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

/// A field of a pattern.
#[derive(Clone, Copy, Debug)]
struct Field {
    name: &'static str,
    kind: Kind,
    /// The literal that follows it, without the blanks around it.
    after: &'static str,
}

/// A pattern, taken apart.
#[derive(Clone, Debug, Default)]
pub struct Shape {
    pieces: Vec<Piece>,
    fields: Vec<Field>,
}

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
        let mut shape = Self::default();
        let mut rest = pattern;
        while let Some((literal, (name, kind), after)) = next_field(rest) {
            shape.literal(literal);
            shape.pieces.push(Piece::Value(kind, name.to_owned()));
            shape.fields.push(Field { name, kind, after: "" });
            rest = after;
        }
        // Blanks at the end of a line are often lost.
        shape.literal(rest.trim_end());
        shape
    }

    fn literal(&mut self, text: &'static str) {
        if let Some(field) = self.fields.last_mut() {
            field.after = text.trim();
        }
        if !text.is_empty() {
            self.pieces.push(Piece::Literal(squeezed(text).into_owned()));
        }
    }

    /// Its pieces.
    #[must_use]
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// Reads `line`, whose runs of blanks are one blank each. `None` if it is not of this shape; a line that ends
    /// early is, once its first literal is whole and `least` bytes of its literals are there.
    #[must_use]
    pub fn read(&self, line: &str, least: usize) -> Option<Reading> {
        let reading = self.reading(line, least)?;
        line[reading.covered..].trim().is_empty().then_some(reading)
    }

    /// Reads a line that is whole and has something behind it that a tool or a person put there.
    #[must_use]
    pub fn read_start(&self, line: &str) -> Option<Reading> {
        /// Text behind a message begins with one of these.
        const MARKS: [char; 10] = ['"', '\'', '<', ',', ';', '|', '\\', '}', '(', '#'];
        let reading = self.reading(line, 0)?;
        let is_known = reading.missing.is_empty() && reading.covered >= 12;
        (is_known && line[reading.covered..].trim_start().starts_with(MARKS)).then_some(reading)
    }

    fn reading(&self, line: &str, least: usize) -> Option<Reading> {
        let span = pieces::at_start(&self.pieces, line).filter(|span| span.tells(least))?;
        let Span { end, complete, values, .. } = span;
        let doubtful = if complete { None } else { self.doubtful(&values, line) };
        let is_begun = match self.pieces.first()? {
            Piece::Literal(text) => !values.is_empty() || line.starts_with(text.trim_end()),
            Piece::Value(..) => !values.is_empty() && doubtful != Some(0),
        };
        if !is_begun {
            return None;
        }
        let mut fields = Vec::with_capacity(values.len());
        for (at, (field, (from, to))) in self.fields.iter().zip(&values).enumerate() {
            let text = &line[*from..*to];
            // A number may have lost digits; of a text, what is there is kept.
            if doubtful != Some(at) || field.kind == Kind::Text && !text.is_empty() {
                fields.push((field.name, Value::read(field.kind, text)?));
            }
        }
        let missing = self.fields[doubtful.unwrap_or(values.len())..].iter().map(|field| field.name);
        Some(Reading { fields: Fields(fields), missing: missing.collect(), covered: end })
    }

    /// Which of the values of a line that ends early may have lost its end: the last, if the line does not tell.
    fn doubtful(&self, values: &[(usize, usize)], line: &str) -> Option<usize> {
        let last = values.len().checked_sub(1)?;
        let (field, rest) = (&self.fields[last], line[values[last].1..].trim());
        let is_whole = match field.kind {
            Kind::Text => !rest.is_empty() && rest == field.after,
            _ => {
                !rest.is_empty() || last + 1 == self.fields.len() && field.after.trim_matches(',').is_empty()
            }
        };
        (!is_whole).then_some(last)
    }
}

/// The literal before the first field, the field, and what follows it.
fn next_field(pattern: &'static str) -> Option<(&'static str, (&'static str, Kind), &'static str)> {
    let (literal, rest) = pattern.split_once('{')?;
    let (field, after) = rest.split_once('}')?;
    let (name, form) = field.split_once(':')?;
    let kind = match form {
        "d" => Kind::Decimal,
        "x" => Kind::Prefixed,
        "h" => Kind::Hex,
        "n" => Kind::Number,
        "t" => Kind::Text,
        _ => return None,
    };
    Some((literal, (name, kind), after))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pattern: &'static str, line: &str) -> Option<Reading> {
        Shape::new(pattern).read(line, 0)
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
        assert_eq!(read("id {n:x}", "id beef"), None);
        assert_eq!(read("id {n:x}", "id 0").expect("a zero").fields.number("n"), Some(0));
    }
}
