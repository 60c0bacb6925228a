//! `hcq-fuzz`: parsers, decoders and the software ga10b on inputs that nothing well-behaved made.
//!
//! Runs targets one after the other for some time each, and prints how many inputs they took. A case that
//! panics or does not end is printed with the command that runs it again; the exit status is then 1.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use ga10b_tests::fuzz::{self, Cases, Target};
use ga10b_tests::output;

/// The longest time for a target.
const WEEK: Duration = Duration::from_secs(604_800);

/// Feeds parsers, decoders and the software ga10b with damaged inputs.
#[derive(Parser)]
#[command(version)]
struct Cli {
    /// Targets to run; all of them if none is named.
    #[arg(value_parser = target)]
    targets: Vec<Target>,
    /// Seconds for each target, at most 604800, a week.
    #[arg(long, default_value = "10", value_name = "SECONDS", value_parser = time)]
    seconds: Duration,
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

fn time(text: &str) -> Result<Duration, String> {
    let time = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.filter(|time| *time <= WEEK).ok_or_else(|| "expected a number from 0 to 604800".into())
}

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("hcq-fuzz: {error:#}");
            output::code(&error)
        }
    }
}

/// Whether all cases did what they should.
fn run(cli: Cli) -> anyhow::Result<bool> {
    if cli.list {
        for target in fuzz::targets() {
            output::line(format_args!("{:<11} {}", target.name, target.about))?;
        }
        return Ok(true);
    }
    let numbers = cli.case.map_or(cli.from..u64::MAX, |case| case..case.saturating_add(1));
    let cases = Cases { seed: cli.seed, numbers, time: cli.seconds, trace: cli.trace };
    let targets = if cli.targets.is_empty() { fuzz::targets().to_vec() } else { cli.targets };
    let mut failed = false;
    for target in &targets {
        match fuzz::run(target, &cases) {
            Ok(outcome) => output::line(format_args!("{:<11} {outcome}", target.name))?,
            Err(failure) => {
                output::line(format_args!("{:<11} {failure}", target.name))?;
                failed = true;
            }
        }
    }
    Ok(!failed)
}
