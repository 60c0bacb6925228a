//! Shapes of kernels that were found to be fast on one GPU for one model.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::kernels::Choices;

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
