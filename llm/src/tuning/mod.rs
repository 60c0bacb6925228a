//! Shapes of kernels that a search has found to be fast on one GPU for one model, and the file that stores
//! them.

pub(crate) mod compile;
pub(crate) mod entry;
pub(crate) mod store;

pub use crate::kernels::choices::{Choices, Kernels, Tuning};
pub use crate::kernels::recipe::Recipe;
pub use compile::{Compiler, target};
pub use entry::{Entry, Gpu, KernelFile, Method, ModelShape, Subject, Tuned, TunedGemm};
pub use store::{Loaded, SCHEMA, Store};
