//! Searches the fastest shapes of kernels for a model on a device, and keeps them.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use anyhow::Context;
use ga10b_llm::search::{self, Limits, Listener, Meter, Outcome as Found, Part, Progress};
use ga10b_llm::tuning::{Compiler, Method, Store};
use ga10b_llm_tools::bench::WARM_UP;
use ga10b_llm_tools::counted::CountingDevice;
use ga10b_llm_tools::roofline::Machine;
use hcq::{BackendKind, Device, Selector};
use indicatif::ProgressBar;
use ptxgen::Target;
use serde::Serialize;

use crate::cli::Cli;
use crate::outcome::Outcome;
use crate::progress;
use crate::report::{self, DeviceReport, ModelReport};
use crate::session;

/// Seconds where the command line does not say.
const DEFAULT_BUDGET: u32 = 120;
/// Turns that are timed on a GPU.
const REPEATS: usize = 7;
/// Positions that there is room for: as many as a prompt is cut into.
const CONTEXT: usize = 512;

/// The document that `--json` prints. Adding a field is compatible; anything else raises the number.
#[derive(Debug, Serialize)]
struct Report {
    schema: &'static str,
    device: DeviceReport,
    model: ModelReport,
    method: Method,
    /// What is predicted, where times are.
    #[serde(skip_serializing_if = "Option::is_none")]
    machine: Option<Machine>,
    ptxas: String,
    seconds: f64,
    /// Where the results are.
    file: String,
    results: Vec<Line>,
    rejected: Vec<Rejected>,
    left_out: Vec<String>,
    /// Whether there were candidates for which there was no time.
    out_of_time: bool,
}

#[derive(Debug, Serialize)]
struct Line {
    part: &'static str,
    kernel: String,
    usual: String,
    usual_ns: u64,
    chosen: String,
    ns: u64,
    tried: usize,
}

#[derive(Debug, Serialize)]
struct Rejected {
    kernel: String,
    reason: String,
}

/// Shows a bar, and keeps what is found.
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

pub fn run(cli: &Cli, parts: &[Part]) -> anyhow::Result<Outcome> {
    let model = session::model(cli)?;
    let store = Store::of_user().context("no place to keep results in: set LLM_DEMO_TUNING=FILE")?;
    // Found out now rather than after the search.
    store.entries()?;
    let (device, meter, machine) = device(cli)?;
    let compiler = Compiler::find(device.info().sm_number()).context("--tune compiles kernels")?;
    let counts = machine.is_some();
    let limits = Limits {
        parts: parts.to_vec(),
        budget: Duration::from_secs(cli.tune_budget.unwrap_or(DEFAULT_BUDGET).into()),
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
    let lines = found.findings.into_iter().map(|f| Line {
        part: f.part.name(),
        kernel: f.what,
        usual: f.usual,
        usual_ns: f.usual_ns,
        chosen: f.chosen,
        ns: f.ns,
        tried: f.tried,
    });
    let rejected = found.rejected.into_iter().map(|r| Rejected { kernel: r.kernel, reason: r.reason });
    let report = Report {
        schema: "llm-demo.tune/1",
        device: DeviceReport::new(device.info()),
        model: ModelReport::new(&model),
        method: found.entry.method,
        machine,
        ptxas: compiler.version().to_owned(),
        seconds: begin.elapsed().as_secs_f64(),
        file: keeper.store.path().display().to_string(),
        results: lines.collect(),
        rejected: rejected.collect(),
        left_out: found.left_out,
        out_of_time: found.out_of_time,
    };
    report::show(&report, cli.json, print)?;
    Ok(Outcome::Good)
}

/// The device that the command line names, how to compare on it, and the machine that the software device predicts.
fn device(cli: &Cli) -> anyhow::Result<(Device, Meter, Option<Machine>)> {
    if cli.device != Selector::Sim {
        let device = session::device(cli)?;
        if device.info().backend != BackendKind::Sim {
            return Ok((device, Meter::Clock, None));
        }
    }
    let counting = CountingDevice::open()?;
    // The first is the one with all multiprocessors, as the software device has.
    let machine = Machine::orin_agx().into_iter().next().context("no machine to predict")?;
    let meter = Meter::Count(counting.predictor(machine.clone()));
    Ok((counting.device, meter, Some(machine)))
}

fn print(report: &Report, out: &mut impl Write) -> io::Result<()> {
    report.device.print(out)?;
    report.model.print(out)?;
    if let Some(m) = &report.machine {
        writeln!(
            out,
            "times       PREDICTED for {} SMs at {} MHz and {} GB/s from what was counted, not measured",
            m.sms, m.mhz, m.gbps
        )?;
    }
    writeln!(out)?;
    writeln!(
        out,
        "{:<7} {:<40} {:>11} {:>11} {:>7} {:>6}  shape",
        "part", "kernel and matrix", "default µs", "best µs", "gain", "tried"
    )?;
    for line in &report.results {
        let gain = 100.0 * (line.usual_ns as f64 / line.ns as f64 - 1.0);
        let shape = if line.chosen == line.usual { "default" } else { &line.chosen };
        writeln!(
            out,
            "{:<7} {:<40} {:>11.2} {:>11.2} {gain:>6.1}% {:>6}  {shape}",
            line.part,
            line.kernel,
            line.usual_ns as f64 / 1e3,
            line.ns as f64 / 1e3,
            line.tried
        )?;
    }
    for rejected in &report.rejected {
        writeln!(out, "rejected    {}: {}", rejected.kernel, rejected.reason)?;
    }
    for part in &report.left_out {
        writeln!(out, "left out    {part}")?;
    }
    if report.out_of_time {
        writeln!(out, "the time was too short for all candidates: --tune-budget SECONDS allows more")?;
    }
    writeln!(out, "stored      {} after {:.0} s", report.file, report.seconds)
}
