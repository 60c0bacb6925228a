//! Tests of the crate, one module per subject.

mod architectures;
mod arguments;
mod driver_calls;
mod examples;
mod graphs;
mod kernels;
mod limits;
mod orin;
mod patience;
mod reports;
mod sim;
mod soundness;
