//! Tests of the crate, one module per subject.

mod bench;
mod conformance;
mod fuzz;
