//! Shows where the time of a token goes.

use std::io::{self, Write};

use llm_demo::engine::KernelStat;
use serde::Serialize;

use crate::Outcome;
use crate::cli::Cli;
use crate::report::{DeviceReport, ModelReport};
use crate::session::{self, Session};

/// Tokens decoded where the command line does not say.
const DEFAULT_STEPS: u32 = 16;

/// The document that `--json` prints. Adding a field is compatible; anything else raises the number.
#[derive(Debug, Serialize)]
struct Report {
    schema: &'static str,
    device: DeviceReport,
    model: ModelReport,
    steps: usize,
    kernels: Vec<Line>,
}

/// One kernel in one role.
#[derive(Debug, Serialize)]
struct Line {
    role: String,
    kernel: String,
    launches: u64,
    nanoseconds: u64,
    /// Share of the time of all kernels, from 0 to 1.
    share: f64,
    bytes: u64,
    gigabytes_per_second: f64,
}

pub fn run(cli: &Cli) -> anyhow::Result<Outcome> {
    let model = session::model(cli)?;
    let steps = (cli.count.unwrap_or(DEFAULT_STEPS) as usize).min(model.config.context);
    let mut session = Session::open(cli, &model, steps)?;
    let report = Report {
        schema: "llm-demo.profile/1",
        device: DeviceReport::new(session.device.info()),
        model: ModelReport::new(&model),
        steps,
        kernels: lines(&session.engine.profile(steps)?),
    };
    let mut out = io::stdout().lock();
    if cli.json {
        serde_json::to_writer_pretty(&mut out, &report).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        print(&report, &mut out)?;
    }
    Ok(Outcome::Good)
}

/// The kernels with the longest first.
fn lines(stats: &[KernelStat]) -> Vec<Line> {
    let total: u64 = stats.iter().map(|s| s.nanoseconds).sum();
    let mut lines: Vec<Line> = stats
        .iter()
        .map(|s| Line {
            role: s.role.to_string(),
            kernel: s.name.to_string(),
            launches: s.count,
            nanoseconds: s.nanoseconds,
            share: s.nanoseconds as f64 / total.max(1) as f64,
            bytes: s.bytes,
            gigabytes_per_second: s.bytes as f64 / s.nanoseconds.max(1) as f64,
        })
        .collect();
    lines.sort_by_key(|line| std::cmp::Reverse(line.nanoseconds));
    lines
}

fn print(report: &Report, out: &mut impl Write) -> io::Result<()> {
    report.device.print(out)?;
    report.model.print(out)?;
    writeln!(out, "steps       {}\n", report.steps)?;
    writeln!(
        out,
        "{:<17} {:<24} {:>8} {:>12} {:>10} {:>7} {:>10} {:>8}",
        "role", "kernel", "launches", "total µs", "µs each", "share", "MB", "GB/s"
    )?;
    for line in &report.kernels {
        let micros = line.nanoseconds as f64 / 1e3;
        writeln!(
            out,
            "{:<17} {:<24} {:>8} {:>12.1} {:>10.2} {:>6.1}% {:>10.2} {:>8.2}",
            line.role,
            line.kernel,
            line.launches,
            micros,
            micros / line.launches.max(1) as f64,
            100.0 * line.share,
            line.bytes as f64 / 1e6,
            line.gigabytes_per_second
        )?;
    }
    Ok(())
}
