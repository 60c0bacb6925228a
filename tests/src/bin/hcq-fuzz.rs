//! `hcq-fuzz`: parsers, decoders and the software ga10b on inputs that nothing well-behaved made.
//!
//! Runs targets one after the other for some time each, and prints how many inputs they took. A case that
//! panics or does not end is printed with the command that runs it again; the exit status is then 1.

use std::process::ExitCode;

use clap::Parser;
use ga10b_tests::fuzz::program::{self, Options};
use ga10b_tests::fuzz::targets;
use ga10b_tests::output;

/// Feeds parsers, decoders and the software ga10b with damaged inputs.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    program::main("hcq-fuzz", &output::options::<Cli>().options, targets())
}
