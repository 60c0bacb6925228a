//! Results in the fields and formats of llama-bench.

use std::fs;
use std::io::{self, Write};

use ga10b_llm_tools::bench::{Row, spread};
use ga10b_llm_tools::energy::Energy;
use ga10b_llm_tools::first_token::FirstToken;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::cli::commands::{Choice, Format};
use crate::report::{DeviceReport, ModelReport};
use crate::shapes::TuningReport;

/// A prompt or tokens decoded, after as many tokens, of some sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Test {
    pub prompt: usize,
    pub generate: usize,
    pub depth: usize,
    pub choice: Choice,
    pub sequences: usize,
}

/// The result of a test.
pub struct Measured {
    pub test: Test,
    /// Seconds since 1970.
    pub at: u64,
    pub row: Row,
    pub seconds: Vec<f64>,
    pub energy: Vec<Energy>,
}

/// Fields of all tests, beside llama-bench's. Added fields are compatible; any other change increases the
/// number of the schema.
#[derive(Debug, Serialize)]
pub struct Common {
    pub schema: &'static str,
    pub device: DeviceReport,
    pub model: ModelReport,
    /// The launch mode of a step: a mode of the engine, or the batch engine.
    pub engine: &'static str,
    pub tuning: TuningReport,
    /// Positions in the cache of a sequence.
    pub context: usize,
    /// Time for which each test runs before it is measured, at least once.
    pub warm_up_seconds: f64,
    pub load_seconds: f64,
    /// From the start of the process, with a prompt of the first test's length; null for the batch engine.
    pub first_token: Option<FirstToken>,
    /// Time in which a thread of its own built the tokenizer, if it could.
    pub tokenizer_seconds: Option<f64>,
    pub weight_bytes_per_step: u64,
    /// Null for the batch engine.
    pub launches_per_step: Option<u64>,
    /// Bytes of the cache that a token reads per position.
    pub cache_bytes_per_position: u64,
    /// Bytes that the device has less since the model was copied.
    pub device_bytes: Option<u64>,
    /// The largest resident memory of this process, in bytes.
    pub peak_host_bytes: Option<u64>,
    /// Options with which prompts would be faster.
    pub hints: Vec<String>,
}

/// The results.
pub struct Results {
    pub common: Common,
    /// The model's file.
    pub file: String,
    /// Type of the key/value cache.
    pub kv: &'static str,
    pub tests: Vec<Measured>,
}

impl Test {
    /// As llama-bench names it; with the choice, and the number of sequences.
    pub fn name(self) -> String {
        let Self { prompt, generate, depth, choice, sequences } = self;
        let kind = if prompt > 0 { format!("pp{prompt}") } else { format!("tg{generate}") };
        let kind = match (sequences, choice) {
            (1, Choice::Logits) => kind,
            (1, choice) => format!("{kind}-{}", choice.name()),
            _ => format!("{kind} x{sequences}"),
        };
        if depth > 0 { format!("{kind} @ d{depth}") } else { kind }
    }
}

impl Measured {
    pub fn new(test: Test, at: u64, seconds: Vec<f64>, energy: Vec<Energy>) -> Self {
        let tokens = test.sequences * (test.prompt + test.generate);
        Self { test, at, row: Row::new(test.name(), tokens, &seconds), seconds, energy }
    }

    fn per_token(&self, energy: &Energy) -> f64 {
        energy.joules / (self.row.tokens * self.seconds.len()) as f64
    }
}

impl Results {
    pub fn write(&self, format: Format, out: &mut impl Write) -> anyhow::Result<()> {
        let rows = || self.tests.iter().map(|measured| self.row(measured));
        match format {
            Format::Json => {
                serde_json::to_writer_pretty(&mut *out, &rows().collect::<Vec<_>>())?;
                writeln!(out)?;
            }
            Format::Jsonl => {
                for row in rows() {
                    serde_json::to_writer(&mut *out, &row)?;
                    writeln!(out)?;
                }
            }
            Format::Csv => csv(out, rows())?,
            Format::Md => {
                self.table(out)?;
                self.details(out)?;
            }
        }
        Ok(())
    }

