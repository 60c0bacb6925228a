//! `llm-conform`: whether the software ga10b does what a real GPU does with the kernels of the language model.
//!
//! As `hcq-conform`: the same kernels with the same inputs on the device and on the software GPU (sm_87 and sm_90
//! code), and whole steps of small models. Ends with 1 if anything differs that is not allowed to.

use std::process::ExitCode;

use clap::Parser;
use ga10b_llm_checks::{built_in, cases};
use ga10b_tests::conformance::program::{self, Options};
use ga10b_tests::output;

/// Compares the software ga10b with a real GPU by the kernels of the language model.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    let undriven = built_in::undriven();
    let remark = match undriven.is_empty() {
        true => String::new(),
        false => format!("kernels without a case: {}", undriven.join(", ")),
    };
    match program::run(&output::options::<Cli>().options, &cases(), &remark) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => output::failed("llm-conform", &error),
    }
}
