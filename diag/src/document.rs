//! JSON documents that anyone may have written, read in bounded memory.
//!
//! A text of a few bytes can take much memory once it is read: `[0,0,...]` takes a value of dozens of bytes for
//! each two of the text. So the values are counted before any is kept.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeOwned, DeserializeSeed, MapAccess, SeqAccess, Visitor};

use crate::size::size;

/// Most that a document of a kind has. It is also not nested deeper than 127 levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes of its text.
    pub bytes: usize,
    /// Values and names of members, at all levels together.
    pub values: usize,
}

/// Why a document was not read.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// Its text is too long.
    #[error("it is longer than {}", size(*limit as u64))]
    TooLong {
        /// Most bytes that are read.
        limit: usize,
    },
    /// It has too many values.
    #[error("it has more than {limit} values")]
    TooMany {
        /// Most that are read.
        limit: usize,
    },
    /// It is no JSON, or of other members.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

/// Reads a document.
///
/// # Errors
/// [`Unreadable`].
pub fn read<T: DeserializeOwned>(text: &[u8], bounds: Bounds) -> Result<T, Unreadable> {
    check(text, bounds)?;
    Ok(serde_json::from_slice(text)?)
}

/// Reads the `schema` of a document; `None` if it has none.
///
/// # Errors
/// [`Unreadable`].
pub fn schema(text: &[u8], bounds: Bounds) -> Result<Option<String>, Unreadable> {
    #[derive(Deserialize)]
    struct Head {
        schema: Option<String>,
    }
    check(text, bounds)?;
    Ok(serde_json::from_slice::<Head>(text)?.schema)
}

/// Counts the values, and keeps none.
fn check(text: &[u8], bounds: Bounds) -> Result<(), Unreadable> {
    if text.len() > bounds.bytes {
        return Err(Unreadable::TooLong { limit: bounds.bytes });
    }
    let mut left = Some(bounds.values);
    let mut reader = serde_json::Deserializer::from_slice(text);
    let counted = Counted(&mut left).deserialize(&mut reader).and_then(|()| reader.end());
    match (left, counted) {
        (None, _) => Err(Unreadable::TooMany { limit: bounds.values }),
        (Some(_), counted) => Ok(counted?),
    }
}

/// Takes a value and those in it from the number that is left; it is `None` once there were too many.
struct Counted<'a>(&'a mut Option<usize>);

impl<'de> DeserializeSeed<'de> for Counted<'_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        *self.0 = self.0.and_then(|left| left.checked_sub(1));
        match self.0 {
            Some(_) => deserializer.deserialize_any(self),
            None => Err(serde::de::Error::custom("too many values")),
        }
    }
}

macro_rules! scalars {
    ($($name:ident: $ty:ty),*) => { $(
        fn $name<E>(self, _: $ty) -> Result<(), E> {
            Ok(())
        }
    )* };
}

impl<'de> Visitor<'de> for Counted<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    scalars!(visit_bool: bool, visit_u64: u64, visit_i64: i64, visit_f64: f64, visit_str: &str);

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(Counted(self.0))?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        while members.next_key_seed(Counted(self.0))?.is_some() {
            members.next_value_seed(Counted(self.0))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    const BOUNDS: Bounds = Bounds { bytes: 100, values: 10 };

    #[test]
    fn values_and_names_count_at_every_level() {
        for (text, whole) in [
            (r#"{"a":[1,-2,0.5],"b":{"c":null}}"#, true),
            (r#"[true,2,3,4,5,6,7,8,9]"#, true),
            (r#"[1,2,3,4,5,6,7,8,9,10]"#, false),
            (r#"{"a":1,"b":2,"c":3,"d":4,"e":5}"#, false),
            (r#"[[[[[[[[[[[]]]]]]]]]]]"#, false),
        ] {
            match read::<Value>(text.as_bytes(), BOUNDS) {
                Ok(value) => assert!(whole && value == serde_json::from_str::<Value>(text).expect("JSON")),
                Err(Unreadable::TooMany { limit: 10 }) => assert!(!whole, "{text}"),
                Err(other) => panic!("{text}: {other}"),
            }
        }
    }

    #[test]
    fn a_document_ends_where_it_ends_and_is_as_long_as_it_may_be() {
        assert!(matches!(read::<Value>(&[b' '; 101], BOUNDS), Err(Unreadable::TooLong { limit: 100 })));
        for text in ["", "[1", "1 2", "{\"a\"}", "nothing"] {
            assert!(matches!(read::<Value>(text.as_bytes(), BOUNDS), Err(Unreadable::Json(_))), "{text}");
        }
        let deep = [vec![b'['; 200], vec![b']'; 200]].concat();
        let bounds = Bounds { bytes: 1000, values: 1000 };
        assert!(matches!(read::<Value>(&deep, bounds), Err(Unreadable::Json(_))));
    }

    #[test]
    fn a_schema_is_read_alone() {
        let read = |text: &str| schema(text.as_bytes(), BOUNDS).ok().flatten();
        assert_eq!(read(r#"{"x":[1],"schema":"nvdiag.map/1"}"#).as_deref(), Some("nvdiag.map/1"));
        assert_eq!(read(r#"{"x":1}"#), None);
        assert!(schema(br#"{"schema":1}"#, BOUNDS).is_err());
    }
}
