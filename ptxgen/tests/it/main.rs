//! Tests of the crate, one module per subject.

mod alignment;
mod compiler;
mod golden;
mod params;
