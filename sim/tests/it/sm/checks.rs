//! Kernels with one planted mistake each are caught by the check that is for it, and the same kernels without the
//! mistake are clean under all checks.

use ga10b_sim::sm::{Config, Executor, Fault, Launch, Schedule};
use ga10b_sim::{Checks, Finding, POISON};
use sass::Arch;
use std::sync::atomic::AtomicBool;

use super::asm;
use super::cubin::Kernel;
use super::guest::{CODE, DATA, Guest, launch};

const OUT: u64 = DATA + 0x1_0000;

/// Findings of a kernel of `planted.ptx`: blocks of 64 threads.
fn findings_of(name: &str, blocks: u32, checks: Checks) -> (Vec<Finding>, Result<(), Fault>) {
    // The host's input: numbers from 0 to 14 in some order. Other memory is fresh.
    let input: Vec<u32> = if name.starts_with("fresh_global") {
        vec![POISON; 1024]
    } else {
        (0..1024).map(|i| i * 7 % 15).collect()
    };
    let kernel = Kernel::from_path("tests/data/planted.sm_87.cubin", name)
        .shape([blocks, 1, 1], [64, 1, 1])
        .data(DATA, 4096, &input)
        .data(OUT, 4096, &[0; 64])
        .u64(DATA)
        .u64(OUT)
        .ready();
    let config =
        Config { schedule: Schedule::Deterministic, checks, stall_budget: 1 << 20, ..Config::default() };
    let executor = Executor::new(config);
    let ended = executor.run(&kernel.guest, &kernel.launch, &AtomicBool::new(false));
    (executor.findings(), ended.map(drop))
}

/// Findings of one warp of hand-written code, however it ends.
fn findings_in(code: &[u128]) -> Vec<Finding> {
    findings_of_warps(1, code)
}

/// Findings of a block of hand-written code, however it ends.
fn findings_of_warps(warps: u32, code: &[u128]) -> Vec<Finding> {
    let mut guest = Guest::default();
    guest.map(CODE, 4096);
    guest.map(DATA, 4096);
    guest.write_code(CODE, code);
    let executor = Executor::new(Config { checks: Checks::all(), ..Config::default() });
    let launch = Launch { block: [32 * warps, 1, 1], shared_bytes: 1024, ..launch(Arch::Sm87) };
    let _ = executor.run(&guest, &launch, &AtomicBool::new(false));
    executor.findings()
}

/// The mistake in `name` is found by `check`, with these words, and by no other unless it makes a kernel read
/// too early; the right kernel is clean.
fn planted(name: &str, blocks: u32, check: Checks, text: &str) -> Finding {
    let (clean, ended) = findings_of(&format!("{name}_right"), blocks, Checks::all());
    assert!(clean.is_empty(), "{name}_right: {clean:#?}");
    ended.unwrap_or_else(|fault| panic!("{name}_right: {fault}"));
    let (others, _) = findings_of(name, blocks, Checks::all() - check - Checks::INIT);
    assert!(others.is_empty(), "{name}: {others:#?}");
    let (found, _) = findings_of(name, blocks, check);
    let finding = found.iter().find(|f| f.text.contains(text));
    let finding = finding.unwrap_or_else(|| panic!("{name}: {found:#?}")).clone();
    assert_eq!(finding.check, check);
    assert!(!finding.event.sass.is_empty() && finding.event.pc > finding.program);
    finding
}

#[test]
fn a_missing_barrier_between_a_store_and_a_load_of_shared_memory_is_found() {
    let found = planted("race_read", 1, Checks::RACE, "without a barrier between");
    let earlier = found.earlier.expect("the other access");
    // Threads of the two warps, one at the store and one at the load.
    assert_ne!(earlier.thread[0] / 32, found.event.thread[0] / 32);
    assert!(earlier.sass.contains("STS") || found.event.sass.contains("STS"), "{earlier} {}", found.event);
    let word = found.address.expect("an offset") / 4;
    assert!(word < 64);
}

