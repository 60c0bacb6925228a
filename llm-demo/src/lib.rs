//! Quantized LLaMA decode on hcq: reference workload and benchmark.

pub mod bench;
pub mod compare;
pub mod decoder;
pub mod embedded;
pub mod error;
pub mod generate;
pub mod gguf;
pub mod kernels;
pub mod model;
mod quant;
pub mod reference;
pub mod sampler;
pub mod synthesize;
pub mod tokenizer;

pub use error::{Error, Result};
