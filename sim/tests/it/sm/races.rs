//! Kernels of `races.ptx` with one mistake each about the order of accesses are caught, whatever the order in which their
//! blocks and warps run, and the same kernels without the mistake are clean under all checks.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;

use ga10b_sim::sm::{Config, Executor, Schedule};
use ga10b_sim::{Checks, Finding};

use super::cubin::Kernel;
use super::guest::DATA;

const OUT: u64 = DATA + 0x1_0000;
/// Orders in which kernels run: that of their numbers, and some by chance.
const SEEDS: std::ops::Range<u64> = 0..12;

fn schedules() -> impl Iterator<Item = Schedule> {
    [Schedule::Deterministic].into_iter().chain(SEEDS.map(Schedule::Shuffled))
}

/// Findings of blocks of 64 threads, and whether they end.
fn findings_of(name: &str, blocks: u32, checks: Checks, schedule: Schedule) -> (Vec<Finding>, bool) {
    let input: Vec<u32> = (0..1024).map(|i| i * 7 % 15).collect();
    let kernel = Kernel::from_path("tests/data/races.sm_87.cubin", name)
        .shape([blocks, 1, 1], [64, 1, 1])
        .data(DATA, 4096, &input)
        .data(OUT, 4096, &[0; 1024])
        .u64(DATA)
        .u64(OUT)
        .ready();
    let config = Config { schedule, checks, stall_budget: 1 << 20, ..Config::default() };
    let executor = Executor::new(config);
    let ended = executor.run(&kernel.guest, &kernel.launch, &AtomicBool::new(false));
    (executor.findings(), ended.is_ok())
}

/// The right kernel is clean under all checks, in every order.
fn right(name: &str, blocks: u32) {
    for schedule in schedules() {
        let (found, ended) = findings_of(&format!("{name}_right"), blocks, Checks::all(), schedule);
        assert!(found.is_empty() && ended, "{name}_right, {schedule:?}: {ended} {found:#?}");
    }
}

/// The mistake in `name` is found by `check` with these words, in every order; the right kernel is clean. Gives what
/// was found in the order of numbers.
fn planted(name: &str, blocks: u32, check: Checks, text: &str) -> Finding {
    right(name, blocks);
    let mut first = None;
    for schedule in schedules() {
        let (found, _) = findings_of(name, blocks, check, schedule);
        let (again, _) = findings_of(name, blocks, check, schedule);
        assert_eq!(found, again, "{name}, {schedule:?}");
        let finding = found.iter().find(|finding| finding.text.contains(text));
        let finding = finding.unwrap_or_else(|| panic!("{name}, {schedule:?}: {found:#?}")).clone();
        let earlier = finding.earlier.as_ref().expect("the other access");
        assert!(finding.check == check && finding.event.pc > finding.program && finding.address.is_some());
        assert!(earlier.pc > finding.program && !earlier.sass.is_empty());
        assert_ne!(
            (earlier.block, earlier.thread),
            (finding.event.block, finding.event.thread),
            "{name}: {finding}"
        );
        first.get_or_insert(finding);
    }
    first.expect("an order")
}

/// The instructions of a finding.
fn instructions(found: &Finding) -> BTreeSet<String> {
    let name = |sass: &str| {
        sass.split_whitespace().find(|word| !word.starts_with('@')).unwrap_or_default().to_owned()
    };
    [name(&found.event.sass), name(&found.earlier.as_ref().expect("the other").sass)].into()
}

#[test]
fn a_plain_read_of_a_word_that_another_warp_changes_atomically_is_found() {
    for name in ["atomic_read", "read_atomic"] {
        let found = planted(name, 1, Checks::RACE, "shared memory that another warp");
        assert_eq!(instructions(&found), BTreeSet::from(["ATOMS.ADD".into(), "LDS".into()]), "{name}");
        assert_ne!(found.event.thread[0] / 32, found.earlier.unwrap().thread[0] / 32);
    }
}

