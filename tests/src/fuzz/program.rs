//! The program that runs targets, for `hcq-fuzz` and `llm-fuzz`.
//!
//! Runs targets one after the other for some time each, and prints how many inputs they took. A case that
//! panics or does not end is printed with the command that runs it again; the exit status is then 1.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use crate::fuzz::runner::{self, Cases};
use crate::fuzz::target::Target;
use crate::output;

/// The longest time for a target.
const WEEK: Duration = Duration::from_secs(604_800);

/// The targets to run.
#[derive(Args, Debug)]
pub struct Options {
    /// Targets to run; all of them if none is named.
    targets: Vec<String>,
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

fn time(text: &str) -> Result<Duration, String> {
    let time = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.filter(|time| *time <= WEEK).ok_or_else(|| "expected a number from 0 to 604800".into())
}

/// The targets of those names among `known`; all without names.
fn chosen(names: &[String], known: &[Target]) -> anyhow::Result<Vec<Target>> {
    let find = |name: &String| {
        let found = known.iter().find(|target| target.name == name).copied();
        found.ok_or_else(|| {
            let names: Vec<_> = known.iter().map(|target| target.name).collect();
            let expected = format!("{name} is no target: expected one of {}", names.join(", "));
            output::Usage(expected).into()
        })
    };
    if names.is_empty() { Ok(known.to_vec()) } else { names.iter().map(find).collect() }
}

/// Runs the program `name`, which has these targets.
#[must_use]
pub fn main(name: &'static str, options: &Options, targets: &[Target]) -> ExitCode {
    let targets = match chosen(&options.targets, targets) {
        Ok(targets) => targets,
        Err(error) => return output::failed(name, &error),
    };
    match run(name, options, &targets) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => output::failed(name, &error),
    }
}

/// Whether all cases did what they should.
fn run(name: &'static str, cli: &Options, known: &[Target]) -> anyhow::Result<bool> {
    if cli.list {
        for target in known {
            output::line(format_args!("{:<11} {}", target.name, target.about))?;
        }
        return Ok(true);
    }
    let numbers = cli.case.map_or(cli.from..u64::MAX, |case| case..case.saturating_add(1));
    let cases = Cases { program: name, seed: cli.seed, numbers, time: cli.seconds, trace: cli.trace };
    let mut failed = false;
    for target in known {
        match runner::run(target, &cases) {
            Ok(outcome) => output::line(format_args!("{:<11} {outcome}", target.name))?,
            Err(failure) => {
                output::line(format_args!("{:<11} {failure}", target.name))?;
                failed = true;
            }
        }
    }
    Ok(!failed)
}
