//! The language model's kernels and parsers, held to what the device suite holds everything else to.
//!
//! [`cases`] are those of `llm-conform`, which compares the software ga10b with a GPU: every kernel of the model by
//! itself ([`built_in`]), and whole [`decode`] steps of small models, of several sequences too ([`columns`]).
//! `llm-bench` measures whole kernels, `llm-fuzz` damages files of models ([`model_files`]). What they are made
//! with is `ga10b_tests`'.
//!
//! # Layers
//! ```text
//! all     built_in                                # the checks of this crate, by name
//! checks  architectures attentions caches column_kernels columns decode mixtures products  # a subject each
//! steps   column_steps model_files steps weights  # inputs of the checks
//! drive   drive                                   # one program on both models
//! ```

mod architectures;
mod attentions;
pub mod built_in;
mod caches;
mod column_kernels;
mod column_steps;
pub mod columns;
pub mod decode;
mod drive;
mod mixtures;
pub mod model_files;
mod products;
mod steps;
mod weights;

use ga10b_tests::conformance::Case;

pub use column_steps::ColumnSteps;
pub use steps::Steps;

/// Every case of the language model.
pub fn cases() -> Vec<Case> {
    [built_in::cases(), decode::cases(), columns::cases()].into_iter().flatten().collect()
}
