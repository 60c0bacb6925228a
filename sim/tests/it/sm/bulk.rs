//! Bulk copies of SM 9.0 (`bulk.ptx`): the findings of the checks, and the failures of copies.

use ga10b_sim::sm::{Config, Executor, Fault, Schedule, esr};
use ga10b_sim::{Checks, Finding};
use std::sync::atomic::AtomicBool;

use super::cubin::Kernel;
use super::guest::{DATA, run_with};

const CUBIN: &str = "tests/data/bulk.sm_90.cubin";
const OUT: u64 = DATA + 0x1_0000;

/// Returns the values that a kernel of 64 threads stores, and the findings of the checks.
fn findings_of(name: &str) -> (Vec<u32>, Vec<Finding>) {
    let input: Vec<u32> = (1..=1024).collect();
    let mut kernel = Kernel::from_path(CUBIN, name)
        .shape([1, 1, 1], [64, 1, 1])
        .data(DATA, 4096, &input)
        .data(OUT, 4096, &[0; 64])
        .u64(DATA)
        .u64(OUT)
        .ready();
    let config = Config {
        schedule: Schedule::Deterministic,
        checks: Checks::all(),
        stall_budget: 1 << 20,
        ..Config::default()
    };
    let executor = Executor::new(config);
    let ended = executor.run(&kernel.guest, &kernel.launch, &AtomicBool::new(false));
    ended.unwrap_or_else(|fault| panic!("{name}: {fault}"));
    (kernel.guest.read_u32s(OUT, 64), executor.findings())
}

/// The one finding of `name`; the right kernel stores the right values and is clean.
fn planted(name: &str, text: &str) -> Finding {
    let (stored, clean) = findings_of(&format!("{name}_right"));
    assert!(clean.is_empty(), "{name}_right: {clean:#?}");
    assert!(stored.iter().enumerate().all(|(i, x)| *x % (4 * i as u32 + 1) == 0), "{stored:?}");
    let (_, found) = findings_of(name);
    assert!(found.iter().all(|f| f.check == Checks::RACE), "{name}: {found:#?}");
    let finding = found.iter().find(|f| f.text.contains(text));
    finding.unwrap_or_else(|| panic!("{name}: {found:#?}")).clone()
}

#[test]
fn a_read_before_the_wait_for_the_phase_is_found() {
    for name in ["bulk_unwaited", "bulk_other_object"] {
        let found = planted(name, "without waiting for its barrier object");
        let earlier = found.earlier.expect("the copy");
        assert!(earlier.sass.contains("UBLKCP") && found.event.sass.contains("LDS"), "{name}: {earlier}");
        assert_eq!(earlier.thread, [0, 0, 0]);
    }
}

#[test]
fn a_copy_over_what_another_warp_still_reads_is_found() {
    let found = planted("bulk_overwritten", "writes shared memory that another warp accesses");
    let copy = found.earlier.as_ref().expect("the other side");
    let sides = [&found.event.sass, &copy.sass];
    assert!(["UBLKCP", "LDS"].iter().all(|op| sides.iter().any(|sass| sass.contains(op))), "{found:?}");
}

#[test]
fn a_block_that_ends_before_its_copies_is_found() {
    let found = planted("bulk_abandoned", "ends while a bulk copy to its shared memory is under way");
    assert!(found.event.sass.contains("UBLKCP"), "{found:?}");
}

/// One copy of `bulk_any`: from, to, object, bytes, and bytes that the object expects.
fn copy(from: u64, to: u32, object: u32, bytes: u32, expected: u32) -> Result<(), Fault> {
    let kernel = Kernel::from_path(CUBIN, "bulk_any")
        .shape([1, 1, 1], [1, 1, 1])
        .data(DATA, 4096, &[7; 1024])
        .u64(from)
        .u32(to)
        .u32(object)
        .u32(bytes)
        .u32(expected)
        .ready();
    let config = Config { schedule: Schedule::Deterministic, stall_budget: 1 << 16, ..Config::default() };
    run_with(config, &kernel.guest, &kernel.launch).map(drop)
}

const OBJECT: u32 = 1016;

#[test]
fn wrong_copies_fail_where_they_are_wrong() {
    copy(DATA, 0, OBJECT, 512, 512).unwrap();
    // The tile begins behind the memory that is reserved.
    const TILE: u64 = 0x400;
    let misaligned = esr::MISALIGNED_ADDR;
    for (copy, code, address) in [
        (copy(DATA + 8, 0, OBJECT, 512, 512), misaligned, DATA + 8),
        (copy(DATA, 4, OBJECT, 512, 512), misaligned, TILE + 4),
        (copy(DATA, 0, OBJECT + 4, 512, 512), misaligned, TILE + 1020),
        (copy(DATA, 528, OBJECT, 512, 512), esr::OOR_ADDR, TILE + 528),
        (copy(DATA, 0, OBJECT + 8, 512, 512), esr::OOR_ADDR, TILE + 1024),
        (copy(DATA + 4096 - 256, 0, OBJECT, 512, 512), esr::MMU_FAULT, DATA + 4096),
    ] {
        let fault = copy.unwrap_err();
        assert_eq!((fault.code, fault.address), (code, Some(address)), "{fault}");
        assert!(fault.text.contains("UBLKCP") && fault.lanes == 1, "{fault}");
    }
}

#[test]
fn an_object_cannot_expect_more_bytes_than_its_count_holds() {
    let fault = copy(DATA, 0, OBJECT, 512, 1 << 20).unwrap_err();
    assert_eq!(fault.code, esr::ILLEGAL_INSTR_PARAM);
    assert!(fault.text.starts_with("too many bytes that a barrier object expects: SYNCS.ARRIVE"), "{fault}");
}

#[test]
fn a_phase_whose_bytes_do_not_come_is_reported_as_hung() {
    let fault = copy(DATA, 0, OBJECT, 512, 528).unwrap_err();
    assert_eq!(fault.code, esr::NONE);
    assert!(fault.text.starts_with("hung"), "{fault}");
}
