//! Speculative decoding: tokens that a draft proposes are verified several in one step.
//!
//! A step reads all weights, for one token or for several. A [`Draft`] proposes how a text goes on:
//! [`Lookup`] copies what followed its last tokens before, a [`DraftModel`] is a smaller model. A
//! [`Speculator`] processes the newest token and the proposed ones in one step of a sequence, and is a
//! [`Decoder`](crate::Decoder): as long as its caller goes on with the tokens that were proposed, their
//! logits are there; else the sequence forgets them.
//!
//! Texts that a [`Scheduler`](crate::Scheduler) writes together take what the same drafts propose.
//!
//! Every token is chosen from the model's logits after exactly the tokens before it, so a draft changes how
//! long a text takes and nothing else. That holds bit by bit for sequences whose logits do not depend on the
//! division of tokens into steps, as those of [`Columns`](crate::Columns).
//!
//! ```
//! use ga10b_llm::speculate::{Lookup, Speculator, SpeculatorOptions};
//! use ga10b_llm::{Columns, ColumnsOptions, Sampler, SamplerOptions, Tokenizer, embedded, generate};
//! use hcq::{Device, Selector};
//!
//! let model = embedded::model()?;
//! let tokenizer = Tokenizer::from_gguf(&model.gguf)?;
//! let device = Device::open(Selector::Sim)?;
//! let columns = Columns::new(&device, &model, &ColumnsOptions::new(1, 64))?;
//! let mut decoder = Speculator::new(columns, Box::new(Lookup), SpeculatorOptions::new(7))?;
//! let prompt = tokenizer.encode("Once upon a time, a cheerful boy. Once upon a time")?;
//! let mut sampler = Sampler::new(SamplerOptions::GREEDY);
//! generate(&mut decoder, &tokenizer, &mut sampler, &prompt, 8, &mut |_| Ok(()))?;
//! let statistics = decoder.statistics();
//! assert_eq!(statistics.steps + statistics.accepted, 7);
//! # Ok::<(), ga10b_llm::Error>(())
//! ```

mod draft;
mod lookup;
mod model;
mod pace;
mod speculator;
mod vocabulary;

pub use draft::{Draft, Kind, Lengths, NoDraft, Proposal, Text};
pub use lookup::Lookup;
pub use model::DraftModel;
pub(crate) use pace::Pace;
pub use speculator::{Speculator, SpeculatorOptions, Statistics};
pub use vocabulary::check_vocabularies;
