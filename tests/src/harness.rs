//! One test of the suite, and the device it runs on.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use ga10b_sim::sm::Schedule;
use ga10b_sim::{Checks, Finding, Sim, SimConfig, sm};
use hcq::{Device, DeviceOptions, Selector};
use sass::Arch;

/// A deadline for anything that must come to an end: generous, because the software GPU may share its
/// processor.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

thread_local! {
    /// The SMs of the software GPU that tests on this thread open; the device under test when there are none.
    static SMS: Cell<Option<Arch>> = const { Cell::new(None) };
    /// The schedule of the machines that search for mistakes of kernels, and those that tests on this thread
    /// have opened, when they are to search.
    static CHECKED: RefCell<Option<(Schedule, Vec<Arc<Sim>>)>> = const { RefCell::new(None) };
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

/// Runs a test on software GPUs that search for mistakes of kernels, and gives what they found.
///
/// # Errors
/// Those of the test.
pub fn run_checked(test: &Test, schedule: Schedule) -> Result<Vec<Finding>> {
    let before = CHECKED.replace(Some((schedule, Vec::new())));
    let result = (test.run)();
    let (_, machines) = CHECKED.replace(before).unwrap_or_default();
    result?;
    Ok(machines.iter().flat_map(|sim| sim.findings()).collect())
}

/// Whether the software GPU checks this test's kernels: memory then costs as much as what is tested with it.
pub(crate) fn is_checked() -> bool {
    CHECKED.with_borrow(Option::is_some)
}

/// Opens the device under test.
pub(crate) fn open() -> Result<Device> {
    open_with(|_| ())
}

/// Opens the device under test with options.
pub(crate) fn open_with(change: impl FnOnce(&mut DeviceOptions)) -> Result<Device> {
    let mut options = DeviceOptions::default();
    change(&mut options);
    if let Some(schedule) = CHECKED.with_borrow(|checked| checked.as_ref().map(|(schedule, _)| *schedule)) {
        let executor = sm::Config { checks: Checks::all(), schedule, ..sm::Config::default() };
        let sim = Sim::new(SimConfig { executor, ..SimConfig::default() });
        CHECKED.with_borrow_mut(|checked| checked.get_or_insert_default().1.push(Arc::clone(&sim)));
        return hcq::sim::open(sim, options).context("opening a software GPU with checks");
    }
    match SMS.get() {
        Some(arch) => hcq::sim::open(Sim::new(SimConfig { arch, ..SimConfig::default() }), options),
        None => Device::open_with(selector()?, options),
    }
    .context("opening the device under test")
}
