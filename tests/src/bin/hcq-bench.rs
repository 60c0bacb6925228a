//! `hcq-bench`: what a launch, a graph, a copy and an allocation cost through `hcq`, in the terms of `cuda_launch.cu`'s table.
//!
//! Each figure is host wall clock around the call and its wait, after a warm-up of one second, so that both sides are compared with the
//! GPU's clocks up. Figures of the software ga10b say how fast the model is, nothing about a GPU.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Parser;
use device_suite::cubin;
use hcq::{Args, Buffer, Device, DeviceOptions, Kernel, LaunchConfig, Selector};
use serde::Serialize;

const DEADLINE: Duration = Duration::from_secs(60);
const MIB: u64 = 1 << 20;

/// Measures launches, graphs, copies and allocations.
#[derive(Parser)]
#[command(version, about)]
struct Cli {
    /// Device: auto, nvgpu, rm or sim.
    #[arg(long, env = "HCQ_DEVICE", default_value = "auto")]
    device: Selector,
    /// Launches measured one by one; the other counts follow from it.
    #[arg(long, default_value_t = 10_000)]
    launches: u32,
    /// Largest copy in MiB; smaller on a machine with little memory.
    #[arg(long, default_value_t = 1024)]
    copy_mib: u64,
    /// Orders dependent launches by waits in the pushbuffer instead of links between their QMDs.
    #[arg(long)]
    no_chain: bool,
    /// Lets the last kernel of a submission signal its end by itself.
    #[arg(long)]
    release_in_launch: bool,
    /// Prints one JSON document instead of the table.
    #[arg(long)]
    json: bool,
}

/// One row of the table.
#[derive(Debug, Serialize)]
struct Figure {
    name: &'static str,
    unit: &'static str,
    p50: f64,
    p99: f64,
    samples: usize,
}

impl Figure {
    fn new(name: &'static str, unit: &'static str, mut samples: Vec<f64>) -> Self {
        samples.sort_by(f64::total_cmp);
        let at = |share: f64| {
            samples
                .get(((samples.len() as f64 * share) as usize).min(samples.len() - 1))
                .copied()
                .unwrap_or(f64::NAN)
        };
        Self { name, unit, p50: at(0.5), p99: at(0.99), samples: samples.len() }
    }
}

#[derive(Serialize)]
struct Report {
    schema: &'static str,
    device: String,
    backend: String,
    driver: String,
    sm_count: u32,
    figures: Vec<Figure>,
}

struct Bench {
    device: Device,
    step: Kernel,
    data: Buffer,
    figures: Vec<Figure>,
}

fn us(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e6
}

impl Bench {
    fn args(&self) -> Args {
        Args::new().buffer(&self.data).u32(1).u32(1).u32(1)
    }

    fn record(&mut self, name: &'static str, unit: &'static str, samples: Vec<f64>) {
        self.figures.push(Figure::new(name, unit, samples));
    }

    /// Keeps the GPU busy for a second.
    fn warm_up(&self, launches: u32) -> Result<()> {
        let mut queue = self.device.queue()?;
        let (began, args) = (Instant::now(), self.args());
        for _ in 0..launches {
            // SAFETY: `step` changes one word of `data`.
            unsafe { queue.launch(&self.step, LaunchConfig::new(1, 32), &args)? };
            queue.submit()?.wait(DEADLINE)?;
            if began.elapsed() > Duration::from_secs(1) {
                break;
            }
        }
        Ok(())
    }

    fn launches(&mut self, count: u32) -> Result<()> {
        let mut queue = self.device.queue()?;
        let (args, config) = (self.args(), LaunchConfig::new(1, 32));
        let mut samples = Vec::new();
        for _ in 0..count {
            let began = Instant::now();
            // SAFETY: `step` changes one word of `data`.
            unsafe { queue.launch(&self.step, config, &args)? };
            queue.submit()?.wait(DEADLINE)?;
            samples.push(us(began));
        }
        self.record("launch + wait", "us", samples);
        for (name, dependent) in
            [("dependent launches, per kernel", true), ("independent launches, per kernel", false)]
        {
            let (mut samples, batch) = (Vec::new(), (count / 10).max(1));
            for _ in 0..50 {
                let began = Instant::now();
                for _ in 0..batch {
                    // SAFETY: as above.
                    unsafe { queue.launch(&self.step, config, &args)? };
                    if dependent {
                        queue.barrier()?;
                    }
                }
                queue.submit()?.wait(DEADLINE)?;
                samples.push(us(began) / f64::from(batch));
            }
            self.record(name, "us", samples);
        }
        Ok(())
    }

