//! Steps 11 to 13 and 16: copies, the first kernel, its stack, chains of launches.

use std::time::Duration;

use anyhow::{Context, ensure};
use hcq::{Args, Device, LaunchConfig, Release};

use crate::bringup::kernels::Kernels;
use crate::bringup::outcome::Notes;
use crate::bringup::rig::Rig;
use crate::size::size;

/// Time limit of all GPU work here.
pub(super) const LIMIT: Duration = Duration::from_secs(30);

/// Time limit of the chain, which needs a millisecond on a GPU.
const CHAIN: Duration = Duration::from_secs(5);

/// Stores `value + 0 .. count` by one launch, and checks it.
pub(super) fn fill(device: &Device, (blocks, threads): (u32, u32), value: u32) -> anyhow::Result<()> {
    let kernel = Kernels::load(device)?.get("fill")?;
    let count = blocks * threads;
    let out = device.alloc(u64::from(count) * 4)?;
    let args = Args::new().buffer(&out).u32(value);
    let mut queue = device.queue()?;
    // SAFETY: the kernel writes a word per thread, for which `out` has room.
    unsafe { queue.launch(&kernel, LaunchConfig::new(blocks, threads), &args)? };
    queue.submit()?.wait(LIMIT)?;
    let found = out.read_vec::<u32>(0, count as usize)?;
    for (word, wanted) in found.into_iter().zip(value..) {
        ensure!(word == wanted, "thread {} stored {word:#x} instead of {wanted:#x}", wanted - value);
    }
    Ok(())
}

pub fn copies(rig: &Rig<'_>, notes: &mut Notes) -> anyhow::Result<()> {
    let device = rig.device()?;
    let mut queue = device.copy_queue()?;
    for len in [4_u64 << 10, 64 << 20] {
        let (from, to) = (device.alloc(len)?, device.alloc(len)?);
        let word = |index: u32| (index.wrapping_mul(0x9e37_79b1) | 0x0100_0000).to_le_bytes();
        let data: Vec<u8> = (0..(len / 4) as u32).flat_map(word).collect();
        from.write(0, &data)?;
        to.write(0, &vec![0; data.len()])?;
        let began = std::time::Instant::now();
        queue.copy(&from, 0, &to, 0, len)?;
        queue.submit()?.wait(LIMIT)?;
        let seconds = began.elapsed().as_secs_f64();
        let mut found = vec![0; data.len()];
        to.read(0, &mut found)?;
        if let Some(at) = data.iter().zip(&found).position(|(a, b)| a != b) {
            anyhow::bail!("{}: byte {at:#x} is {:#04x} instead of {:#04x}", size(len), found[at], data[at]);
        }
        notes.fact(&size(len), format!("identical, {:.2} GB/s", len as f64 / seconds / 1e9));
    }
    Ok(())
}

pub fn first_kernel(rig: &Rig<'_>, notes: &mut Notes) -> anyhow::Result<()> {
    let host = rig.device_with(|options| {
        (options.chain_launches, options.profile.release) = (false, Some(Release::Host));
    })?;
    fill(&host, (1, 32), 0x1234_5678).context("the host signals the end")?;
    notes.fact("the host signals the end", "one block stored its words");
    let own = rig.device()?;
    fill(&own, (1, 32), 0x1234_5678).context("the launch signals its end")?;
    fill(&own, (64, 256), 7).context("64 blocks")?;
    notes.fact("the launch signals its end", "one block and 64 blocks stored their words");
    Ok(())
}

pub fn stack(rig: &Rig<'_>, notes: &mut Notes) -> anyhow::Result<()> {
    let device = rig.device()?;
    let kernel = Kernels::load(&device)?.get("frames")?;
    ensure!(kernel.local_bytes() >= 256, "the kernel's table is not on its stack");
    let (threads, info) = (256, device.info());
    let blocks_per_sm = info.max_warps_per_sm * 32 / threads;
    // Twice what fits at once, so that every place is used and used again.
    let blocks = 2 * blocks_per_sm * info.sm_count;
    let count = blocks * threads;
    let out = device.alloc(u64::from(count) * 4)?;
    let mut queue = device.queue()?;
    for start in [0, 17] {
        out.write(0, &vec![0; count as usize * 4])?;
        let args = Args::new().buffer(&out).u32(start);
        // SAFETY: the kernel writes a word per thread, for which `out` has room.
        unsafe { queue.launch(&kernel, LaunchConfig::new(blocks, threads), &args)? };
        queue.submit()?.wait(LIMIT)?;
        let found = out.read_vec::<u32>(0, count as usize)?;
        let wrong = found.iter().filter(|word| **word != 1).count();
        if let Some(thread) = found.iter().position(|word| *word != 1) {
            let words = found[thread].wrapping_sub(1);
            anyhow::bail!(
                "{wrong} of {count} threads found their stack changed; thread {thread}: {words} of 64 words"
            );
        }
    }
    notes.fact(
        "threads",
        format!("{count}, {} warps on each of {} SMs", info.max_warps_per_sm, info.sm_count),
    );
    notes.fact("stack", format!("{} bytes per thread, unchanged", kernel.local_bytes()));
    Ok(())
}

pub fn chains(rig: &Rig<'_>, notes: &mut Notes) -> anyhow::Result<()> {
    const MUL: u32 = 3;
    let device = rig.device()?;
    let kernel = Kernels::load(&device)?.get("step")?;
    let threads = 32_u32;
    let data = device.alloc(u64::from(threads) * 4)?;
    data.write(0, &[0; 128])?;
    let mut queue = device.queue()?;
    let mut expected = 0_u32;
    let mut launch = |queue: &mut hcq::Queue, add: u32| -> anyhow::Result<()> {
        let args = Args::new().buffer(&data).u32(MUL).u32(add);
        // SAFETY: the kernel changes a word per thread, for which `data` has room.
        unsafe { queue.launch(&kernel, LaunchConfig::new(1, threads), &args)? };
        expected = expected.wrapping_mul(MUL).wrapping_add(add);
        Ok(())
    };
    let chain = 300;
    for add in 0..chain {
        launch(&mut queue, add)?;
        queue.barrier();
    }
    queue.submit()?.wait(CHAIN).context("a chain of 300 launches")?;
    let submissions = rig.scaled(50_000, 5_000);
    let mut last = None;
    for add in 0..submissions {
        launch(&mut queue, add)?;
        queue.barrier();
        last = Some(queue.submit()?);
    }
    if let Some(last) = last {
        last.wait(LIMIT).context("more submissions than the ring has entries")?;
    }
    for (thread, word) in data.read_vec::<u32>(0, threads as usize)?.into_iter().enumerate() {
        ensure!(
            word == expected,
            "thread {thread}: {word:#x} instead of {expected:#x}: a launch was lost or reordered"
        );
    }
    notes.fact("chain", format!("{chain} dependent launches in one submission: exact"));
    notes.fact("submissions", format!("{submissions} without a wait in between: exact"));
    Ok(())
}
