//! Searches the fastest shapes of kernels for a model on a device, and stores them.

use std::env;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use anyhow::Context;
use ga10b_llm::CacheType;
use ga10b_llm::search::{self, Finding, Limits, Listener, Meter, Outcome as Found, Progress, Rejected};
use ga10b_llm::tuning::{Compiler, Method, Store};
use ga10b_llm_tools::bench::WARM_UP;
use ga10b_llm_tools::chips::Chip;
use ga10b_llm_tools::counted::CountingDevice;
use ga10b_llm_tools::roofline::Machine;
use hcq::{BackendKind, Device, Selector};
use indicatif::ProgressBar;
use ptxgen::Target;
use serde::Serialize;

use crate::cli::commands::Tune;
use crate::cli::options::OnDevice;
use crate::outcome::Outcome;
use crate::progress;
use crate::report::{self, DeviceReport, ModelReport};
use crate::session;

/// Seconds by default.
const DEFAULT_BUDGET: u32 = 120;
/// Measurements of each candidate on a GPU.
const REPEATS: usize = 7;
/// Positions in the cache: the size of a prompt's chunks.
const CONTEXT: usize = 512;

/// The document of `--json`. Added fields are compatible; any other change increases the number.
#[derive(Debug, Serialize)]
struct Report {
    schema: &'static str,
    device: DeviceReport,
    model: ModelReport,
    method: Method,
    /// The machine whose times are predicted, if they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    machine: Option<Machine>,
    ptxas: String,
    seconds: f64,
    /// Path of the results.
    file: String,
    results: Vec<Finding>,
    rejected: Vec<Rejected>,
    left_out: Option<String>,
    /// Whether the time was too short for some candidates.
    out_of_time: bool,
}

/// Shows progress, and stores results.
struct Keeper {
    loading: ProgressBar,
    bar: ProgressBar,
    store: Store,
    target: Target,
}

impl Listener for Keeper {
    fn loading(&mut self, done: u64, total: u64) {
        self.loading.set_length(total);
        self.loading.set_position(done);
        if done == total {
            self.loading.finish_and_clear();
        }
    }

    fn progress(&mut self, p: &Progress) {
        self.bar.set_length(p.total as u64);
        self.bar.set_position(p.done as u64);
        self.bar.set_message(p.what.clone());
    }

    fn found(&mut self, found: &Found) -> ga10b_llm::Result<()> {
        self.store.save(found.entry.clone(), &found.kernels, self.target)
    }
}

pub fn run(tune: &Tune) -> anyhow::Result<Outcome> {
    let model = session::model_to_run(&tune.model, CacheType::F16)?;
    let store = Store::of_user().context("no place to store results: set LLM_DEMO_TUNING=FILE")?;
    // A damaged file is an error before the search, not after it.
    store.entries()?;
    let (device, meter, machine) = device(&tune.device)?;
    let compiler = Compiler::find(device.info().sm_number()).context("the search compiles kernels")?;
    let counts = machine.is_some();
    let limits = Limits {
        budget: Duration::from_secs(tune.budget.unwrap_or(DEFAULT_BUDGET).into()),
        repeats: if counts { 1 } else { REPEATS },
        warm_up: if counts { Duration::ZERO } else { WARM_UP },
        context: if counts { 64 } else { CONTEXT },
        candidates: usize::MAX,
    };
    let mut keeper = Keeper {
        loading: progress::byte_bar("loading"),
        bar: progress::step_bar("tuning"),
        store,
        target: compiler.target(),
    };
    let begin = Instant::now();
    let found = search::search(&device, &model, &compiler, meter, &limits, &mut keeper);
    keeper.loading.finish_and_clear();
    keeper.bar.finish_and_clear();
    let found = found?;
    let report = Report {
        schema: "llm-demo.tune/1",
        device: DeviceReport::new(device.info()),
        model: ModelReport::new(&model),
        method: found.entry.method,
        machine,
        ptxas: compiler.version().to_owned(),
        seconds: begin.elapsed().as_secs_f64(),
        file: keeper.store.path().display().to_string(),
        results: found.findings,
        rejected: found.rejected,
        left_out: found.left_out,
        out_of_time: found.out_of_time,
    };
    report::show(&report, tune.json, print)?;
    Ok(Outcome::Good)
}

/// The device that the command line names, how to compare on it, and the machine that the software device
/// predicts.
fn device(on: &OnDevice) -> anyhow::Result<(Device, Meter, Option<Machine>)> {
    if on.selector != Selector::Sim {
        let device = session::device(on)?;
        if device.info().backend != BackendKind::Sim {
            return Ok((device, Meter::Clock, None));
        }
    }
    if env::var_os("NVGPU_SIM_ARCH").is_some() {
        tracing::warn!("times are predicted for an AGX Orin: NVGPU_SIM_ARCH is not used");
    }
    let counting = CountingDevice::open()?;
    // The first is the one with all multiprocessors, as the software device has.
    let machine = Chip::usual().machines().into_iter().next().context("no machine to predict")?;
    let meter = Meter::Count(counting.predictor(machine.clone()));
    Ok((counting.device, meter, Some(machine)))
}

fn print(report: &Report, out: &mut impl Write) -> io::Result<()> {
    report.device.print(out)?;
    report.model.print(out)?;
    if let Some(m) = &report.machine {
        let Machine { sms, mhz, gbps, .. } = m;
        write!(out, "times       PREDICTED for {sms} SMs at {mhz} MHz and {gbps} GB/s from counts, ")?;
        writeln!(out, "not measured")?;
    }
    writeln!(out)?;
    writeln!(
        out,
        "{:<40} {:>11} {:>11} {:>7} {:>6}  shape",
        "kernel and matrix", "default µs", "best µs", "gain", "tried"
    )?;
    for line in &report.results {
        let Finding { kernel, usual, usual_ns, chosen, ns, tried } = line;
        let shape = if chosen == usual { "default" } else { chosen };
        let gain = 100.0 * (*usual_ns as f64 / *ns as f64 - 1.0);
        let (usual, best) = (*usual_ns as f64 / 1e3, *ns as f64 / 1e3);
        writeln!(out, "{kernel:<40} {usual:>11.2} {best:>11.2} {gain:>6.1}% {tried:>6}  {shape}")?;
    }
    for rejected in &report.rejected {
        writeln!(out, "rejected    {}: {}", rejected.kernel, rejected.reason)?;
    }
    if let Some(why) = &report.left_out {
        writeln!(out, "left out    {why}")?;
    }
    if report.out_of_time {
        writeln!(out, "the time was too short for all candidates: --budget SECONDS allows more")?;
    }
    writeln!(out, "stored      {} after {:.0} s", report.file, report.seconds)
}
