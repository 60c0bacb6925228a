//! Endurance: the same few things very often, on the device under test; and everything that a driver, a signal
//! or another process can do to it.
//!
//! Each part opens devices of its own, and leaves no descriptor of the process open.

mod failures;
mod injector;
mod one_process;
mod plan;
mod processes;

use std::time::Instant;

use anyhow::{Result, ensure};

use crate::harness::open;
use plan::{descriptors, resident_kib};

pub use plan::{Part, Plan};
pub use processes::{Role, play};

/// Parts of a run.
pub const PARTS: usize = 8;

/// Runs all parts, and hands out what each did. Nothing else of the process may open descriptors meanwhile.
///
/// # Errors
/// The first thing that went wrong: a call, a result, descriptors that are left, or a report.
pub fn run(plan: &Plan, report: &mut dyn FnMut(&Part) -> Result<()>) -> Result<()> {
    // The first device of a process opens what the process keeps.
    drop(open()?);
    let parts: [fn(&Plan) -> Result<String>; PARTS] = [
        one_process::launches,
        one_process::threads,
        one_process::queues,
        one_process::orders,
        failures::failures,
        processes::kills,
        processes::neighbours,
        processes::forks,
    ];
    for part in parts {
        let (before, began) = (descriptors()?, Instant::now());
        let what = part(plan)?;
        let elapsed = began.elapsed();
        let after = descriptors()?;
        ensure!(before == after, "{what}: {before} descriptors before, {after} afterwards");
        report(&Part { what, elapsed, resident_kib: resident_kib()? })?;
    }
    Ok(())
}
