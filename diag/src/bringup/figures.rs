//! The figures that a report holds: launches, copies, tokens per second.

use std::time::{Duration, Instant};

use ga10b_llm::{Decoder, Engine, EngineOptions, Mode, embedded};
use ga10b_llm_tools::bench::{self, Plan};
use hcq::{Args, BackendKind, Device, LaunchConfig};

use crate::bringup::kernels::Kernels;
use crate::bringup::outcome::Figure;
use crate::bringup::rig::Rig;

/// How long the GPU may take for one measurement.
const LIMIT: Duration = Duration::from_secs(60);
const MIB: u64 = 1 << 20;

/// Measures on a device of its own.
///
/// # Errors
/// What the device reports.
pub fn measure(rig: &Rig<'_>) -> anyhow::Result<Vec<Figure>> {
    let device = rig.device()?;
    let mut figures = launches(&device, rig.scaled(5_000, 300))?;
    figures.extend(copies(&device, if rig.software { 4 } else { 256 }, rig.scaled(20, 3))?);
    figures.extend(tokens(&device, rig)?);
    Ok(figures)
}

fn microseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e6
}

fn launches(device: &Device, count: u32) -> anyhow::Result<Vec<Figure>> {
    let kernel = Kernels::load(device)?.get("step")?;
    let data = device.alloc(128)?;
    data.write(0, &[0; 128])?;
    let (mut queue, config) = (device.queue()?, LaunchConfig::new(1, 32));
    let args = || Args::new().buffer(&data).u32(3).u32(1);
    let mut alone = Vec::new();
    for _ in 0..count {
        let began = Instant::now();
        // SAFETY: the kernel changes a word per thread, for which `data` has room.
        unsafe { queue.launch(&kernel, config, &args())? };
        queue.submit()?.wait(LIMIT)?;
        alone.push(microseconds(began));
    }
    let mut empty = Vec::new();
    for _ in 0..count {
        let began = Instant::now();
        queue.submit()?.wait(LIMIT)?;
        empty.push(microseconds(began));
    }
    let mut builder = device.graph();
    const NODES: u32 = 100;
    for _ in 0..NODES {
        // SAFETY: as above.
        unsafe { builder.launch(&kernel, config, &args())? };
        builder.barrier();
    }
    let graph = builder.build()?;
    let mut chained = Vec::new();
    for _ in 0..(count / 20).max(2) {
        let began = Instant::now();
        queue.replay(&graph)?.wait(LIMIT)?;
        chained.push(microseconds(began) / f64::from(NODES));
    }
    let all = [
        Figure::of("launch and wait", "us", alone),
        Figure::of("submission without a launch, and wait", "us", empty),
        Figure::of("dependent kernel of a graph of 100", "us", chained),
    ];
    Ok(all.into_iter().flatten().collect())
}

fn copies(device: &Device, mib: u64, count: u32) -> anyhow::Result<Vec<Figure>> {
    let bytes = mib * MIB;
    let (one, other) = (device.alloc(bytes)?, device.alloc(bytes)?);
    let mut data = vec![1; bytes as usize];
    let mut queue = device.copy_queue()?;
    let (mut to, mut from, mut within) = (Vec::new(), Vec::new(), Vec::new());
    let rate = |began: Instant| bytes as f64 / microseconds(began) / 1e3;
    for _ in 0..count {
        let began = Instant::now();
        one.write(0, &data)?;
        to.push(rate(began));
        let began = Instant::now();
        one.read(0, &mut data)?;
        from.push(rate(began));
        let began = Instant::now();
        queue.copy(&one, 0, &other, 0, bytes)?;
        queue.submit()?.wait(LIMIT)?;
        within.push(rate(began));
    }
    let name = |what: &str| format!("{what}, {mib} MiB");
    let all = [
        Figure::of(name("CPU to buffer"), "GB/s", to),
        Figure::of(name("buffer to CPU"), "GB/s", from),
        Figure::of(name("buffer to buffer, copy engine"), "GB/s", within),
    ];
    Ok(all.into_iter().flatten().collect())
}

/// The tests of `llm-demo --bench` with the embedded model.
fn tokens(device: &Device, rig: &Rig<'_>) -> anyhow::Result<Vec<Figure>> {
    let model = embedded::model()?;
    let software = device.info().backend == BackendKind::Sim || rig.software;
    let plan = match software {
        true => Plan { prefill: 8, decode: 4, depth: 0, repeats: 1, warm_up: Duration::ZERO },
        false => Plan { prefill: 128, decode: 128, depth: 0, repeats: 5, warm_up: bench::WARM_UP },
    };
    let mode = if software { Mode::Operations } else { Mode::Persistent };
    let options = EngineOptions::new(plan.prefill.max(plan.decode)).with_mode(mode);
    let mut engine = Engine::new(device, &model, &options)?;
    let rows = bench::run(&mut engine, model.config.vocab, plan, &mut Decoder::reset, &mut |_, _| ())?;
    let figure = |row: bench::Row| {
        Figure::of(format!("embedded model, {}", row.test), "tokens/s", row.runs_tokens_per_second)
    };
    Ok(rows.into_iter().filter_map(figure).collect())
}
