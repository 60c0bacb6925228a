//! Blocks that wait for other blocks: however a wait loop is made, the others have their turns.

use ga10b_sim::sm::{Config, Counters, Fault, Schedule, esr};

use super::cubin::Kernel;
use super::guest::{DATA, run_with};

/// Blocks of `wait_diverging`: the first waits for a flag that the second sets.
fn wait_diverging(blocks: u32, config: Config) -> Result<Counters, Fault> {
    let kernel = Kernel::from_path("tests/data/waits.sm_87.cubin", "wait_diverging")
        .shape([blocks, 1, 1], [32, 1, 1])
        .data(DATA, 4096, &[])
        .u64(DATA)
        .u64(DATA + 64)
        .ready();
    run_with(config, &kernel.guest, &kernel.launch)
}

#[test]
fn a_wait_loop_that_diverges_and_reconverges_gives_way_to_other_blocks() {
    for schedule in [Schedule::Deterministic, Schedule::Parallel, Schedule::Shuffled(7)] {
        let config = Config { schedule, workers: 1, stall_budget: 100_000_000, ..Config::default() };
        wait_diverging(2, config).unwrap_or_else(|fault| panic!("{schedule:?}: {fault}"));
    }
}

#[test]
fn a_wait_loop_that_diverges_and_never_ends_is_reported_as_hung() {
    let config = Config { schedule: Schedule::Deterministic, stall_budget: 1_000_000, ..Config::default() };
    let fault = wait_diverging(1, config).unwrap_err();
    assert_eq!(fault.code, esr::NONE);
    assert!(fault.text.starts_with("hung"), "{}", fault.text);
}
