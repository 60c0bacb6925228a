//! Programs in GPU memory: what a cubin's loader reads, where code lies, its kernels, and the stack that they
//! need.

pub(crate) mod image;
pub(crate) mod images;
pub(crate) mod kernel;
pub(crate) mod loader;
pub(crate) mod occupancy;
pub(crate) mod registry;
pub(crate) mod scratch;
pub(crate) mod stack;