#[test]
fn a_missing_barrier_between_a_load_and_a_store_of_shared_memory_is_found() {
    let found = planted("race_write", 1, Checks::RACE, "writes shared memory that another warp accesses");
    assert!(found.event.sass.contains("STS"));
    assert!(found.earlier.expect("the load").sass.contains("LDS"));
}

/// ptxas moves a load ahead of the branch to the lanes that need it, and other warps load a word that one warp
/// writes: that is no mistake unless they use it.
#[test]
fn a_load_races_if_its_value_is_used() {
    type Guard = fn(u128) -> u128;
    // P0 = thread < 32. One warp initializes the word and writes it again; both load it in between.
    let first: Guard = asm::if_p0;
    let second: Guard = |word| asm::if_p0(word) | 1 << 15;
    let found_in = |writes: Guard, code: &[u128]| {
        let begin = [
            asm::s2r(6, 0x21),
            asm::isetp_lt(6, 32),
            asm::mov(2, DATA as u32),
            asm::mov(3, (DATA >> 32) as u32),
            asm::mov(0, 5),
            writes(asm::sts(0, 0)),
            asm::bar(0),
            asm::mov(0, 7),
            asm::lds(9, 255, 0),
            asm::warpsync(u32::MAX),
            writes(asm::sts(0, 0)),
        ];
        findings_of_warps(2, &[&begin, code, &[asm::EXIT]].concat())
    };
    let use_it = asm::stg(2, 0, 9);
    // Whichever warp runs ahead: the load comes after the store, or before it.
    let warps: [(Guard, Guard); 2] = [(first, second), (second, first)];
    for (writer, reader) in warps {
        assert_eq!(found_in(writer, &[]), []);
        assert_eq!(found_in(writer, &[writer(use_it)]), []);
        assert_eq!(found_in(writer, &[reader(asm::mov(9, 1)), reader(use_it)]), []);
        for uses in [&[use_it][..], &[reader(use_it)], &[asm::bar(0), reader(use_it)]] {
            let mut found = found_in(writer, uses);
            // Both warps store what they have read to one place.
            found.retain(|found| !found.text.contains("global memory"));
            assert_eq!((found.len(), found[0].check), (1, Checks::RACE), "{found:#?}");
            assert!(found[0].text.contains("shared memory that another warp"));
            assert_eq!(found[0].address, Some(0));
        }
    }
}

#[test]
fn threads_that_store_different_values_to_a_word_of_shared_memory_are_found() {
    let found = planted("race_same_word", 1, Checks::RACE, "lanes of a warp store different values");
    assert_ne!(found.earlier.expect("the other lane").thread, found.event.thread);
    assert_eq!(found.address.map(|at| at % 4), Some(0));
}

#[test]
fn an_update_that_blocks_may_lose_is_found() {
    let found = planted("lost_update", 4, Checks::RACE, "another block of the launch");
    assert_eq!(found.address, Some(OUT));
    assert_ne!(found.earlier.expect("another block").block, found.event.block);
}

#[test]
fn a_message_between_blocks_without_release_is_found() {
    let found = planted("message", 2, Checks::RACE, "nothing orders the two");
    assert!(found.address == Some(OUT) || found.address == Some(OUT + 64));
}

#[test]
fn a_message_between_blocks_without_a_fence_is_found() {
    for name in ["fence_store", "fence_load"] {
        let found = planted(name, 2, Checks::ORDER, "another block of the launch writes, without fences");
        assert_eq!(found.address, Some(OUT + 64));
        assert_ne!(found.earlier.expect("another block").block, found.event.block);
    }
}

