//! Products of warpgroups of sm_90a, and registers that move between them (`warpgroups.ptx`): results,
//! failures of wrong descriptors, and findings of the check of races where a wait is missing.

use ga10b_sim::sm::{Config, Executor, Fault, Schedule, esr};
use ga10b_sim::{Checks, Finding};
use std::sync::atomic::AtomicBool;

use super::cubin::Kernel;
use super::guest::{CODE, DATA, run_with};
use super::kernels::Noise;

const CUBIN: &str = "tests/data/warpgroups.sm_90a.cubin";
const OUT: u64 = DATA + 0x1_0000;
const ROWS: usize = 64;
const COLUMNS: usize = 8;
/// Values of a row in shared memory, and those that are multiplied.
const VALUES: usize = 64;
const DEPTH: usize = 32;
/// WARPGROUP and its operation DEPBAR, and an instruction that does nothing.
const WARPGROUP: u128 = 0x9c5;
const DEPBAR: u128 = 2;
const NOP: u128 = 0x000f_c000_0000_0000_0000_0000_0000_7918;

/// Small whole numbers: their products and sums are exact in any order.
fn factors() -> Vec<i32> {
    let mut noise = Noise::new(7);
    (0..(ROWS + COLUMNS) * VALUES).map(|_| (noise.bits() % 17) as i32 - 8).collect()
}

/// The rows as they lie in shared memory: sixteenths of 128 bytes change places by the number of the row.
fn swizzled(values: &[i32]) -> Vec<u32> {
    let half = |row: usize, value: usize| {
        u32::from(half::f16::from_f32(values[row * VALUES + value] as f32).to_bits())
    };
    let word = |i: usize| {
        let (row, at) = (i / 32, i % 32);
        let value = 2 * (at ^ (row % 8 * 4));
        half(row, value) | half(row, value + 1) << 16
    };
    (0..values.len() / 2).map(word).collect()
}

fn products(change: u64) -> Kernel {
    let mut kernel = Kernel::from_path(CUBIN, "products")
        .shape([1, 1, 1], [128, 1, 1])
        .data(DATA, 0x1_0000, &swizzled(&factors()))
        .data(OUT, 4096, &[0; 512])
        .u64(DATA)
        .u64(OUT)
        .u64(change)
        .ready();
    kernel.launch.registers = 64;
    kernel
}

fn config() -> Config {
    Config { schedule: Schedule::Deterministic, stall_budget: 1 << 16, ..Config::default() }
}

/// Returns the findings of the checks in the products, without their wait or with it.
fn findings(waits: bool) -> Vec<Finding> {
    let mut kernel = products(0);
    let (mut at, mut removed) = (kernel.launch.program, 0);
    while !waits && at < CODE + 0x2000 {
        let word = u128::from_le_bytes(kernel.guest.read(at, 16).try_into().unwrap());
        if word & 0xfff == WARPGROUP && word >> 79 & 3 == DEPBAR {
            kernel.guest.write_code(at, &[NOP]);
            removed += 1;
        }
        at += 16;
    }
    assert_eq!(removed, u32::from(!waits));
    let executor = Executor::new(Config { checks: Checks::all(), ..config() });
    let ended = executor.run(&kernel.guest, &kernel.launch, &AtomicBool::new(false));
    ended.unwrap_or_else(|fault| panic!("{fault}"));
    executor.findings()
}

#[test]
fn sums_are_those_of_the_rows_in_shared_memory() {
    let mut kernel = products(0);
    run_with(config(), &kernel.guest, &kernel.launch).unwrap();
    let (values, sums) = (factors(), kernel.guest.read_f32s(OUT, ROWS * COLUMNS));
    for (i, sum) in sums.into_iter().enumerate() {
        let (thread, register) = (i / 4, i % 4);
        let row = thread / 32 * 16 + thread % 32 / 4 + register / 2 * 8;
        let column = thread % 4 * 2 + register % 2;
        let (a, b) = (&values[row * VALUES..], &values[(ROWS + column) * VALUES..]);
        let expected: i32 = a.iter().zip(b).take(DEPTH).map(|(a, b)| a * b).sum();
        assert_eq!(sum, expected as f32, "row {row}, column {column}");
    }
}

#[test]
fn wrong_descriptors_fail_where_they_are_wrong() {
    let fault = |change: u64| -> Fault {
        let kernel = products(change);
        run_with(config(), &kernel.guest, &kernel.launch).map(drop).unwrap_err()
    };
    // The second of two rows of 64 bytes, a base offset, 128 KiB further.
    for (change, text) in [(1 << 62, "not swizzled by 128 bytes"), (1 << 49, "a base offset")] {
        let fault = fault(change);
        assert_eq!(fault.code, esr::ILLEGAL_INSTR_PARAM);
        assert!(fault.text.contains(text) && fault.text.contains("HGMMA"), "{fault}");
    }
    let fault = fault(0x2000);
    // Each warp reads 16 rows of 128 bytes.
    let first = 0x2_0400 + 0x800 * u64::from(fault.warp);
    assert_eq!((fault.code, fault.address), (esr::OOR_ADDR, Some(first)), "{fault}");
    assert!(fault.text.contains("HGMMA"), "{fault}");
}

#[test]
fn products_that_are_waited_for_are_clean() {
    let found = findings(true);
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn sums_and_factors_that_are_used_before_the_wait_are_found() {
    let found = findings(false);
    assert!(found.iter().all(|f| f.check == Checks::RACE), "{found:#?}");
    for (text, user) in [
        ("uses a sum of a product of matrices without waiting for the product", "STG"),
        ("writes shared memory that a product reads, without waiting for the product", "STS"),
    ] {
        let finding = found.iter().find(|f| f.text == text).unwrap_or_else(|| panic!("{text}: {found:#?}"));
        assert!(finding.event.sass.contains(user), "{finding:?}");
        assert!(finding.earlier.as_ref().is_some_and(|e| e.sass.contains("HGMMA")), "{finding:?}");
    }
}

fn registers(gives: u32) -> Result<Vec<u32>, Fault> {
    let mut kernel = Kernel::from_path(CUBIN, "registers")
        .shape([1, 1, 1], [256, 1, 1])
        .data(OUT, 4096, &[u32::MAX; 256])
        .u64(OUT)
        .u32(gives)
        .ready();
    kernel.launch.registers = 168;
    run_with(config(), &kernel.guest, &kernel.launch)?;
    Ok(kernel.guest.read_u32s(OUT, 256))
}

#[test]
fn registers_that_one_warpgroup_gives_back_another_claims() {
    assert_eq!(registers(1).unwrap(), (0..256).collect::<Vec<_>>());
    // Without them it waits for ever, as on hardware.
    let fault = registers(0).unwrap_err();
    assert_eq!(fault.code, esr::NONE);
    assert!(fault.text.starts_with("hung"), "{fault}");
}
