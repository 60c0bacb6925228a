//! `hcq-bench`: what a launch, a graph, a copy and an allocation cost through `hcq`, in the terms of
//! `cuda_launch.cu`'s table.
//!
//! Launches are of two kernels: one whose single thread that does anything stores one word, as in
//! `cuda_launch.cu`, and one that loads, changes and stores it, which adds the way to memory and back. Each
//! figure is host wall clock around the call and its wait, after 1.5 s of work, so that both sides are
//! compared with the GPU's clocks up. Figures of the software ga10b say how fast the model is, nothing about
//! a GPU.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Parser;
use ga10b_tests::{arch, cubin, output};
use hcq::{Args, BackendKind, Buffer, Device, DeviceOptions, Kernel, LaunchConfig, Selector};
use serde::Serialize;

const DEADLINE: Duration = Duration::from_secs(60);
const MIB: u64 = 1 << 20;
/// Work before the first figure, and before each of those during which most of the GPU is idle.
const WARM: Duration = Duration::from_millis(1500);
const WARM_AGAIN: Duration = Duration::from_millis(300);

/// Measures launches, graphs, copies and allocations.
#[derive(Parser)]
#[command(version, about)]
struct Cli {
    /// Device: auto, nvgpu, rm or sim.
    #[arg(long, env = "HCQ_DEVICE", default_value = "auto")]
    device: Selector,
    /// Launches measured one by one; the other counts follow from it.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    launches: u32,
    /// Largest copy in MiB; smaller on a machine with little memory.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..))]
    copy_mib: u64,
    /// Orders dependent launches by waits in the pushbuffer instead of links between their QMDs.
    #[arg(long)]
    no_chain: bool,
    /// Lets the host signal the end of each submission, instead of its last kernel.
    #[arg(long)]
    host_release: bool,
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
    store: Kernel,
    step: Kernel,
    data: Buffer,
    figures: Vec<Figure>,
}

fn us(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e6
}

impl Bench {
    /// Kernels with what is measured of them: a store, and a load, change and store of one word.
    fn kernels(&self) -> [(Kernel, Args); 2] {
        let store = Args::new().buffer(&self.data).u32(1).u32(1);
        let step = Args::new().buffer(&self.data).u32(1).u32(1).u32(1);
        [(self.store.clone(), store), (self.step.clone(), step)]
    }

    fn record(&mut self, name: &'static str, unit: &'static str, samples: Vec<f64>) {
        self.figures.push(Figure::new(name, unit, samples));
    }

    /// Keeps the whole GPU busy for a while: an idle one lowers its clocks within a second, and takes more
    /// than one of work to raise them again. The software GPU has none.
    fn warm_up(&self, time: Duration) -> Result<()> {
        if self.device.info().backend == BackendKind::Sim {
            return Ok(());
        }
        let count = 1 << 20;
        let out = self.device.alloc(4 * u64::from(count))?;
        let (mut queue, began) = (self.device.queue()?, Instant::now());
        let args = Args::new().buffer(&out).u32(count).u32(0);
        while began.elapsed() < time {
            for _ in 0..20 {
                // SAFETY: the kernel writes `count` words, here to `out`; below one word of `data`, as `step`
                // does.
                unsafe { queue.launch(&self.store, LaunchConfig::new(count / 1024, 1024), &args)? };
            }
            queue.submit()?.wait(DEADLINE)?;
        }
        Ok(())
    }

