//! Quantized LLaMA decode on hcq: reference workload and benchmark.
//!
//! A [`model::Model`] is a checked view of a GGUF file, a [`tokenizer::Tokenizer`] turns text into tokens by that file's own
//! vocabulary, and a [`decoder::Decoder`] takes tokens in: [`engine::Engine`] on a GPU, [`reference::Reference`] on the
//! CPU. [`generate::generate`] puts them together; the program `llm-demo` is a command line around it.
//!
//! ```
//! use ga10b_llm::generate::generate;
//! use ga10b_llm::reference::Reference;
//! use ga10b_llm::sampler::{Sampler, SamplerOptions};
//! use ga10b_llm::tokenizer::Tokenizer;
//!
//! let model = ga10b_llm::embedded::model()?;
//! let tokenizer = Tokenizer::from_gguf(&model.gguf)?;
//! let prompt = tokenizer.encode("Once upon a time")?;
//! let mut decoder = Reference::new(&model, 64)?;
//! let mut sampler = Sampler::new(SamplerOptions::GREEDY);
//! let mut text = String::new();
//! generate(&mut decoder, &tokenizer, &mut sampler, &prompt, 6, 64, &mut |piece| {
//!     text.push_str(piece);
//!     Ok(())
//! })?;
//! assert_eq!(text, ", a cheerful boy named Tom");
//! # Ok::<(), ga10b_llm::Error>(())
//! ```

pub mod compare;
pub mod decoder;
pub mod embedded;
pub mod engine;
pub mod error;
pub mod generate;
pub mod gguf;
pub mod kernels;
pub mod model;
mod quant;
pub mod reference;
pub mod sampler;
pub mod search;
pub mod spans;
pub mod synthesize;
pub mod tokenizer;
pub mod tuning;

pub use error::{Error, Result};
