//! The program that compares cases on all devices, for `hcq-conform` and `llm-conform`.

use anyhow::Result;
use clap::Args;
use hcq::{BackendKind, Selector};
use sass::Arch;
use serde::Serialize;

use crate::conformance::case::Case;
use crate::conformance::report::Comparison;
use crate::conformance::runner::Runner;
use crate::output::{self, Usage};

/// Options of the comparison and of its output.
#[derive(Args, Debug)]
pub struct Options {
    /// The device to compare with: rm, nvgpu, sim or auto.
    #[arg(long, env = "HCQ_DEVICE", default_value = "rm")]
    pub device: Selector,
    /// Only programs whose family or name contains this.
    #[arg(long)]
    pub only: Option<String>,
    /// Differences to list of each program.
    #[arg(long, default_value_t = 4)]
    pub listed: u64,
    /// Prints one JSON document instead of the table.
    #[arg(long)]
    pub json: bool,
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

    /// The pairs to compare, by their numbers.
    fn pairs(&self) -> &'static [(usize, usize)] {
        if self.runners.len() == 3 { &[(0, 1), (0, 2), (1, 2)] } else { &[(0, 1)] }
    }

    /// The comparisons of those pairs, then that of each with what is right.
    fn comparisons(&self, listed: u64) -> Vec<Comparison> {
        let name = |n: usize| self.runners[n].0;
        let arch = |n: usize| crate::kernels::arch(self.runners[n].1.device()).ok();
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

/// The cases whose family or name contains `only`.
fn chosen<'a>(only: &str, cases: &'a [Case]) -> Result<Vec<&'a Case>, Usage> {
    /// Names that are suggested.
    const NEAR: usize = 5;
    let names = |case: &'a Case| [case.family, &*case.program];
    let has = |case: &&'a Case| names(case).iter().any(|name| name.contains(only));
    let found: Vec<&Case> = cases.iter().filter(has).collect();
    if !found.is_empty() {
        return Ok(found);
    }
    let mut near: Vec<&str> = cases.iter().flat_map(names).collect();
    near.sort_by(|a, b| {
        strsim::jaro_winkler(b, only).total_cmp(&strsim::jaro_winkler(a, only)).then(a.cmp(b))
    });
    near.dedup();
    near.truncate(NEAR);
    Err(Usage(format!(
        "--only {only}: no program has that in its family or name; near are {}",
        near.join(", ")
    )))
}

/// Runs those of `cases` that are chosen, and prints what differs, then `remark`. Whether all agree.
///
/// # Errors
/// Those of opening devices, and of standard output.
pub fn run(options: &Options, cases: &[Case], remark: &str) -> Result<bool> {
    let chosen = chosen(options.only.as_deref().unwrap_or_default(), cases)?;
    let mut sides = Sides::open(options.device)?;
    let mut comparisons = sides.comparisons(options.listed);
    for case in chosen {
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
    if options.json {
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
    if !remark.is_empty() {
        output::line(remark)?;
    }
    output::line(if report.agrees { "agree" } else { "DIFFER" })?;
    Ok(report.agrees)
}
