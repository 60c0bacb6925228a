//! Tests of the crate, one module per subject.

mod golden;
mod layout;
mod limits;
mod problems;
mod properties;
mod tables;
