//! Decodes a model on a device: one recorded graph per step, nothing patched between steps.
//!
//! Position and tokens are in device memory; the last kernel of a step writes the next token and advances the
//! position, so a greedy step needs nothing from the host. Weights stay quantized; logits stay on the device
//! unless they are read.
//!
//! [`Engine`] is one sequence, [`Columns`] are several whose steps read the weights together; [`Sequences`] is what a
//! scheduler or a draft needs of them. A model is copied to the device once (`memory`) and lowered to launches in three
//! ways: `batch` (a step of up to 32 tokens), `prompt` (chunks of many tokens), and `stream` (one launch per step of one
//! token, where a model has such a kernel).
//!
//! # Layers
//! ```text
//! facts      footprint occupancy prefill profile session trace  # prompts; what is known and kept of an engine
//! engines    columns decode sequences                  # several sequences, one, and what others need of them
//! parts      alone diagnosis finish                    # steps of one sequence; what went wrong; a prompt's end
//! lowerings  batch prompt stream                       # from the list of a layer to launches
//! memory     cache layers memory per_token state       # a model and a sequence in device memory
//! launches   launch options plan programs timed times  # kernels, launches and their time
//! weights    matrix order                              # matrices in device memory
//! ```

mod alone;
mod batch;
pub(crate) mod cache;
mod columns;
mod decode;
mod diagnosis;
mod finish;
mod footprint;
pub(crate) mod launch;
pub(crate) mod layers;
pub(crate) mod matrix;
pub(crate) mod memory;
mod occupancy;
mod options;
mod order;
pub(crate) mod per_token;
pub(crate) mod plan;
mod prefill;
mod profile;
pub(crate) mod programs;
pub(crate) mod prompt;
mod sequences;
mod session;
pub(crate) mod state;
pub(crate) mod stream;
mod timed;
mod times;
mod trace;

pub use batch::MOST_COLUMNS;
pub(crate) use batch::To;
pub use cache::PAGE;
pub use columns::{ColumnId, Columns, ColumnsOptions, Cut, KeptPage, Writer};
pub use decode::Engine;
pub use footprint::Footprint;
pub use memory::check;
pub use occupancy::{KernelUse, Residency};
pub use options::{EngineOptions, LoadTimes, Mode};
pub use profile::KernelStat;
pub use sequences::Sequences;
pub use times::{LaunchTime, PhaseParts, PhaseTime, Work};
