//! Measures tokens per second of several sequences at once.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

use anyhow::ensure;
use ga10b_llm::engine::LaunchTime;
use ga10b_llm::{Columns, ColumnsOptions, Model};
use ga10b_llm_tools::batched::{self, BatchPlan, BatchRow};
use ga10b_llm_tools::bench::WARM_UP;
use hcq::{BackendKind, Device};
use serde::Serialize;

use crate::cli::Cli;
use crate::outcome::Outcome;
use crate::report::{self, DeviceReport, ModelReport};
use crate::session;

/// The document of `--json`. Added fields are compatible; any other change increases the number.
#[derive(Debug, Serialize)]
struct Report {
    schema: &'static str,
    version: &'static str,
    device: DeviceReport,
    model: ModelReport,
    /// Tokens of each prompt, and decoded of each sequence.
    prompt: usize,
    decode: usize,
    kv: &'static str,
    weight_bytes_per_step: u64,
    results: Vec<BatchRow>,
    /// Of a step of each batch, if asked for: time on the GPU by what it is for, one launch after the other.
    profiles: Vec<Profile>,
}

#[derive(Debug, Serialize)]
struct Profile {
    batch: usize,
    parts: Vec<Part>,
}

#[derive(Debug, Serialize)]
struct Part {
    role: &'static str,
    kernel: String,
    launches: usize,
    seconds: f64,
    bytes: u64,
}

pub fn run(cli: &Cli) -> anyhow::Result<Outcome> {
    let model = session::model(cli)?;
    let device = session::device(cli)?;
    let plan = plan(cli, &device);
    let most = cli.batch.iter().copied().max().unwrap_or(1) as usize;
    // The profile is of a step after the prompt.
    let context = plan.prompt + plan.decode.max(usize::from(cli.profile_batch));
    let mut columns = load(cli, &device, &model, (most, context))?;
    let (mut results, mut profiles) = (Vec::new(), Vec::new());
    for (i, batch) in cli.batch.iter().map(|batch| *batch as usize).enumerate() {
        // The clocks are up after the first.
        let plan = if i == 0 { plan } else { BatchPlan { warm_up: Duration::ZERO, ..plan } };
        results.push(batched::run(&mut columns, plan, batch)?);
        if cli.profile_batch {
            let parts = parts(&batched::launches(&mut columns, plan, batch)?);
            profiles.push(Profile { batch, parts });
        }
    }
    let report = Report {
        schema: "llm-demo.batch/1",
        version: env!("CARGO_PKG_VERSION"),
        device: DeviceReport::new(device.info()),
        model: ModelReport::new(&model),
        prompt: plan.prompt,
        decode: plan.decode,
        kv: cli.kv.name(),
        weight_bytes_per_step: columns.weight_bytes(),
        results,
        profiles,
    };
    report::show(&report, cli.json, print)?;
    Ok(Outcome::Good)
}

/// llama-batched-bench's usual sizes; smaller ones on the software device.
fn plan(cli: &Cli, device: &Device) -> BatchPlan {
    let software = device.info().backend == BackendKind::Sim;
    let usual = if software { 4 } else { 128 };
    BatchPlan {
        prompt: cli.pp.map_or(usual, |n| n as usize),
        decode: cli.tg.map_or(usual, |n| n as usize),
        warm_up: if software { Duration::ZERO } else { WARM_UP },
    }
}

/// Copies the model to the device, with pages for `sequences` sequences of `context` tokens.
fn load(
    cli: &Cli,
    device: &Device,
    model: &Model,
    (sequences, context): (usize, usize),
) -> anyhow::Result<Columns> {
    let trained = model.config.context;
    ensure!(
        context <= trained,
        "{context} tokens do not fit the model's context of {trained}: choose smaller --pp, --tg"
    );
    let options = ColumnsOptions::new(sequences, context).with_cache(cli.kv).with_chunks();
    session::columns(device, model, options, options.pages)
}

/// The launches by what they are for, in the order of a step.
fn parts(launches: &[LaunchTime]) -> Vec<Part> {
    let mut parts: BTreeMap<(&str, &str), (usize, Part)> = BTreeMap::new();
    for (i, launch) in launches.iter().enumerate() {
        let new = || {
            (i, Part { role: launch.role, kernel: launch.name.clone(), launches: 0, seconds: 0.0, bytes: 0 })
        };
        let (_, part) = parts.entry((launch.role, &launch.name)).or_insert_with(new);
        part.launches += 1;
        part.seconds += (launch.end - launch.start) as f64 * 1e-9;
        part.bytes += launch.bytes;
    }
    let mut parts: Vec<(usize, Part)> = parts.into_values().collect();
    parts.sort_by_key(|(first, _)| *first);
    parts.into_iter().map(|(_, part)| part).collect()
}

fn print(report: &Report, out: &mut impl Write) -> io::Result<()> {
    report.device.print(out)?;
    report.model.print(out)?;
    let &Report { prompt, decode, kv, .. } = report;
    let weights = report.weight_bytes_per_step as f64 / 1e6;
    writeln!(out, "step        {weights:.1} MB of weights for all columns, cache {kv} in pages")?;
    writeln!(out, "run         prompts of {prompt} tokens, then {decode} tokens of each sequence")?;
    writeln!(out)?;
    writeln!(
        out,
        "{:>6} {:>10} {:>12} {:>10} {:>12} {:>12} {:>10}",
        "batch", "prompts s", "tok/s", "decode s", "tok/s", "all tok/s", "step µs"
    )?;
    for row in &report.results {
        let step = row.decode_seconds / decode.max(1) as f64 * 1e6;
        write!(out, "{:>6} {:>10.3} {:>12.1} ", row.batch, row.prompt_seconds, row.prompt_tokens_per_second)?;
        write!(out, "{:>10.3} {:>12.1} ", row.decode_seconds, row.decode_tokens_per_second)?;
        writeln!(out, "{:>12.1} {step:>10.1}", row.tokens_per_second)?;
    }
    for profile in &report.profiles {
        writeln!(out)?;
        let all: f64 = profile.parts.iter().map(|part| part.seconds).sum();
        writeln!(
            out,
            "a step of {} sequences, one launch after the other: {:.1} µs",
            profile.batch,
            all * 1e6
        )?;
        for part in &profile.parts {
            let (us, each) = (part.seconds * 1e6, part.seconds * 1e6 / part.launches as f64);
            write!(out, "  {:<18} {:<28} {:>4} x {each:>8.2} µs", part.role, part.kernel, part.launches)?;
            writeln!(out, " = {us:>8.1} µs {:>8.1} GB/s", part.bytes as f64 / part.seconds / 1e9)?;
        }
    }
    Ok(())
}
