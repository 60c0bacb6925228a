//! Programs in GPU memory: the cubin that fits a device, its image, kernels, and the scratch memory they need.

pub(crate) mod image;
pub(crate) mod images;
pub(crate) mod kernel;
pub(crate) mod occupancy;
pub(crate) mod registry;
pub(crate) mod scratch;
