//! Reads of bytes that nothing wrote are found by the check `init`, byte by byte, and what holds the pattern of fresh
//! memory because it was written is no finding.

use ga10b_sim::sm::{Config, Executor, Launch, Schedule};
use ga10b_sim::{Checks, Finding, POISON};
use sass::Arch;
use std::sync::atomic::AtomicBool;

use super::asm;
use super::cubin::Kernel;
use super::guest::{CODE, DATA, Guest, launch};

const OUT: u64 = DATA + 0x1_0000;

/// Findings of a kernel of `unwritten.ptx` in a block of 64 threads, which runs to its end.
fn findings_of(name: &str, checks: Checks) -> Vec<Finding> {
    let kernel = Kernel::from_path("tests/data/unwritten.sm_87.cubin", name)
        .shape([1, 1, 1], [64, 1, 1])
        .data(DATA, 4096, &[POISON; 1024])
        .data(OUT, 4096, &[0; 64])
        .u64(DATA)
        .u64(OUT)
        .ready();
    let config = Config { schedule: Schedule::Deterministic, checks, ..Config::default() };
    let executor = Executor::new(config);
    let ended = executor.run(&kernel.guest, &kernel.launch, &AtomicBool::new(false));
    ended.unwrap_or_else(|fault| panic!("{name}: {fault}"));
    executor.findings()
}

/// The one finding of `name`, of its first thread; the right kernel is clean.
fn planted(name: &str) -> Finding {
    assert_eq!(findings_of(&format!("{name}_right"), Checks::all()), [], "{name}_right");
    let found = findings_of(name, Checks::all());
    assert_eq!(found.len(), 1, "{name}: {found:#?}");
    assert_eq!((found[0].check, found[0].event.thread), (Checks::INIT, [0; 3]), "{}", found[0]);
    found[0].clone()
}

#[test]
fn a_word_of_which_three_bytes_were_written_is_found() {
    for (space, load) in [("global", "LDG"), ("shared", "LDS"), ("local", "LDL")] {
        let found = planted(&format!("{space}_bytes"));
        assert_eq!(found.text, format!("reads {space} memory that nothing wrote"));
        assert!(found.event.sass.starts_with(load), "{found}");
        assert_eq!(found.detail, "of its 4 bytes nothing wrote byte 2");
        assert_eq!(found.address.map(|at| at % 4), Some(2), "{found}");
    }
}

#[test]
fn a_half_of_which_the_other_one_was_written_is_found() {
    for space in ["global", "shared", "local"] {
        let found = planted(&format!("{space}_half"));
        assert_eq!((found.detail.as_str(), found.address.map(|at| at % 4)), ("", Some(2)), "{found}");
    }
}

#[test]
fn the_pattern_of_fresh_memory_may_be_written() {
    for space in ["global", "shared", "local"] {
        for how in ["pattern", "pattern_bytes"] {
            let name = format!("{space}_{how}_right");
            assert_eq!(findings_of(&name, Checks::all()), [], "{name}");
        }
    }
    assert_eq!(findings_of("global_halves_right", Checks::all()), []);
}

/// The value that it loads is stored, and loaded again: that is the same mistake.
#[test]
fn a_read_of_what_nothing_wrote_is_found_once() {
    let found = findings_of("global_moved", Checks::all());
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!(found[0].address, Some(DATA));
}

/// The texts of the findings of a warp that stores R20 by `store`, after `first`.
fn stored(first: u128, store: u128) -> Vec<String> {
    let mut guest = Guest::default();
    guest.map(CODE, 4096);
    guest.map(DATA, 4096);
    let address = [asm::mov(2, DATA as u32), asm::mov(3, (DATA >> 32) as u32)];
    guest.write_code(CODE, &[address[0], address[1], first, store, asm::EXIT]);
    let executor = Executor::new(Config { checks: Checks::INIT, ..Config::default() });
    let launch = Launch { shared_bytes: 128, local_bytes: 128, ..launch(Arch::Sm87) };
    executor.run(&guest, &launch, &AtomicBool::new(false)).expect("it ends");
    executor.findings().into_iter().map(|found| found.text).collect()
}

/// A called function saves its caller's registers in local memory, whether they were written or not.
#[test]
fn a_register_that_holds_the_pattern_is_fresh_only_if_nothing_wrote_it() {
    let to_local = asm::sts(0, 20) ^ 0x388 ^ 0x387;
    for store in [asm::stg(2, 0, 20), asm::sts(0, 20)] {
        assert_eq!(stored(asm::mov(20, POISON), store), [""; 0]);
        assert_eq!(stored(asm::mov(21, POISON), store), ["stores a value that nothing wrote"]);
    }
    assert_eq!(stored(asm::mov(21, POISON), to_local), [""; 0]);
}
