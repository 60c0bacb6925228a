//! Copies by the GPU: exactly the bytes asked for, at any size and alignment.

use anyhow::{Result, ensure};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::harness::{DEADLINE, Test, open, open_with};

pub const TESTS: &[Test] = &[
    Test { name: "copies_of_every_odd_size_and_offset_are_exact", run: odd_copies, sim_only: false },
    Test { name: "a_copy_queue_copies_large_buffers", run: large_copies, sim_only: false },
    Test { name: "copies_by_a_kernel_are_exact", run: kernel_copies, sim_only: false },
    Test { name: "transfers_of_every_size_are_exact", run: transfers, sim_only: false },
    Test { name: "a_host_buffer_is_copied_to_and_from", run: host_buffers, sim_only: false },
    Test { name: "copies_in_order_see_each_other", run: copy_chain, sim_only: false },
    Test { name: "copies_outside_a_buffer_are_errors", run: copies_outside, sim_only: false },
];

/// Sizes 1 to 67 in steps of 2 at source and destination offsets 0 to 16, each checked with 32 bytes around
/// it.
fn odd_copies() -> Result<()> {
    let device = open()?;
    let mut queue = device.queue()?;
    let mut rng = StdRng::seed_from_u64(3);
    let mut data = vec![0_u8; 256];
    rng.fill(&mut data[..]);
    let source = device.alloc(256)?;
    source.write(0, &data)?;
    let slot = 160;
    for size in (1..=67_u64).step_by(2) {
        let offsets: Vec<(u64, u64)> = (0..17).flat_map(|s| (0..17).map(move |d| (s, d))).collect();
        let target = device.alloc(slot * offsets.len() as u64)?;
        target.write(0, &vec![0xEE; (slot as usize) * offsets.len()])?;
        for (i, &(from, to)) in offsets.iter().enumerate() {
            queue.copy(&source, from, &target, i as u64 * slot + 32 + to, size)?;
        }
        queue.submit()?.wait(DEADLINE)?;
        let mut back = vec![0; slot as usize * offsets.len()];
        target.read(0, &mut back)?;
        for (got, &(from, to)) in back.chunks(slot as usize).zip(&offsets) {
            let mut want = vec![0xEE; slot as usize];
            let (at, from, size) = ((32 + to) as usize, from as usize, size as usize);
            want[at..at + size].copy_from_slice(&data[from..from + size]);
            ensure!(got == want, "{size} bytes from offset {from} to offset {to}");
        }
    }
    Ok(())
}

fn large_copies() -> Result<()> {
    let device = open()?;
    let mut queue = device.copy_queue()?;
    let len = (16 << 20) + 4099_u64;
    let mut data = vec![0_u8; len as usize];
    StdRng::seed_from_u64(4).fill(&mut data[..]);
    let (a, b) = (device.alloc(len)?, device.alloc(len + 64)?);
    a.write(0, &data)?;
    queue.copy(&a, 0, &b, 33, len)?;
    queue.submit()?.wait(DEADLINE)?;
    let mut back = vec![0; len as usize];
    b.read(33, &mut back)?;
    ensure!(back == data, "16 MiB came back changed");
    Ok(())
}

