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
//! [`suite`] is the table; each module holds the tests of one subject; `tests/device.rs` runs them. A test opens its own
//! device, because some of them lose it on purpose.

pub mod conformance;
mod copies;
mod faults;
mod graphs;
mod kernels;
mod launches;
mod memory;
mod ordering;
mod queues;
mod random_programs;
mod windows;

/// The README's example, compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;

use std::time::Duration;

use anyhow::{Context, Result};
use hcq::{Device, Selector};

pub use kernels::cubin;

/// A deadline for anything that must come to an end: generous, because the software GPU may share its processor.
const DEADLINE: Duration = Duration::from_secs(60);

/// One test of the suite.
#[derive(Clone, Copy, Debug)]
pub struct Test {
    /// Its name: a sentence about the library, in snake case.
    pub name: &'static str,
    /// Runs it on a device it opens by itself.
    pub run: fn() -> Result<()>,
    /// Whether only the software GPU can run it.
    pub sim_only: bool,
}

/// The whole suite.
pub fn suite() -> Vec<Test> {
    [
        memory::TESTS,
        copies::TESTS,
        queues::TESTS,
        launches::TESTS,
        ordering::TESTS,
        graphs::TESTS,
        windows::TESTS,
        faults::TESTS,
        random_programs::TESTS,
    ]
    .concat()
}

/// The device under test.
pub fn selector() -> Result<Selector> {
    match std::env::var("HCQ_DEVICE") {
        Err(_) => Ok(Selector::Sim),
        Ok(name) => Ok(name.parse::<Selector>()?),
    }
}

/// Whether the device under test is the software one.
pub fn on_sim() -> bool {
    matches!(selector(), Ok(Selector::Sim))
}

/// Opens the device under test.
fn open() -> Result<Device> {
    Device::open(selector()?).context("opening the device under test")
}

/// Opens the device under test with options.
fn open_with(change: impl FnOnce(&mut hcq::DeviceOptions)) -> Result<Device> {
    let mut options = hcq::DeviceOptions::default();
    change(&mut options);
    Device::open_with(selector()?, options).context("opening the device under test")
}

/// Reads `count` words of a buffer.
fn words(buffer: &hcq::Buffer, count: usize) -> Result<Vec<u32>> {
    let mut bytes = vec![0; count * 4];
    buffer.read(0, &mut bytes)?;
    Ok(bytes.as_chunks::<4>().0.iter().map(|w| u32::from_le_bytes(*w)).collect())
}

/// The bytes of some words.
fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}
