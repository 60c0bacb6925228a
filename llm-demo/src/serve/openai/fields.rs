//! The fields of a JSON object, taken one after the other: an error names the field, and what it has to be.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::{Map, Value};

use crate::serve::openai::error::Error;

/// The fields of an object that are not taken yet.
#[derive(Debug)]
pub struct Fields {
    /// Prefix of the fields' names in errors: empty, or the place of the object.
    path: String,
    fields: Map<String, Value>,
}

/// The fields that have no effect here.
#[derive(Debug, Default)]
pub struct Unknown {
    /// Whether they are refused, instead of a warning for each name.
    strict: bool,
    warned: Mutex<BTreeSet<String>>,
}

impl Unknown {
    /// Names that are warned of.
    const MOST: usize = 100;

    pub fn new(strict: bool) -> Self {
        Self { strict, warned: Mutex::default() }
    }

    /// Ignores the field at `path`.
    ///
    /// # Errors
    /// If they are refused.
    pub fn ignore(&self, path: &str) -> Result<(), Error> {
        let path: String = path.chars().take(100).collect();
        if self.strict {
            let message = format!("{path} is not supported");
            return Err(Error::field(&path, message).with_code("unsupported"));
        }
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        if warned.len() < Self::MOST && warned.insert(path.clone()) {
            tracing::warn!(
                "a request has the field {path:?}, which is ignored; --strict refuses such requests"
            );
        }
        Ok(())
    }
}

/// A type that a field can have.
pub trait Field: Sized {
    /// The value of the field at `path`.
    ///
    /// # Errors
    /// For a value of another type, by its path.
    fn of(path: &str, value: Value) -> Result<Self, Error>;
}

impl Fields {
    /// The body of a request.
    pub fn parse(body: &[u8]) -> Result<Self, Error> {
        let bad = |error: serde_json::Error| Error::bad(format!("the body is no JSON: {error}"));
        let first = body.iter().find(|byte| !byte.is_ascii_whitespace());
        if first != Some(&b'{') {
            serde_json::from_slice::<IgnoredAny>(body).map_err(bad)?;
            return Err(Error::bad("the body has to be a JSON object: {...}"));
        }
        let Object(fields) = serde_json::from_slice(body).map_err(bad)?;
        Ok(Self { path: String::new(), fields })
    }

    /// The fields of a request in other words.
    pub fn translated(fields: Map<String, Value>) -> Self {
        Self { path: String::new(), fields }
    }

    /// The fields that were not taken, in words that are the same.
    pub fn left(self) -> Map<String, Value> {
        self.fields
    }

    /// The object at `path` of a request.
    pub fn of(path: &str, value: Value) -> Result<Self, Error> {
        let fields = typed(path, value)?;
        Ok(Self { path: format!("{path}."), fields })
    }

    /// The path of the field `name` in the request.
    pub fn path(&self, name: &str) -> String {
        format!("{}{name}", self.path)
    }

    /// The field `name`, if it is there and not null.
    pub fn take<T: Field>(&mut self, name: &str) -> Result<Option<T>, Error> {
        match self.fields.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => typed(&self.path(name), value).map(Some),
        }
    }

    /// Ignores the fields that were not taken.
    ///
    /// # Errors
    /// If `unknown` refuses them.
    pub fn end(self, unknown: &Unknown) -> Result<(), Error> {
        self.fields.keys().try_for_each(|name| unknown.ignore(&self.path(name)))
    }
}

/// The value of the field at `path`.
pub fn typed<T: Field>(path: &str, value: Value) -> Result<T, Error> {
    T::of(path, value)
}

/// The error for a value at `path` that is not of the type `kind`, which is said after "has to be".
pub fn wrong(path: &str, kind: &str, value: &Value) -> Error {
    let found = match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(_) => "a string".into(),
        Value::Array(_) => "a list".into(),
        Value::Object(_) => "an object".into(),
    };
    Error::field(path, format!("{path} has to be {kind}, it is {found}"))
}

impl Field for Value {
    fn of(_: &str, value: Value) -> Result<Self, Error> {
        Ok(value)
    }
}

impl Field for String {
    fn of(path: &str, value: Value) -> Result<Self, Error> {
        match value {
            Value::String(text) => Ok(text),
            value => Err(wrong(path, "a string", &value)),
        }
    }
}

impl Field for bool {
    fn of(path: &str, value: Value) -> Result<Self, Error> {
        value.as_bool().ok_or_else(|| wrong(path, "true or false", &value))
    }
}

impl Field for f32 {
    fn of(path: &str, value: Value) -> Result<Self, Error> {
        value.as_f64().map(|number| number as Self).ok_or_else(|| wrong(path, "a number", &value))
    }
}

impl Field for u32 {
    fn of(path: &str, value: Value) -> Result<Self, Error> {
        let number = value.as_u64().and_then(|number| number.try_into().ok());
        number.ok_or_else(|| wrong(path, "a whole number from 0 to 4294967295", &value))
    }
}

impl Field for u64 {
    fn of(path: &str, value: Value) -> Result<Self, Error> {
        value.as_u64().ok_or_else(|| wrong(path, "a whole number from 0 on", &value))
    }
}

impl Field for i64 {
    fn of(path: &str, value: Value) -> Result<Self, Error> {
        value.as_i64().ok_or_else(|| wrong(path, "a whole number of 64 bits", &value))
    }
}

impl<T: Field> Field for Vec<T> {
    fn of(path: &str, value: Value) -> Result<Self, Error> {
        match value {
            Value::Array(list) => {
                let items = list.into_iter().enumerate();
                items.map(|(at, item)| T::of(&format!("{path}[{at}]"), item)).collect()
            }
            value => Err(wrong(path, "a list", &value)),
        }
    }
}

impl Field for Map<String, Value> {
    fn of(path: &str, value: Value) -> Result<Self, Error> {
        match value {
            Value::Object(fields) => Ok(fields),
            value => Err(wrong(path, "an object", &value)),
        }
    }
}

/// An object that has no field twice: which of both would count is a matter of the reader.
struct Object(Map<String, Value>);

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Once;

        impl<'de> Visitor<'de> for Once {
            type Value = Object;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
                let mut fields = Map::new();
                while let Some((name, value)) = map.next_entry::<String, Value>()? {
                    if fields.contains_key(&name) {
                        let name: String = name.chars().take(100).collect();
                        return Err(A::Error::custom(format_args!("the field {name:?} is there twice")));
                    }
                    fields.insert(name, value);
                }
                Ok(Object(fields))
            }
        }

        deserializer.deserialize_map(Once)
    }
}
