//! A cell of the table of settings: a submission, a launch, a chain of launches, and another context's launch
//! inside a running kernel.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use hcq::{Args, Device, LaunchConfig, Preemption, Profile, Queue};

use super::coherency::{LINE, POLLS, take_turn};
use crate::bringup::kernels::Kernels;
use crate::bringup::rig::Rig;
use crate::bringup::settings::{Cell, Failure, Stage};

/// Time limit of a part, which needs milliseconds.
const LIMIT: Duration = Duration::from_secs(3);
/// Time limit for a running kernel to give way to another context.
const GIVES_WAY: Duration = Duration::from_secs(2);
/// Launches of the chain.
const CHAIN: u32 = 64;

/// Tries settings, on a device that is conservative besides, or not.
#[must_use]
pub fn try_settings(rig: &Rig<'_>, settings: Profile, conservative: bool) -> Cell {
    let began = Instant::now();
    let (mut stage, mut found) = (Stage::Open, None);
    let open = || -> anyhow::Result<Device> {
        Ok(rig.device_with(|options| {
            (options.profile, options.conservative) = (settings, Some(conservative));
            options.patience = LIMIT;
        })?)
    };
    let is_cilp = settings.preemption == Some(Preemption::Instructions);
    let outcome = all(&open, is_cilp, &mut stage, &mut found);
    let failure = outcome.err().map(|error| Failure { stage, reason: format!("{error:#}") });
    Cell { settings, failure, found, seconds: began.elapsed().as_secs_f64() }
}

/// Opens a device with the settings.
type Open<'a> = dyn Fn() -> anyhow::Result<Device> + 'a;

fn all(open: &Open<'_>, is_cilp: bool, stage: &mut Stage, found: &mut Option<String>) -> anyhow::Result<()> {
    let device = open()?;
    *stage = Stage::Submission;
    let mut queue = device.queue()?;
    queue.submit()?.wait(LIMIT)?;
    *stage = Stage::Launch;
    steps(&device, &mut queue, 1)?;
    *stage = Stage::Chain;
    steps(&device, &mut queue, CHAIN)?;
    if is_cilp {
        *stage = Stage::Preemption;
        ensure!(
            device.preemption() == Preemption::Instructions,
            "the driver refused the mode: kernels run to their end"
        );
        let after = preempted(&device, &mut queue, open)?;
        let after = after.as_secs_f64() * 1e3;
        *found = Some(format!("another context's launch ended inside a running kernel, after {after:.1} ms"));
    }
    Ok(())
}

/// So many launches of one submission, each of which changes the value that the one before it has stored.
fn steps(device: &Device, queue: &mut Queue, count: u32) -> anyhow::Result<()> {
    const MUL: u32 = 3;
    let threads = 32_u32;
    let kernel = Kernels::load(device)?.get("step")?;
    let data = device.alloc(u64::from(threads) * 4)?;
    data.write(0, &[1; 128])?;
    let mut expected = 0x0101_0101_u32;
    for add in 0..count {
        let args = Args::new().buffer(&data).u32(MUL).u32(add);
        // SAFETY: the kernel changes a word per thread, for which `data` has room.
        unsafe { queue.launch(&kernel, LaunchConfig::new(1, threads), &args)? };
        queue.barrier();
        expected = expected.wrapping_mul(MUL).wrapping_add(add);
    }
    queue.submit()?.wait(LIMIT)?;
    for (thread, word) in data.read_vec::<u32>(0, threads as usize)?.into_iter().enumerate() {
        ensure!(word == expected, "thread {thread} stored {word:#x} instead of {expected:#x}");
    }
    Ok(())
}

/// Measures another context's launch while a kernel runs that does not end before it.
///
/// The kernel answers a first round of the CPU, which proves that it runs, and then waits for a second one.
/// The other context's launch comes in between: two contexts share the engine in time, so that it can end
/// only if the kernel is switched out between two of its instructions. The second round proves that the
/// kernel continues where it was.
fn preempted(device: &Device, queue: &mut Queue, open: &Open<'_>) -> anyhow::Result<Duration> {
    let guest = open().context("another context")?;
    let mut visit = guest.queue().context("another context")?;
    let fill = Kernels::load(&guest)?.get("fill")?;
    let seen = guest.alloc(128)?;
    // Once before, so that all of its memory is there.
    let mut launch = |value: u32, limit: Duration| -> anyhow::Result<()> {
        let args = Args::new().buffer(&seen).u32(value);
        // SAFETY: the kernel writes a word per thread, for which `seen` has room.
        unsafe { visit.launch(&fill, LaunchConfig::new(1, 32), &args)? };
        Ok(visit.submit()?.wait(limit)?)
    };
    launch(1, LIMIT).context("another context, with nothing beside it")?;

    let kernel = Kernels::load(device)?.get("exchange")?;
    let (lines, out) = (device.alloc_host(2 * LINE)?, device.alloc(8)?);
    lines.write(0, &[0; 2 * LINE as usize])?;
    const ROUNDS: u32 = 2;
    // The address alone: a buffer that the launch names could not be touched before it has ended.
    let args = Args::new().u64(lines.va().raw()).buffer(&out).u32(ROUNDS).u32(POLLS);
    // SAFETY: the kernel touches two lines of `lines`, which is dropped after it has ended, and two words of
    // `out`.
    unsafe { queue.launch(&kernel, LaunchConfig::new(1, 1), &args)? };
    let end = queue.submit()?;
    let first = take_turn(&lines, 1).context("the kernel that is to be preempted");
    let began = Instant::now();
    let launched = first.and_then(|()| launch(2, GIVES_WAY).context("beside a running kernel"));
    let took = began.elapsed();
    // In any case: the kernel ends by it.
    let second = take_turn(&lines, ROUNDS).context("the kernel, after it was preempted");
    let ended = end.wait(LIMIT);
    launched?;
    if second.is_err() && ended.is_ok() {
        let seen = out.read_vec::<u32>(0, 1)?[0];
        ensure!(
            seen == ROUNDS,
            "another context's launch ended no sooner than the kernel that waited for the CPU, after {:.1} s: it was \
             not preempted",
            took.as_secs_f64()
        );
    }
    second?;
    ended?;
    let found = out.read_vec::<u32>(0, 2)?;
    ensure!(found == [ROUNDS, 0], "the preempted kernel saw {} of {ROUNDS} rounds", found[0]);
    Ok(took)
}
