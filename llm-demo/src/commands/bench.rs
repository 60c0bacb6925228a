//! Measures tokens per second.

use std::io::{self, Write};
use std::panic::resume_unwind;
use std::thread;
use std::time::{Duration, Instant};

use ga10b_llm::{Decoder, Engine, Tokenizer};
use ga10b_llm_tools::bench::{Plan, Row, WARM_UP};
use ga10b_llm_tools::first_token::{FirstToken, Stopwatch};
use hcq::Device;
use serde::Serialize;

use crate::cli::Cli;
use crate::outcome::Outcome;
use crate::progress;
use crate::report::{self, DeviceReport, ModelReport};
use crate::session::{self, Session, Setup};
use crate::shapes::TuningReport;

/// The document of `--json`. Added fields are compatible; any other change increases the number.
#[derive(Debug, Serialize)]
struct Report {
    schema: &'static str,
    version: &'static str,
    device: DeviceReport,
    model: ModelReport,
    context: usize,
    /// Tokens in the context before those decoded, of each measurement.
    depths: Vec<usize>,
    repeats: usize,
    /// How long each test runs before it is measured, at least once.
    warm_up_seconds: f64,
    load_seconds: f64,
    /// From the start of the process, with a prompt of the measured length.
    first_token: FirstToken,
    /// How long a thread of its own built the tokenizer, if it could.
    tokenizer_seconds: Option<f64>,
    weight_bytes_per_token: u64,
    launches_per_token: u64,
    /// Type of the key/value cache, and the bytes of it that a token reads per position.
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
    let (mut session, plan, context, tokenizer_seconds) = thread::scope(|scope| {
        let tokenizer = scope.spawn(|| {
            let begin = Instant::now();
            Tokenizer::from_gguf(&model.gguf).map(|_| begin.elapsed().as_secs_f64())
        });
        let device = session::device(cli)?;
        watch.lap("opening the device");
        let (plan, context) = plan(cli, &device, model.config.context)?;
        // A step follows the prompt where the model has room.
        let positions = context.max(plan.prefill + 1);
        let session = Session::new(device, &Setup::of(cli), &model, positions)?;
        watch.loaded(&session.engine);
        let seconds = match tokenizer.join().unwrap_or_else(|panic| resume_unwind(panic)) {
            Ok(seconds) => Some(seconds),
            Err(error) => {
                tracing::warn!(%error, "the time to the first token lacks the tokenizer");
                None
            }
        };
        watch.lap("tokenizer, after the weights");
        anyhow::Ok((session, plan, context, seconds))
    })?;
    let depths: Vec<usize> = cli.depth.iter().map(|depth| *depth as usize).collect();
    session.engine.record_prompt(plan.prefill)?;
    watch.lap("recording the prompt");
    let prompt: Vec<u32> = (0..plan.prefill.max(1)).map(|i| (i * 31 % model.config.vocab) as u32).collect();
    let first_token = watch.finish(&mut session.engine, &prompt)?;
    let results = measure(&mut session.engine, model.config.vocab, plan, &depths)?;
    let report = Report {
        schema: "llm-demo.bench/1",
        version: env!("CARGO_PKG_VERSION"),
        device: DeviceReport::new(session.device.info()),
        model: ModelReport::new(&model),
        context,
        depths,
        repeats: plan.repeats,
        warm_up_seconds: plan.warm_up.as_secs_f64(),
        load_seconds: session.load.as_secs_f64(),
        first_token,
        tokenizer_seconds,
        weight_bytes_per_token: session.engine.weight_bytes_per_token(),
        launches_per_token: session.engine.launches_per_token(),
        kv: session.engine.kv().name(),
        cache_bytes_per_position: session.engine.cache_bytes_per_position(),
        engine: session.engine.mode().name(),
        tuning: session.tuning.clone(),
        results,
    };
    report::show(&report, cli.json, print)?;
    Ok(Outcome::Good)
}

