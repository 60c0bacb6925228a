//! Launches: their shape and arguments, and their encoding as queue metadata and constant banks.

pub(crate) mod args;
pub(crate) mod constant_bank;
pub(crate) mod qmd_cache;
pub(crate) mod scratch;
pub(crate) mod shape;
pub(crate) mod target;
