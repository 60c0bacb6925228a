//! `llm-demo`: decodes language models in GGUF files on a GPU without the CUDA runtime.
//!
//! The command line over [`ga10b_llm`] and [`ga10b_llm_tools`]: `cli` parses, each file of `commands` is one
//! command, `session` opens what a command works with, `report` describes device and model beside every
//! figure.
//!
//! # Layers
//! ```text
//! 0 cli::constraints cli::speculation cli::values memory outcome progress saved serve::job serve::metrics
//! 0 serve::stops shapes terminal text_file
//! 1 checker cli::sampling grammar report serve::openai::answer serve::openai::error serve::scheduler
//! 2 cli::commands serve::access serve::batch serve::openai::fields serve::serial
//! 3 cli serve::openai::messages
//! 4 session serve::openai::request
//! 5 serve::openai speculation
//! 6 serve::app
//! 7 serve
//! 8 commands
//! ```

mod checker;
mod cli;
mod commands;
mod grammar;
mod memory;
mod outcome;
mod progress;
mod report;
mod saved;
mod serve;
mod session;
mod shapes;
mod speculation;
mod terminal;
mod text_file;

use std::io;
use std::process::ExitCode;
use std::time::Instant;

use ga10b_llm::spans::HOST;
use ga10b_llm_tools::trace::HostSpans;
use tracing_subscriber::filter::{EnvFilter, filter_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt, registry};

use cli::{Cli, Task};
use outcome::Outcome;

fn main() -> ExitCode {
    let began = Instant::now();
    let cli = Cli::read();
    // RUST_LOG filters; by default hcq reports the device that it opens.
    let filter =
        EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn,hcq=info,llm_demo=info"));
    let messages = fmt::layer().with_writer(io::stderr).without_time().with_filter(filter);
    let spans = cli.trace.is_some().then(HostSpans::default);
    let collector = spans.clone().map(|s| s.with_filter(filter_fn(|metadata| metadata.target() == HOST)));
    registry().with(messages).with(collector).init();
    match run(&cli, began, spans) {
        Ok(outcome) => ExitCode::from(outcome.code()),
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            anstream::eprintln!("llm-demo: {}", terminal::on_stderr(&format!("{error:#}")));
            for hint in error.chain().filter_map(hint) {
                anstream::eprintln!("  {hint}");
            }
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli, began: Instant, spans: Option<HostSpans>) -> anyhow::Result<Outcome> {
    use commands::*;
    match cli.task() {
        Task::Generate => generate::run(cli, spans),
        Task::Chat(chat) => chat::run(cli, chat),
        Task::Serve(serve) => serve::run(cli, serve),
        Task::Tokenize(tokenize) => tokenize::run(cli, tokenize),
        Task::Info(info) => info::run(cli, info),
        Task::Bench => bench::run(cli, began),
        Task::BenchLists(bench) => bench_lists::run(cli, bench),
        Task::Batch => batch::run(cli),
        Task::Speculate => speculate::run(cli),
        Task::Verify => verify::run(cli),
        Task::VerifyGreedy(count) => greedy::run(cli, count),
        Task::DumpLogits(path) => dump_logits::run(cli, path),
        Task::Profile => profile::run(cli),
        Task::Predict => predict::run(cli),
        Task::PredictColumns => predict_columns::run(cli),
        Task::Tune(parts) => tune::run(cli, parts),
        Task::Synthesize(synthesis, path) => synthesize::run(cli, &synthesis, &path),
        Task::Man(folder) => manual::pages(folder),
        Task::Completions(shell) => manual::completions(shell),
    }
}

/// What to try for a device error.
fn hint<'a>(cause: &'a (dyn std::error::Error + 'static)) -> Option<&'a str> {
    let device = match cause.downcast_ref() {
        Some(ga10b_llm::Error::Device(error)) => Some(error),
        _ => cause.downcast_ref::<hcq::Error>(),
    };
    device?.hint()
}

/// Whether the reader of the output closed the pipe, as `head` does.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let broken = |cause: &io::Error| cause.kind() == io::ErrorKind::BrokenPipe;
    error.chain().filter_map(|cause| cause.downcast_ref()).any(broken)
}
