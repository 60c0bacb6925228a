//! Counts what a token costs on the software ga10b, and predicts from it what an Orin would need.

use std::io::{self, Write};

use anyhow::Context;
use ga10b_sim::sm::{CacheConfig, Config as ExecutorConfig, Counters};
use ga10b_sim::{Sim, SimConfig};
use hcq::{Device, DeviceOptions, Selector};
use llm_demo::roofline::{Cost, Machine, Prediction};
use serde::Serialize;

use crate::Outcome;
use crate::cli::Cli;
use crate::report::{self, ModelReport};
use crate::session::{self, Session};
use crate::tuning::TuningReport;

/// Tokens decoded where the command line does not say; the last one is counted.
const DEFAULT_STEPS: u32 = 4;
/// Bytes of a DRAM sector.
const SECTOR: u64 = 32;

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
}

/// What the counted token cost.
#[derive(Debug, Serialize)]
struct Counted {
    launches: u64,
    blocks: u64,
    warp_instructions: u64,
    thread_instructions: u64,
    weight_bytes: u64,
    /// Keys and values so far, each once.
    cache_bytes: u64,
    dram_read_bytes: u64,
    dram_write_bytes: u64,
    /// DRAM bytes over weights and cache.
    dram_ratio: f64,
    /// 32-byte sectors per load of a warp.
    sectors_per_load: f64,
    /// Passes beyond the first, per access of a warp.
    bank_conflicts_per_access: f64,
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

#[derive(Debug, Serialize)]
struct Row {
    machine: Machine,
    #[serde(flatten)]
    prediction: Prediction,
}

pub fn run(cli: &Cli) -> anyhow::Result<Outcome> {
    let model = session::model(cli)?;
    let steps = (cli.count.unwrap_or(DEFAULT_STEPS) as usize).min(model.config.context);
    let executor = ExecutorConfig { l2: Some(CacheConfig::ORIN), ..ExecutorConfig::default() };
    let sim = Sim::try_new(SimConfig { executor, ..SimConfig::default() });
    let sim = sim.context("cannot set up the software ga10b")?;
    let mut options = DeviceOptions::default();
    options.sim = Some(sim.clone());
    let device = Device::open_with(Selector::Sim, options)?;
    let mut session =
        Session::new(device, (Some(cli.engine.unwrap_or_default()), false, !cli.no_tuning), &model, steps)?;

    let bar = session::step_bar("counting");
    bar.set_length(steps as u64);
    let (mut token, mut before) = (0, Counters::default());
    for _ in 0..steps {
        before = sim.counters().sm;
        token = session.engine.step_greedy(token)?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    let position = steps - 1;
    let c = &model.config;
    let cache_bytes = (position * c.layers * 2 * c.kv_dim() * 2) as u64;
    let counted = counted(&before, &sim.counters().sm, session.engine.weight_bytes_per_token(), cache_bytes);
    let report = Report {
        schema: "llm-demo.predict/1",
        note: "counted on the software ga10b; the times are predictions, not measurements",
        model: ModelReport::new(&model),
        tuning: session.tuning.clone(),
        position,
        predictions: predictions(cli, &counted),
        occupancy: occupancy(&mut session)?,
        counted,
    };
    report::show(&report, cli.json, print)?;
    Ok(Outcome::Good)
}

fn counted(before: &Counters, after: &Counters, weight_bytes: u64, cache_bytes: u64) -> Counted {
    let d = |field: fn(&Counters) -> u64| field(after) - field(before);
    let ratio = |a: u64, b: u64| a as f64 / b.max(1) as f64;
    let dram_read_bytes = SECTOR * d(|c| c.dram_read_sectors);
    let dram_write_bytes = SECTOR * d(|c| c.dram_write_sectors);
    Counted {
        launches: d(|c| c.launches),
        blocks: d(|c| c.blocks),
        warp_instructions: d(|c| c.warp_instructions),
        thread_instructions: d(|c| c.thread_instructions),
        weight_bytes,
        cache_bytes,
        dram_read_bytes,
        dram_write_bytes,
        dram_ratio: ratio(dram_read_bytes + dram_write_bytes, weight_bytes + cache_bytes),
        sectors_per_load: ratio(d(|c| c.global_load_sectors), d(|c| c.global_loads)),
        bank_conflicts_per_access: ratio(d(|c| c.shared_bank_conflicts), d(|c| c.shared_accesses)),
    }
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
    let cost = Cost {
        dram_bytes: (counted.dram_read_bytes + counted.dram_write_bytes) as f64,
        warp_instructions: counted.warp_instructions as f64,
        launches: counted.launches as f64,
    };
    let machines = Machine::orin_agx().into_iter().map(|mut machine| {
        cli.orin.iter().for_each(|constant| constant.apply(&mut machine));
        Row { prediction: machine.predict(&cost), machine }
    });
    machines.collect()
}

fn print(report: &Report, out: &mut impl Write) -> io::Result<()> {
    report.model.print(out)?;
    report.tuning.print(out)?;
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
