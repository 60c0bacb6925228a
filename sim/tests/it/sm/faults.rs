//! Each way in which a warp can fail: code, place and address of the report.

use ga10b_sim::sm::{Config, Executor, Fault, Launch, Schedule, esr};
use sass::Arch;
use std::sync::atomic::AtomicBool;

use super::asm;
use super::guest::{CODE, DATA, Guest, WINDOWS, launch, run};

/// Runs words at [`CODE`] with R2:R3 holding an address.
fn fail(address: u64, words: &[u128], change: impl Fn(&mut Launch)) -> Fault {
    let mut guest = Guest::default();
    guest.map_with(CODE, 4096, false);
    guest.map_with(DATA, 4096, false);
    let mut code = vec![asm::mov(2, address as u32), asm::mov(3, (address >> 32) as u32)];
    code.extend(words);
    guest.write_code(CODE, &code);
    let mut l = launch(Arch::Sm87);
    l.block = [20, 1, 1];
    change(&mut l);
    run(&guest, &l).expect_err("a fault")
}

const LANES: u32 = (1 << 20) - 1;
const THIRD: u64 = CODE + 32;

#[test]
fn a_misaligned_access_names_its_address() {
    let fault = fail(DATA + 2, &[asm::ldg(4, 2, 0, 4), asm::EXIT], |_| {});
    assert_eq!((fault.code, fault.pc, fault.address), (esr::MISALIGNED_ADDR, THIRD, Some(DATA + 2)));
    assert_eq!((fault.lanes, fault.warp, fault.block), (LANES, 0, [0; 3]));
    assert_eq!(fault.text, "LDG.E R4, [R2]");
}

#[test]
fn an_unmapped_address_is_an_mmu_fault() {
    let fault = fail(DATA + 0x10_0000, &[asm::ldg(4, 2, 16, 4), asm::EXIT], |_| {});
    assert_eq!((fault.code, fault.address), (esr::MMU_FAULT, Some(DATA + 0x10_0010)));
    let mmu = fault.mmu.expect("what the MMU said");
    assert_eq!((mmu.va, mmu.kind), (DATA + 0x10_0010, 2));
}

#[test]
fn a_store_to_read_only_memory_is_a_permission_fault() {
    let fault = fail(DATA, &[asm::stg(2, 0, 2), asm::EXIT], |_| {});
    assert_eq!((fault.code, fault.mmu.map(|m| m.kind)), (esr::MMU_FAULT, Some(6)));
}

#[test]
fn a_global_access_inside_a_window_is_refused() {
    for base in [WINDOWS.shared_base, WINDOWS.local_base] {
        let fault = fail(base + 64, &[asm::ldg(4, 2, 0, 4), asm::EXIT], |_| {});
        assert_eq!((fault.code, fault.address), (esr::INVALID_ADDR_SPACE, Some(base + 64)));
    }
}

#[test]
fn words_that_are_no_instruction_are_illegal_and_shown() {
    let fault = fail(DATA, &[0], |_| {});
    assert_eq!((fault.code, fault.pc), (esr::ILLEGAL_INSTR_ENCODING, THIRD));
    assert!(fault.text.contains("0x"), "{}", fault.text);
}

#[test]
fn code_without_an_end_runs_into_unmapped_memory() {
    let fault = fail(DATA, &[asm::NOP; 254], |_| {});
    assert_eq!((fault.code, fault.pc), (esr::MMU_FAULT, CODE + 4096));
}

#[test]
fn registers_beyond_those_granted_are_out_of_range() {
    let fault = fail(DATA, &[asm::mov(40, 1), asm::EXIT], |l| l.registers = 40);
    assert_eq!((fault.code, fault.pc), (esr::OOR_REG, THIRD));
}

#[test]
fn register_groups_must_be_aligned() {
    let fault = fail(DATA, &[asm::ldg(5, 2, 0, 5), asm::EXIT], |_| {});
    assert_eq!(fault.code, esr::MISALIGNED_REG);
}

#[test]
fn constants_beyond_the_bank_are_invalid() {
    // MOV R4, c[0x0][0x1000], one word beyond the bank; the words before it run.
    let fault = fail(DATA, &[asm::mov_const(4, 0, 0x1000), asm::EXIT], |_| {});
    assert_eq!((fault.code, fault.pc), (esr::INVALID_CONST_ADDR_LDC, THIRD));
    let fault = fail(DATA, &[asm::mov_const(4, 5, 0), asm::EXIT], |_| {});
    assert_eq!(fault.code, esr::INVALID_CONST_ADDR_LDC);
}

