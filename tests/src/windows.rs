//! The windows through which kernels reach shared and local memory: no buffer may ever be placed there.

use anyhow::{Context, Result, bail, ensure};
use hcq::{Args, Buffer, Device, DeviceOptions, Error, FaultKind, GpuVa, LaunchConfig, MemoryError};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestError, TestRunner};

use crate::harness::{DEADLINE, Test, is_checked, open, selector};
use crate::kernels::Kernels;

pub const TESTS: &[Test] = &[
    Test { name: "no_sequence_of_allocations_reaches_a_window", run: never_reached, sim_only: false },
    Test { name: "a_buffer_cannot_be_placed_in_a_window", run: not_placeable, sim_only: false },
    Test {
        name: "without_reservation_a_buffer_in_the_shared_window_faults",
        run: window_fault,
        sim_only: false,
    },
];

/// The ranges that the hardware claims at each window's base: 16 MiB of addresses (4 GiB for Hopper's shared
/// window).
fn claimed(device: &Device) -> Vec<(&'static str, u64, u64)> {
    let hopper = device.info().sm >= 0x900;
    let len = |name: &str| if hopper && name.starts_with("shared") { 4 << 30 } else { 16 << 20 };
    device.windows().iter().map(|&(name, va)| (name, va.raw(), va.raw() + len(name))).collect()
}

/// Random allocations and frees, some of them larger than a window, on one device: none touches a window.
fn never_reached() -> Result<()> {
    let device = open()?;
    let windows = claimed(&device);
    let op = prop_oneof![
        4 => (12_u32..30, any::<u32>()).prop_map(|(log2, low)| Some((1_u64 << log2) + u64::from(low) % (1 << log2))),
        1 => Just(Some(2_u64 << 30)),
        3 => Just(None),
    ];
    // No kernel runs here: under checks a few cases show that their red zones stay outside as well.
    let cases = if is_checked() { 3 } else { 24 };
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let outcome = runner.run(&(prop::collection::vec(op, 1..24), any::<u64>()), |(ops, pick)| {
        let mut live: Vec<Buffer> = Vec::new();
        for (i, op) in ops.into_iter().enumerate() {
            match op {
                // Memory may be used up; addresses are what is tested.
                Some(len) => live.extend(device.alloc(len)),
                None if !live.is_empty() => drop(live.swap_remove((pick >> (i % 32)) as usize % live.len())),
                None => {}
            }
            for buffer in &live {
                let (start, end) = (buffer.va().raw(), buffer.va().raw() + buffer.len());
                for &(name, from, to) in &windows {
                    prop_assert!(
                        end <= from || to <= start,
                        "{start:#x}..{end:#x} lies in the {name} window"
                    );
                }
            }
        }
        for mapping in device.memory_map() {
            let (start, end) = (mapping.va.raw(), mapping.va.raw() + mapping.len);
            for &(name, from, to) in &windows {
                prop_assert!(
                    end <= from || to <= start,
                    "{} at {start:#x} lies in the {name} window",
                    mapping.what
                );
            }
        }
        Ok(())
    });
    match outcome {
        Ok(()) => Ok(()),
        Err(TestError::Fail(why, input)) => bail!("{why}: {input:?}"),
        Err(e) => bail!("{e}"),
    }
}

fn not_placeable() -> Result<()> {
    let device = open()?;
    for (name, from, to) in claimed(&device) {
        for va in [from, from + (1 << 20), to - (64 << 10), from - (64 << 10)] {
            let va = GpuVa::new(va).context("an address")?;
            match device.alloc_at(va, 128 << 10) {
                Err(Error::Memory(MemoryError::InWindow { .. } | MemoryError::AddressTaken { .. })) => {}
                Err(e) => return Err(e).context(format!("{name} window at {va}")),
                Ok(_) => bail!("a buffer was placed at {va}, in the {name} window"),
            }
        }
    }
    Ok(())
}

/// The trap of the Orin bring-up: mapped memory, a correct kernel, and a fault because of where the buffer
/// lies.
fn window_fault() -> Result<()> {
    let mut options = DeviceOptions::default();
    options.reserve_windows = false;
    let device = Device::open_with(selector()?, options)?;
    let (_, base, _) = claimed(&device)[0];
    let inside = GpuVa::new(base + (2 << 20)).context("an address")?;
    let trapped = device.alloc_at(inside, 64 << 10).context("placing a buffer in the shared window")?;
    let fine = device.alloc(4)?;
    // The memory itself works: the copy engine knows no windows.
    trapped.write_slice(0, &[7_u32])?;
    let mut queue = device.queue()?;
    queue.copy(&trapped, 0, &fine, 0, 4)?;
    queue.submit()?.wait(DEADLINE)?;
    let kernel = Kernels::load(&device)?.get("load_at")?;
    // SAFETY: the load faults, or reads 4 mapped bytes.
    unsafe { queue.launch(&kernel, LaunchConfig::new(1, 1), &Args::new().buffer(&trapped).buffer(&fine))? };
    match queue.submit()?.wait(DEADLINE) {
        Err(Error::Fault(report)) => {
            ensure!(report.kind == FaultKind::InvalidAddressSpace, "the wrong fault: {report}");
            Ok(())
        }
        Err(e) => Err(e).context("expected a fault"),
        Ok(()) => bail!("a load from the shared-memory window went through"),
    }
}
