//! Random programs on the device, against what the CPU computes.

use anyhow::{Context, Result, ensure};
use sass::Arch;

use crate::conformance::random;
use crate::conformance::report::Comparison;
use crate::conformance::runner::Runner;
use crate::harness::{Test, on_sim, selector};

pub const TESTS: &[Test] = &[
    Test { name: "random_programs_compute_what_they_should", run: random_programs, sim_only: false },
    Test { name: "random_programs_do_not_depend_on_the_schedule", run: schedules, sim_only: true },
];

fn agree(mut runner: Runner) -> Result<()> {
    let mut comparison = Comparison::new("device / expected");
    for case in random::cases() {
        let result = runner.run(&case).with_context(|| format!("{case:?}"))?;
        comparison.check(&case, &result);
    }
    ensure!(comparison.agrees(), "{comparison}");
    Ok(())
}

fn random_programs() -> Result<()> {
    agree(Runner::open(selector()?)?)
}

fn schedules() -> Result<()> {
    ensure!(on_sim(), "only the software GPU has schedules to choose from");
    (1..4).try_for_each(|seed| agree(Runner::simulated(Arch::Sm87, seed)?))
}
