//! The batch engine: sequences in batch steps, each with a cache in pages of its own.
//!
//! `pages` says which pages a sequence has, and `engine` is what a caller uses; `kept` has its pages that outlive
//! sequences. `cut` says which tokens of a prompt are processed in chunks, `chunks` reserves what these take, and
//! `prompts` processes them; `next` has the tokens of a text that is alone, `states` what is left of a token after all
//! layers and the `output_norm`. `measure` is for predictions.

mod chunks;
mod cut;
mod engine;
mod kept;
mod measure;
mod next;
mod options;
mod output_norm;
mod pages;
mod prompts;
mod states;

pub(crate) use chunks::launched;
pub use cut::{Cut, Writer};
pub use engine::{ColumnId, Columns};
pub use kept::KeptPage;
pub use options::ColumnsOptions;
