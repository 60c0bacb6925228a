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

use std::cell::Cell;
use std::time::Duration;

use anyhow::{Context, Result};
use ga10b_sim::{Sim, SimConfig};
use hcq::{Device, DeviceOptions, Selector};
use sass::Arch;

pub use kernels::cubin;

/// A deadline for anything that must come to an end: generous, because the software GPU may share its processor.
const DEADLINE: Duration = Duration::from_secs(60);

thread_local! {
    /// The SMs of the software GPU that tests on this thread open; the device under test when there are none.
    static SMS: Cell<Option<Arch>> = const { Cell::new(None) };
}

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
    [&suite_for_every_sm(), random_programs::TESTS].concat()
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
        windows::TESTS,
        faults::TESTS,
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

/// Runs a test on software GPUs whose SMs are of `arch`, whatever the device under test is.
///
/// # Errors
/// Those of the test.
pub fn run_on(arch: Arch, test: &Test) -> Result<()> {
    let before = SMS.replace(Some(arch));
    let result = (test.run)();
    SMS.set(before);
    result
}

/// Opens the device under test.
fn open() -> Result<Device> {
    open_with(|_| ())
}

/// Opens the device under test with options.
fn open_with(change: impl FnOnce(&mut DeviceOptions)) -> Result<Device> {
    let mut options = DeviceOptions::default();
    change(&mut options);
    let selector = match SMS.get() {
        Some(arch) => {
            options.sim = Some(Sim::new(SimConfig { arch, ..SimConfig::default() }));
            Selector::Sim
        }
        None => selector()?,
    };
    Device::open_with(selector, options).context("opening the device under test")
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
