//! Whether a token number means the same to two models.

use crate::error::{Error, Result};
use crate::gguf::Gguf;

/// Tokens that begin and end texts.
const SPECIAL: [&str; 4] = ["bos", "eos", "eot", "eom"];

/// Checks that `draft` can propose tokens for `target`: the same kind of tokenizer, the same text of every
/// token that both have, the same special tokens where both name them. One may have more tokens than the
/// other, as padded vocabularies do. How text is split (`tokenizer.ggml.pre`) may differ: the target's
/// tokenizer alone splits it.
///
/// # Errors
/// [`Error::DraftVocabulary`] with the first difference; [`Error::MissingKey`] or [`Error::KeyType`] for a
/// file without a vocabulary.
pub fn check_vocabularies(target: &Gguf, draft: &Gguf) -> Result<()> {
    let kind = |gguf: &Gguf| gguf.text("tokenizer.ggml.model").map(|kind| kind.unwrap_or("none").to_owned());
    let (own, other) = (kind(target)?, kind(draft)?);
    if own != other {
        return differs(format!("its tokenizer is {other:?}, the model's {own:?}"));
    }
    let (own, other) = (tokens(target)?, tokens(draft)?);
    let different = own.iter().zip(other).position(|(own, other)| own != other);
    if let Some(at) = different {
        return differs(format!("its token {at} is {:?}, the model's {:?}", other[at], own[at]));
    }
    for name in SPECIAL {
        let key = format!("tokenizer.ggml.{name}_token_id");
        if let (Some(own), Some(other)) = (target.uint(&key)?, draft.uint(&key)?)
            && own != other
        {
            return differs(format!("its {key} is {other}, the model's {own}"));
        }
    }
    Ok(())
}

fn tokens(gguf: &Gguf) -> Result<&[String]> {
    let key = "tokenizer.ggml.tokens";
    gguf.strings(key)?.ok_or_else(|| Error::MissingKey { key: key.into() })
}

fn differs(difference: String) -> Result<()> {
    Err(Error::DraftVocabulary { difference })
}