/// Sizes around what a thread, a block and a few blocks move, at equal and unequal offsets, with 64 bytes
/// around them.
fn kernel_copies() -> Result<()> {
    let device = open_with(|options| options.kernel_copies_from = Some(1))?;
    let mut queue = device.queue()?;
    let most = 100_000_usize;
    let mut data = vec![0_u8; most + 256];
    StdRng::seed_from_u64(14).fill(&mut data[..]);
    let (source, target) = (device.alloc(data.len() as u64)?, device.alloc(data.len() as u64)?);
    source.write(0, &data)?;
    for len in [
        1, 15, 16, 17, 31, 63, 64, 65, 83, 4096, 8191, 8192, 8208, 32_767, 32_768, 32_769, 65_536, 98_317,
        most,
    ] {
        for (from, to) in [(0, 0), (1, 17), (15, 79), (16, 64), (5, 69), (3, 64), (0, 97), (2, 78), (12, 64)]
        {
            target.write(0, &vec![0xEE; data.len()])?;
            queue.copy(&source, from, &target, to, len as u64)?;
            queue.submit()?.wait(DEADLINE)?;
            let mut back = vec![0; data.len()];
            target.read(0, &mut back)?;
            let (from, to) = (from as usize, to as usize);
            ensure!(back[to..to + len] == data[from..from + len], "{len} bytes from {from} to {to}");
            let around = back[..to].iter().chain(&back[to + len..]).all(|b| *b == 0xEE);
            ensure!(around, "{len} bytes from {from} to {to}: written outside");
        }
    }
    Ok(())
}

/// Buffers written and read through staging memory, at sizes around its slots.
fn transfers() -> Result<()> {
    let device = open_with(|options| options.staged_copies = true)?;
    let mib = 1 << 20;
    let mut data = vec![0_u8; 21 * mib + 77];
    StdRng::seed_from_u64(15).fill(&mut data[..]);
    let buffer = device.alloc(data.len() as u64 + 5)?;
    for len in [1, mib - 1, mib, mib + 1, 2 * mib + 3, 4 * mib, 9 * mib + 1, data.len()] {
        buffer.write(5, &data[..len])?;
        let mut back = vec![0; len];
        buffer.read(5, &mut back)?;
        ensure!(back == data[..len], "{len} bytes came back changed");
        data.rotate_left(1);
    }
    Ok(())
}

fn host_buffers() -> Result<()> {
    let device = open()?;
    let len = (3 << 20) + 41;
    let mut data = vec![0_u8; len];
    StdRng::seed_from_u64(16).fill(&mut data[..]);
    let (up, down) = (device.alloc_host(len as u64)?, device.alloc_host(len as u64)?);
    let there = device.alloc(len as u64)?;
    for queue in [&mut device.queue()?, &mut device.copy_queue()?] {
        data.rotate_left(1);
        up.write(0, &data)?;
        queue.copy(&up, 0, &there, 0, len as u64)?;
        queue.barrier();
        queue.copy(&there, 0, &down, 0, len as u64)?;
        queue.submit()?.wait(DEADLINE)?;
        let mut back = vec![0; len];
        down.read(0, &mut back)?;
        ensure!(back == data, "3 MiB came back changed");
    }
    Ok(())
}

/// A value handed along 100 buffers in one submission arrives.
fn copy_chain() -> Result<()> {
    let device = open()?;
    let mut queue = device.copy_queue()?;
    let buffers = (0..100).map(|_| device.alloc(1024)).collect::<Result<Vec<_>, _>>()?;
    buffers[0].write(0, &[0x5A; 1024])?;
    for pair in buffers.windows(2) {
        queue.copy(&pair[0], 0, &pair[1], 0, 1024)?;
        queue.barrier();
    }
    queue.submit()?.wait(DEADLINE)?;
    let mut back = [0; 1024];
    buffers[99].read(0, &mut back)?;
    ensure!(back == [0x5A; 1024], "the value got lost on its way");
    Ok(())
}

fn copies_outside() -> Result<()> {
    let device = open()?;
    let mut queue = device.queue()?;
    let (a, b) = (device.alloc(64)?, device.alloc(64)?);
    ensure!(queue.copy(&a, 0, &b, 0, 65).is_err(), "65 bytes of 64 were copied");
    ensure!(queue.copy(&a, 1, &b, 0, 64).is_err(), "a copy over the source's end went through");
    ensure!(queue.copy(&a, 0, &b, u64::MAX, 1).is_err(), "a copy to an offset that wraps went through");
    queue.copy(&a, 0, &b, 0, 64)?;
    queue.submit()?.wait(DEADLINE)?;
    Ok(())
}