#[test]
fn a_plain_reset_of_a_word_that_others_change_atomically_is_found() {
    for name in ["reset", "reset_first"] {
        let found = planted(name, 1, Checks::RACE, "writes shared memory that another warp accesses");
        assert_eq!(instructions(&found), BTreeSet::from(["ATOMS.ADD".into(), "STS".into()]), "{name}");
    }
    let found = planted("reset_global", 4, Checks::RACE, "writes global memory that another block");
    assert_eq!(found.address, Some(OUT));
}

#[test]
fn a_flag_in_shared_memory_orders_if_it_follows_a_fence() {
    for name in ["poll_shared", "polled_shared"] {
        let found = planted(name, 1, Checks::RACE, "reads shared memory that another warp writes");
        // The data, not the flag.
        assert_eq!(found.address, Some(4), "{name}");
    }
    for name in ["acquire_shared", "sleeping_poll", "lock_shared"] {
        right(name, 2);
    }
}

#[test]
fn lanes_of_a_warp_that_nothing_brings_together_are_found() {
    for (name, text) in [
        ("lanes_read", "reads shared memory that another lane of the warp writes"),
        ("lanes_write", "writes shared memory that another lane of the warp accesses"),
        ("lanes_divergent", "shared memory that another lane of the warp"),
        ("lanes_global", "reads global memory that another lane of the warp writes"),
    ] {
        let found = planted(name, 1, Checks::RACE, text);
        assert_eq!(found.event.thread[0] / 32, found.earlier.unwrap().thread[0] / 32, "{name}");
    }
    right("lanes_leader", 1);
}

#[test]
fn a_barrier_object_that_others_use_before_it_begins_is_found() {
    let found = planted("object_init", 1, Checks::RACE, "shared memory that another warp");
    assert_eq!(found.address.map(|at| at / 8), Some(0));
    assert!(instructions(&found).contains("STS.64"), "{found}");
}

#[test]
fn a_scope_that_does_not_reach_other_blocks_is_named() {
    for (name, blocks) in [("scope_atomic", 4), ("scope_message", 2)] {
        let found = planted(name, blocks, Checks::RACE, "the scope of its block alone (.cta)");
        assert_ne!(found.event.block, found.earlier.unwrap().block, "{name}");
    }
    for name in ["scope_fence_store", "scope_fence_load"] {
        let found = planted(name, 2, Checks::ORDER, "with a fence of the scope of a block alone (.cta)");
        assert_eq!(found.address, Some(OUT + 64), "{name}");
    }
}

#[test]
fn warps_of_a_block_that_meet_in_global_memory_are_found() {
    let found = planted("warps_global", 2, Checks::RACE, "global memory that another warp of the block");
    assert_eq!(found.event.block, found.earlier.unwrap().block);
    right("flag_global", 1);
}

#[test]
fn a_load_past_coherent_caches_of_what_the_launch_writes_is_found() {
    let found = planted("constant_load", 1, Checks::RACE, "by ld.global.nc that the same launch writes");
    assert!(found.event.sass.contains("CONSTANT"), "{found}");
}

#[test]
fn a_change_in_two_steps_that_another_may_undo_is_found() {
    let found = planted("volatile_update", 4, Checks::RACE, "not by an atomic operation");
    assert!(found.event.sass.contains("STG") && found.address == Some(OUT), "{found}");
    right("turns", 4);
    right("compare_and_swap", 4);
}

/// Of each kernel, the pairs of instructions that are found do not depend on the order in which blocks and warps run.
#[test]
fn findings_do_not_depend_on_the_order() {
    for (name, blocks) in
        [("atomic_read", 1), ("reset", 1), ("warps_global", 2), ("scope_atomic", 4), ("lanes_divergent", 1)]
    {
        let pairs = |schedule| -> BTreeSet<_> {
            let (found, _) = findings_of(name, blocks, Checks::RACE | Checks::ORDER, schedule);
            found.iter().map(instructions).collect()
        };
        let first = pairs(Schedule::Deterministic);
        assert!(!first.is_empty());
        for schedule in schedules() {
            assert_eq!(pairs(schedule), first, "{name}, {schedule:?}");
        }
    }
}
