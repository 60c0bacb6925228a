//! Measures lists of tests, with the fields and formats of llama-bench.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, ensure};
use ga10b_llm::{Decoder, Engine, Model};
use ga10b_llm_tools::bench::{Row, WARM_UP, samples, spread, tokens_of};
use ga10b_llm_tools::energy::{Energy, Meter, Rail};
use hcq::Device;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use crate::cli::Cli;
use crate::cli::commands::{Bench, Format};
use crate::outcome::Outcome;
use crate::progress;
use crate::session::{self, Session, Setup};

/// A test: a prompt or a text, after as many tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Test {
    prompt: usize,
    generate: usize,
    depth: usize,
}

/// Its result.
struct Measured {
    test: Test,
    /// Seconds since 1970.
    at: u64,
    row: Row,
    seconds: Vec<f64>,
    energy: Vec<Energy>,
}

/// Names and values, in order.
struct Fields(Vec<(&'static str, Value)>);

impl Serialize for Fields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

/// What all tests have in common.
struct Common<'a> {
    cli: &'a Cli,
    model: &'a Model,
    session: &'a Session,
    /// Bytes that the device has less since the engine was set up.
    device_bytes: Option<u64>,
}

pub fn run(cli: &Cli, bench: &Bench) -> anyhow::Result<Outcome> {
    let model = session::model(cli)?;
    let device = session::device(cli)?;
    let software = device.info().backend == hcq::BackendKind::Sim;
    let tests = tests(bench, software, model.config.context)?;
    let context = tests.iter().map(|t| t.depth + t.prompt + t.generate).max().unwrap_or(1);
    let free = free(&device);
    let mut session = Session::new(device, &Setup::of(cli), &model, context)?;
    let repeats = bench.repeats.map_or(if software { 2 } else { 5 }, |n| n as usize);
    let warm_up = if software { Duration::ZERO } else { WARM_UP };
    let rails = Rail::all(Path::new("/"));

    let mut results = Vec::new();
    let bar = progress::step_bar("measuring");
    bar.set_length((tests.len() * (repeats + 1)) as u64);
    for test in tests {
        let mut advance = || bar.inc(1);
        results.push(measure(&mut session.engine, &model, test, (repeats, warm_up), &rails, &mut advance)?);
    }
    bar.finish_and_clear();
    let device_bytes =
        free.zip(self::free(&session.device)).map(|(before, after)| before.saturating_sub(after));
    let common = Common { cli, model: &model, session: &session, device_bytes };
    write(&mut io::stdout().lock(), bench.output, &common, &results)?;
    Ok(Outcome::Good)
}

/// The tests that the lists name: prompts first, each at all depths.
fn tests(bench: &Bench, software: bool, most: usize) -> anyhow::Result<Vec<Test>> {
    let list = |given: &[u32], usual: usize| match given.is_empty() {
        true => vec![usual.min(most)],
        false => given.iter().map(|n| *n as usize).collect(),
    };
    let (prompts, generated) = match software {
        true => (list(&bench.prompt, 16), list(&bench.generate, 16)),
        false => (list(&bench.prompt, 512), list(&bench.generate, 128)),
    };
    let both = prompts.into_iter().map(|n| (n, 0)).chain(generated.into_iter().map(|n| (0, n)));
    let mut tests = Vec::new();
    for (prompt, generate) in both.filter(|both| *both != (0, 0)) {
        for depth in &bench.depth {
            let test = Test { prompt, generate, depth: *depth as usize };
            let context = test.depth + prompt + generate;
            ensure!(
                context <= most,
                "{} needs {context} tokens and the model's context has {most}; choose smaller -p, -n and -d",
                test.name()
            );
            tests.push(test);
        }
    }
    ensure!(!tests.is_empty(), "nothing to measure: -p and -n are all 0");
    Ok(tests)
}

impl Test {
    /// As llama-bench names it.
    fn name(self) -> String {
        let Self { prompt, generate, depth } = self;
        let kind = if prompt > 0 { format!("pp{prompt}") } else { format!("tg{generate}") };
        if depth > 0 { format!("{kind} @ d{depth}") } else { kind }
    }
}

fn measure(
    engine: &mut Engine,
    model: &Model,
    test: Test,
    runs: (usize, Duration),
    rails: &[Rail],
    advance: &mut dyn FnMut(),
) -> anyhow::Result<Measured> {
    let Test { prompt, generate, depth } = test;
    engine.record_prompt(prompt)?;
    let at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let mut meter = None;
    let mut after = |count| {
        advance();
        if count == 0 {
            meter = Meter::start(rails);
        }
    };
    let mut logits = Vec::new();
    let tokens = prompt + generate;
    let mut draw = tokens_of(model.config.vocab);
    let seconds = samples(tokens, runs, &mut draw, &mut after, &mut |tokens| {
        match depth {
            0 => engine.reset()?,
            depth => engine.pretend(depth)?,
        }
        match prompt {
            0 => tokens.iter().try_for_each(|&token| engine.step_into(token, &mut logits)),
            _ => engine.prefill(tokens).map(drop),
        }
    })?;
    let energy = meter.map(Meter::stop).unwrap_or_default();
    Ok(Measured { test, at, row: Row::new(test.name(), tokens, &seconds), seconds, energy })
}

fn free(device: &Device) -> Option<u64> {
    device.free_memory().ok().map(|free| free.count())
}

/// The largest resident memory of this process so far, in bytes.
fn peak() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()? << 10)
}

