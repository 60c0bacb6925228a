//! Quantized language models on [hcq]: GGUF files of several architectures, decoded on the GPU without the
//! CUDA runtime.
//!
//! A [`Model`] is a checked GGUF file, a [`Tokenizer`] converts text by that file's vocabulary, an [`Engine`]
//! processes tokens on a device and gives logits, and a [`Sampler`] chooses the next token. [`generate()`] is
//! the loop over them. The kernels are embedded for sm_80 (which serves sm_86 and sm_89 too), sm_87
//! and sm_90; no NVIDIA tool is needed at run time.
//!
//! ```
//! use ga10b_llm::{Engine, EngineOptions, Sampler, SamplerOptions, Tokenizer, embedded, generate};
//! use hcq::{Device, Selector};
//!
//! // A small model that is part of this crate; `Model::open` takes a file.
//! let model = embedded::model()?;
//! let tokenizer = Tokenizer::from_gguf(&model.gguf)?;
//! let prompt = tokenizer.encode("Once upon a time")?;
//!
//! // The software ga10b; `Selector::Auto` takes a GPU if there is one.
//! let device = Device::open(Selector::Sim)?;
//! let mut engine = Engine::new(&device, &model, &EngineOptions::new(64))?;
//! let mut sampler = Sampler::new(SamplerOptions::GREEDY);
//! let mut text = String::new();
//! generate(&mut engine, &tokenizer, &mut sampler, &prompt, 3, &mut |piece| {
//!     text.push_str(piece);
//!     Ok(())
//! })?;
//! assert_eq!(text, ", a cheerful");
//! # Ok::<(), ga10b_llm::Error>(())
//! ```
//!
//! Without the loop: [`Decoder`] is what an engine does. [`Decoder::prefill`] takes a prompt and
//! [`Decoder::step`] a token, both return logits; [`Decoder::step_greedy`] returns the most likely token and
//! copies no logits. [`Reference`] computes the same on the CPU, and [`compare`] measures the error between
//! both. [`Decoder::step_sampled`] takes a [`Sampler`] and returns the token that it chooses, on the device
//! where an engine can.
//!
//! [`speculate`] has a decoder that processes several tokens of a text in one step, proposed by a draft.
//!
//! The parts can be used alone: [`gguf`] reads and writes the container, [`kernels`] has the kernels with
//! their parameters and cubins, [`tuning`] and [`search`] find and store faster shapes of kernels for one
//! GPU, [`synthesize`] writes models of real shapes with random weights.
//!
//! # What is elsewhere
//! The search for shapes is here because it launches parts of the engine. What only observes a run is in
//! `ga10b-llm-tools`: benchmarks, traces for Perfetto, predictions from the software device's counters. A
//! program that decodes needs none of it, nor its dependencies. The command line is `llm-demo`.
//!
//! # Where things go
//! - a tensor type: [`gguf`] (its blocks), `quant` (dequantization), [`kernels::format`] and
//!   [`kernels::pack`] (with a codebook also `codebook`, `kernels::coded`), or [`kernels::repack`] if another type holds its values
//! - an architecture: [`model::architecture`] (a row of the table), `engine::memory` (the list of what a layer
//!   computes), and its lowerings: `engine::stream`, `engine::prompt`, `engine::batch`
//! - a way to decode: a module in [`kernels`] and a lowering in [`engine`]
//! - the cache: [`cache`] (types), [`kernels::cache`](mod@kernels::cache) (code), `engine::cache` (sizes)
//! - more sequences: `engine::state` holds what one sequence has, `engine::memory` what all share
//! - what a session in a file depends on: [`session`] (the format), `engine::session` (keys and values)
//! - a tokenizer or a sampler: [`tokenizer`], [`sampler`]; templates of conversations: [`chat`]
//!
//! # Layers
//! A folder or file names only what stands below it, or beside it in one direction.
//!
//! ```text
//! uses     schedule search speculate        # continuous batching, drafts, the search for fast shapes
//! engine   engine                           # a model on a device, and its steps
//! kernels  kernels tuning                   # the kernels, their shapes, the cubins that have them
//! texts    chat generate session            # conversations, the loop over tokens, texts in files
//! models   cache compare embedded model reference synthesize  # models, and the same on the CPU
//! tokens   decoder sampler tokenizer        # tokens of a text, logits, the choice of the next
//! files    codebook gguf quant              # the container and its values
//! values   bounded error spans tensor_type  # errors, names, types of tensors
//! ```

pub mod bounded;
pub mod cache;
pub mod chat;
mod codebook;
pub mod compare;
pub mod decoder;
pub mod embedded;
pub mod engine;
mod error;
pub mod generate;
pub mod gguf;
pub mod kernels;
pub mod model;
mod quant;
pub mod reference;
pub mod sampler;
pub mod schedule;
pub mod search;
pub mod session;
pub mod spans;
pub mod speculate;
pub mod synthesize;
mod tensor_type;
pub mod tokenizer;
pub mod tuning;

pub use cache::CacheType;
pub use decoder::Decoder;
pub use engine::{ColumnId, Columns, ColumnsOptions, Cut, Engine, EngineOptions, Footprint, Mode, Sequences};
pub use error::{Error, Result};
pub use generate::generate;
pub use model::Model;
pub use reference::Reference;
pub use sampler::{Sampler, SamplerOptions};
pub use schedule::Scheduler;
pub use tokenizer::Tokenizer;
