//! Measures tokens per second.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use ga10b_llm_tools::bench::{Plan, Row, WARM_UP};
use ga10b_llm_tools::first_token::{FirstToken, Stopwatch};
use serde::Serialize;

use crate::cli::Cli;
use crate::outcome::Outcome;
use crate::progress;
use crate::report::{self, DeviceReport, ModelReport};
use crate::session::{self, Session};
use crate::shapes::TuningReport;

/// The document that `--json` prints. Adding a field is compatible; anything else raises the number.
#[derive(Debug, Serialize)]
struct Report {
    schema: &'static str,
    version: &'static str,
    device: DeviceReport,
    model: ModelReport,
    context: usize,
    repeats: usize,
    /// Time that each test worked before it was measured, at least one run.
    warm_up_seconds: f64,
    load_seconds: f64,
    /// From the start of the process, a prompt of as many tokens as are measured taken in.
    first_token: FirstToken,
    weight_bytes_per_token: u64,
    launches_per_token: u64,
    /// What keys and values are cached as, and how many bytes of them each position adds to what a token reads.
    kv: &'static str,
    cache_bytes_per_position: u64,
    engine: &'static str,
    tuning: TuningReport,
    results: Vec<Row>,
}

pub fn run(cli: &Cli, began: Instant) -> anyhow::Result<Outcome> {
    let mut watch = Stopwatch::since_process_start(began);
    let model = session::model(cli)?;
    watch.lap("file");
    let most = model.config.context;
    // llama-bench's sizes, except where a token takes a million times as long.
    let device = session::device(cli)?;
    watch.lap("opening the device");
    let software = device.info().backend == hcq::BackendKind::Sim;
    let size = |given: Option<u32>, usual: usize, software_size: usize| match given {
        Some(n) => n as usize,
        None => if software { software_size } else { usual }.min(most),
    };
    let plan = Plan {
        prefill: size(cli.pp, 512, 16),
        decode: size(cli.tg, 128, 16),
        repeats: cli.repeats.map_or(if software { 2 } else { 5 }, |n| n as usize),
        warm_up: if software { Duration::ZERO } else { WARM_UP },
    };
    let context = plan.prefill.max(plan.decode);
    anyhow::ensure!(context > 0, "nothing to measure: --pp and --tg are both 0");
    anyhow::ensure!(
        context <= most,
        "{context} tokens do not fit the model's context of {most}; choose smaller --pp and --tg"
    );

    let mut session = Session::new(device, (cli.engine, cli.kv, false, !cli.no_tuning), &model, context)?;
    watch.loaded(&session.engine);
    session.engine.record_prompt(plan.prefill)?;
    watch.lap("recording the prompt");
    let prompt: Vec<u32> = (0..plan.prefill.max(1)).map(|i| (i * 31 % model.config.vocab) as u32).collect();
    let first_token = watch.finish(&mut session.engine, &prompt)?;
    let bar = progress::step_bar("measuring");
    let rows =
        ga10b_llm_tools::bench::run(&mut session.engine, model.config.vocab, plan, &mut |done, total| {
            bar.set_length(total);
            bar.set_position(done);
        });
    bar.finish_and_clear();
    let report = Report {
        schema: "llm-demo.bench/1",
        version: env!("CARGO_PKG_VERSION"),
        device: DeviceReport::new(session.device.info()),
        model: ModelReport::new(&model),
        context: session.context,
        repeats: plan.repeats,
        warm_up_seconds: plan.warm_up.as_secs_f64(),
        load_seconds: session.load.as_secs_f64(),
        first_token,
        weight_bytes_per_token: session.engine.weight_bytes_per_token(),
        launches_per_token: session.engine.launches_per_token(),
        kv: session.engine.kv().name(),
        cache_bytes_per_position: session.engine.cache_bytes_per_position(),
        engine: session.engine.mode().name(),
        tuning: session.tuning.clone(),
        results: rows?,
    };
    report::show(&report, cli.json, print)?;
    Ok(Outcome::Good)
}

fn print(report: &Report, out: &mut impl Write) -> io::Result<()> {
    report.device.print(out)?;
    report.model.print(out)?;
    report.tuning.print(out)?;
    let read = report.weight_bytes_per_token;
    writeln!(
        out,
        "decode      {}: {} launches and {:.1} MB of weights per token",
        report.engine,
        report.launches_per_token,
        read as f64 / 1e6
    )?;
    let cached = report.cache_bytes_per_position as f64;
    writeln!(
        out,
        "cache       {}: {:.1} kB per position, {:.1} MB at context {}",
        report.kv,
        cached / 1e3,
        cached * report.context as f64 / 1e6,
        report.context
    )?;
    writeln!(
        out,
        "run         context {}, {} runs after {} to warm up, loaded in {:.2} s",
        report.context,
        report.repeats,
        if report.warm_up_seconds > 0.0 { format!("{} s", report.warm_up_seconds) } else { "1".to_owned() },
        report.load_seconds
    )?;
    let first = &report.first_token;
    writeln!(
        out,
        "first token {:.3} s from {} behind a prompt of {}{}",
        first.seconds,
        first.from.name(),
        first.prompt_tokens,
        first.first_step_seconds.map_or(String::new(), |s| format!(", the next {s:.3} s later"))
    )?;
    for part in &first.parts {
        writeln!(out, "            {:.3} s {}", part.seconds, part.name)?;
    }
    writeln!(out)?;
    writeln!(out, "{:<14} {:>12} {:>10} {:>14}", "test", "tok/s", "± sd", "weights GB/s")?;
    for row in &report.results {
        write!(out, "{:<14} {:>12.2} {:>10.2}", row.test, row.tokens_per_second, row.tokens_per_second_sd)?;
        if row.test.starts_with("tg") {
            write!(out, " {:>14.2}", row.tokens_per_second * read as f64 / 1e9)?;
        }
        writeln!(out)?;
    }
    Ok(())
}
