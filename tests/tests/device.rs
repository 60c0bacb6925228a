//! Runs the device suite on the device that `HCQ_DEVICE` names; the software ga10b when it is unset, and then
//! also with checks of the kernels, and with SMs 9.0. With `NIGHTLY=1` also with SMs of every other version, and
//! with checks in random orders; else those are shown as ignored, and `--include-ignored` runs them.

use std::process::ExitCode;

use anyhow::Context;
use ga10b_sim::Checks;
use ga10b_sim::sm::Schedule;
use ga10b_tests::Test;
use libtest_mimic::{Arguments, Failed, Trial};
use sass::Arch;

/// SMs whose code the software ga10b executes besides its own.
const OTHERS: [Arch; 4] = [Arch::Sm80, Arch::Sm86, Arch::Sm89, Arch::Sm90];

/// The one that always runs: its encoding of instructions is its own.
const ALWAYS: Arch = Arch::Sm90;

/// Tests of what the hardware refuses, and the check that finds it.
const REFUSED: [(&str, Checks); 6] = [
    ("a_load_from_unmapped_memory_is_reported", Checks::MEMORY),
    ("a_store_to_unmapped_memory_is_reported", Checks::MEMORY),
    ("a_misaligned_load_is_reported", Checks::MEMORY),
    ("a_fault_is_noticed_while_a_wait_spins", Checks::MEMORY),
    ("a_lost_device_stays_lost_and_a_new_one_works", Checks::MEMORY),
    ("a_barrier_with_a_count_it_does_not_take_is_reported", Checks::SYNC),
];

/// Seeds of the random orders in which the suite runs.
const SEEDS: [u64; 2] = [1, 2];

fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .init();
    let mut args = Arguments::from_args();
    let on_sim = ga10b_tests::on_sim();
    let nightly = on_sim && ga10b_oracles::nightly();
    if !on_sim {
        // One GPU: a test that loses its device must not take another test's with it.
        args.test_threads = Some(1);
    }
    let mut trials = Vec::new();
    for test in ga10b_tests::suite() {
        let trial = Trial::test(test.name, move || (test.run)().map_err(failed));
        trials.push(trial.with_ignored_flag(test.sim_only && !on_sim));
    }
    for test in ga10b_tests::suite() {
        let trial = Trial::test(test.name, move || clean(&test, Schedule::Parallel).map_err(failed));
        trials.push(trial.with_kind("checks").with_ignored_flag(!on_sim));
    }
    for test in ga10b_tests::suite_of_work() {
        let shuffled = move || SEEDS.iter().try_for_each(|seed| clean(&test, Schedule::Shuffled(*seed)));
        let trial = Trial::test(test.name, move || shuffled().map_err(failed));
        trials.push(trial.with_kind("checks in random order").with_ignored_flag(!nightly));
    }
    for test in ga10b_tests::suite_for_every_sm() {
        for arch in OTHERS {
            let run = move || ga10b_tests::run_on(arch, &test).map_err(failed);
            let left_out = !nightly && (!on_sim || arch != ALWAYS);
            trials.push(Trial::test(test.name, run).with_kind(arch.to_string()).with_ignored_flag(left_out));
        }
    }
    libtest_mimic::run(&args, trials).exit_code()
}

/// Its kernels have no mistakes that the checks of the software ga10b find, but for accesses that a test of faults
/// makes on purpose.
fn clean(test: &Test, schedule: Schedule) -> anyhow::Result<()> {
    let findings = ga10b_tests::run_checked(test, schedule).with_context(|| format!("{schedule:?}"))?;
    let refused = REFUSED.iter().find(|(name, _)| *name == test.name).map(|(_, check)| *check);
    let (meant, others): (Vec<_>, Vec<_>) =
        findings.iter().partition(|finding| Some(finding.check) == refused);
    anyhow::ensure!(refused.is_some() != meant.is_empty(), "what is refused was not found, {schedule:?}");
    let lines: Vec<String> = others.iter().map(ToString::to_string).collect();
    anyhow::ensure!(lines.is_empty(), "the checks found, {schedule:?}:\n{}", lines.join("\n"));
    Ok(())
}

fn failed(error: anyhow::Error) -> Failed {
    Failed::from(format!("{error:?}"))
}
