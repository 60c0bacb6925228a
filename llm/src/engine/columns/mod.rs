//! A batch step: sequences that read the weights together, each with a cache in pages of its
//! own.
//!
//! `pages` says which pages a sequence has, `buffers` holds what a step computes with, `lower` makes its
//! launches, `steps` records them, and `engine` is what a caller uses; `kept` has its pages that outlive sequences. `cut` says
//! which tokens of a prompt are processed in chunks, `chunks` reserves what these take, and `prompts`
//! processes them. `measure` is for predictions.

mod buffers;
mod chunks;
mod cut;
mod engine;
mod kept;
mod lower;
mod measure;
mod options;
mod pages;
mod prompts;
mod steps;

pub(crate) use chunks::launched;
pub use cut::Cut;
pub use engine::{ColumnId, Columns};
pub use kept::KeptPage;
pub use options::ColumnsOptions;
pub use steps::MOST_COLUMNS;
pub(crate) use steps::{Column, LEAST_CHUNK, Steps};