/// The store of the message's data becomes visible after the flag, in some orders.
#[test]
fn stores_become_visible_late_without_a_fence() {
    let messages = |name: &str| -> Vec<u32> {
        let read = |seed| {
            let mut kernel = Kernel::from_path("tests/data/planted.sm_87.cubin", name)
                .shape([2, 1, 1], [64, 1, 1])
                .data(DATA, 4096, &[0; 64])
                .data(OUT, 4096, &[0; 64])
                .u64(DATA)
                .u64(OUT)
                .ready();
            let schedule = Schedule::Shuffled(seed);
            let executor = Executor::new(Config { schedule, checks: Checks::ORDER, ..Config::default() });
            executor.run(&kernel.guest, &kernel.launch, &AtomicBool::new(false)).expect("it ends");
            kernel.guest.read_u32s(OUT + 128, 1)[0]
        };
        (0..40).map(read).collect()
    };
    for name in ["fence_store_right", "fence_load_right"] {
        assert_eq!(messages(name), [7; 40], "{name}");
    }
    let without = messages("fence_store");
    assert!(without.contains(&0) && without.contains(&7), "{without:?}");
    assert_eq!(without, messages("fence_store"), "a seed gives the same order");
}

#[test]
fn reads_of_what_nothing_wrote_are_found() {
    let global = planted("fresh_global", 1, Checks::INIT, "reads global memory that nothing wrote");
    assert_eq!((global.address, global.event.thread), (Some(DATA), [0; 3]));
    let shared = planted("fresh_shared", 1, Checks::INIT, "reads shared memory that nothing wrote");
    assert!(
        shared.event.sass.contains("LDS") && shared.address == Some(u64::from(shared.event.thread[0]) * 4)
    );
    let local = planted("fresh_local", 1, Checks::INIT, "reads local memory that nothing wrote");
    assert!(local.event.sass.contains("LDL"));
}

#[test]
fn a_store_of_a_register_that_nothing_wrote_is_found() {
    let address = [asm::mov(2, DATA as u32), asm::mov(3, (DATA >> 32) as u32)];
    let found_in = |first: u128| findings_in(&[address[0], address[1], first, asm::stg(2, 0, 20), asm::EXIT]);
    assert!(found_in(asm::mov(20, 1)).is_empty());
    let found = found_in(asm::mov(21, 1));
    assert_eq!((found.len(), found[0].check, found[0].event.pc), (1, Checks::INIT, CODE + 48));
    assert_eq!(found[0].text, "stores a value that nothing wrote");
}

#[test]
fn a_barrier_that_a_warp_does_not_reach_together_is_found() {
    let found =
        planted("divided_barrier", 1, Checks::SYNC, "waits for lanes of its warp that wait elsewhere");
    assert_ne!(found.earlier.expect("the others").pc, found.event.pc);
}

#[test]
fn a_barrier_that_only_some_lanes_reach_is_found_without_the_compiler_s_help() {
    // P0 = lane < 10; these lanes alone come to the barrier, then the others.
    let code = [asm::s2r(6, 0), asm::isetp_lt(6, 10), asm::if_p0(asm::bar(0)), asm::bar(0), asm::EXIT];
    let found = findings_in(&code);
    assert_eq!(found[0].text, "comes to barrier 0 without all lanes of its warp");
    assert_eq!((found[0].event.pc, found[0].event.thread), (CODE + 32, [0; 3]));
}

#[test]
fn half_a_warp_at_one_barrier_and_half_at_another_is_found() {
    let found = planted("two_barriers", 1, Checks::SYNC, "waits for lanes of its warp that wait elsewhere");
    let (here, there) = (found.event, found.earlier.expect("the other half"));
    assert_ne!((here.pc, here.thread[0] / 16), (there.pc, there.thread[0] / 16));
}

#[test]
fn lanes_that_have_exited_are_found_where_others_need_them() {
    let shuffle = planted("shuffle_exited", 1, Checks::SYNC, "takes a value from a lane that has exited");
    assert!(shuffle.event.sass.contains("SHFL"));
    // P0 = lane < 10; these lanes exit, then the others wait for lanes.
    let found_in = |mask: u32| {
        let code =
            [asm::s2r(6, 0), asm::isetp_lt(6, 10), asm::if_p0(asm::EXIT), asm::warpsync(mask), asm::EXIT];
        findings_in(&code)
    };
    assert!(found_in(u32::MAX << 10).is_empty());
    let found = found_in(u32::MAX << 9);
    assert_eq!((found.len(), found[0].check, found[0].event.pc), (1, Checks::SYNC, CODE + 48));
    assert_eq!(found[0].text, "waits for lanes of its warp that have exited");
}

