//! Oracles of the tests: tools that are not ours (`ptxas`, `nvdisasm`, libclang), with which results are
//! compared, and what happens where one is absent. And how many of their cases tests run.
//!
//! A test that cannot run says why in one line on stderr, past the capture of test output: `skipped: no
//! ptxas: ...`. With `REQUIRE_ORACLES=yes`, as CI sets it, an absent oracle fails the test instead.
//!
//! Tests that take long run a [`sample`] of their cases, and all of them with `NIGHTLY=1`.
//!
//! # Layers
//! ```text
//! oracles  nvdisasm       # NVIDIA's disassembler
//! reports  extent skip    # how much of a test runs; the report of an oracle that is missing
//! ```

mod extent;
mod nvdisasm;
mod skip;

pub use extent::{NIGHTLY, SEED, nightly, sample};
pub use nvdisasm::nvdisasm;
pub use skip::{REQUIRE, missing, skipped};
