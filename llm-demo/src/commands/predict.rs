//! Counts the cost of a token on the software ga10b, and predicts from it the time on an Orin.

use std::io::{self, Write};

use anyhow::Context;
use ga10b_llm::Decoder;
use ga10b_llm::engine::{KernelUse, Residency};
use ga10b_llm_tools::counted::{Counted, CountingDevice};
use ga10b_llm_tools::roofline::{Machine, Prediction};
use serde::Serialize;

use crate::cli::Cli;
use crate::outcome::Outcome;
use crate::progress;
use crate::report::{self, ModelReport};
use crate::session::{self, Session, Setup};
use crate::shapes::TuningReport;

/// Tokens decoded by default; the last one is counted.
const DEFAULT_STEPS: u32 = 4;

/// The document of `--json`. Added fields are compatible; any other change increases the number.
#[derive(Debug, Serialize)]
struct Report {
    schema: &'static str,
    note: &'static str,
    model: ModelReport,
    tuning: TuningReport,
    /// The counted token; with `--context` the last one.
    #[serde(flatten)]
    last: At,
    /// Occupancy of an SM by the kernels of the step, of one launch per operation, of a full chunk of a
    /// prompt.
    occupancy: Vec<KernelUse>,
    /// Type of the key/value cache.
    kv: &'static str,
    /// The tokens at all positions of `--context`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    contexts: Vec<At>,
}

/// A token at one position.
#[derive(Clone, Debug, Serialize)]
struct At {
    /// Tokens in the context before it.
    position: usize,
    counted: Counted,
    predictions: Vec<Row>,
}

#[derive(Clone, Debug, Serialize)]
struct Row {
    machine: Machine,
    #[serde(flatten)]
    prediction: Prediction,
}

pub fn run(cli: &Cli) -> anyhow::Result<Outcome> {
    let model = session::model(cli)?;
    let most = model.config.context;
    // Some steps from the start, of which the last one counts, or a step at each given position.
    let given: Vec<usize> = cli.context.iter().map(|n| *n as usize).collect();
    let positions = match given.is_empty() {
        true => (0..(cli.count.unwrap_or(DEFAULT_STEPS) as usize).min(most)).collect(),
        false => given.clone(),
    };
    let room = positions.iter().max().map_or(1, |p| p + 1);
    anyhow::ensure!(room <= most, "position {} is past the model's context of {most}", room - 1);
    let counting = CountingDevice::open()?;
    let setup = Setup { mode: Some(cli.engine.unwrap_or_default()), ..Setup::of(cli) };
    let mut session = Session::new(counting.device.clone(), &setup, &model, room)?;

    let bar = progress::step_bar("counting");
    bar.set_length(positions.len() as u64);
    let engine = &mut session.engine;
    let (mut token, mut points) = (0, Vec::new());
    for position in positions {
        if !given.is_empty() {
            engine.pretend(position)?;
        }
        let before = counting.counters();
        token = engine.step_greedy(token)?;
        let cache_bytes = position as u64 * engine.cache_bytes_per_position();
        let weights = engine.weight_bytes_per_token();
        let counted = Counted::between(&before, &counting.counters(), weights, cache_bytes);
        points.push(At { position, predictions: predictions(cli, &counted), counted });
        bar.inc(1);
    }
    bar.finish_and_clear();
    let report = Report {
        schema: "llm-demo.predict/1",
        note: "counted on the software ga10b; the times are predictions, not measurements",
        model: ModelReport::new(&model),
        tuning: session.tuning.clone(),
        last: points.last().context("nothing was counted")?.clone(),
        occupancy: session.engine.kernels()?.into_iter().filter(|k| k.residency.is_some()).collect(),
        kv: session.engine.kv().name(),
        contexts: if given.is_empty() { Vec::new() } else { points },
    };
    report::show(&report, cli.json, print)?;
    Ok(Outcome::Good)
}

/// A row per power mode, with the constants of the command line.
fn predictions(cli: &Cli, counted: &Counted) -> Vec<Row> {
    let machines = Machine::orin_agx().into_iter().map(|mut machine| {
        cli.orin.iter().for_each(|constant| constant.apply(&mut machine));
        Row { prediction: machine.predict(&counted.cost()), machine }
    });
    machines.collect()
}