/// The first model name of `/proc/cpuinfo`, which some machines do not have.
fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    name.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, name)| name.trim().to_owned())
}

impl Common<'_> {
    /// llama-bench's fields, in its order, and then this program's own.
    fn fields(&self, m: &Measured) -> Fields {
        let nanoseconds: Vec<f64> = m.seconds.iter().map(|s| s * 1e9).collect();
        let (mean, sd) = spread(&nanoseconds);
        let mut fields = self.configuration();
        fields.extend([
            ("n_prompt", m.test.prompt.into()),
            ("n_gen", m.test.generate.into()),
            ("n_depth", m.test.depth.into()),
            ("test_time", time(m.at).into()),
            ("avg_ns", (mean as u64).into()),
            ("stddev_ns", (sd as u64).into()),
            ("avg_ts", m.row.tokens_per_second.into()),
            ("stddev_ts", m.row.tokens_per_second_sd.into()),
            ("samples_ns", nanoseconds.iter().map(|ns| *ns as u64).collect()),
            ("samples_ts", m.row.runs_tokens_per_second.clone().into()),
            ("engine", self.session.engine.mode().name().into()),
            ("peak_host_bytes", peak().into()),
            ("device_bytes", self.device_bytes.into()),
        ]);
        let energy = m.energy.iter().map(|energy| {
            let Energy { rail, watts, .. } = energy;
            json!({"rail": rail, "watts": watts, "joules_per_token": m.per_token(energy)})
        });
        fields.push(("energy", energy.collect()));
        Fields(fields)
    }

    /// The fields of machine, model and settings. What has no meaning here has the value that llama-bench writes
    /// by default; older versions of its scripts want `use_mmap`, newer ones `load_mode`.
    fn configuration(&self) -> Vec<(&'static str, Value)> {
        let Self { cli, model, session, .. } = self;
        let info = session.device.info();
        let file = cli.model.as_ref().map_or_else(|| "embedded".into(), |path| path.display().to_string());
        let kv = session.engine.kv().name();
        vec![
            ("build_commit", env!("CARGO_PKG_VERSION").into()),
            ("build_number", 0.into()),
            ("cpu_info", processor().into()),
            ("gpu_info", info.name.clone().into()),
            ("backends", format!("llm-demo {}", info.backend).into()),
            ("model_filename", file.into()),
            ("model_type", self.model_type().into()),
            ("model_size", model.tensor_bytes().into()),
            ("model_n_params", parameters(model).into()),
            ("n_batch", 2048.into()),
            ("n_ubatch", 512.into()),
            ("n_threads", 1.into()),
            ("cpu_mask", "0x0".into()),
            ("cpu_strict", false.into()),
            ("poll", 50.into()),
            ("type_k", kv.into()),
            ("type_v", kv.into()),
            ("n_gpu_layers", 99.into()),
            ("n_cpu_moe", 0.into()),
            ("split_mode", "none".into()),
            ("main_gpu", 0.into()),
            ("no_kv_offload", false.into()),
            ("flash_attn", 1.into()),
            ("devices", "auto".into()),
            ("tensor_split", "0.00".into()),
            ("tensor_buft_overrides", "none".into()),
            ("load_mode", "mmap".into()),
            ("use_mmap", true.into()),
            ("embeddings", false.into()),
            ("no_op_offload", 0.into()),
            ("no_host", false.into()),
            ("fit_target", 0.into()),
            ("fit_min_ctx", 0.into()),
        ]
    }

    /// Architecture, size and types.
    fn model_type(&self) -> String {
        let kind = self.model.gguf.text("general.architecture").ok().flatten().unwrap_or("unknown");
        format!("{kind} {} {}", count(parameters(self.model)), self.model.quantization())
    }
}

impl Measured {
    fn per_token(&self, energy: &Energy) -> f64 {
        energy.joules / (self.row.tokens * self.seconds.len()) as f64
    }
}

/// The numbers in all tensors.
fn parameters(model: &Model) -> u64 {
    model.gguf.tensors().iter().map(|tensor| tensor.dims.iter().product::<u64>()).sum()
}

