//! `hcq-conform`: whether the software ga10b does what a real GPU does, word for word.
//!
//! Runs the same programs with the same inputs on the device and on the software ga10b, and compares all their outputs with
//! each other and, where it is known, with what is right. Where the device is itself the software one, two of them with
//! different schedules are compared. Ends with 1 if anything differs that is not allowed to.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use device_suite::conformance::{self, Case, Comparison, Runner};
use hcq::{BackendKind, Selector};
use serde::Serialize;

/// Compares the software ga10b with a real GPU.
#[derive(Parser)]
#[command(version, about)]
struct Cli {
    /// The device to compare with: rm, nvgpu, sim or auto.
    #[arg(long, env = "HCQ_DEVICE", default_value = "rm")]
    device: Selector,
    /// Only programs whose family or name contains this.
    #[arg(long)]
    only: Option<String>,
    /// Prints one JSON document instead of the table.
    #[arg(long)]
    json: bool,
    /// Compiles the generated programs anew into this folder (`tests/kernels/conformance`) and ends; needs ptxas.
    #[arg(long, value_name = "FOLDER")]
    regenerate: Option<PathBuf>,
}

#[derive(Serialize)]
struct Report<'a> {
    schema: &'static str,
    device: String,
    driver: String,
    model: String,
    agrees: bool,
    comparison: &'a Comparison,
}

/// A pair of devices, the second of them the software ga10b.
struct Pair {
    selector: Selector,
    device: Runner,
    model: Runner,
}

impl Pair {
    fn open(selector: Selector) -> Result<Self> {
        let mut device = Runner::open(selector)?;
        if device.device().info().backend == BackendKind::Sim {
            device = Runner::simulated(1)?;
        }
        Ok(Self { selector, device, model: Runner::simulated(2)? })
    }

    /// Runs a case on both and compares; opens both devices anew after one has failed.
    fn run(&mut self, case: &Case, comparison: &mut Comparison) -> Result<()> {
        let device = self.device.run(case);
        let model = self.model.run(case);
        if let (Ok(device), Ok(model)) = (&device, &model) {
            comparison.compare(case, "device / model", device, model);
            if let Some(expected) = &case.expected {
                comparison.compare_known(case, "device / expected", device, expected, true);
                comparison.compare_known(case, "model / expected", model, expected, true);
            }
            comparison.count(case);
            return Ok(());
        }
        let failures = [("device", device), ("model", model)];
        let reasons: Vec<String> =
            failures.into_iter().filter_map(|(which, r)| Some(format!("{which}: {:#}", r.err()?))).collect();
        comparison.fail(case, &reasons.join("; "));
        *self = Self::open(self.selector)?;
        Ok(())
    }
}

fn run(cli: &Cli) -> Result<bool> {
    if let Some(folder) = &cli.regenerate {
        let manifest = conformance::regenerate(folder)?;
        println!("{} cubins by ptxas {}", manifest.cubins.len(), manifest.ptxas);
        return Ok(true);
    }
    let mut pair = Pair::open(cli.device)?;
    let mut comparison = Comparison::default();
    let chosen =
        |case: &Case| cli.only.as_deref().is_none_or(|o| case.family.contains(o) || case.program.contains(o));
    for case in conformance::cases().iter().filter(|c| chosen(c)) {
        pair.run(case, &mut comparison)?;
    }
    let info = pair.device.device().info();
    let report = Report {
        schema: "hcq.conform/1",
        device: format!("{} ({})", info.name, info.backend),
        driver: info.driver_version.clone(),
        model: pair.model.device().info().name.clone(),
        agrees: comparison.agrees(),
        comparison: &comparison,
    };
    if cli.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        println!("{}, driver {}, against {}", report.device, report.driver, report.model);
        print!("{comparison}");
        println!("{}", if report.agrees { "agree" } else { "DIFFER" });
    }
    Ok(report.agrees)
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("hcq-conform: {e:#}");
            ExitCode::FAILURE
        }
    }
}
