//! Tests of the crate, one module per subject.

mod golden;
mod layout;
mod problems;
mod properties;
mod tables;
