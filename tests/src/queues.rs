//! Timelines: order, waits between queues, deadlines.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use hcq::{Args, Device, DeviceOptions, Error, LaunchConfig, QueueError, SyncPoint};

use crate::harness::{DEADLINE, Test, open, selector};
use crate::kernels::Kernels;

pub const TESTS: &[Test] = &[
    Test { name: "two_queues_wait_for_each_other", run: ping_pong, sim_only: false },
    Test { name: "submissions_complete_in_order", run: in_order, sim_only: false },
    Test { name: "a_wait_past_its_deadline_is_a_clear_error", run: deadline, sim_only: false },
    Test { name: "timestamps_follow_the_work", run: timestamps, sim_only: false },
    Test { name: "timelines_roll_over_at_2_to_the_64", run: rollover, sim_only: false },
    Test { name: "a_queue_can_be_dropped_with_work_in_flight", run: dropped_queue, sim_only: false },
];

/// Two queues append to one log alternately; only the waits between them keep the order.
fn ping_pong() -> Result<()> {
    let device = open()?;
    let append = Kernels::load(&device)?.get("append")?;
    let rounds = 200_u32;
    let (log, counter) = (device.alloc(u64::from(rounds) * 8)?, device.alloc(4)?);
    counter.write(0, &[0; 4])?;
    let mut queues = [device.queue()?, device.queue()?];
    let mut last = None;
    for tag in 0..2 * rounds {
        let queue = &mut queues[tag as usize % 2];
        if let Some(point) = &last {
            queue.wait_for(point)?;
        }
        let args = Args::new().buffer(&log).buffer(&counter).u32(tag);
        // SAFETY: `append` writes log[counter], and the counter stays below the log's length.
        unsafe { queue.launch(&append, LaunchConfig::new(1, 1), &args)? };
        last = Some(queue.submit()?);
    }
    last.context("no submission")?.wait(DEADLINE)?;
    let got = log.read_vec::<u32>(0, 2 * rounds as usize)?;
    ensure!(got.iter().copied().eq(0..2 * rounds), "the turns are out of order: {got:?}");
    Ok(())
}

fn in_order() -> Result<()> {
    let device = open()?;
    let append = Kernels::load(&device)?.get("append")?;
    let (log, counter) = (device.alloc(4000)?, device.alloc(4)?);
    counter.write(0, &[0; 4])?;
    let mut queue = device.queue()?;
    let mut points = Vec::new();
    for tag in 0..1000 {
        let args = Args::new().buffer(&log).buffer(&counter).u32(tag);
        // SAFETY: 1000 launches write 1000 words.
        unsafe { queue.launch(&append, LaunchConfig::new(1, 1), &args)? };
        queue.barrier();
        points.push(queue.submit()?);
    }
    points[999].wait(DEADLINE)?;
    for (i, point) in points.iter().enumerate() {
        ensure!(point.is_done()?, "submission {i} is not done though a later one is");
    }
    ensure!(log.read_vec::<u32>(0, 1000)?.iter().copied().eq(0..1000), "the launches ran out of order");
    Ok(())
}

/// A kernel that polls for a while, a deadline that is shorter, and the same work waited for properly.
fn deadline() -> Result<()> {
    let device = open()?;
    let wait = Kernels::load(&device)?.get("await")?;
    let (flag, out) = (device.alloc(4)?, device.alloc(4)?);
    flag.write(0, &[0; 4])?;
    let mut queue = device.queue()?;
    let args = Args::new().buffer(&flag).buffer(&out).u32(300_000);
    // SAFETY: `await` reads the flag, writes `out`, and ends after 300,000 polls.
    unsafe { queue.launch(&wait, LaunchConfig::new(1, 1), &args)? };
    let point = queue.submit()?;
    let began = Instant::now();
    match point.wait(Duration::from_micros(50)) {
        Err(Error::Queue(QueueError::Timeout { limit, wanted, reached, .. })) => {
            ensure!(limit >= Duration::from_micros(50) && reached < wanted, "{limit:?} {reached} {wanted}");
        }
        Ok(()) => bail!("300,000 polls took less than 50 us"),
        Err(e) => return Err(e.into()),
    }
    ensure!(began.elapsed() < Duration::from_secs(5), "a deadline of 50 us took {:?}", began.elapsed());
    point.wait(DEADLINE)?;
    ensure!(out.read_vec::<u32>(0, 1)? == [u32::MAX], "the kernel saw a flag that nobody set");
    Ok(())
}

