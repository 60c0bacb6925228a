//! `llm-demo`: decodes LLaMA models in GGUF files on a GPU without the CUDA runtime.

mod bench;
mod cli;
mod dump_logits;
mod generate;
mod predict;
mod profile;
mod report;
mod session;
mod synthesize;
mod verify;

use std::io;
use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::EnvFilter;

use cli::{Cli, Task};

/// What a command found out, beside what it printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Good,
    /// Done, and the answer is no.
    Bad,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    // RUST_LOG chooses; the device that is opened is worth knowing always.
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn,hcq=info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).without_time().init();
    match run(&cli) {
        Ok(Outcome::Good) => ExitCode::SUCCESS,
        Ok(Outcome::Bad) => ExitCode::FAILURE,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            anstream::eprintln!("llm-demo: {error:#}");
            for hint in error.chain().filter_map(hint) {
                anstream::eprintln!("  {hint}");
            }
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> anyhow::Result<Outcome> {
    match cli.task() {
        Task::Generate => generate::run(cli),
        Task::Bench => bench::run(cli),
        Task::Verify => verify::run(cli),
        Task::DumpLogits(path) => dump_logits::run(cli, path),
        Task::Profile => profile::run(cli),
        Task::Predict => predict::run(cli),
        Task::Synthesize(synthesis, path) => synthesize::run(cli, &synthesis, &path),
    }
}

/// What to do about a device that failed.
fn hint<'a>(cause: &'a (dyn std::error::Error + 'static)) -> Option<&'a str> {
    let device = match cause.downcast_ref() {
        Some(llm_demo::Error::Device(error)) => Some(error),
        _ => cause.downcast_ref::<hcq::Error>(),
    };
    device?.hint()
}

/// Whether whoever read our output went away, as `head` does.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let broken = |cause: &io::Error| cause.kind() == io::ErrorKind::BrokenPipe;
    error.chain().filter_map(|cause| cause.downcast_ref()).any(broken)
}
