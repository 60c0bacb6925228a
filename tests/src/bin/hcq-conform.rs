//! `hcq-conform`: whether the software ga10b does what a real GPU does, word for word.
//!
//! Runs the same programs with the same inputs on the device, on the software ga10b (sm_87 code) and on the
//! software ga10b with Hopper's SMs (sm_90 code), and compares all their outputs with each other and, where
//! it is known, with what is right. Where the device is itself the software one, only the two models are
//! compared. Ends with 1 if anything differs that is not allowed to, with 2 if options or environment cannot be.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use ga10b_tests::conformance::program::{self, Options};
use ga10b_tests::{conformance, output};
use hcq::Device;

/// Compares the software ga10b with a real GPU.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(flatten)]
    options: Options,
    /// Measures the special-function unit against f64 arithmetic instead, with every `THIN`th argument.
    #[arg(long, value_name = "THIN", num_args = 0..=1, default_missing_value = "1")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    sweep: Option<u32>,
    /// Compiles the generated programs anew into this folder (`tests/kernels/conformance`) and ends; needs
    /// ptxas.
    #[arg(long, value_name = "FOLDER")]
    regenerate: Option<PathBuf>,
}

/// Prints the error of the special-function unit against exact values.
fn sweep(cli: &Cli, thin: u32) -> Result<bool> {
    let device = Device::open(cli.options.device)?;
    let errors = conformance::sweep::measure(&device, thin)?;
    if cli.options.json {
        output::line(serde_json::to_string_pretty(&errors)?)?;
        return Ok(true);
    }
    output::line(format_args!("{} ({})", device.info().name, device.info().backend))?;
    output::line(conformance::sweep::HEADING)?;
    for line in errors {
        output::line(line)?;
    }
    Ok(true)
}

fn run(cli: &Cli) -> Result<bool> {
    if let Some(folder) = &cli.regenerate {
        let manifest = conformance::regenerate(folder)?;
        output::line(format_args!("{} cubins by ptxas {}", manifest.cubins.len(), manifest.ptxas))?;
        return Ok(true);
    }
    if let Some(thin) = cli.sweep {
        return sweep(cli, thin);
    }
    program::run(&cli.options, &conformance::cases(), "")
}

fn main() -> ExitCode {
    match run(&output::options()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => output::failed("hcq-conform", &error),
    }
}
