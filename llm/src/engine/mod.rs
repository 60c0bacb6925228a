//! Decodes a model on a device: one recorded graph per step, nothing patched between steps.
//!
//! Position and tokens are in device memory; the last kernel of a step writes the next token and advances the
//! position, so a greedy step needs nothing from the host. Weights stay quantized; logits stay on the device
//! unless they are read.
//!
//! [`Engine`] is what a caller uses. A model is copied to the device once (`memory`) and lowered to launches
//! in three ways: `operations` (one launch per operation), `stream` (one launch per step) and `prompt` (chunks
//! of many tokens).

pub(crate) mod cache;
mod decode;
mod diagnosis;
mod footprint;
pub(crate) mod launch;
pub(crate) mod matrix;
pub(crate) mod memory;
mod occupancy;
pub(crate) mod operations;
mod options;
pub(crate) mod plan;
mod profile;
pub(crate) mod programs;
pub(crate) mod prompt;
pub(crate) mod state;
pub(crate) mod stream;
mod timed;
mod times;
mod trace;

pub use decode::Engine;
pub use footprint::Footprint;
pub use occupancy::{KernelUse, Residency};
pub use options::{EngineOptions, LoadTimes, Mode};
pub use profile::KernelStat;
pub use times::{LaunchTime, PhaseParts, PhaseTime, Work};