    fn launches(&mut self, count: u32) -> Result<()> {
        let mut queue = self.device.queue()?;
        let config = LaunchConfig::new(1, 32);
        let [(store, args), (step, step_args)] = self.kernels();
        let mut samples = Vec::new();
        for _ in 0..count {
            let began = Instant::now();
            // SAFETY: as above.
            unsafe { queue.launch(&store, config, &args)? };
            queue.submit()?.wait(DEADLINE)?;
            samples.push(us(began));
        }
        self.record("launch + wait", "us", samples);
        let samples = (0..count)
            .map(|_| {
                let began = Instant::now();
                queue.submit()?.wait(DEADLINE)?;
                Ok(us(began))
            })
            .collect::<Result<_>>()?;
        self.record("submission without a launch + wait", "us", samples);
        for (name, kernel, args, dependent) in [
            ("dependent launches, per kernel", &store, &args, true),
            ("dependent launches of load + store, per kernel", &step, &step_args, true),
            ("independent launches, per kernel", &store, &args, false),
        ] {
            let (mut samples, batch) = (Vec::new(), (count / 10).max(1));
            for _ in 0..50 {
                let began = Instant::now();
                for _ in 0..batch {
                    // SAFETY: as above.
                    unsafe { queue.launch(kernel, config, args)? };
                    if dependent {
                        queue.barrier();
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
        let names = [
            ("graph of 230 dependent kernels, whole", "graph of 230 dependent kernels, per kernel"),
            ("graph of 230 of load + store, whole", "graph of 230 of load + store, per kernel"),
        ];
        for ((kernel, args), (whole, per_kernel)) in self.kernels().into_iter().zip(names) {
            let mut builder = self.device.graph();
            for _ in 0..230 {
                // SAFETY: as above.
                unsafe { builder.launch(&kernel, LaunchConfig::new(1, 32), &args)? };
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
            self.record(whole, "us", samples);
            self.record(per_kernel, "us", each);
        }
        Ok(())
    }

    /// GB/s of `count` runs of `copy`, which moves `bytes`.
    fn rates(
        &mut self,
        name: &'static str,
        count: u64,
        bytes: u64,
        mut copy: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        self.warm_up(WARM_AGAIN)?;
        let samples = (0..count)
            .map(|_| {
                let began = Instant::now();
                copy()?;
                Ok(bytes as f64 / us(began) / 1e3)
            })
            .collect::<Result<_>>()?;
        self.record(name, "GB/s", samples);
        Ok(())
    }

    fn copies(&mut self, largest: u64) -> Result<()> {
        let names = [
            (16, ["D2H 16 MiB pageable", "H2D 16 MiB pageable", "D2H 16 MiB pinned", "H2D 16 MiB pinned"]),
            (
                256,
                ["D2H 256 MiB pageable", "H2D 256 MiB pageable", "D2H 256 MiB pinned", "H2D 256 MiB pinned"],
            ),
        ];
        let mut queue = self.device.copy_queue()?;
        for (mib, [down, up, down_pinned, up_pinned]) in names.into_iter().filter(|c| c.0 <= largest) {
            let (len, count) = (mib * MIB, (1600 / mib).clamp(5, 100));
            let (buffer, pinned) = (self.device.alloc(len)?, self.device.alloc_host(len)?);
            let mut host = vec![1_u8; len as usize];
            buffer.write(0, &host)?;
            self.rates(up, count, len, || Ok(buffer.write(0, &host)?))?;
            self.rates(down, count, len, || Ok(buffer.read(0, &mut host)?))?;
            for (name, from, to) in [(up_pinned, &pinned, &buffer), (down_pinned, &buffer, &pinned)] {
                self.rates(name, count, len, || {
                    queue.copy(from, 0, to, 0, len)?;
                    Ok(queue.submit()?.wait(DEADLINE)?)
                })?;
            }
        }
        let len = largest.min(1024) * MIB;
        let (from, to) = (self.device.alloc(len)?, self.device.alloc(len)?);
        // The second at addresses that differ modulo 16.
        for (name, queue, at) in [
            ("D2D, read + written", &mut self.device.queue()?, 0),
            ("D2D to 3 bytes on, read + written", &mut self.device.queue()?, 3),
            ("D2D on a copy queue, read + written", &mut queue, 0),
        ] {
            self.rates(name, 30, 2 * len, || {
                queue.copy(&from, 0, &to, at, len - at)?;
                Ok(queue.submit()?.wait(DEADLINE)?)
            })?;
        }
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
    options.release_in_launch = !cli.host_release;
    let device = Device::open_with(cli.device, options).context("opening the device")?;
    let program = device.load(cubin(arch(&device)?))?;
    let (store, step) = (program.kernel("fill")?, program.kernel("step")?);
    let data = device.alloc(4)?;
    let mut bench = Bench { device, store, step, data, figures: Vec::new() };
    bench.warm_up(WARM)?;
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
        output::line(serde_json::to_string_pretty(&report)?)?;
        return Ok(());
    }
    output::line(format_args!(
        "{} ({} backend, driver {}, {} SMs)",
        report.device, report.backend, report.driver, report.sm_count
    ))?;
    for f in &report.figures {
        output::line(format_args!("{:<48} p50 {:>10.3}  p99 {:>10.3}  {}", f.name, f.p50, f.p99, f.unit))?;
    }
    Ok(())
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("hcq-bench: {e:#}");
            output::code(&e)
        }
    }
}
