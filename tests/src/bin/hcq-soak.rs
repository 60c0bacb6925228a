//! `hcq-soak`: a device under the same load for long. `tools/soak.sh` has the numbers of the long form.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use ga10b_tests::soak::{self, Plan};

/// Launches, copies, allocates and drops on the device that HCQ_DEVICE names; the software ga10b when it is
/// unset.
#[derive(Parser)]
#[command(version, about)]
struct Cli {
    /// Launches of one queue.
    #[arg(long, env = "SOAK_LAUNCHES", default_value_t = 10_000)]
    launches: u32,
    /// Threads that share a device.
    #[arg(long, env = "SOAK_THREADS", default_value_t = 4)]
    threads: u32,
    /// Time for which they do, in seconds.
    #[arg(long, env = "SOAK_SECONDS", default_value_t = 2)]
    seconds: u64,
    /// Queues that are created and dropped.
    #[arg(long, env = "SOAK_QUEUES", default_value_t = 200)]
    queues: u32,
    /// Orders of drops, of 720.
    #[arg(long, env = "SOAK_ORDERS", default_value_t = 24, value_parser = clap::value_parser!(u32).range(0..=720))]
    orders: u32,
    /// Seed of what the threads choose.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> ExitCode {
    let Cli { launches, threads, seconds, queues, orders, seed } = Cli::parse();
    let plan = Plan { launches, threads, time: Duration::from_secs(seconds), queues, orders, seed };
    match soak::run(&plan, &mut |part| println!("{part}")) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hcq-soak: {error:?}");
            ExitCode::FAILURE
        }
    }
}
