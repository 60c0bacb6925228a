//! `llm-demo`: decodes language models in GGUF files on a GPU without the CUDA runtime.
//!
//! The command line over [`ga10b_llm`] and [`ga10b_llm_tools`]: `cli` parses, each file of `commands` is one
//! command, `session` opens what a command works with, `report` describes device and model beside every
//! figure.
//!
//! # Layers
//! A folder or file names only what stands below it, or beside it in one direction.
//!
//! ```text
//! commands  commands                     # a file for each subcommand
//! opening   checker files session speculation  # what a command works with
//! server    serve                        # the HTTP server
//! texts     grammar report               # forms that a text must have; facts beside figures
//! line      cli                          # the command line
//! parts     memory outcome progress saved shapes terminal text_file  # files, the terminal, sizes
//! ```

mod checker;
mod cli;
mod commands;
mod files;
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

use cli::Cli;
use cli::commands::Command;
use outcome::Outcome;

fn main() -> ExitCode {
    let began = Instant::now();
    let command = Cli::read();
    // RUST_LOG filters; by default hcq reports the device that it opens.
    let filter =
        EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn,hcq=info,llm_demo=info"));
    let messages = fmt::layer().with_writer(io::stderr).without_time().with_filter(filter);
    let traced = matches!(&command, Command::Run(run) if run.trace.is_some());
    let spans = traced.then(HostSpans::default);
    let collector = spans.clone().map(|s| s.with_filter(filter_fn(|metadata| metadata.target() == HOST)));
    registry().with(messages).with(collector).init();
    match files::check(&command).and_then(|()| run(&command, began, spans)) {
        Ok(outcome) => ExitCode::from(outcome.code()),
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            anstream::eprintln!("llm-demo: {}", terminal::on_stderr(&format!("{error:#}")));
            for hint in error.chain().filter_map(outcome::device).filter_map(hcq::Error::hint) {
                anstream::eprintln!("  {hint}");
            }
            ExitCode::from(outcome::failure(&error))
        }
    }
}

fn run(command: &Command, began: Instant, spans: Option<HostSpans>) -> anyhow::Result<Outcome> {
    use commands::*;
    match command {
        Command::Run(run) => generate::run(run, spans),
        Command::Chat(chat) => chat::run(chat),
        Command::Serve(serve) => serve::run(serve),
        Command::Bench(bench) => bench::run(bench, began),
        Command::Speculate(speculate) => speculate::run(speculate),
        Command::Verify(verify) => match verify.greedy {
            Some(count) => greedy::run(verify, count as usize),
            None => verify::run(verify),
        },
        Command::Logits(logits) => logits::run(logits),
        Command::Tokenize(tokenize) => tokenize::run(tokenize),
        Command::Info(info) => info::run(info),
        Command::Tune(tune) => tune::run(tune),
        Command::Profile(profile) => profile::run(profile),
        Command::Predict(predict) if predict.batch.is_empty() => predict::run(predict),
        Command::Predict(predict) => predict_columns::run(predict),
        Command::Synthesize(synthesize) => synthesize::run(synthesize),
        Command::Man { folder } => manual::pages(folder),
        Command::Completions { shell } => manual::completions(*shell),
    }
}

/// Whether the reader of the output closed the pipe, as `head` does.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let broken = |cause: &io::Error| cause.kind() == io::ErrorKind::BrokenPipe;
    error.chain().filter_map(|cause| cause.downcast_ref()).any(broken)
}
