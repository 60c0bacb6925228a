//! Shows the time of a token, kernel by kernel.

use std::io::{self, Write};
use std::time::Duration;

use anyhow::ensure;
use ga10b_llm::engine::{KernelStat, LaunchTime, PhaseParts};
use ga10b_llm::{ColumnsOptions, Model};
use ga10b_llm_tools::bandwidth::{self, CopyBandwidth};
use ga10b_llm_tools::batched;
use ga10b_llm_tools::bench::WARM_UP;
use hcq::{Device, DeviceOptions};
use serde::Serialize;

use crate::cli::commands::Profile;
use crate::outcome::Outcome;
use crate::report::{self, DeviceReport, ModelReport};
use crate::session::{self, Session, Setup};
use crate::shapes::TuningReport;

/// Tokens decoded by default.
const DEFAULT_STEPS: usize = 16;
/// Warm-up of each way of copying: the profile has just raised the clocks.
const COPY_WARM_UP: Duration = Duration::from_millis(100);

/// The document of `--json`. Added fields are compatible; any other change increases the number.
#[derive(Debug, Serialize)]
struct Report {
    schema: &'static str,
    device: DeviceReport,
    model: ModelReport,
    tuning: TuningReport,
    /// Tokens decoded.
    steps: usize,
    /// Tokens of the prompt, if a prompt was timed instead; of each sequence before a step of several.
    prompt: usize,
    /// Sequences of the step, if there were several.
    #[serde(skip_serializing_if = "Option::is_none")]
    batch: Option<u32>,
    /// Copy rate of the device, measured after the profile; null if times are simulated or it could not be
    /// measured.
    copy_bandwidth: Option<CopyBandwidth>,
    /// Type of the key/value cache.
    kv: &'static str,
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
    /// As a share of the device's copy bandwidth.
    share_of_copy_bandwidth: Option<f64>,
    /// The parts of the time, for phases in one launch.
    #[serde(skip_serializing_if = "Option::is_none")]
    parts: Option<PhaseParts>,
}

pub fn run(profile: &Profile) -> anyhow::Result<Outcome> {
    let model = session::model_to_run(&profile.common.model, profile.common.launching.kv)?;
    let prompt = profile.pp.map(|n| n as usize);
    let most = model.config.context;
    let steps = profile.count.map_or(DEFAULT_STEPS.min(most), |n| n as usize);
    let (option, tokens) = prompt.map_or(("-n", steps), |tokens| ("--pp", tokens));
    ensure!(
        tokens <= most,
        "{option} {tokens} does not fit the model's context of {most}; choose a smaller one"
    );
    let mut options = DeviceOptions::default();
    // On a Jetson the copy engine copies by default; here the faster of kernel and engine counts.
    options.kernel_copies_from = Some(bandwidth::SMALL);
    let device = session::device_with(&profile.common.device, options)?;
    let software = device.info().backend == hcq::BackendKind::Sim;
    let Profiled { stats, tuning, steps, prompt } = match profile.batch {
        Some(batch) => {
            let prompt = prompt.unwrap_or(if software { 4 } else { 128 });
            of_columns(profile, &device, &model, (batch as usize, prompt))?
        }
        None => of_engine(profile, &device, &model, (steps, prompt))?,
    };
    ensure!(
        !stats.is_empty(),
        "there is nothing to profile: prompts of this model go token by token, a warning says why; leave --pp out"
    );
    let copy = if software { None } else { copy_bandwidth(&device) };
    let report = Report {
        schema: "llm-demo.profile/1",
        device: DeviceReport::new(device.info()),
        model: ModelReport::new(&model),
        tuning,
        steps,
        prompt,
        batch: profile.batch,
        copy_bandwidth: copy,
        kv: profile.common.launching.kv.name(),
        kernels: lines(&stats, copy),
    };
    report::show(&report, profile.json, print)?;
    Ok(Outcome::Good)
}

/// The times of all kernels.
struct Profiled {
    stats: Vec<KernelStat>,
    tuning: TuningReport,
    steps: usize,
    prompt: usize,
}

/// Times steps of an engine, or a prompt.
fn of_engine(
    profile: &Profile,
    device: &Device,
    model: &Model,
    (steps, prompt): (usize, Option<usize>),
) -> anyhow::Result<Profiled> {
    let setup = Setup { timed: true, ..Setup::of(&profile.common.launching) };
    let mut session = Session::new(device.clone(), &setup, model, prompt.unwrap_or(steps))?;
    let software = device.info().backend == hcq::BackendKind::Sim;
    let warm_up = if software { Duration::ZERO } else { WARM_UP };
    let (stats, steps, prompt) = match prompt {
        Some(tokens) => (session.engine.profile_prompt(tokens, warm_up)?, 0, tokens),
        None => (session.engine.profile(steps, warm_up)?, steps, 0),
    };
    Ok(Profiled { stats, tuning: session.tuning, steps, prompt })
}

