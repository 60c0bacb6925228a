//! The encoding of launches: queue metadata (QMD) and constant bank 0 of a kernel.

pub(crate) mod qmd_cache;
pub(crate) mod target;
