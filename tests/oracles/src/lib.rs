//! Oracles of the tests: tools that are not ours (`ptxas`, `nvdisasm`, libclang), with which results are
//! compared, and what happens where one is absent.
//!
//! A test that cannot run says why in one line on stderr, past the capture of test output: `skipped: no
//! ptxas: ...`. With `REQUIRE_ORACLES=yes`, as CI sets it, an absent oracle fails the test instead.
//!
//! # Layers
//! ```text
//! oracles  nvdisasm  # NVIDIA's disassembler
//! skip     skip      # the report of an oracle that is missing
//! ```

mod nvdisasm;
mod skip;

pub use nvdisasm::nvdisasm;
pub use skip::{REQUIRE, missing, skipped};
