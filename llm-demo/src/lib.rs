//! Quantized LLaMA decode on hcq: reference workload and benchmark.
//!
//! A [`model::Model`] is a checked view of a GGUF file, a [`tokenizer::Tokenizer`] turns text into tokens by that file's own
//! vocabulary, and a [`decoder::Decoder`] takes tokens in: [`engine::Engine`] on a GPU, [`reference::Reference`] on the
//! CPU. [`generate::generate`] puts them together; the program `llm-demo` is a command line around it.
//!
//! ```
//! use llm_demo::generate::generate;
//! use llm_demo::reference::Reference;
//! use llm_demo::sampler::{Sampler, SamplerOptions};
//! use llm_demo::tokenizer::Tokenizer;
//!
//! let model = llm_demo::embedded::model()?;
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
//! # Ok::<(), llm_demo::Error>(())
//! ```

#![allow(clippy::too_many_lines, reason = "not converted yet")]

pub mod bandwidth;
pub mod bench;
pub mod compare;
pub mod decoder;
pub mod embedded;
pub mod engine;
pub mod error;
pub mod first_token;
pub mod generate;
pub mod gguf;
pub mod greedy;
pub mod kernels;
pub mod model;
pub mod power;
mod quant;
pub mod reference;
pub mod roofline;
pub mod sampler;
pub mod synthesize;
pub mod tokenizer;
pub mod trace;
pub mod tuning;

pub use error::{Error, Result};
