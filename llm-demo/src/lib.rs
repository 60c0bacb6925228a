//! Quantized LLaMA decode on hcq: reference workload and benchmark.

pub mod error;
pub mod gguf;
pub mod model;

pub use error::{Error, Result};