/// A number of parameters, as llama-bench writes it.
fn count(elements: u64) -> String {
    match elements as f64 {
        large if large >= 1e9 => format!("{:.2} B", large / 1e9),
        small => format!("{:.2} M", small / 1e6),
    }
}

/// A size, as llama-bench writes it.
fn size(bytes: u64) -> String {
    const GIB: f64 = (1u64 << 30) as f64;
    match bytes as f64 {
        large if large >= GIB => format!("{:.2} GiB", large / GIB),
        small => format!("{:.2} MiB", small * 1024.0 / GIB),
    }
}

/// A time in UTC, by RFC 3339.
fn time(seconds: u64) -> String {
    i64::try_from(seconds)
        .ok()
        .and_then(|seconds| jiff::Timestamp::from_second(seconds).ok())
        .map_or_else(String::new, |time| time.strftime("%FT%TZ").to_string())
}

fn write(
    out: &mut impl Write,
    format: Format,
    common: &Common<'_>,
    results: &[Measured],
) -> anyhow::Result<()> {
    let rows: Vec<Fields> = results.iter().map(|m| common.fields(m)).collect();
    match format {
        Format::Json => {
            serde_json::to_writer_pretty(&mut *out, &rows)?;
            writeln!(out)?;
        }
        Format::Jsonl => {
            for row in rows {
                serde_json::to_writer(&mut *out, &row)?;
                writeln!(out)?;
            }
        }
        Format::Csv => csv(out, &rows)?,
        Format::Md => table(out, common, results).context("cannot write the table")?,
    }
    Ok(())
}

/// A line of names, and a line of quoted values per test; lists are left out.
fn csv(out: &mut impl Write, rows: &[Fields]) -> io::Result<()> {
    let text = |value: &Value| match value {
        Value::String(text) => text.replace('"', "\"\""),
        Value::Bool(value) => u8::from(*value).to_string(),
        Value::Null => String::new(),
        value => value.to_string(),
    };
    for (at, row) in rows.iter().enumerate() {
        let scalars = row.0.iter().filter(|(_, value)| !value.is_array());
        let (names, values): (Vec<&str>, Vec<String>) =
            scalars.map(|(name, value)| (*name, text(value))).unzip();
        if at == 0 {
            writeln!(out, "{}", names.join(","))?;
        }
        writeln!(out, "\"{}\"", values.join("\",\""))?;
    }
    Ok(())
}

fn table(out: &mut impl Write, common: &Common<'_>, results: &[Measured]) -> io::Result<()> {
    let model = common.model;
    let session = common.session;
    let kv = session.engine.kv().name();
    let backend = session.device.info().backend.to_string();
    let rails: Vec<&str> = results.first().iter().flat_map(|m| &m.energy).map(|e| e.rail.as_str()).collect();
    write!(
        out,
        "| {:<30} | {:>10} | {:>10} | {:<8} | {:>6} |",
        "model", "size", "params", "backend", "type_k"
    )?;
    write!(out, " {:>15} | {:>20} |", "test", "t/s")?;
    rails.iter().try_for_each(|rail| write!(out, " {:>16} |", format!("{rail} J/t")))?;
    writeln!(out)?;
    let rule = |width: usize, left: bool| match left {
        true => format!(" {} |", "-".repeat(width)),
        false => format!(" {}: |", "-".repeat(width - 1)),
    };
    let widths = [(30, true), (10, false), (10, false), (8, true), (6, false), (15, false), (20, false)];
    let rules: String = widths.into_iter().map(|(width, left)| rule(width, left)).collect();
    writeln!(out, "|{rules}{}", rule(16, false).repeat(rails.len()))?;
    for m in results {
        let kind = common.model_type();
        let (bytes, numbers) = (size(model.tensor_bytes()), count(parameters(model)));
        write!(out, "| {kind:<30} | {bytes:>10} | {numbers:>10} | {backend:<8} | {kv:>6} |")?;
        let rate = format!("{:.2} ± {:.2}", m.row.tokens_per_second, m.row.tokens_per_second_sd);
        write!(out, " {:>15} | {rate:>20} |", m.row.test)?;
        m.energy.iter().try_for_each(|energy| write!(out, " {:>16.4} |", m.per_token(energy)))?;
        writeln!(out)?;
    }
    writeln!(out)?;
    writeln!(out, "build: llm-demo {}, {}", env!("CARGO_PKG_VERSION"), session.device.info().name)?;
    let host = peak().map_or_else(|| "unknown".into(), size);
    let device = common.device_bytes.map_or_else(|| "unknown".into(), size);
    writeln!(out, "memory: {device} of the device, at most {host} of the process")
}
