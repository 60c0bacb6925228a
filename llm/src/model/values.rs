//! Values of keys, checked where they are read.

use crate::error::{Error, Result};
use crate::gguf::Gguf;
use crate::gguf::value::Value;

/// Largest accepted size, so that products of two stay far below 2^64.
const MAX_SIZE: u64 = 1 << 24;
/// The rule for sizes.
const SIZES: &str = "it must be from 1 to 16777216";

/// The value under `key`, which must exist.
pub fn required<T>(value: Option<T>, key: &str) -> Result<T> {
    value.ok_or_else(|| Error::MissingKey { key: key.into() })
}

/// Refuses a value that does not obey `rule`.
pub fn check(holds: bool, key: &str, value: impl ToString, rule: &'static str) -> Result<()> {
    if holds { Ok(()) } else { Err(Error::KeyValue { key: key.into(), value: value.to_string(), rule }) }
}

/// A size under `key`, which must exist.
pub fn size(gguf: &Gguf, key: &str) -> Result<usize> {
    let value = required(gguf.uint(key)?, key)?;
    check((1..=MAX_SIZE).contains(&value), key, value, SIZES)?;
    Ok(value as usize)
}

/// A size under `key`, or `default` if the key is absent.
pub fn size_or(gguf: &Gguf, key: &str, default: usize) -> Result<usize> {
    if gguf.value(key).is_some() { size(gguf, key) } else { Ok(default) }
}

/// A size under `key` that a file may give once or for each of `layers` layers, all equal.
pub fn same_size(gguf: &Gguf, key: &str, layers: usize) -> Result<Option<usize>> {
    let Some(Value::Array(array)) = gguf.value(key) else {
        return gguf.value(key).is_some().then(|| size(gguf, key)).transpose();
    };
    let expected = "an integer, or one per layer, that is not negative";
    let wrong = || Error::KeyType { key: key.into(), expected, found: "an array of something else" };
    let sizes = array.to_uints().ok_or_else(wrong)?;
    let listed = || match &sizes[..] {
        [first, second, .., last] => format!("[{first}, {second}, .., {last}]"),
        few => format!("{few:?}"),
    };
    check(sizes.len() == layers, key, listed(), "it must be one number, or one for each layer")?;
    let first = sizes[0];
    check(sizes.iter().all(|size| *size == first), key, listed(), "layers must have equal sizes")?;
    check((1..=MAX_SIZE).contains(&first), key, first, SIZES)?;
    Ok(Some(first as usize))
}

/// A positive real number under `key`, or `default` if the key is absent.
pub fn positive(gguf: &Gguf, key: &str, default: Option<f32>) -> Result<f32> {
    let value = required(gguf.real(key)?.map(|v| v as f32).or(default), key)?;
    check(value.is_finite() && value > 0.0, key, value, "it must be a positive number")?;
    Ok(value)
}
