//! Shapes of kernels that were found to be fast on one GPU for one model: what they are, the search for them, and the file
//! that keeps them.

mod compile;
mod entry;
mod store;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::kernels::Choices;

pub use compile::{Compiler, target};
pub use entry::{
    Entry, Gpu, KernelFile, Method, ModelShape, Subject, Tuned, TunedGemm, TunedMatvec, TunedStep,
};
pub use store::{Loaded, SCHEMA, Store};

/// Kernels beside the committed ones by name, each alone in its cubin.
pub type Kernels = BTreeMap<Arc<str>, Arc<[u8]>>;

/// What an [`Engine`](crate::engine::Engine) runs with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tuning {
    /// The shapes.
    pub choices: Choices,
    /// The kernels that have them, where they are not among the committed ones.
    pub kernels: Kernels,
}
