//! Counts what a token costs on the software ga10b, and predicts from it what an Orin would need.

use std::io::{self, Write};

use anyhow::Context;
use ga10b_llm_tools::counted::{Counted, CountingDevice};
use ga10b_llm_tools::roofline::{Machine, Prediction};
use serde::Serialize;

use crate::cli::Cli;
use crate::outcome::Outcome;
use crate::progress;
use crate::report::{self, ModelReport};
use crate::session::{self, Session};
use crate::shapes::TuningReport;

/// Tokens decoded where the command line does not say; the last one is counted.
const DEFAULT_STEPS: u32 = 4;

/// The document that `--json` prints. Adding a field is compatible; anything else raises the number.
#[derive(Debug, Serialize)]
struct Report {
    schema: &'static str,
    note: &'static str,
    model: ModelReport,
    tuning: TuningReport,
    /// Tokens taken in before the one that was counted.
    position: usize,
    counted: Counted,
    predictions: Vec<Row>,
    /// How full the kernels make an SM: of the step, of one with a launch per operation, of a prompt's full chunk.
    occupancy: Vec<Occupied>,
    /// What keys and values are cached as.
    kv: &'static str,
    /// The same at each position that was asked for; those above are of the last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    contexts: Vec<At>,
}

/// A token at one position.
#[derive(Clone, Debug, Serialize)]
struct At {
    position: usize,
    counted: Counted,
    predictions: Vec<Row>,
}

/// A kernel in one shape.
#[derive(Debug, Serialize)]
struct Occupied {
    path: &'static str,
    kernel: String,
    launches: usize,
    /// Of the largest launch.
    blocks: u64,
    threads: u32,
    registers: u32,
    shared_bytes: u32,
    /// What an SM has room for.
    blocks_per_sm: u32,
    warps_per_sm: u32,
    max_warps_per_sm: u32,
    limit: &'static str,
    /// Of those warps, how many the largest launch can fill on all SMs at most.
    warps_per_sm_launched: u32,
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
    // Where to decode: from the start some steps, of which the last counts, or a step at each position that was asked for.
    let asked: Vec<usize> = cli.context.iter().map(|n| *n as usize).collect();
    let positions = match asked.is_empty() {
        true => (0..(cli.count.unwrap_or(DEFAULT_STEPS) as usize).min(most)).collect(),
        false => asked.clone(),
    };
    let room = positions.iter().max().map_or(1, |p| p + 1);
    anyhow::ensure!(room <= most, "position {} is past the model's context of {most}", room - 1);
    let counting = CountingDevice::open()?;
    let mut session = Session::new(
        counting.device.clone(),
        (Some(cli.engine.unwrap_or_default()), cli.kv, false, !cli.no_tuning),
        &model,
        room,
    )?;

