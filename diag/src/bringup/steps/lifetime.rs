//! Steps 17 and 18: what happens between launches, and beside them.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use hcq::{Args, LaunchConfig};

use super::kernel::{LIMIT, fill};
use crate::bringup::kernels::Kernels;
use crate::bringup::outcome::Notes;
use crate::bringup::rig::{Platform, Rig};

/// Longer than the driver waits before it powers an idle GPU down: 500 ms.
const IDLE: Duration = Duration::from_secs(2);
/// The same for the software ga10b, which is never late.
const SOFTWARE_IDLE: Duration = Duration::from_millis(800);
/// Duration of the kernel that the others run beside.
const KERNEL: Duration = Duration::from_millis(500);
/// Limit on its reads of the time, should that stand still: some seconds on a GPU.
const READS: u32 = 100_000_000;

pub fn idle(rig: &Rig<'_>, notes: &mut Notes) -> anyhow::Result<()> {
    let idle = if rig.software { SOFTWARE_IDLE } else { IDLE };
    {
        let device = rig.device()?;
        let kernel = Kernels::load(&device)?.get("fill")?;
        let out = device.alloc(128)?;
        let mut queue = device.queue()?;
        let mut launch = |value: u32| -> anyhow::Result<Duration> {
            let args = Args::new().buffer(&out).u32(value);
            let began = Instant::now();
            // SAFETY: the kernel writes a word per thread, for which `out` has room.
            unsafe { queue.launch(&kernel, LaunchConfig::new(1, 32), &args)? };
            queue.submit()?.wait(LIMIT)?;
            let took = began.elapsed();
            ensure!(out.read_vec::<u32>(0, 1)? == [value], "the launch stored something else");
            Ok(took)
        };
        launch(1).context("before the idle time")?;
        thread::sleep(idle);
        let took = launch(2).with_context(|| format!("after {idle:?} with an idle queue"))?;
        notes.fact("with an open queue", format!("{:.2} ms for the next launch", took.as_secs_f64() * 1e3));
    }
    thread::sleep(idle);
    let began = Instant::now();
    let device = rig.device().with_context(|| format!("after {idle:?} without a device"))?;
    fill(&device, (1, 32), 3).context("on the device that was opened again")?;
    let took = began.elapsed();
    notes.fact("without a device", format!("{:.0} ms for open, load and launch", took.as_secs_f64() * 1e3));
    Ok(())
}

pub fn beside_a_kernel(rig: &Rig<'_>, notes: &mut Notes) -> anyhow::Result<()> {
    let before = rig.logged();
    let device = rig.device()?;
    let spin = Kernels::load(&device)?.get("spin")?;
    let out = device.alloc(4)?;
    out.write(0, &[0; 4])?;
    let (mut busy, unused) = (device.queue()?, device.queue()?);
    let args = Args::new().buffer(&out).u64(KERNEL.as_nanos() as u64).u32(READS);
    // SAFETY: the kernel writes one word of `out` and ends by itself.
    unsafe { busy.launch(&spin, LaunchConfig::new(1, 1), &args)? };
    let (began, end) = (Instant::now(), busy.submit()?);

    let opening = Instant::now();
    let second = device.queue().context("a queue cannot be opened while a kernel runs")?;
    let opened = opening.elapsed();
    drop(second);
    let dropping = Instant::now();
    drop(unused);
    let dropped = dropping.elapsed();
    end.wait(LIMIT).context("the kernel was disturbed")?;
    let ran = began.elapsed();
    ensure!(out.read_vec::<u32>(0, 1)? == [1], "the kernel did not run to its end");
    fill(&device, (1, 32), 5).context("afterwards")?;

    let ms = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1e3);
    notes.fact("kernel", ms(ran));
    notes.fact("a queue opened meanwhile", ms(opened));
    notes.fact("an idle one closed meanwhile", ms(dropped));
    match rig.logged() {
        Some(_) => {
            let torn = rig.logged_since(&before).into_iter().find(|line| line.contains("tearing down TSG"));
            notes.expect(
                "kernel log",
                torn.as_deref().unwrap_or("no group torn down"),
                "no group torn down",
                "a preemption that fails tears the group down: common/fifo/tsg.c, r36.4.3",
            );
        }
        None if rig.platform == Platform::Desktop => {}
        None => notes.unseen("the kernel log: whether the driver has torn a channel group down"),
    }
    if ran < KERNEL {
        notes.warn(format!("the kernel ended after {ran:?}: it was not running all the time"));
    }
    Ok(())
}
