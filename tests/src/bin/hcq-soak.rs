//! `hcq-soak`: a device under the same load for long. `tools/soak.sh` has the numbers of the long form.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Parser, ValueEnum};
use ga10b_tests::output;
use ga10b_tests::soak::{self, Plan, Role};

/// Launches, copies, allocates and drops on the device that HCQ_DEVICE names; the software ga10b when it is
/// unset.
#[derive(Parser)]
#[command(version)]
struct Cli {
    /// Launches of one queue.
    #[arg(long, env = "SOAK_LAUNCHES", default_value_t = 10_000)]
    launches: u32,
    /// Threads that share a device, at most 256.
    #[arg(long, env = "SOAK_THREADS", default_value_t = 4, value_parser = clap::value_parser!(u32).range(..=256))]
    threads: u32,
    /// Time for which they do, and then three processes, in seconds: at most 604800, a week.
    #[arg(long, env = "SOAK_SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(..=604_800))]
    seconds: u64,
    /// Queues that are created and dropped.
    #[arg(long, env = "SOAK_QUEUES", default_value_t = 200)]
    queues: u32,
    /// Orders of drops, of 720.
    #[arg(long, env = "SOAK_ORDERS", default_value_t = 24, value_parser = clap::value_parser!(u32).range(0..=720))]
    orders: u32,
    /// Each how many-th call of the driver fails, in each of three manners; 1 for all.
    #[arg(long, env = "SOAK_FAILURES", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    failures: u32,
    /// Processes that are killed with work in flight, and forks.
    #[arg(long, env = "SOAK_KILLS", default_value_t = 5)]
    kills: u32,
    /// Seed of what the threads choose.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Is one of the processes that this program starts.
    #[arg(long, hide = true)]
    role: Option<RoleName>,
}

#[derive(Clone, Copy, ValueEnum)]
enum RoleName {
    Busy,
    Churn,
}

fn main() -> ExitCode {
    match run(output::options()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => output::failed("hcq-soak", &error),
    }
}

fn run(cli: Cli) -> Result<()> {
    let Cli { launches, threads, seconds, queues, orders, failures, kills, seed, role } = cli;
    let time = Duration::from_secs(seconds);
    match role {
        Some(RoleName::Busy) => return soak::play(Role::Busy),
        Some(RoleName::Churn) => return soak::play(Role::Churn { time, seed }),
        None => {}
    }
    let program = std::env::current_exe().context("this program's file")?;
    let plan = Plan { launches, threads, time, queues, orders, failures, kills, program, seed };
    soak::run(&plan, &mut |part| output::line(part))
}
