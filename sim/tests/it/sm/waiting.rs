//! Blocks that wait for other blocks: however a wait loop is made, the others have their turns.

use std::sync::atomic::AtomicBool;

use ga10b_sim::sm::{Config, Counters, Executor, Fault, Schedule, esr};
use ga10b_sim::{Checks, Finding};

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

/// `named_barrier` of the device suite: rows of a plan, for half a warp each.
fn named_barrier(ways: &[[u32; 4]]) -> (Vec<Finding>, Result<Counters, Fault>) {
    let kernel = Kernel::from_path("../tests/kernels/suite.sm_87.cubin", "named_barrier")
        .shape([1; 3], [16 * ways.len() as u32, 1, 1])
        .data(DATA, 4096, ways.as_flattened())
        .data(DATA + 4096, 4096, &[0; 64])
        .u64(DATA)
        .u64(DATA + 4096)
        .ready();
    let executor = Executor::new(Config { checks: Checks::SYNC, ..Config::default() });
    let ended = executor.run(&kernel.guest, &kernel.launch, &AtomicBool::new(false));
    (executor.findings(), ended)
}

/// An H100 waits for ever in all of these.
#[test]
fn a_barrier_that_too_few_threads_can_reach_hangs_and_is_found() {
    let (exits, late) = ([0; 4], [1000, 5, 0, 0]);
    let waits = |count| [0, 0, 1, count];
    for (ways, text) in [
        (vec![waits(96); 4], "waits at barrier 1 for 96 threads, of which 64 have come and no other is left"),
        (vec![waits(96), waits(96), exits, exits], "for 96 threads, of which 32 have come"),
        (
            vec![waits(96), waits(96), waits(96), waits(96), late, late],
            "for 96 threads, of which 64 have come",
        ),
        (vec![waits(64), waits(64), exits, exits, late, late], "for 64 threads, of which 32 have come"),
        (
            vec![[1000, 0, 2, 96], [1000, 0, 2, 96], waits(96), waits(96), exits, exits],
            "of which 64 have come",
        ),
    ] {
        let (findings, ended) = named_barrier(&ways);
        let fault = ended.expect_err(text);
        assert!(fault.code == esr::NONE && fault.text.starts_with("deadlock"), "{fault}");
        let [found] = &findings[..] else { panic!("{text}: {findings:#?}") };
        assert!(found.check == Checks::SYNC && found.text.contains(text), "{found:#?}");
        assert!(found.event.sass.contains("BAR.SYNC 0x1"), "{found:#?}");
    }
}

#[test]
fn a_count_that_a_barrier_refuses_is_found() {
    let waits = |count| [0, 0, 1, count];
    let later = [1000, 0, 1, 96];
    for (ways, text) in [
        (vec![waits(48); 2], "comes to barrier 1 with a count of 48: not that of whole warps"),
        (
            vec![waits(64), waits(64), later, later],
            "comes to barrier 1 with a count of 96 after threads with 64",
        ),
        (vec![[0, 0, 2, 0]; 2], "arrives at barrier 1 without a count"),
    ] {
        let (findings, ended) = named_barrier(&ways);
        assert_eq!(ended.expect_err(text).code, esr::ILLEGAL_INSTR_PARAM);
        assert!(
            findings.iter().any(|found| found.check == Checks::SYNC && found.text == text),
            "{findings:#?}"
        );
    }
}

/// A kernel of `waits.ptx` with one block of 64 threads.
fn waits(name: &str, checks: Checks) -> (Vec<Finding>, Result<Counters, Fault>) {
    let kernel = Kernel::from_path("tests/data/waits.sm_87.cubin", name)
        .shape([1; 3], [64, 1, 1])
        .data(DATA, 4096, &[0; 64])
        .u64(DATA)
        .ready();
    let executor = Executor::new(Config { checks, stall_budget: 1_000_000, ..Config::default() });
    let ended = executor.run(&kernel.guest, &kernel.launch, &AtomicBool::new(false));
    (executor.findings(), ended)
}

#[test]
fn a_barrier_that_lanes_pass_over_by_a_guard_is_found() {
    let (findings, ended) = waits("passed_over_right", Checks::all());
    assert!(findings.is_empty() && ended.is_ok(), "{findings:#?}");
    let (findings, _) = waits("passed_over", Checks::all());
    let [found] = &findings[..] else { panic!("{findings:#?}") };
    assert!(
        found.check == Checks::SYNC && found.text.contains("that lanes of its warp pass over"),
        "{found:?}"
    );
    assert_eq!((found.event.thread, found.earlier.as_ref().unwrap().thread), ([1, 0, 0], [0, 0, 0]));
}

#[test]
fn a_wait_for_a_phase_that_no_one_arrives_at_is_found() {
    let (findings, ended) = waits("wrong_parity", Checks::all());
    assert!(ended.unwrap_err().text.starts_with("hung"));
    let [found] = &findings[..] else { panic!("{findings:#?}") };
    assert!(
        found
            .text
            .contains("while 64 of 64 arrivals at a barrier object are missing, in its phase of parity 1")
    );
    assert!(found.check == Checks::SYNC && found.address == Some(0), "{found:?}");
}
