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
//! 0  conformance::cubins conformance::noise conformance::tolerance fuzz::corpus fuzz::guest fuzz::mutate
//! 0  fuzz::target harness output
//! 1  bench::table fuzz::decoders fuzz::machine fuzz::machine_code fuzz::runner kernels
//! 2  bench conformance::case fuzz::ioctls fuzz::loader fuzz::logs fuzz::page_tables fuzz::program
//! 3  bench::copies bench::launches conformance::drive conformance::report conformance::runner
//! 4  conformance::model_kernels conformance::program conformance::random
//! 5  conformance::convergence conformance::corpus conformance::edges conformance::exchange
//! 5  conformance::links conformance::matrix conformance::mufu conformance::suite
//! 6  conformance::sweep conformance::warpgroup
//! 7  conformance::programs
//! 8  conformance fuzz
//! 9  copies faults graphs launches links memory ordering queues random_programs soak::injector soak::plan
//! 9  windows
//! 10 soak::one_process
//! 11 soak::failures soak::processes
//! 12 soak
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
        links::TESTS,
        windows::TESTS,
        faults::TESTS,
    ]
    .concat()
}
