//! `tokenizer.ggml.token_type`: what kind of text a token stands for.

use crate::error::{Error, Result};
use crate::gguf::Gguf;
use crate::gguf::value::{Array, Value};

/// A text that may be a part of a word.
const NORMAL: u64 = 1;
/// For what the vocabulary has no token.
pub(super) const UNKNOWN: u64 = 2;
/// Ends of texts and turns; its name in a text becomes the token.
pub(super) const CONTROL: u64 = 3;
/// A text that is never split.
pub(super) const USER_DEFINED: u64 = 4;
/// A number without a text.
pub(super) const UNUSED: u64 = 5;
/// `<0xNN>`
pub(super) const BYTE: u64 = 6;

/// The type of each of `count` tokens; normal without the key.
pub(super) fn token_types(gguf: &Gguf, count: usize) -> Result<Vec<u64>> {
    let key = "tokenizer.ggml.token_type";
    let Some(value) = gguf.value(key) else { return Ok(vec![NORMAL; count]) };
    let types = if let Value::Array(array) = value { Array::to_uints(array) } else { None };
    let Some(types) = types else {
        return Err(Error::KeyType {
            key: key.into(),
            expected: "an array of integers that are not negative",
            found: value.kind(),
        });
    };
    if types.len() != count {
        let value = format!("an array of {}", types.len());
        return Err(Error::KeyValue { key: key.into(), value, rule: "it must have one entry per token" });
    }
    if let Some(at) = types.iter().position(|ty| !(NORMAL..=BYTE).contains(ty)) {
        return Err(Error::KeyValue {
            key: format!("{key}[{at}]"),
            value: types[at].to_string(),
            rule: "1 (normal), 2 (unknown), 3 (control), 4 (user-defined), 5 (unused) and 6 (byte) are known",
        });
    }
    Ok(types)
}
