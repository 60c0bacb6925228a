//! `hcq-fuzz`: parsers, decoders and the software ga10b on inputs that nothing well-behaved made.
//!
//! Runs targets one after the other for some time each, and prints how many inputs they took. A case that
//! panics or does not end is printed with the command that runs it again; the exit status is then 1.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use ga10b_tests::fuzz::{self, Cases, Target};

/// Feeds parsers, decoders and the software ga10b with damaged inputs.
#[derive(Parser)]
#[command(version, about)]
struct Cli {
    /// Targets to run; all of them if none is named.
    #[arg(value_parser = target)]
    targets: Vec<Target>,
    /// Time for each target.
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Seed of all inputs.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of the first case.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// The only case to run.
    #[arg(long, conflicts_with = "from")]
    case: Option<u64>,
    /// Prints the number of each case before it runs: for a process that a signal ends.
    #[arg(long)]
    trace: bool,
    /// Lists the targets and ends.
    #[arg(long)]
    list: bool,
}

fn target(name: &str) -> Result<Target, String> {
    let names = || fuzz::targets().iter().map(|target| target.name).collect::<Vec<_>>().join(", ");
    let found = fuzz::targets().iter().find(|target| target.name == name);
    found.copied().ok_or_else(|| format!("expected one of {}", names()))
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    if cli.list {
        fuzz::targets().iter().for_each(|target| println!("{:<11} {}", target.name, target.about));
        return ExitCode::SUCCESS;
    }
    let Ok(time) = Duration::try_from_secs_f64(cli.seconds) else {
        eprintln!("--seconds {}: expected a time", cli.seconds);
        return ExitCode::FAILURE;
    };
    let numbers = cli.case.map_or(cli.from..u64::MAX, |case| case..case.saturating_add(1));
    let cases = Cases { seed: cli.seed, numbers, time, trace: cli.trace };
    let targets = if cli.targets.is_empty() { fuzz::targets().to_vec() } else { cli.targets };
    let mut failed = false;
    for target in &targets {
        match fuzz::run(target, &cases) {
            Ok(outcome) => println!("{:<11} {outcome}", target.name),
            Err(failure) => {
                println!("{:<11} {failure}", target.name);
                failed = true;
            }
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
