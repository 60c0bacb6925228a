//! `llm-bench`: what whole kernels reach through `hcq`: f16 matrix products on the tensor cores, an addition of 10
//! million values, a copy to the host, a launch. `tools/cuda-peer.cu` measures the same through CUDA and cuBLAS.
//!
//! As `hcq-bench`, which measures launches, graphs and copies.

mod kernels;

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use ga10b_tests::bench::{Bench, WARM, table};
use ga10b_tests::output;
use hcq::{Device, Selector};

use crate::kernels::{Kernels, Options};

/// Measures whole kernels.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(flatten)]
    options: Options,
    /// Device: auto, nvgpu, rm or sim.
    #[arg(long, env = "HCQ_DEVICE", default_value = "auto")]
    device: Selector,
    /// Launches measured one by one.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    launches: u32,
    /// Prints one JSON document instead of the table.
    #[arg(long)]
    json: bool,
}

fn run(cli: &Cli) -> Result<()> {
    let device =
        Device::open(cli.device).with_context(|| format!("cannot open the device \"{}\"", cli.device))?;
    let bench = Bench::new(device)?;
    bench.warm_up(WARM)?;
    let mut kernels = Kernels(bench);
    kernels.whole_kernels(&cli.options, cli.launches)?;
    table::print(&kernels.0.device, &kernels.0.figures, cli.json)
}

fn main() -> ExitCode {
    match run(&output::options()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => output::failed("llm-bench", &error),
    }
}
