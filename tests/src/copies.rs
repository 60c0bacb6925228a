//! Copies by the GPU: exactly the bytes asked for, at any size and alignment.

use anyhow::{Result, ensure};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::{DEADLINE, Test, open};

pub const TESTS: &[Test] = &[
    Test { name: "copies_of_every_odd_size_and_offset_are_exact", run: odd_copies, sim_only: false },
    Test { name: "a_copy_queue_copies_large_buffers", run: large_copies, sim_only: false },
    Test { name: "copies_in_order_see_each_other", run: copy_chain, sim_only: false },
    Test { name: "copies_outside_a_buffer_are_errors", run: copies_outside, sim_only: false },
];

/// Sizes 1 to 67 in steps of 2 at source and destination offsets 0 to 16, each checked with 32 bytes around it.
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

/// A value handed along 100 buffers in one submission arrives.
fn copy_chain() -> Result<()> {
    let device = open()?;
    let mut queue = device.copy_queue()?;
    let buffers = (0..100).map(|_| device.alloc(1024)).collect::<Result<Vec<_>, _>>()?;
    buffers[0].write(0, &[0x5A; 1024])?;
    for pair in buffers.windows(2) {
        queue.copy(&pair[0], 0, &pair[1], 0, 1024)?;
        queue.barrier()?;
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
