//! The device suite: what `hcq` promises, tried on whatever device `HCQ_DEVICE` names.
//!
//! The software ga10b when it is unset, so that it runs anywhere:
//!
//! ```sh
//! cargo test -p ga10b-tests --release                   # software ga10b
//! HCQ_DEVICE=nvgpu cargo test -p ga10b-tests --release  # a Jetson Orin
//! HCQ_DEVICE=rm cargo test -p ga10b-tests --release     # a desktop GPU
//! ```
//!
//! [`suite`] is the table; each module holds the tests of one subject; `tests/device.rs` runs them. A test
//! opens its own device, because some of them lose it on purpose.
//!
//! # Layers
//! ```text
//! programs  links random_programs soak  # programs that use other tests
//! subjects  bench conformance copies faults fuzz graphs launches lifetimes memory ordering queues windows  # tests
//! harness   harness kernels output      # what tests share
//! ```

pub mod bench;
pub mod conformance;
mod copies;
mod faults;
pub mod fuzz;
mod graphs;
mod harness;
mod kernels;
mod launches;
mod lifetimes;
mod links;
mod memory;
mod ordering;
pub mod output;
mod queues;
mod random_programs;
pub mod soak;
mod windows;

/// The README's example, compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;

pub use harness::{Test, on_sim, run_checked, run_on, selector};
pub use kernels::{BENCH, SUITE, arch, early_cubin};

/// The whole suite.
pub fn suite() -> Vec<Test> {
    [&suite_for_every_sm(), random_programs::TESTS].concat()
}

/// The suite without the tests that take gigabytes of memory for many addresses, which have no order.
pub fn suite_of_work() -> Vec<Test> {
    suite().into_iter().filter(|test| !windows::TESTS.iter().any(|other| other.name == test.name)).collect()
}

/// The tests whose kernels are compiled for every SM that the software GPU can have.
pub fn suite_for_every_sm() -> Vec<Test> {
    [
        memory::TESTS,
        copies::TESTS,
        queues::TESTS,
        launches::TESTS,
        ordering::TESTS,
        graphs::TESTS,
        lifetimes::TESTS,
        links::TESTS,
        windows::TESTS,
        faults::TESTS,
    ]
    .concat()
}
