//! Keys that change tokens and are not implemented: a file that sets one is refused.

use crate::error::{Error, Result};
use crate::gguf::Gguf;
use crate::gguf::value::{Array, Value};

/// The keys below `tokenizer.ggml.` that llama.cpp acts on and nothing here reads, and the reason why they must
/// be unset: absent, false or an empty list.
const UNSET: [(&str, &str); 7] = [
    ("add_eos_token", "a text that ends with its last token has nothing that could continue it"),
    ("add_sep_token", "texts are not divided by separators"),
    ("remove_extra_whitespaces", "spaces stay as they are"),
    ("precompiled_charsmap", "characters stay as they are"),
    ("normalizer.lowercase", "letters stay as they are"),
    ("normalizer.strip_accents", "accents stay as they are"),
    ("suppress_tokens", "every token may be chosen; use a bias of logits instead"),
];

/// Refuses what would change tokens.
///
/// # Errors
/// [`Error::KeyValue`] with the key.
pub(super) fn check(gguf: &Gguf) -> Result<()> {
    for (name, rule) in UNSET {
        let key = format!("tokenizer.ggml.{name}");
        let set = match gguf.value(&key) {
            None | Some(Value::Bool(false)) => continue,
            Some(Value::Array(array)) if array.is_empty() => continue,
            Some(Value::Bool(true)) => "true",
            Some(Value::Array(Array::I32(_) | Array::U32(_))) => "a list of tokens",
            Some(other) => other.kind(),
        };
        return Err(Error::KeyValue { key, value: set.into(), rule });
    }
    Ok(())
}
