//! The tables: every field of each version by name and bits, and where each launch parameter sits.

pub(crate) mod field;
pub(crate) mod layout;
pub mod v03;
pub mod v04;