/// Times a step of `batch` sequences after prompts of `prompt` tokens, one launch after the other.
fn of_columns(
    profile: &Profile,
    device: &Device,
    model: &Model,
    (batch, prompt): (usize, usize),
) -> anyhow::Result<Profiled> {
    let (context, most) = (prompt + 1, model.config.context);
    ensure!(
        context <= most,
        "{context} tokens do not fit the model's context of {most}: choose a smaller --pp"
    );
    let options = ColumnsOptions::new(batch, context).with_cache(profile.common.launching.kv).with_chunks();
    let mut columns = session::columns(device, model, options, options.pages, None)?;
    columns.record_all()?;
    let mut stats: Vec<KernelStat> = Vec::new();
    for launch in batched::launches(&mut columns, prompt, batch)? {
        let LaunchTime { name, role, start, end, bytes, .. } = launch;
        let at = stats.iter().position(|stat| stat.name == name && stat.role == role).unwrap_or(stats.len());
        if at == stats.len() {
            stats.push(KernelStat { name, role, count: 0, nanoseconds: 0, bytes: 0, parts: None });
        }
        stats[at].count += 1;
        stats[at].nanoseconds += end - start;
        stats[at].bytes += bytes;
    }
    Ok(Profiled { stats, tuning: TuningReport::Default, steps: 1, prompt })
}

/// The copy rate of the device. Its clocks are up from the profile.
fn copy_bandwidth(device: &Device) -> Option<CopyBandwidth> {
    let bytes = if device.info().unified_memory { bandwidth::SMALL } else { bandwidth::LARGE };
    match CopyBandwidth::measure(device, bytes, COPY_WARM_UP) {
        Ok(copy) => Some(copy),
        Err(error) => {
            anstream::eprintln!("[the copy bandwidth could not be measured: {error}]");
            None
        }
    }
}

/// The kernels, the longest time first.
fn lines(stats: &[KernelStat], copy: Option<CopyBandwidth>) -> Vec<Line> {
    let total: u64 = stats.iter().map(|s| s.nanoseconds).sum();
    let mut lines: Vec<Line> = stats
        .iter()
        .map(|s| (s, s.bytes as f64 / s.nanoseconds.max(1) as f64))
        .map(|(s, rate)| Line {
            role: s.role.to_string(),
            kernel: s.name.to_string(),
            launches: s.count,
            nanoseconds: s.nanoseconds,
            share: s.nanoseconds as f64 / total.max(1) as f64,
            bytes: s.bytes,
            gigabytes_per_second: rate,
            share_of_copy_bandwidth: copy.map(|copy| rate / copy.gigabytes_per_second),
            parts: s.parts,
        })
        .collect();
    lines.sort_by_key(|line| std::cmp::Reverse(line.nanoseconds));
    lines
}

fn print(report: &Report, out: &mut impl Write) -> io::Result<()> {
    report.device.print(out)?;
    report.model.print(out)?;
    report.tuning.print(out)?;
    writeln!(out, "cache       {}", report.kv)?;
    match (report.batch, report.prompt) {
        (Some(batch), prompt) => {
            writeln!(
                out,
                "step        of {batch} sequences after prompts of {prompt} tokens, each launch alone"
            )?;
        }
        (None, 0) => writeln!(out, "steps       {}", report.steps)?,
        (None, tokens) => writeln!(out, "prompt      {tokens} tokens")?,
    }
    match report.copy_bandwidth {
        Some(CopyBandwidth { gigabytes_per_second: rate, by, buffer_bytes }) => {
            let (by, size) = (by.name(), buffer_bytes >> 20);
            writeln!(out, "copy        {rate:.1} GB/s read + written by {by}, {size} MiB\n")?;
        }
        None => writeln!(out, "copy        not measured: no shares of it\n")?,
    }
    let of_copy = report.copy_bandwidth.map_or("", |_| "of copy");
    writeln!(
        out,
        "{:<17} {:<24} {:>8} {:>12} {:>10} {:>7} {:>10} {:>8} {of_copy:>8}",
        "role", "kernel", "launches", "total µs", "µs each", "share", "MB", "GB/s"
    )?;
    for line in &report.kernels {
        let Line { role, kernel, launches, gigabytes_per_second: rate, .. } = line;
        let total = line.nanoseconds as f64 / 1e3;
        let each = total / (*launches).max(1) as f64;
        let (share, megabytes) = (100.0 * line.share, line.bytes as f64 / 1e6);
        write!(out, "{role:<17} {kernel:<24} {launches:>8} {total:>12.1} {each:>10.2} {share:>6.1}% ")?;
        write!(out, "{megabytes:>10.2} {rate:>8.2}")?;
        match line.share_of_copy_bandwidth {
            Some(share) => writeln!(out, " {:>7.1}%", 100.0 * share)?,
            None => writeln!(out)?,
        }
    }
    if report.kernels.iter().any(|line| line.parts.is_some()) {
        writeln!(out, "\nµs each              waiting      input   products    results        end")?;
    }
    for line in &report.kernels {
        let Some(p) = line.parts else { continue };
        write!(out, "{:<17}", line.role)?;
        for ns in [p.waiting, p.input, p.products, p.results, p.end] {
            write!(out, " {:>10.2}", ns as f64 / 1e3 / line.launches.max(1) as f64)?;
        }
        writeln!(out)?;
    }
    Ok(())
}