#[test]
fn without_checks_nothing_is_reported_and_memory_is_zero() {
    for name in ["race_read", "fresh_shared", "divided_barrier"] {
        assert!(findings_of(name, 1, Checks::empty()).0.is_empty());
    }
}

/// The interpreter copies at once, so the data is right; on a GPU it need not be there.
#[test]
fn a_missing_wait_for_asynchronous_copies_is_found() {
    for name in ["copy_unwaited", "copy_group", "copy_arrived"] {
        let found = planted(name, 1, Checks::RACE, "without waiting for the copy");
        let earlier = found.earlier.expect("the copy");
        assert!(earlier.sass.contains("LDGSTS") && found.event.sass.contains("LDS"), "{name}: {earlier}");
        assert_ne!(earlier.thread, found.event.thread);
    }
}

#[test]
fn arrivals_after_waits_for_a_barrier_object_are_no_race() {
    let (found, ended) = findings_of("arrivals_right", 1, Checks::all());
    assert_eq!((found, ended.is_ok()), (vec![], true));
}

/// The last block reads what others stored before their fence past its level-1 cache: it needs no fence of its own.
#[test]
fn the_last_block_reads_the_others_results_past_its_cache_or_after_a_fence() {
    let found = planted("last_block", 8, Checks::ORDER, "without fences");
    assert!(found.event.sass.contains("LDG") && found.earlier.is_some());
}

/// A block that has ended without a fence is seen by those that wait for its store, sooner or later.
#[test]
fn a_weak_store_of_a_block_that_has_ended_is_seen_by_others() {
    for seed in 0..8 {
        let kernel = Kernel::from_path("tests/data/planted.sm_87.cubin", "poll_plain")
            .shape([4, 1, 1], [64, 1, 1])
            .data(DATA, 4096, &[0; 64])
            .data(OUT, 4096, &[0; 64])
            .u64(DATA)
            .u64(OUT)
            .ready();
        let schedule = Schedule::Shuffled(seed);
        let config = Config { schedule, checks: Checks::all(), stall_budget: 1 << 20, ..Config::default() };
        let executor = Executor::new(config);
        let ended = executor.run(&kernel.guest, &kernel.launch, &AtomicBool::new(false));
        ended.unwrap_or_else(|fault| panic!("seed {seed}: {fault}"));
        assert!(executor.findings().iter().any(|found| found.check == Checks::RACE), "seed {seed}");
    }
}

/// A source size below the copy's leaves zeros at its end.
#[test]
fn a_copy_of_fewer_bytes_than_its_size_is_filled_with_zeros() {
    let input: Vec<u32> = (1..=1024).map(|i| i * 0x0101_0101).collect();
    let mut kernel = Kernel::from_path("tests/data/planted.sm_87.cubin", "filled_right")
        .shape([1, 1, 1], [64, 1, 1])
        .data(DATA, 4096, &input)
        .data(OUT, 4096, &[7; 1024])
        .u64(DATA)
        .u64(OUT)
        .ready();
    let executor = Executor::new(Config { checks: Checks::all(), ..Config::default() });
    executor.run(&kernel.guest, &kernel.launch, &AtomicBool::new(false)).unwrap();
    assert_eq!(executor.findings(), []);
    let source: Vec<u8> = input.iter().flat_map(|word| word.to_le_bytes()).collect();
    let out = kernel.guest.read(OUT, 1024);
    for thread in 0..64 {
        let kept = 16usize.saturating_sub(thread);
        let expected: Vec<u8> = (0..16).map(|i| if i < kept { source[16 * thread + i] } else { 0 }).collect();
        assert_eq!(out[16 * thread..][..16], expected, "thread {thread}");
    }
}
