//! `hcq-bench`: what a launch, a graph, a copy and an allocation cost through `hcq`, in the terms of CUDA's
//! runtime.
//!
//! Each figure is host wall clock around the call and its wait, after 1.5 s of work, so that both sides are
//! compared with the GPU's clocks up. Figures of the software ga10b say how fast the model is, nothing about
//! a GPU.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use ga10b_tests::bench::control_loop::{self, Loop};
use ga10b_tests::bench::{Bench, WARM, table};
use ga10b_tests::output;
use hcq::{Device, DeviceOptions, Release, Selector};

/// Measures launches, graphs, copies and allocations; `loop`: the latency of a control loop.
#[derive(Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    /// Device: auto, nvgpu, rm or sim.
    #[arg(long, env = "HCQ_DEVICE", default_value = "auto", global = true)]
    device: Selector,
    /// Launches measured one by one; the other counts follow from it.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    launches: u32,
    /// Largest copy in MiB; smaller on a machine with little memory.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..))]
    copy_mib: u64,
    /// Launches and graphs alone: no copies, no allocations.
    #[arg(long)]
    no_copies: bool,
    /// Orders dependent launches by waits in the pushbuffer instead of links between their QMDs.
    #[arg(long)]
    no_chain: bool,
    /// Lets the host signal the end of each submission, instead of its last kernel.
    #[arg(long)]
    host_release: bool,
    /// Prints one JSON document instead of the table.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum Command {
    /// A control loop, as cyclictest: at each tick launch a kernel on 64 values, wait, read the result.
    ///
    /// Times for each rate: how late the thread runs (timer and scheduler), the launch, launch + wait + read, and
    /// wake-up and that together. A tick that would begin while the last one runs is missed. For a real-time thread on a core
    /// of its own: chrt -f 80 taskset -c 3 hcq-bench loop. docs/latency.md has what it takes.
    Loop {
        /// Ticks per second; may be given more than once.
        #[arg(long, default_values_t = [1_000, 10_000], value_parser = clap::value_parser!(u32).range(1..=100_000))]
        hz: Vec<u32>,
        /// Time of each loop.
        #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
        seconds: u64,
        /// Each loop once more, with something else to do for every core.
        #[arg(long)]
        load: bool,
        /// Polls the clock until the next tick instead of sleeping: the core never idles.
        #[arg(long)]
        poll: bool,
    },
}

fn run(cli: &Cli) -> Result<()> {
    let mut options = DeviceOptions::default();
    options.chain_launches = !cli.no_chain;
    if cli.host_release {
        options.profile.release = Some(Release::Host);
    }
    let device = Device::open_with(cli.device, options)
        .with_context(|| format!("cannot open the device \"{}\"", cli.device))?;
    let mut bench = Bench::new(device)?;
    bench.warm_up(WARM)?;
    if let Some(Command::Loop { hz, seconds, load, poll }) = &cli.command {
        let asked = hz.iter().flat_map(|hz| [false, true].map(|load| Loop { hz: *hz, load, poll: *poll }));
        let figures = asked
            .filter(|asked| *load || !asked.load)
            .map(|asked| bench.control_loop(asked, Duration::from_secs(*seconds)))
            .collect::<Result<Vec<_>>>()?;
        return control_loop::print(&bench.device, &figures, cli.json);
    }
    bench.launches(cli.launches)?;
    bench.graph((cli.launches / 20).max(1))?;
    bench.linked_graphs((cli.launches / 20).max(1))?;
    bench.graph_by_address((cli.launches / 300).max(1))?;
    if !cli.no_copies {
        bench.copies(cli.copy_mib)?;
        bench.allocations()?;
    }
    table::print(&bench.device, &bench.figures, cli.json)
}

fn main() -> ExitCode {
    match run(&output::options()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => output::failed("hcq-bench", &error),
    }
}
