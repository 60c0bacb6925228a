//! Tests of the crate, one module per subject.

mod bench;
mod conformance;
mod hardware_facts;
mod kernels;
mod memory_check;
mod order;
mod output;
mod pages;
mod releases;