    let bar = progress::step_bar("counting");
    bar.set_length(positions.len() as u64);
    let engine = &mut session.engine;
    let (mut token, mut points) = (0, Vec::new());
    for position in positions {
        if !asked.is_empty() {
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
    let At { position, counted, predictions } = points.last().context("nothing was counted")?.clone();
    let report = Report {
        schema: "llm-demo.predict/1",
        note: "counted on the software ga10b; the times are predictions, not measurements",
        model: ModelReport::new(&model),
        tuning: session.tuning.clone(),
        position,
        occupancy: occupancy(&mut session)?,
        counted,
        predictions,
        kv: session.engine.kv().name(),
        contexts: if asked.is_empty() { Vec::new() } else { points },
    };
    report::show(&report, cli.json, print)?;
    Ok(Outcome::Good)
}

/// A row per kernel and shape.
fn occupancy(session: &mut Session) -> anyhow::Result<Vec<Occupied>> {
    let sms = u64::from(session.device.info().sm_count);
    let kernels = session.engine.kernels()?.into_iter().filter_map(|k| {
        let o = k.occupancy?;
        let launched = k.blocks.div_ceil(sms).min(u64::from(o.blocks_per_sm)) as u32;
        Some(Occupied {
            path: k.path,
            kernel: k.name,
            launches: k.launches,
            blocks: k.blocks,
            threads: k.threads,
            registers: k.registers,
            shared_bytes: k.shared_bytes,
            blocks_per_sm: o.blocks_per_sm,
            warps_per_sm: o.warps_per_sm,
            max_warps_per_sm: o.max_warps_per_sm,
            limit: o.limit.name(),
            warps_per_sm_launched: launched * k.threads.div_ceil(32),
        })
    });
    Ok(kernels.collect())
}

/// A row per power mode, with the constants that the command line sets.
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
    let c = &report.counted;
    writeln!(out, "\none token at position {}, counted on the software ga10b (sm_87 code)", report.position)?;
    writeln!(out, "launches                {:>14}   blocks {}", c.launches, c.blocks)?;
    writeln!(
        out,
        "warp instructions       {:>14}   thread instructions {}",
        c.warp_instructions, c.thread_instructions
    )?;
    writeln!(out, "weights + cache, MB     {:>14.3}", (c.weight_bytes + c.cache_bytes) as f64 / 1e6)?;
    writeln!(
        out,
        "DRAM read + written, MB {:>14.3}   {:.3} of that (level-2 cache of 4 MiB)",
        (c.dram_read_bytes + c.dram_write_bytes) as f64 / 1e6,
        c.dram_ratio
    )?;
    writeln!(out, "sectors per load        {:>14.2}", c.sectors_per_load)?;
    writeln!(
        out,
        "bank conflicts          {:>14.3}   passes beyond the first per shared access",
        c.bank_conflicts_per_access
    )?;
    writeln!(
        out,
        "\noccupancy on sm_87: what an SM holds, what limits it, and what the largest launch fills of it"
    )?;
    writeln!(
        out,
        "{:<11} {:<24} {:>8} {:>7} {:>8} {:>5} {:>9} {:>7} {:>9} {:>7}  limit",
        "path", "kernel", "launches", "blocks", "threads", "regs", "shared B", "blocks", "warps", "filled"
    )?;
    for o in &report.occupancy {
        writeln!(
            out,
            "{:<11} {:<24} {:>8} {:>7} {:>8} {:>5} {:>9} {:>7} {:>9} {:>7}  {}",
            o.path,
            o.kernel,
            o.launches,
            o.blocks,
            o.threads,
            o.registers,
            o.shared_bytes,
            o.blocks_per_sm,
            format!("{} of {}", o.warps_per_sm, o.max_warps_per_sm),
            o.warps_per_sm_launched,
            o.limit
        )?;
    }
    writeln!(out, "\nPREDICTION for an AGX Orin 64 GB, nothing measured on one")?;
    writeln!(
        out,
        "{:<6} {:>4} {:>8} {:>7} {:>6} {:>5} {:>8} {:>9} {:>9} {:>10} {:>8}  bound",
        "mode", "SMs", "MHz", "GB/s", "share", "IPC", "link µs", "DRAM ms", "issue ms", "launch ms", "tok/s"
    )?;
    for Row { machine: m, prediction: p } in &report.predictions {
        writeln!(
            out,
            "{:<6} {:>4} {:>8} {:>7} {:>6} {:>5} {:>8} {:>9.3} {:>9.3} {:>10.3} {:>8.1}  {}",
            m.name,
            m.sms,
            m.mhz,
            m.gbps,
            m.share,
            m.ipc,
            m.link_us,
            p.dram_ms,
            p.issue_ms,
            p.launch_ms,
            p.tokens_per_second,
            p.bound.name()
        )?;
    }
    writeln!(out, "constants are overridden with --orin KEY=VALUE (sms, mhz, gbps, share, ipc, link-us)")
}

/// A line per position: what is counted, and the rate that is predicted in each power mode.
fn print_contexts(contexts: &[At], out: &mut impl Write) -> io::Result<()> {
    let modes: Vec<&str> =
        contexts.iter().take(1).flat_map(|at| &at.predictions).map(|row| row.machine.name.as_str()).collect();
    writeln!(out, "\nPREDICTED tok/s for an AGX Orin 64 GB by position, nothing measured on one")?;
    write!(
        out,
        "{:>8} {:>10} {:>10} {:>8} {:>12}",
        "position", "cache MB", "DRAM MB", "ratio", "instructions"
    )?;
    modes.iter().try_for_each(|mode| write!(out, " {mode:>14}"))?;
    writeln!(out)?;
    for At { position, counted: c, predictions } in contexts {
        write!(
            out,
            "{position:>8} {:>10.2} {:>10.2} {:>8.3} {:>12}",
            c.cache_bytes as f64 / 1e6,
            (c.dram_read_bytes + c.dram_write_bytes) as f64 / 1e6,
            c.dram_ratio,
            c.warp_instructions
        )?;
        for Row { prediction: p, .. } in predictions {
            write!(out, " {:>8.1} {:<5}", p.tokens_per_second, p.bound.name())?;
        }
        writeln!(out)?;
    }
    Ok(())
}
