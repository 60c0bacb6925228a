//! A control loop: at each tick of a clock a kernel runs on 64 values, and the program waits for it and reads
//! the result. How late, and how long, is counted as cyclictest counts it.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hcq::{Args, Buffer, Device, Kernel, LaunchConfig, Queue};
use nix::sys::time::{TimeSpec, TimeValLike};
use nix::time::{ClockId, ClockNanosleepFlags, clock_gettime, clock_nanosleep};
use serde::Serialize;

use crate::bench::{Bench, DEADLINE};
use crate::output;

/// Values of a tick.
const VALUES: usize = 64;

/// Times of one kind, in microseconds.
#[derive(Debug, Serialize)]
pub struct Times {
    min: f64,
    p50: f64,
    p99: f64,
    p99_99: f64,
    max: f64,
}

impl Times {
    /// Of at least one sample, in nanoseconds.
    fn of(mut samples: Vec<u64>) -> Self {
        samples.sort_unstable();
        let at = |part: usize| {
            let index = (samples.len() * part / 10_000).min(samples.len() - 1);
            samples[index] as f64 / 1e3
        };
        Self { min: at(0), p50: at(5_000), p99: at(9_900), p99_99: at(9_999), max: at(10_000) }
    }
}

/// A loop to measure.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Loop {
    /// Ticks per second.
    pub hz: u32,
    /// Whether every core has other work.
    pub load: bool,
    /// Whether the thread polls the clock until the next tick, in place of sleeping.
    pub poll: bool,
}

/// The result of a loop.
#[derive(Debug, Serialize)]
pub struct LoopFigure {
    #[serde(flatten)]
    asked: Loop,
    /// Ticks that ran.
    ticks: usize,
    /// Ticks that were left out, as the one before had not ended.
    missed: u64,
    /// From the tick until the thread runs: the kernel's timer and scheduler.
    wake_up: Times,
    /// From there until the GPU has been told of the work.
    launch: Times,
    /// From the wake-up until the result is read.
    work: Times,
    /// Wake-up and work together.
    response: Times,
}

/// A kernel that adds two vectors of [`VALUES`] values, and its memory.
struct Addition {
    queue: Queue,
    kernel: Kernel,
    args: Args,
    input: Buffer,
    result: Buffer,
}

impl Addition {
    fn new(bench: &Bench) -> Result<Self> {
        let [input, other, result] = [(); 3].map(|()| bench.device.alloc_host(4 * VALUES as u64));
        let (input, other, result) = (input?, other?, result?);
        let constants: [f32; VALUES] = std::array::from_fn(|i| i as f32);
        other.write_slice(0, &constants)?;
        input.write_slice(0, &constants)?;
        let args = Args::new().buffer(&input).buffer(&other).buffer(&result).u32(VALUES as u32 / 4);
        let (queue, kernel) = (bench.device.queue()?, bench.program.kernel("add_f32")?);
        Ok(Self { queue, kernel, args, input, result })
    }

    /// One tick's work: a new value in, the sums out. Returns when the GPU had been told of it, by [`now`].
    fn tick(&mut self, value: f32) -> Result<u64> {
        self.input.write_slice(0, &[value])?;
        // SAFETY: the kernel adds as many values as the buffers have.
        unsafe { self.queue.launch(&self.kernel, LaunchConfig::new(1, 256), &self.args)? };
        let submitted = self.queue.submit()?;
        let launched = now()?;
        submitted.wait(DEADLINE)?;
        let mut sums = [0_f32; VALUES];
        self.result.read_slice(0, &mut sums)?;
        ensure!(
            sums[0].to_bits() == value.to_bits() && sums[VALUES - 1] == 2.0 * (VALUES - 1) as f32,
            "the sums are wrong: {} after {value}, last {}",
            sums[0],
            sums[VALUES - 1]
        );
        Ok(launched)
    }
}

/// Nanoseconds of the monotonic clock.
fn now() -> Result<u64> {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).context("clock_gettime")?;
    Ok(now.num_nanoseconds().cast_unsigned())
}

/// Waits until a time of the monotonic clock.
fn wait_until(time: u64, poll: bool) -> Result<()> {
    if poll {
        while now()? < time {
            std::hint::spin_loop();
        }
        return Ok(());
    }
    let until = TimeSpec::nanoseconds(time.cast_signed());
    loop {
        match clock_nanosleep(ClockId::CLOCK_MONOTONIC, ClockNanosleepFlags::TIMER_ABSTIME, &until) {
            Err(nix::Error::EINTR) => {}
            done => return done.map(|_| ()).context("clock_nanosleep"),
        }
    }
}

