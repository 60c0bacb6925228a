//! The embedding of a text, of the hidden states of its tokens.

use crate::error::Result;
use crate::gguf::Gguf;
use crate::model::architecture::Architecture;

/// The way in which hidden states become the embedding of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// Their mean.
    Mean,
    /// The last one.
    Last,
}

impl Pooling {
    /// The way that a file names, by the numbers of `enum llama_pooling_type` in llama.cpp's `llama.h`; `None` if it
    /// names none.
    pub(crate) fn of(gguf: &Gguf, architecture: &Architecture) -> Result<Option<Self>> {
        Ok(match gguf.uint(&architecture.key("pooling_type"))? {
            Some(1) => Some(Self::Mean),
            Some(3) => Some(Self::Last),
            _ => None,
        })
    }
}