fn timestamps() -> Result<()> {
    let device = open()?;
    let step = Kernels::load(&device)?.get("step")?;
    let data = device.alloc(1 << 20)?;
    data.write_slice(0, &vec![1_u32; 1 << 18])?;
    let mut queue = device.queue()?;
    let mut stamps = vec![queue.timestamp()?];
    for _ in 0..4 {
        // SAFETY: `step` stays within its n words.
        unsafe {
            queue.launch(
                &step,
                LaunchConfig::new(1024, 256),
                &Args::new().buffer(&data).u32(1 << 18).u32(3).u32(1),
            )?
        };
        queue.barrier();
        stamps.push(queue.timestamp()?);
    }
    queue.submit()?.wait(DEADLINE)?;
    let times = stamps
        .iter()
        .map(hcq::Timestamp::ns)
        .collect::<Option<Vec<_>>>()
        .context("a timestamp is missing")?;
    ensure!(times[0] > 0 && times.is_sorted(), "timestamps go backwards: {times:?}");
    ensure!(times[4] > times[0], "four launches took no time: {times:?}");
    Ok(())
}

/// Timelines that start 20 below 2^64 count on through zero: waits, order and waits between queues hold.
fn rollover() -> Result<()> {
    let mut options = DeviceOptions::default();
    options.timeline_start = 20_u64.wrapping_neg();
    let device = Device::open_with(selector()?, options)?;
    let append = Kernels::load(&device)?.get("append")?;
    let (log, counter) = (device.alloc(400)?, device.alloc(4)?);
    counter.write(0, &[0; 4])?;
    let mut queues = [device.queue()?, device.queue()?];
    let mut points: Vec<SyncPoint> = Vec::new();
    for tag in 0..100 {
        let queue = &mut queues[tag as usize % 2];
        if let Some(point) = points.last() {
            queue.wait_for(point)?;
        }
        // SAFETY: 100 launches write 100 words.
        unsafe {
            queue.launch(
                &append,
                LaunchConfig::new(1, 1),
                &Args::new().buffer(&log).buffer(&counter).u32(tag),
            )?
        };
        points.push(queue.submit()?);
        if tag % 7 == 0 {
            points[tag as usize].wait(DEADLINE)?;
        }
    }
    points[99].wait(DEADLINE)?;
    for (i, point) in points.iter().enumerate() {
        ensure!(point.is_done()?, "submission {i} is not done though a later one is");
    }
    ensure!(log.read_vec::<u32>(0, 100)?.iter().copied().eq(0..100), "out of order across the rollover");
    Ok(())
}

/// Dropping a queue and the only handle of a buffer right after submitting loses nothing and frees nothing
/// early.
fn dropped_queue() -> Result<()> {
    let device = open()?;
    let fill = Kernels::load(&device)?.get("fill")?;
    let out = device.alloc(4 << 16)?;
    for value in 0..50_u32 {
        let mut queue = device.queue()?;
        let scratch = device.alloc(4 << 16)?;
        // SAFETY: both buffers hold 65,536 words.
        unsafe {
            queue.launch(
                &fill,
                LaunchConfig::new(256, 256),
                &Args::new().buffer(&scratch).u32(1 << 16).u32(value),
            )?;
        }
        queue.barrier();
        queue.copy(&scratch, 0, &out, 0, 4 << 16)?;
        let point = queue.submit()?;
        drop((scratch, queue));
        point.wait(DEADLINE)?;
        ensure!(
            out.read_vec::<u32>(0, 1 << 16)?.iter().copied().eq(value..value + (1 << 16)),
            "round {value}"
        );
    }
    Ok(())
}
