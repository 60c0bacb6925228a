//! `llm-fuzz`: parsers of models on inputs that nothing well-behaved made.
//!
//! Runs targets one after the other for some time each, and prints how many inputs they took. A case that
//! panics or does not end is printed with the command that runs it again; the exit status is then 1.

use std::process::ExitCode;

use clap::Parser;
use ga10b_llm_checks::model_files;
use ga10b_tests::fuzz::program::{self, Options};
use ga10b_tests::output;

/// Feeds parsers of models with damaged inputs.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    program::main("llm-fuzz", &output::options::<Cli>().options, &[model_files::GGUF])
}
