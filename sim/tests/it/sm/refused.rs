//! Accesses that the hardware refuses are findings of the check `memory`, which name thread, address and size.

use ga10b_sim::sm::{Config, Executor, Launch};
use ga10b_sim::{Checks, Finding};
use sass::Arch;
use std::sync::atomic::AtomicBool;

use super::asm;
use super::guest::{CODE, DATA, Guest, launch};

/// The findings of two warps of code with an address in R2:R3 for threads from 40 on; it faults.
fn findings_of(address: u64, words: &[u128], checks: Checks) -> Vec<Finding> {
    let mut guest = Guest::default();
    guest.map(CODE, 4096);
    guest.map_with(DATA, 4096, false);
    let mut code = vec![
        asm::s2r(6, 0x21),
        asm::isetp_lt(6, 40),
        asm::if_p0(asm::EXIT),
        asm::mov(2, address as u32),
        asm::mov(3, (address >> 32) as u32),
    ];
    code.extend(words);
    code.push(asm::EXIT);
    guest.write_code(CODE, &code);
    let executor = Executor::new(Config { checks, ..Config::default() });
    let launch = Launch { block: [64, 1, 1], shared_bytes: 1024, ..launch(Arch::Sm87) };
    executor.run(&guest, &launch, &AtomicBool::new(false)).expect_err("a fault");
    executor.findings()
}

/// The only finding of a word.
fn found(address: u64, word: u128) -> Finding {
    assert_eq!(findings_of(address, &[word], Checks::all() - Checks::MEMORY), []);
    let found = findings_of(address, &[word], Checks::all());
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!((found[0].check, found[0].event.thread), (Checks::MEMORY, [40, 0, 0]), "{}", found[0]);
    assert_eq!(found[0].event.pc, CODE + 80);
    found[0].clone()
}

#[test]
fn an_access_beyond_the_shared_memory_of_the_block_names_both_sizes() {
    let load = found(1024, asm::lds(9, 2, 0));
    assert_eq!(load.text, "reads shared memory beyond the block's");
    assert_eq!(load.detail, "4 bytes of each thread; the block has 1024 bytes of shared memory");
    assert_eq!(load.address, Some(1024));
    assert_eq!(found(0, asm::sts(1024, 2)).text, "writes shared memory beyond the block's");
}

#[test]
fn a_misaligned_access_is_named() {
    let global = found(DATA + 2, asm::ldg(4, 2, 0, 4));
    assert_eq!(global.text, "reads global memory at an address that is not a multiple of its size");
    assert_eq!((global.address, global.detail.as_str()), (Some(DATA + 2), "4 bytes of each thread"));
    assert!(found(2, asm::lds(9, 2, 0)).text.starts_with("reads shared memory at an address"));
}

#[test]
fn accesses_that_the_mmu_refuses_are_named() {
    let unmapped = found(DATA + 0x10_0000, asm::ldg(4, 2, 16, 4));
    assert_eq!(unmapped.text, "reads global memory where nothing is mapped");
    assert_eq!(unmapped.address, Some(DATA + 0x10_0010));
    assert_eq!(found(DATA, asm::stg(2, 0, 2)).text, "writes global memory that is mapped to be read only");
}