#[test]
fn shared_memory_ends_where_the_launch_says() {
    let words = [asm::mov(6, 256), asm::lds(4, 6, 0), asm::EXIT];
    let fault = fail(DATA, &words, |l| l.shared_bytes = 256);
    assert_eq!((fault.code, fault.address), (esr::OOR_ADDR, Some(256)));
}

#[test]
fn a_stack_that_outgrows_local_memory_is_out_of_range() {
    let words = [asm::mov(6, 0xff_fdc0 - 64), asm::ldl(4, 6, 0), asm::EXIT];
    let enough = |l: &mut Launch| l.local_bytes = 0x240 + 64;
    let mut guest = Guest::default();
    guest.map(CODE, 4096);
    guest.write_code(CODE, &words);
    let mut l = launch(Arch::Sm87);
    enough(&mut l);
    run(&guest, &l).expect("it fits");
    let fault = fail(DATA, &words, |l| l.local_bytes = 0x240);
    assert_eq!((fault.code, fault.address), (esr::OOR_ADDR, Some(0xff_fdc0 - 64)));
}

#[test]
fn a_misaligned_jump_is_reported_at_its_target() {
    let fault = fail(CODE + 8, &[asm::call_register(2), asm::EXIT], |_| {});
    assert_eq!((fault.code, fault.pc), (esr::MISALIGNED_PC, CODE + 8));
}

#[test]
fn a_trap_without_a_handler_is_an_illegal_instruction_at_its_place() {
    let fault = fail(DATA, &[asm::TRAP, asm::EXIT], |_| {});
    assert_eq!((fault.code, fault.pc), (esr::ILLEGAL_INSTR_ENCODING, THIRD));
}

#[test]
fn lanes_that_wait_for_each_other_in_two_places_are_reported_as_a_deadlock() {
    // P0 = lane < 10. These wait for all lanes at one WARPSYNC, the others at another.
    let words = [
        asm::s2r(6, 0),
        asm::isetp_lt(6, 10),
        asm::if_p0(asm::branch(32)),
        asm::warpsync(u32::MAX),
        asm::EXIT,
        asm::warpsync(u32::MAX),
        asm::EXIT,
    ];
    let fault = fail(DATA, &words, |_| {});
    assert_eq!(fault.code, esr::NONE);
    assert!(fault.text.starts_with("deadlock"), "{}", fault.text);
    assert!(
        fault.text.contains("lanes 0x000003ff") && fault.text.contains("lanes 0x000ffc00"),
        "{}",
        fault.text
    );
}

#[test]
fn a_launch_that_only_spins_is_stopped() {
    let mut guest = Guest::default();
    guest.map(CODE, 4096);
    guest.write_code(CODE, &[asm::branch(-16)]);
    let config = Config { schedule: Schedule::Deterministic, stall_budget: 1_000_000, ..Config::default() };
    let fault = Executor::new(config).run(&guest, &launch(Arch::Sm87), &AtomicBool::new(false)).unwrap_err();
    assert_eq!(fault.code, esr::NONE);
    assert!(fault.text.starts_with("hung"), "{}", fault.text);
}

#[test]
fn stopping_ends_a_launch_without_an_error() {
    let mut guest = Guest::default();
    guest.map(CODE, 4096);
    guest.write_code(CODE, &[asm::branch(-16)]);
    let executor = Executor::new(Config::default());
    executor.run(&guest, &launch(Arch::Sm87), &AtomicBool::new(true)).expect("no fault");
}

#[test]
fn code_is_fetched_again_only_after_invalidation() {
    let mut guest = Guest::default();
    guest.map(CODE, 4096);
    guest.write_code(CODE, &[asm::EXIT]);
    let executor = Executor::new(Config { workers: 1, ..Config::default() });
    let l = launch(Arch::Sm87);
    let stop = AtomicBool::new(false);
    executor.run(&guest, &l, &stop).expect("the program ends");
    guest.write_code(CODE, &[asm::TRAP]);
    executor.run(&guest, &l, &stop).expect("the old program still runs");
    executor.invalidate_code();
    assert_eq!(executor.run(&guest, &l, &stop).unwrap_err().code, esr::ILLEGAL_INSTR_ENCODING);
}