/// llama-bench's sizes; smaller ones on the software device, which is a million times slower. The tokens that the
/// deepest test takes.
fn plan(cli: &Cli, device: &Device, most: usize) -> anyhow::Result<(Plan, usize)> {
    let software = device.info().backend == hcq::BackendKind::Sim;
    let size = |given: Option<u32>, usual: usize, software_size: usize| match given {
        Some(n) => n as usize,
        None => if software { software_size } else { usual }.min(most),
    };
    let plan = Plan {
        prefill: size(cli.pp, 512, 16),
        decode: size(cli.tg, 128, 16),
        depth: 0,
        repeats: cli.repeats.map_or(if software { 2 } else { 5 }, |n| n as usize),
        warm_up: if software { Duration::ZERO } else { WARM_UP },
    };
    let deepest = cli.depth.iter().max().map_or(0, |depth| *depth as usize);
    let context = plan.prefill.max(deepest + plan.decode);
    anyhow::ensure!(context > 0, "nothing to measure: --pp and --tg are both 0");
    anyhow::ensure!(
        context <= most,
        "{context} tokens do not fit the model's context of {most}; choose smaller --pp, --tg and --depth"
    );
    Ok((plan, context))
}

/// The rows of `plan`, and those of decode at each further depth.
fn measure(engine: &mut Engine, vocab: usize, plan: Plan, depths: &[usize]) -> anyhow::Result<Vec<Row>> {
    let bar = progress::step_bar("measuring");
    let mut results = Vec::new();
    for (i, depth) in depths.iter().copied().enumerate() {
        let mut start = |engine: &mut Engine| match depth {
            0 => engine.reset(),
            depth => engine.pretend(depth),
        };
        let mut progress = |done, total| {
            bar.set_length(total);
            bar.set_position(done);
        };
        // The clocks are up after the first.
        let plan = match i {
            0 => Plan { depth, ..plan },
            _ => Plan { depth, prefill: 0, warm_up: Duration::ZERO, ..plan },
        };
        results.extend(ga10b_llm_tools::bench::run(engine, vocab, plan, &mut start, &mut progress)?);
    }
    bar.finish_and_clear();
    Ok(results)
}

fn print(report: &Report, out: &mut impl Write) -> io::Result<()> {
    report.device.print(out)?;
    report.model.print(out)?;
    report.tuning.print(out)?;
    let &Report { context, repeats, load_seconds, engine, kv, .. } = report;
    let (launches, weights) = (report.launches_per_token, report.weight_bytes_per_token as f64);
    let cached = report.cache_bytes_per_position as f64;
    let (per_position, all) = (cached / 1e3, cached * context as f64 / 1e6);
    let warm_up = match report.warm_up_seconds {
        0.0 => "1".to_owned(),
        seconds => format!("{seconds} s"),
    };
    let first = &report.first_token;
    let (seconds, from, prompt) = (first.seconds, first.from.name(), first.prompt_tokens);
    let next = first.first_step_seconds.map_or(String::new(), |s| format!(", the next {s:.3} s later"));
    writeln!(
        out,
        "decode      {engine}: {launches} launches and {:.1} MB of weights per token",
        weights / 1e6
    )?;
    writeln!(out, "cache       {kv}: {per_position:.1} kB per position, {all:.1} MB at context {context}")?;
    write!(out, "run         context {context}, {repeats} runs after {warm_up} to warm up, ")?;
    writeln!(out, "loaded in {load_seconds:.2} s")?;
    writeln!(out, "first token {seconds:.3} s from {from} after a prompt of {prompt}{next}")?;
    for part in &first.parts {
        writeln!(out, "            {:.3} s {}", part.seconds, part.name)?;
    }
    if let Some(seconds) = report.tokenizer_seconds {
        writeln!(out, "            {seconds:.3} s tokenizer, in a thread of its own")?;
    }
    writeln!(out)?;
    writeln!(out, "{:<20} {:>12} {:>10} {:>14}", "test", "tok/s", "± sd", "weights GB/s")?;
    for row in &report.results {
        write!(out, "{:<20} {:>12.2} {:>10.2}", row.test, row.tokens_per_second, row.tokens_per_second_sd)?;
        if row.test.starts_with("tg") {
            write!(out, " {:>14.2}", row.tokens_per_second * weights / 1e9)?;
        }
        writeln!(out)?;
    }
    Ok(())
}
