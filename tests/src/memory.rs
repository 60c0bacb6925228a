//! Allocation: every byte is the buffer's own, addresses come back, refusals are errors.

use std::collections::BTreeMap;

use anyhow::{Result, bail, ensure};
use hcq::Buffer;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::harness::{Test, open};

pub const TESTS: &[Test] = &[
    Test { name: "buffers_hold_what_is_written", run: buffers_hold_what_is_written, sim_only: false },
    Test { name: "large_buffers_are_2_mib_aligned", run: large_buffers_are_2_mib_aligned, sim_only: false },
    Test {
        name: "addresses_are_recycled_over_100_000_allocations",
        run: addresses_are_recycled,
        sim_only: false,
    },
    Test {
        name: "impossible_allocations_are_errors",
        run: impossible_allocations_are_errors,
        sim_only: false,
    },
    Test {
        name: "accesses_outside_a_buffer_are_errors",
        run: accesses_outside_a_buffer_are_errors,
        sim_only: false,
    },
    Test { name: "a_device_can_be_opened_again_and_again", run: reopen, sim_only: false },
];

fn buffers_hold_what_is_written() -> Result<()> {
    let device = open()?;
    let mut rng = StdRng::seed_from_u64(1);
    let mut held: Vec<(Buffer, Vec<u8>)> = Vec::new();
    for len in [1, 3, 255, 4095, 4096, 4097, 65536, 1_000_003, 9 << 20] {
        let data: Vec<u8> = (0..len).map(|_| rng.random()).collect();
        let buffer = device.alloc(len)?;
        ensure!(buffer.len() == len, "asked for {len} bytes, got {}", buffer.len());
        buffer.write(0, &data)?;
        held.push((buffer, data));
    }
    for (buffer, data) in &held {
        let mut back = vec![0; data.len()];
        buffer.read(0, &mut back)?;
        ensure!(back == *data, "a buffer of {} bytes came back changed", data.len());
    }
    let mut ranges: Vec<(u64, u64)> = held.iter().map(|(b, d)| (b.va().raw(), d.len() as u64)).collect();
    ranges.sort_unstable();
    for pair in ranges.windows(2) {
        ensure!(pair[0].0 + pair[0].1 <= pair[1].0, "two buffers overlap: {pair:x?}");
    }
    Ok(())
}

fn large_buffers_are_2_mib_aligned() -> Result<()> {
    let device = open()?;
    for len in [8 << 20, (8 << 20) + 1, 33 << 20] {
        let buffer = device.alloc(len)?;
        ensure!(buffer.va().raw() % (2 << 20) == 0, "{len} bytes lie at {:?}", buffer.va());
    }
    Ok(())
}

/// 100,000 buffers, at most 64 alive: no live ones overlap, and the addresses in use stay within what 64 can
/// need.
fn addresses_are_recycled() -> Result<()> {
    let device = open()?;
    let mut rng = StdRng::seed_from_u64(2);
    let mut live: Vec<Buffer> = Vec::new();
    let mut ranges: BTreeMap<u64, u64> = BTreeMap::new();
    let mut pages = std::collections::BTreeSet::new();
    for _ in 0..100_000 {
        if live.len() == 64 {
            let gone = live.swap_remove(rng.random_range(0..64));
            ranges.remove(&gone.va().raw());
        }
        let len = match rng.random_range(0..100) {
            0 => rng.random_range(65_537..2 << 20),
            1..10 => rng.random_range(4097..=65_536),
            _ => rng.random_range(1..=4096),
        };
        let buffer = device.alloc(len)?;
        let va = buffer.va().raw();
        if let Some((&below, &end)) = ranges.range(..=va).next_back() {
            ensure!(end <= va, "{va:#x} lies in the buffer at {below:#x}");
        }
        if let Some((&above, _)) = ranges.range(va..).next() {
            ensure!(va + len <= above, "{va:#x}+{len:#x} reaches into the buffer at {above:#x}");
        }
        ranges.insert(va, va + len);
        pages.insert(va >> 21);
        live.push(buffer);
    }
    // 64 buffers of 2 MiB at most, each touching two 2 MiB pages, and as much again for pools and
    // fragmentation.
    ensure!(pages.len() <= 256, "100,000 allocations wandered over {} pages of 2 MiB", pages.len());
    Ok(())
}

fn impossible_allocations_are_errors() -> Result<()> {
    let device = open()?;
    for len in [0, u64::MAX, 1 << 60] {
        if device.alloc(len).is_ok() {
            bail!("a buffer of {len} bytes was granted");
        }
    }
    device.alloc(4096)?.write(0, &[1; 4096])?;
    Ok(())
}

fn accesses_outside_a_buffer_are_errors() -> Result<()> {
    let device = open()?;
    let buffer = device.alloc(100)?;
    ensure!(buffer.write(100, &[1]).is_err(), "a write behind the end went through");
    ensure!(buffer.write(u64::MAX, &[1, 2]).is_err(), "a write at an offset that wraps went through");
    ensure!(buffer.read(90, &mut [0; 11]).is_err(), "a read over the end went through");
    buffer.write(99, &[1])?;
    Ok(())
}

fn reopen() -> Result<()> {
    for round in 0..8_u8 {
        let device = open()?;
        let buffer = device.alloc(4096)?;
        buffer.write(0, &[round; 4096])?;
        let mut back = [0; 4096];
        buffer.read(0, &mut back)?;
        ensure!(back == [round; 4096], "round {round}");
    }
    Ok(())
}