fn print(report: &Report, out: &mut impl Write) -> io::Result<()> {
    report.model.print(out)?;
    report.tuning.print(out)?;
    writeln!(out, "cache       {}", report.kv)?;
    if !report.contexts.is_empty() {
        print_contexts(&report.contexts, out)?;
    }
    let At { position, counted: c, predictions } = &report.last;
    let (instructions, threads) = (c.warp_instructions, c.thread_instructions);
    let read = (c.weight_bytes + c.cache_bytes) as f64 / 1e6;
    let (dram, ratio) = (dram_megabytes(c), c.dram_ratio);
    writeln!(out, "\none token at position {position}, counted on the software ga10b (sm_87 code)")?;
    writeln!(out, "launches                {:>14}   blocks {}", c.launches, c.blocks)?;
    writeln!(out, "warp instructions       {instructions:>14}   thread instructions {threads}")?;
    writeln!(out, "weights + cache, MB     {read:>14.3}")?;
    writeln!(out, "DRAM read + written, MB {dram:>14.3}   {ratio:.3} of that (level-2 cache of 4 MiB)")?;
    writeln!(out, "sectors per load        {:>14.2}", c.sectors_per_load)?;
    let conflicts = c.bank_conflicts_per_access;
    writeln!(out, "bank conflicts          {conflicts:>14.3}   passes beyond the first per shared access")?;
    print_occupancy(&report.occupancy, out)?;
    writeln!(out, "\nPREDICTION for an AGX Orin 64 GB, nothing measured on one")?;
    writeln!(
        out,
        "{:<6} {:>4} {:>8} {:>7} {:>6} {:>5} {:>8} {:>9} {:>9} {:>10} {:>8}  bound",
        "mode", "SMs", "MHz", "GB/s", "share", "IPC", "link µs", "DRAM ms", "issue ms", "launch ms", "tok/s"
    )?;
    for Row { machine, prediction } in predictions {
        let Machine { name, sms, mhz, gbps, share, ipc, link_us } = machine;
        let Prediction { dram_ms, issue_ms, launch_ms, tokens_per_second, bound } = prediction;
        write!(
            out,
            "{name:<6} {sms:>4} {mhz:>8} {gbps:>7} {share:>6} {ipc:>5} {link_us:>8} {dram_ms:>9.3} "
        )?;
        writeln!(out, "{issue_ms:>9.3} {launch_ms:>10.3} {tokens_per_second:>8.1}  {}", bound.name())?;
    }
    writeln!(out, "constants are overridden with --orin KEY=VALUE (sms, mhz, gbps, share, ipc, link-us)")
}

fn dram_megabytes(c: &Counted) -> f64 {
    (c.dram_read_bytes + c.dram_write_bytes) as f64 / 1e6
}

fn print_occupancy(occupancy: &[KernelUse], out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "\noccupancy on sm_87: what an SM holds, its limit, and what the largest launch fills of it"
    )?;
    writeln!(
        out,
        "{:<11} {:<24} {:>8} {:>7} {:>8} {:>5} {:>9} {:>7} {:>9} {:>7}  limit",
        "path", "kernel", "launches", "blocks", "threads", "regs", "shared B", "blocks", "warps", "filled"
    )?;
    for k in occupancy {
        let KernelUse { path, kernel, launches, blocks, threads, registers, shared_bytes, .. } = k;
        let Some(r) = k.residency else { continue };
        let Residency { blocks_per_sm, limit, warps_per_sm_launched: filled, .. } = r;
        let warps = format!("{} of {}", r.warps_per_sm, r.max_warps_per_sm);
        write!(out, "{path:<11} {kernel:<24} {launches:>8} {blocks:>7} {threads:>8} {registers:>5} ")?;
        writeln!(out, "{shared_bytes:>9} {blocks_per_sm:>7} {warps:>9} {filled:>7}  {limit}")?;
    }
    Ok(())
}

/// A line per position: the counts, and the predicted rate in each power mode.
fn print_contexts(contexts: &[At], out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "\nPREDICTED tok/s for an AGX Orin 64 GB by position, nothing measured on one")?;
    write!(out, "position   cache MB    DRAM MB    ratio instructions")?;
    for row in contexts.iter().take(1).flat_map(|at| &at.predictions) {
        write!(out, " {:>14}", row.machine.name)?;
    }
    writeln!(out)?;
    for At { position, counted: c, predictions } in contexts {
        let (cache, dram, ratio) = (c.cache_bytes as f64 / 1e6, dram_megabytes(c), c.dram_ratio);
        write!(out, "{position:>8} {cache:>10.2} {dram:>10.2} {ratio:>8.3} {:>12}", c.warp_instructions)?;
        for Row { prediction: p, .. } in predictions {
            write!(out, " {:>8.1} {:<5}", p.tokens_per_second, p.bound.name())?;
        }
        writeln!(out)?;
    }
    Ok(())
}