    /// llama-bench's fields, in its order, and then this program's own.
    fn row(&self, m: &Measured) -> Map<String, Value> {
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
            ("test", m.row.test.clone().into()),
            ("choice", m.test.choice.name().into()),
            ("sequences", m.test.sequences.into()),
        ]);
        let energy = m.energy.iter().map(|energy| {
            let Energy { rail, watts, .. } = energy;
            json!({"rail": rail, "watts": watts, "joules_per_token": m.per_token(energy)})
        });
        fields.push(("energy", energy.collect()));
        let mut row: Map<String, Value> =
            fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        if let Value::Object(common) = json!(self.common) {
            row.extend(common);
        }
        row
    }

    /// The fields of machine, model and settings. Fields without a meaning here have the value that
    /// llama-bench writes by default; older versions of its scripts want `use_mmap`, newer ones `load_mode`.
    fn configuration(&self) -> Vec<(&'static str, Value)> {
        let Self { common: Common { device, model, .. }, kv, .. } = self;
        vec![
            ("build_commit", env!("CARGO_PKG_VERSION").into()),
            ("build_number", 0.into()),
            ("cpu_info", processor().into()),
            ("gpu_info", device.name.clone().into()),
            ("backends", format!("llm-demo {}", device.backend).into()),
            ("model_filename", self.file.clone().into()),
            ("model_type", self.model_type().into()),
            ("model_size", model.tensor_bytes.into()),
            ("model_n_params", model.parameters.into()),
            ("n_batch", 2048.into()),
            ("n_ubatch", 512.into()),
            ("n_threads", 1.into()),
            ("cpu_mask", "0x0".into()),
            ("cpu_strict", false.into()),
            ("poll", 50.into()),
            ("type_k", (*kv).into()),
            ("type_v", (*kv).into()),
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
        let ModelReport { architecture, parameters, quantization, .. } = &self.common.model;
        format!("{architecture} {} {quantization}", count(*parameters))
    }
    fn table(&self, out: &mut impl Write) -> io::Result<()> {
        let Self { common: Common { device, model, .. }, kv, .. } = self;
        let backend = &device.backend;
        let rails: Vec<&str> =
            self.tests.first().iter().flat_map(|m| &m.energy).map(|e| e.rail.as_str()).collect();
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
        for m in &self.tests {
            let kind = self.model_type();
            let (bytes, numbers) = (size(model.tensor_bytes), count(model.parameters));
            write!(out, "| {kind:<30} | {bytes:>10} | {numbers:>10} | {backend:<8} | {kv:>6} |")?;
            let rate = format!("{:.2} ± {:.2}", m.row.tokens_per_second, m.row.tokens_per_second_sd);
            write!(out, " {:>15} | {rate:>20} |", m.row.test)?;
            m.energy.iter().try_for_each(|energy| write!(out, " {:>16.4} |", m.per_token(energy)))?;
            writeln!(out)?;
        }
        Ok(())
    }

    /// Prints the facts on which the figures depend.
    fn details(&self, out: &mut impl Write) -> io::Result<()> {
        let common = &self.common;
        writeln!(out)?;
        writeln!(out, "build: llm-demo {}, {}", env!("CARGO_PKG_VERSION"), common.device.name)?;
        let [host, device] = [common.peak_host_bytes, common.device_bytes]
            .map(|bytes| bytes.map_or_else(|| "unknown".into(), size));
        writeln!(out, "memory: {device} of the device, at most {host} of the process")?;
        writeln!(out)?;
        common.device.print(out)?;
        common.model.print(out)?;
        common.tuning.print(out)?;
        let weights = common.weight_bytes_per_step as f64 / 1e6;
        write!(out, "step        {}: ", common.engine)?;
        if let Some(launches) = common.launches_per_step {
            write!(out, "{launches} launches and ")?;
        }
        writeln!(out, "{weights:.1} MB of weights")?;
        let (context, cached) = (common.context, common.cache_bytes_per_position as f64);
        let (each, all) = (cached / 1e3, cached * context as f64 / 1e6);
        writeln!(
            out,
            "cache       {}: {each:.1} kB per position, {all:.1} MB at context {context}",
            self.kv
        )?;
        let warm_up = match common.warm_up_seconds {
            0.0 => "1 run".to_owned(),
            seconds => format!("{seconds} s"),
        };
        writeln!(out, "run         {warm_up} to warm up, loaded in {:.2} s", common.load_seconds)?;
        if let Some(FirstToken { from, prompt_tokens, seconds, parts, first_step_seconds }) =
            &common.first_token
        {
            let next = first_step_seconds.map_or(String::new(), |s| format!(", the next {s:.3} s later"));
            let from = from.name();
            writeln!(out, "first token {seconds:.3} s from {from} after a prompt of {prompt_tokens}{next}")?;
            for part in parts {
                writeln!(out, "            {:.3} s {}", part.seconds, part.name)?;
            }
        }
        if let Some(seconds) = common.tokenizer_seconds {
            writeln!(out, "            {seconds:.3} s tokenizer, in a thread of its own")?;
        }
        common.hints.iter().try_for_each(|hint| writeln!(out, "hint        {hint}"))
    }
}

/// The largest resident memory of this process so far, in bytes.
pub fn peak() -> Option<u64> {
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

/// A line of names, and a line of quoted values per test; lists and objects are left out.
fn csv(out: &mut impl Write, rows: impl Iterator<Item = Map<String, Value>>) -> io::Result<()> {
    let text = |value: &Value| match value {
        Value::String(text) => text.replace('"', "\"\""),
        Value::Bool(value) => u8::from(*value).to_string(),
        Value::Null => String::new(),
        value => value.to_string(),
    };
    // A first token is an object or null.
    let simple =
        |(name, value): &(&String, &Value)| !value.is_array() && !value.is_object() && *name != "first_token";
    for (at, row) in rows.enumerate() {
        let (names, values): (Vec<&str>, Vec<String>) =
            row.iter().filter(simple).map(|(name, value)| (name.as_str(), text(value))).unzip();
        if at == 0 {
            writeln!(out, "{}", names.join(","))?;
        }
        writeln!(out, "\"{}\"", values.join("\",\""))?;
    }
    Ok(())
}
