//! The figures that a report holds: launches, copies, tokens per second.

use std::time::{Duration, Instant};

use hcq::{Args, Device, LaunchConfig};
use serde::{Deserialize, Serialize};

use crate::bringup::kernels::Kernels;
use crate::bringup::llm_demo::{self, Bench, LlmDemo, NOT_INSTALLED};
use crate::bringup::outcome::Figure;
use crate::bringup::rig::Rig;

/// Time limit of one measurement.
const LIMIT: Duration = Duration::from_secs(60);
const MIB: u64 = 1 << 20;

/// Results of the measurements.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The figures.
    pub figures: Vec<Figure>,
    /// Why there are none of a language model, where there are none.
    pub unmeasured: Option<String>,
}

/// Measures on a device of its own, which is closed before `llm-demo` measures.
///
/// # Errors
/// Those of the device.
pub fn measure(rig: &Rig<'_>) -> anyhow::Result<Measured> {
    let device = rig.device()?;
    let mut figures = launches(&device, rig.scaled(5_000, 300))?;
    figures.extend(copies(&device, if rig.software { 4 } else { 256 }, rig.scaled(20, 3))?);
    drop(device);
    let tokens = match &rig.llm_demo {
        Some(llm_demo) => tokens(llm_demo, rig).map_err(anyhow::Error::from),
        None => Err(anyhow::Error::msg(NOT_INSTALLED)),
    };
    let unmeasured = match tokens {
        Ok(tokens) => {
            figures.extend(tokens);
            None
        }
        Err(error) => Some(format!("tokens per second: {error:#}")),
    };
    Ok(Measured { figures, unmeasured })
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

/// Measures tokens per second of the embedded model with `llm-demo`.
fn tokens(llm_demo: &LlmDemo, rig: &Rig<'_>) -> Result<Vec<Figure>, llm_demo::Error> {
    let tests = match rig.software {
        true => Bench { prompt: 8, decode: 4, repeats: 1, engine: Some("batch") },
        false => Bench { prompt: 128, decode: 128, repeats: 5, engine: None },
    };
    llm_demo.bench(rig.selector, &tests)
}
