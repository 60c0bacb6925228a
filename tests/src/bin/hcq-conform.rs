//! `hcq-conform`: whether the software ga10b does what a real GPU does, word for word.
//!
//! Runs the same programs with the same inputs on the device, on the software ga10b (sm_87 code) and on the
//! software ga10b with Hopper's SMs (sm_90 code), and compares all their outputs with each other and, where
//! it is known, with what is right. Where the device is itself the software one, only the two models are
//! compared. Ends with 1 if anything differs that is not allowed to.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use ga10b_tests::conformance::{self, Case, Comparison, Runner};
use ga10b_tests::output;
use hcq::{BackendKind, Device, Selector};
use sass::Arch;
use serde::Serialize;

/// Compares the software ga10b with a real GPU.
#[derive(Parser)]
#[command(version)]
struct Cli {
    /// The device to compare with: rm, nvgpu, sim or auto.
    #[arg(long, env = "HCQ_DEVICE", default_value = "rm")]
    device: Selector,
    /// Only programs whose family or name contains this.
    #[arg(long)]
    only: Option<String>,
    /// Differences to list of each program.
    #[arg(long, default_value_t = 4)]
    listed: u64,
    /// Measures the special-function unit against f64 arithmetic instead, with every `THIN`th argument.
    #[arg(long, value_name = "THIN", num_args = 0..=1, default_missing_value = "1")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    sweep: Option<u32>,
    /// Prints one JSON document instead of the table.
    #[arg(long)]
    json: bool,
    /// Compiles the generated programs anew into this folder (`tests/kernels/conformance`) and ends; needs
    /// ptxas.
    #[arg(long, value_name = "FOLDER")]
    regenerate: Option<PathBuf>,
}

#[derive(Serialize)]
struct Report {
    schema: &'static str,
    device: Option<String>,
    driver: Option<String>,
    agrees: bool,
    comparisons: Vec<Comparison>,
}

/// The devices that are compared: a real one, if there is one, and the two models.
struct Sides {
    selector: Selector,
    runners: Vec<(&'static str, Runner)>,
}

impl Sides {
    fn open(selector: Selector) -> Result<Self> {
        let mut runners = Vec::new();
        let device = Runner::open(selector)?;
        if device.device().info().backend != BackendKind::Sim {
            runners.push(("device", device));
        }
        runners.push(("sm_90 model", Runner::simulated(Arch::Sm90, 1)?));
        runners.push(("sm_87 model", Runner::simulated(Arch::Sm87, 2)?));
        Ok(Self { selector, runners })
    }

    /// Which two to compare, by their numbers.
    fn pairs(&self) -> &'static [(usize, usize)] {
        if self.runners.len() == 3 { &[(0, 1), (0, 2), (1, 2)] } else { &[(0, 1)] }
    }

    /// The comparisons of those pairs, then that of each with what is right.
    fn comparisons(&self, listed: u64) -> Vec<Comparison> {
        let name = |n: usize| self.runners[n].0;
        let arch = |n: usize| ga10b_tests::arch(self.runners[n].1.device()).ok();
        let pairs = self.pairs().iter().map(|&(a, b)| Comparison {
            same_architecture: arch(a) == arch(b),
            ..Comparison::new(&format!("{} / {}", name(a), name(b)))
        });
        let right = self.runners.iter().map(|(name, _)| Comparison::new(&format!("{name} / CPU")));
        pairs.chain(right).map(|comparison| Comparison { listed, ..comparison }).collect()
    }

    /// Runs a case on all and compares; opens all anew after one has failed.
    fn run(&mut self, case: &Case, comparisons: &mut [Comparison]) -> Result<()> {
        let results: Vec<_> = self.runners.iter_mut().map(|(_, runner)| runner.run(case)).collect();
        for (comparison, &(a, b)) in comparisons.iter_mut().zip(self.pairs()) {
            match (&results[a], &results[b]) {
                (Ok(a), Ok(b)) => comparison.compare(case, a, b),
                (Err(error), _) | (_, Err(error)) => comparison.fail(case, &format!("{error:#}")),
            }
        }
        for (comparison, result) in comparisons[self.pairs().len()..].iter_mut().zip(&results) {
            if let Ok(result) = result {
                comparison.check(case, result);
            }
        }
        if results.iter().any(Result::is_err) {
            *self = Self::open(self.selector)?;
        }
        Ok(())
    }
}

/// Prints the error of the special-function unit against exact values.
fn sweep(cli: &Cli, thin: u32) -> Result<bool> {
    let device = Device::open(cli.device)?;
    let errors = conformance::sweep::measure(&device, thin)?;
    if cli.json {
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
    let mut sides = Sides::open(cli.device)?;
    let mut comparisons = sides.comparisons(cli.listed);
    let chosen =
        |case: &Case| cli.only.as_deref().is_none_or(|o| case.family.contains(o) || case.program.contains(o));
    for case in conformance::cases().iter().filter(|c| chosen(c)) {
        sides.run(case, &mut comparisons)?;
    }
    let device = sides.runners.iter().find(|(name, _)| *name == "device").map(|(_, r)| r.device().info());
    let report = Report {
        schema: "hcq.conform/2",
        device: device.map(|info| format!("{} ({})", info.name, info.backend)),
        driver: device.map(|info| info.driver_version.clone()),
        agrees: comparisons.iter().all(Comparison::agrees),
        comparisons,
    };
    if cli.json {
        output::line(serde_json::to_string_pretty(&report)?)?;
        return Ok(report.agrees);
    }
    match (&report.device, &report.driver) {
        (Some(device), Some(driver)) => {
            output::line(format_args!("{device}, driver {driver}, against the models"))?
        }
        _ => output::line("the models against each other")?,
    }
    for comparison in &report.comparisons {
        output::line(comparison)?;
    }
    let undriven = conformance::built_in::undriven();
    if !undriven.is_empty() {
        output::line(format_args!("kernels of the language model without a case: {}", undriven.join(", ")))?;
    }
    output::line(if report.agrees { "agree" } else { "DIFFER" })?;
    Ok(report.agrees)
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("hcq-conform: {e:#}");
            output::code(&e)
        }
    }
}
