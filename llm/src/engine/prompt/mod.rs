//! Prompts: lowering of a chunk, its activations, and the recorded chunks.

pub(crate) mod activations;
pub mod chunks;
mod experts;
pub(crate) mod kept;
mod lower;
pub mod products;
mod ranges;