    fn graph(&mut self, replays: u32) -> Result<()> {
        let mut builder = self.device.graph();
        for _ in 0..230 {
            // SAFETY: as above.
            unsafe { builder.launch(&self.step, LaunchConfig::new(1, 32), &self.args())? };
            builder.barrier();
        }
        let graph = builder.build()?;
        let mut queue = self.device.queue()?;
        queue.replay(&graph)?.wait(DEADLINE)?;
        let mut samples = Vec::new();
        for _ in 0..replays {
            let began = Instant::now();
            queue.replay(&graph)?.wait(DEADLINE)?;
            samples.push(us(began));
        }
        let each = samples.iter().map(|s| s / 230.0).collect();
        self.record("graph of 230 dependent kernels, whole", "us", samples);
        self.record("graph of 230 dependent kernels, per kernel", "us", each);
        Ok(())
    }

    fn copies(&mut self, largest: u64) -> Result<()> {
        for (mib, to_host, to_device) in
            [(16, "D2H 16 MiB", "H2D 16 MiB"), (256, "D2H 256 MiB", "H2D 256 MiB")]
                .into_iter()
                .filter(|c| c.0 <= largest)
        {
            let buffer = self.device.alloc(mib * MIB)?;
            let mut host = vec![1_u8; (mib * MIB) as usize];
            let (mut down, mut up) = (Vec::new(), Vec::new());
            for _ in 0..(1600 / mib).clamp(5, 100) {
                let rate = |began: Instant| (mib * MIB) as f64 / us(began) / 1e3;
                let began = Instant::now();
                buffer.write(0, &host)?;
                up.push(rate(began));
                let began = Instant::now();
                buffer.read(0, &mut host)?;
                down.push(rate(began));
            }
            self.record(to_host, "GB/s", down);
            self.record(to_device, "GB/s", up);
        }
        let len = largest.min(1024) * MIB;
        let (from, to) = (self.device.alloc(len)?, self.device.alloc(len)?);
        let mut queue = self.device.copy_queue()?;
        let mut samples = Vec::new();
        for _ in 0..30 {
            let began = Instant::now();
            queue.copy(&from, 0, &to, 0, len)?;
            queue.submit()?.wait(DEADLINE)?;
            samples.push(2.0 * len as f64 / us(began) / 1e3);
        }
        self.record("D2D, read + written", "GB/s", samples);
        Ok(())
    }

    fn allocations(&mut self) -> Result<()> {
        let (mut alloc, mut free) = (Vec::new(), Vec::new());
        for _ in 0..100 {
            let began = Instant::now();
            let buffer = self.device.alloc(256 * MIB)?;
            alloc.push(us(began));
            let began = Instant::now();
            drop(buffer);
            free.push(us(began));
        }
        self.record("alloc 256 MiB", "us", alloc);
        self.record("free 256 MiB", "us", free);
        Ok(())
    }
}

fn run(cli: &Cli) -> Result<()> {
    let mut options = DeviceOptions::default();
    options.chain_launches = !cli.no_chain;
    options.release_in_launch = cli.release_in_launch;
    let device = Device::open_with(cli.device, options).context("opening the device")?;
    let step = device.load(cubin(device.info().arch))?.kernel("step")?;
    let data = device.alloc(4)?;
    let mut bench = Bench { device, step, data, figures: Vec::new() };
    bench.warm_up(cli.launches.saturating_mul(100))?;
    bench.launches(cli.launches)?;
    bench.graph((cli.launches / 20).max(1))?;
    bench.copies(cli.copy_mib)?;
    bench.allocations()?;

    let info = bench.device.info();
    let report = Report {
        schema: "hcq.bench/1",
        device: info.name.clone(),
        backend: info.backend.to_string(),
        driver: info.driver_version.clone(),
        sm_count: info.sm_count,
        figures: bench.figures,
    };
    if cli.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
        return Ok(());
    }
    println!(
        "{} ({} backend, driver {}, {} SMs)",
        report.device, report.backend, report.driver, report.sm_count
    );
    for f in &report.figures {
        println!("{:<44} p50 {:>10.3}  p99 {:>10.3}  {}", f.name, f.p50, f.p99, f.unit);
    }
    Ok(())
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("hcq-bench: {e:#}");
            ExitCode::FAILURE
        }
    }
}
