//! Steps 14 and 15: CPU and GPU on the same lines, atomic operations.

use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use hcq::{Args, Buffer, Device, GpuCache, LaunchConfig};
use nix::errno::Errno;

use super::answer::refused;
use super::kernel::LIMIT;
use crate::bringup::kernels::Kernels;
use crate::bringup::outcome::Notes;
use crate::bringup::rig::Rig;

/// Spreads a number over a word, as the kernel does.
const SPREAD: u32 = 0x9e37_79b1;
/// Bytes of a line.
pub(super) const LINE: u64 = 128;
/// Number of polls of the kernel for a round before it gives up: some seconds on a GPU.
pub(super) const POLLS: u32 = 20_000_000;
/// Time that the CPU waits for a round.
const ROUND: Duration = Duration::from_secs(10);

pub fn coherency(rig: &Rig<'_>, notes: &mut Notes) -> anyhow::Result<()> {
    let device = rig.device()?;
    let rounds = rig.scaled(1_000_000, 1_000);
    let began = Instant::now();
    exchange(&device, rounds)?;
    let each = began.elapsed().as_secs_f64() * 1e6 / f64::from(rounds);
    notes.fact("exchanges inside a kernel", format!("{rounds} in both directions, {each:.2} us each"));
    let launches = rig.scaled(10_000, 300);
    between_launches(&device, launches)?;
    notes.fact("exchanges between launches", launches);
    if device.info().gpu_cache.is_some() {
        let cached = rig.device_with(|options| options.gpu_cache = Some(GpuCache::Keep))?;
        const NAME: &str = "the same with HCQ_GPU_CACHE=on";
        match between_launches(&cached, launches) {
            // Off by default.
            Err(error) if refused(&error) == Some(Errno::ENOTTY) => {
                let expected = format!("{launches}; where it is refused, leave HCQ_GPU_CACHE unset");
                notes.judge(NAME, format!("{error:#}"), false, expected, "os/linux/ioctl_ctrl.c, r36.4.3");
            }
            done => {
                done.context("with HCQ_GPU_CACHE=on")?;
                notes.fact(NAME, launches);
            }
        }
    }
    Ok(())
}

/// A kernel of one thread and this thread take turns in writing a line each.
fn exchange(device: &Device, rounds: u32) -> anyhow::Result<()> {
    let kernel = Kernels::load(device)?.get("exchange")?;
    let (lines, out) = (device.alloc_host(2 * LINE)?, device.alloc(8)?);
    lines.write(0, &[0; 2 * LINE as usize])?;
    let mut queue = device.queue()?;
    // The address alone: a buffer that the launch names could not be touched before it has ended.
    let args = Args::new().u64(lines.va().raw()).buffer(&out).u32(rounds).u32(POLLS);
    // SAFETY: the kernel touches two lines of `lines`, which is dropped after it has ended, and two words of
    // `out`.
    unsafe { queue.launch(&kernel, LaunchConfig::new(1, 1), &args)? };
    let end = queue.submit()?;
    let outcome = (1..=rounds).try_for_each(|round| take_turn(&lines, round));
    // The kernel ends by itself, after all rounds or when none came.
    let ended = end.wait(LIMIT);
    outcome?;
    ended?;
    let found = out.read_vec::<u32>(0, 2)?;
    ensure!(found[0] == rounds, "the GPU saw {} of {rounds} rounds", found[0]);
    ensure!(found[1] == 0, "the GPU read {} stale words in {rounds} rounds", found[1]);
    Ok(())
}

/// Writes a line, and waits for the line that the kernel answers with.
pub(super) fn take_turn(lines: &Buffer, round: u32) -> anyhow::Result<()> {
    let data = |word: u32| round.wrapping_add(word).wrapping_mul(SPREAD);
    let words: [u32; 31] = std::array::from_fn(|i| data(i as u32 + 1));
    lines.write_slice(4, &words)?;
    hcq::sys::store_barrier();
    lines.write_slice(0, &[round])?;
    let mut flag = [0];
    let began = Instant::now();
    loop {
        lines.read_slice(LINE, &mut flag)?;
        if flag == [round] {
            break;
        }
        if began.elapsed() > ROUND {
            bail!("the GPU's answer to round {round} did not arrive within {ROUND:?}");
        }
        std::hint::spin_loop();
    }
    fence(Ordering::SeqCst);
    for (word, found) in (1..32).zip(lines.read_vec::<u32>(LINE + 4, 31)?) {
        let wanted = !data(word);
        ensure!(
            found == wanted,
            "round {round}: the CPU read {found:#x} instead of {wanted:#x} in word {word}"
        );
    }
    Ok(())
}

/// The CPU changes a buffer, a launch reads and changes it, the CPU reads it.
fn between_launches(device: &Device, rounds: u32) -> anyhow::Result<()> {
    let kernel = Kernels::load(device)?.get("step")?;
    let count = 1024_u32;
    let data = device.alloc(u64::from(count) * 4)?;
    let mut queue = device.queue()?;
    for round in 0..rounds {
        let words: Vec<u32> = (0..count).map(|i| i ^ round.wrapping_mul(SPREAD)).collect();
        data.write_slice(0, &words)?;
        let args = Args::new().buffer(&data).u32(5).u32(round);
        // SAFETY: the kernel changes a word per thread, for which `data` has room.
        unsafe { queue.launch(&kernel, LaunchConfig::new(count / 256, 256), &args)? };
        queue.submit()?.wait(LIMIT)?;
        for (i, found) in (0..count).zip(data.read_vec::<u32>(0, count as usize)?) {
            let wanted = (i ^ round.wrapping_mul(SPREAD)).wrapping_mul(5).wrapping_add(round);
            ensure!(found == wanted, "round {round}: word {i} is {found:#x} instead of {wanted:#x}");
        }
    }
    Ok(())
}

pub fn atomics(rig: &Rig<'_>, notes: &mut Notes) -> anyhow::Result<()> {
    let device = rig.device()?;
    let kernel = Kernels::load(&device)?.get("count")?;
    let counters = device.alloc(33 * 4)?;
    counters.write(0, &[0; 33 * 4])?;
    let (blocks, threads) = (device.info().sm_count * 6, 256);
    let launches = rig.scaled(100, 2);
    let mut queue = device.queue()?;
    for _ in 0..launches {
        // SAFETY: the kernel counts up 33 words.
        unsafe { queue.launch(&kernel, LaunchConfig::new(blocks, threads), &Args::new().buffer(&counters))? };
    }
    queue.submit()?.wait(LIMIT)?;
    let (total, found) = (blocks * threads * launches, counters.read_vec::<u32>(0, 33)?);
    ensure!(found[0] == total, "{} of {total} increments that return the old value", found[0]);
    for (index, count) in found[1..].iter().enumerate() {
        ensure!(*count == total / 32, "counter {index}: {count} of {} increments", total / 32);
    }
    notes.fact("increments", format!("2 x {total}: none lost"));
    Ok(())
}
