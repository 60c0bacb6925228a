//! Prompts: lowering of a chunk, its activations, and the recorded chunks.

mod activations;
pub mod chunks;
mod lower;
pub mod products;
