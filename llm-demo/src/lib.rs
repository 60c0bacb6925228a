//! Quantized LLaMA decode on hcq: reference workload and benchmark.

pub mod error;
pub mod gguf;
pub mod model;
mod quant;
pub mod reference;
pub mod sampler;
pub mod synthesize;
pub mod tokenizer;

pub use error::{Error, Result};