/// Runs `work` while every core has something else to do.
fn under_load<T>(work: impl FnOnce() -> T) -> T {
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, |cores| cores.get()) {
            scope.spawn(|| {
                let mut words = vec![1_u64; 1 << 18];
                while !ended.load(Ordering::Relaxed) {
                    words.iter_mut().for_each(|word| *word = word.wrapping_mul(0x9e37_79b9).rotate_left(7));
                    black_box(&words);
                }
            });
        }
        let done = work();
        ended.store(true, Ordering::Relaxed);
        done
    })
}

impl Bench {
    /// Runs a loop for a while.
    ///
    /// # Errors
    /// Those of the device, and a wrong result.
    pub fn control_loop(&self, asked: Loop, time: Duration) -> Result<LoopFigure> {
        let mut addition = Addition::new(self)?;
        // What is made once is made before the first tick.
        (0..100).try_for_each(|i| addition.tick(i as f32).map(drop))?;
        let mut run = || ticks(&mut addition, asked, time);
        let (times, missed) = if asked.load { under_load(run)? } else { run()? };
        let of = |part: fn(&Tick) -> u64| Times::of(times.iter().map(part).collect());
        Ok(LoopFigure {
            asked,
            ticks: times.len(),
            missed,
            wake_up: of(|tick| tick.wake_up),
            launch: of(|tick| tick.launch),
            work: of(|tick| tick.work),
            response: of(|tick| tick.wake_up + tick.work),
        })
    }
}

/// Nanoseconds of a tick.
struct Tick {
    wake_up: u64,
    launch: u64,
    work: u64,
}

/// Runs the ticks; returns them, and the number of those left out.
fn ticks(addition: &mut Addition, asked: Loop, time: Duration) -> Result<(Vec<Tick>, u64)> {
    let period = 1_000_000_000 / u64::from(asked.hz);
    let count = (time.as_nanos() as u64 / period).max(1);
    let mut times = Vec::with_capacity(count as usize);
    let (mut missed, mut tick) = (0, 0);
    let start = now()? + period;
    while tick < count {
        let due = start + tick * period;
        wait_until(due, asked.poll)?;
        let began = now()?;
        let launched = addition.tick(tick as f32)?;
        let ended = now()?;
        let wake_up = began.saturating_sub(due);
        times.push(Tick { wake_up, launch: launched - began, work: ended - began });
        // A tick whose time has passed is no later one's.
        let next = (ended.saturating_sub(start) / period + 1).max(tick + 1);
        missed += next.min(count) - (tick + 1).min(count);
        tick = next;
    }
    Ok((times, missed))
}

#[derive(Serialize)]
struct Report<'a> {
    schema: &'static str,
    device: &'a str,
    backend: String,
    driver: &'a str,
    figures: &'a [LoopFigure],
}

/// Prints the loops that ran on `device`.
///
/// # Errors
/// Those of stdout.
pub fn print(device: &Device, figures: &[LoopFigure], json: bool) -> Result<()> {
    let info = device.info();
    let backend = info.backend.to_string();
    if json {
        let (device, driver) = (info.name.as_str(), info.driver_version.as_str());
        let report = Report { schema: "hcq.loop/1", device, backend, driver, figures };
        return output::line(serde_json::to_string_pretty(&report)?);
    }
    output::line(format_args!("{} ({backend} backend, driver {})", info.name, info.driver_version))?;
    for f in figures {
        let load = if f.asked.load { "every core busy" } else { "no other load" };
        let poll = if f.asked.poll { ", polled" } else { "" };
        output::line(format_args!(
            "{} Hz{poll}, {load}: {} ticks, {} missed",
            f.asked.hz, f.ticks, f.missed
        ))?;
        let rows = [
            ("wake-up", &f.wake_up),
            ("launch", &f.launch),
            ("launch + wait + read", &f.work),
            ("response", &f.response),
        ];
        for (name, t) in rows {
            output::line(format_args!(
                "  {name:<22} min {:>9.2}  p50 {:>9.2}  p99 {:>9.2}  p99.99 {:>9.2}  max {:>9.2}  us",
                t.min, t.p50, t.p99, t.p99_99, t.max
            ))?;
        }
    }
    Ok(())
}
