//! Counts the cost of a token on the software ga10b, and predicts from it the time on a chip; compares
//! predictions with measurements.

use std::io::{self, Write};
use std::path::Path;

use anyhow::Context;
use ga10b_llm::engine::{KernelUse, Residency};
use ga10b_llm::sampler::argmax;
use ga10b_llm::{Decoder, Engine, Mode};
use ga10b_llm_tools::chips::{CHIPS, Chip};
use ga10b_llm_tools::counted::{Counted, CountingDevice};
use ga10b_llm_tools::measured::{Comparison, Measurements, Point, ReadError, compare, fit, worst_percent};
use ga10b_llm_tools::roofline::{Fitted, Machine, Phase, Prediction, StepCost};
use serde::Serialize;

use crate::cli::commands::Predict;
use crate::outcome::Outcome;
use crate::progress;
use crate::report::{self, ModelReport};
use crate::session::{self, Session, Setup};
use crate::shapes::TuningReport;
use crate::text_file::{self, Input};

/// Tokens decoded by default; the last one is counted.
const DEFAULT_STEPS: usize = 4;
/// The nature of the figures.
pub const NOTE: &str = "counted on the software ga10b; the times are predictions, not measurements";
/// Positions from which attention is split over blocks, whose parts another one adds up.
const SPLIT_FROM: usize = 256;

/// The document of `--json`. Added fields are compatible; any other change increases the number.
#[derive(Debug, Serialize)]
struct Report {
    schema: &'static str,
    note: &'static str,
    chip: &'static str,
    model: ModelReport,
    tuning: TuningReport,
    /// The counted token; with `--context` the last one.
    #[serde(flatten)]
    last: At,
    /// Occupancy of an SM by the kernels of the step in one launch, of a batch step, of a full chunk of a prompt.
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
    /// The counts that the predictions follow from.
    cost: StepCost,
    predictions: Vec<Row>,
}

#[derive(Clone, Debug, Serialize)]
struct Row {
    machine: Machine,
    #[serde(flatten)]
    prediction: Prediction,
}

pub fn run(predict: &Predict) -> anyhow::Result<Outcome> {
    if let Some(path) = &predict.against {
        return against(predict, path);
    }
    let model = session::model_to_run(&predict.model, predict.launching.kv)?;
    let most = model.config.context;
    // Some steps from the start, of which the last one counts, or a step at each given position.
    let given: Vec<usize> = predict.context.iter().map(|n| *n as usize).collect();
    let positions = match given.is_empty() {
        true => (0..predict.count.map_or(DEFAULT_STEPS.min(most), |n| n as usize)).collect(),
        false => given.clone(),
    };
    let room = positions.iter().max().map_or(1, |p| p + 1);
    anyhow::ensure!(room <= most, "position {} is past the model's context of {most}", room - 1);
    let counting = CountingDevice::with_cache(predict.chip.l2_bytes)?;
    let usual = match Engine::step_kernel_lacks(&model.config, room) {
        None => Mode::Stream,
        Some(_) => Mode::Batch,
    };
    let mode = predict.launching.engine.unwrap_or(usual);
    let setup = Setup { mode: Some(mode), ..Setup::of(&predict.launching) };
    let mut session = Session::new(counting.device.clone(), &setup, &model, room)?;

    let bar = progress::step_bar("counting");
    bar.set_length(positions.len() as u64);
    let engine = &mut session.engine;
    // The part that does not depend on the position; the first step also fills the level-2 cache.
    step(engine, 0)?;
    engine.reset()?;
    let before = counting.counters();
    let mut token = step(engine, 0)?;
    let empty = Counted::between(&before, &counting.counters(), engine.weight_bytes_per_token(), 0);
    engine.reset()?;
    let mut points = Vec::new();
    for position in positions {
        if !given.is_empty() {
            engine.pretend(position)?;
        }
        let before = counting.counters();
        token = step(engine, token)?;
        let cache_bytes = position as u64 * engine.cache_bytes_per_position();
        let weights = engine.weight_bytes_per_token();
        let mut counted = Counted::between(&before, &counting.counters(), weights, cache_bytes);
        if mode == Mode::Stream {
            counted.launches = 1;
        }
        let cost = step_cost(engine, &empty, &counted, position);
        points.push(At { position, predictions: predictions(predict, &cost), counted, cost });
        bar.inc(1);
    }
    bar.finish_and_clear();
    let report = Report {
        schema: "llm-demo.predict/1",
        note: NOTE,
        chip: predict.chip.title,
        model: ModelReport::new(&model),
        tuning: session.tuning.clone(),
        last: points.last().context("nothing was counted")?.clone(),
        occupancy: session.engine.kernels()?.into_iter().filter(|k| k.residency.is_some()).collect(),
        kv: session.engine.kv().name(),
        contexts: if given.is_empty() { Vec::new() } else { points },
    };
    report::show(&report, predict.json, print)?;
    Ok(Outcome::Good)
}

/// Processes `token`; the next one. Blocks that wait for each other issue instructions which say nothing of the
/// time, so each phase is counted as a launch of its own.
fn step(engine: &mut Engine, token: u32) -> ga10b_llm::Result<u32> {
    Ok(argmax(&engine.step_by_phases(token)?))
}

/// The cost of a step that `counted` says, and of one at an empty context.
fn step_cost(engine: &Engine, empty: &Counted, counted: &Counted, position: usize) -> StepCost {
    let read = |(weights, per_position)| (weights, per_position * position as u64);
    StepCost {
        launches: counted.launches,
        phases: Phase::counted(engine.bytes_of_phases().map(read)),
        weight_instructions: empty.warp_instructions,
        cache_instructions: counted.warp_instructions.saturating_sub(empty.warp_instructions),
        dram_ratio: counted.dram_ratio,
        split: position > SPLIT_FROM,
    }
}

/// The machine of each power mode, with the constants of the command line.
pub(super) fn machines(
    predict: &Predict,
    chip: Chip,
    fitted: impl Fn(Machine) -> Machine,
) -> impl Iterator<Item = Machine> {
    chip.machines().into_iter().map(move |machine| {
        let mut machine = fitted(machine);
        predict.orin.iter().for_each(|constant| constant.apply(&mut machine));
        machine
    })
}

/// A row per power mode.
fn predictions(predict: &Predict, cost: &StepCost) -> Vec<Row> {
    machines(predict, predict.chip, |machine| machine)
        .map(|machine| Row { prediction: machine.predict_step(cost), machine })
        .collect()
}

/// The document of `--against --json`.
#[derive(Debug, Serialize)]
struct Against {
    schema: &'static str,
    chip: &'static str,
    note: String,
    constants: Fitted,
    fitted: bool,
    rows: Vec<Comparison>,
    worst_percent: f64,
    /// The same steps on other chips, with these constants: predictions.
    elsewhere: Vec<Elsewhere>,
}

/// The predicted tokens per second of a file's steps in a power mode of a module.
#[derive(Debug, Serialize)]
struct Elsewhere {
    module: &'static str,
    /// Source of its power modes.
    source: &'static str,
    machine: Machine,
    /// In the order of the file's points.
    tokens_per_second: Vec<f64>,
}

/// Compares with the measurements of a file.
fn against(predict: &Predict, path: &Path) -> anyhow::Result<Outcome> {
    let named = || format!("cannot use the measurements {}", path.display());
    let text = text_file::read(path, Input::AFile).with_context(named)?;
    let file = Measurements::from_json(&text).with_context(named)?;
    let chip: Chip = file.chip.parse().map_err(anyhow::Error::msg).with_context(named)?;
    let mut machine = machines(predict, chip, |machine| file.machine(machine))
        .next()
        .context("a chip without a power mode")?;
    if predict.fit {
        anyhow::ensure!(!file.is_of_columns(), "--fit is for measurements of one sequence");
        let fitted = fit(&machine, &file.points);
        machine = machine.with(fitted);
    }
    let Machine { share, ipc, attention_ipc, exchange_cycles, launch_us, .. } = machine;
    let rows = compare(&machine, &file.points);
    let report = Against {
        schema: "llm-demo.against/1",
        chip: chip.title,
        note: file.note.clone(),
        constants: Fitted { share, ipc, attention_ipc, exchange_cycles, launch_us },
        fitted: predict.fit,
        worst_percent: worst_percent(&rows),
        rows,
        elsewhere: elsewhere(&file, chip, &machine),
    };
    report::show(&report, predict.json, print_against)?;
    Ok(Outcome::Good)
}

/// The times of `file`'s steps on all chips but `measured`, with the constants of `fitted`.
fn elsewhere(file: &Measurements, measured: Chip, fitted: &Machine) -> Vec<Elsewhere> {
    let Machine { share, ipc, attention_ipc, exchange_cycles, launch_us, .. } = *fitted;
    let fitted = Fitted { share, ipc, attention_ipc, exchange_cycles, launch_us };
    let of = |chip: Chip, machine: Machine| {
        let machine = if file.is_of_columns() { machine.of_columns() } else { machine.with(fitted) };
        let rate = |point: &Point| point.predicted(&machine);
        let tokens_per_second = file.points.iter().map(rate).collect();
        Elsewhere { module: chip.title, source: chip.source, machine, tokens_per_second }
    };
    let others = CHIPS.into_iter().filter(|chip| chip.key != measured.key);
    others.flat_map(|chip| chip.machines().into_iter().map(move |machine| of(chip, machine))).collect()
}

fn print_against(report: &Against, out: &mut impl Write) -> io::Result<()> {
    let Fitted { share, ipc, attention_ipc, exchange_cycles, launch_us } = report.constants;
    writeln!(out, "measured    {}: {}", report.chip, report.note)?;
    write!(out, "constants   share {share:.3}, ipc {ipc:.3}, attention-ipc {attention_ipc:.3}, ")?;
    write!(out, "exchange-cycles {exchange_cycles:.0}, ")?;
    writeln!(
        out,
        "launch-us {launch_us:.2}{}",
        if report.fitted { ", fitted to these measurements" } else { "" }
    )?;
    writeln!(out)?;
    writeln!(
        out,
        "{:<26} {:<5} {:>8} {:>7} {:>10} {:>10} {:>8}",
        "model", "cache", "position", "columns", "measured", "predicted", "error"
    )?;
    for Comparison { model, kv, position, columns, measured, predicted, error_percent } in &report.rows {
        let columns = columns.map_or("-".to_owned(), |columns| columns.to_string());
        write!(out, "{model:<26} {kv:<5} {position:>8} {columns:>7} {measured:>10.1} {predicted:>10.1} ")?;
        writeln!(out, "{error_percent:>6.1} %")?;
    }
    writeln!(out, "largest error {:.1} %", report.worst_percent)
}

fn print(report: &Report, out: &mut impl Write) -> io::Result<()> {
    report.model.print(out)?;
    report.tuning.print(out)?;
    writeln!(out, "cache       {}", report.kv)?;
    if !report.contexts.is_empty() {
        print_contexts(report.chip, &report.contexts, out)?;
    }
    let At { position, counted: c, predictions, .. } = &report.last;
    let (instructions, threads) = (c.warp_instructions, c.thread_instructions);
    let read = (c.weight_bytes + c.cache_bytes) as f64 / 1e6;
    let (dram, ratio) = (dram_megabytes(c), c.dram_ratio);
    writeln!(out, "\none token at position {position}, counted on the software ga10b (sm_87 code)")?;
    writeln!(out, "launches                {:>14}   blocks {}", c.launches, c.blocks)?;
    writeln!(out, "warp instructions       {instructions:>14}   thread instructions {threads}")?;
    writeln!(out, "weights + cache, MB     {read:>14.3}")?;
    writeln!(out, "DRAM read + written, MB {dram:>14.3}   {ratio:.3} of that (after the level-2 cache)")?;
    writeln!(out, "sectors per load        {:>14.2}", c.sectors_per_load)?;
    let conflicts = c.bank_conflicts_per_access;
    writeln!(out, "bank conflicts          {conflicts:>14.3}   passes beyond the first per shared access")?;
    print_occupancy(&report.occupancy, out)?;
    print_predictions(report.chip, predictions, out)
}

/// The error of predictions with the constants in use, against the measurements that they were fitted to.
pub fn error_of_constants(measurements: Result<Measurements, ReadError>) -> String {
    let known = measurements.ok().and_then(|file| {
        let machine = file.machine(file.chip.parse::<Chip>().ok()?.machines().into_iter().next()?);
        Some((file.points.len(), worst_percent(&compare(&machine, &file.points))))
    });
    match known {
        Some((points, worst)) => {
            format!("its constants reproduce {points} measurements of an H100 within {worst:.1} %")
        }
        None => "the error of its constants is not known".to_owned(),
    }
}

fn print_predictions(chip: &str, predictions: &[Row], out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "\nPREDICTION for {chip}, not a measurement; {}",
        error_of_constants(Measurements::of_h100())
    )?;
    writeln!(
        out,
        "{:<10} {:>4} {:>8} {:>7} {:>6} {:>5} {:>9} {:>9} {:>12} {:>10} {:>8}  bound",
        "mode",
        "SMs",
        "MHz",
        "GB/s",
        "share",
        "IPC",
        "DRAM ms",
        "issue ms",
        "exchange ms",
        "launch ms",
        "tok/s"
    )?;
    for Row { machine, prediction } in predictions {
        let Machine { name, sms, mhz, gbps, share, ipc, .. } = machine;
        let Prediction { dram_ms, issue_ms, exchange_ms, launch_ms, tokens_per_second, bound } = prediction;
        write!(out, "{name:<10} {sms:>4} {mhz:>8} {gbps:>7} {share:>6.3} {ipc:>5.2} {dram_ms:>9.3} ")?;
        write!(out, "{issue_ms:>9.3} {exchange_ms:>12.3} {launch_ms:>10.3} {tokens_per_second:>8.1}  ")?;
        writeln!(out, "{}", bound.name())?;
    }
    writeln!(
        out,
        "constants are overridden with --orin KEY=VALUE (sms, mhz, gbps, share, ipc, attention-ipc, exchange-cycles, launch-us, \
         link-us)"
    )
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
fn print_contexts(chip: &str, contexts: &[At], out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "\nPREDICTED tok/s for {chip} by position, not measured; {}",
        error_of_constants(Measurements::of_h100())
    )?;
    write!(out, "position   cache MB    DRAM MB    ratio instructions")?;
    for row in contexts.iter().take(1).flat_map(|at| &at.predictions) {
        write!(out, " {:>17}", row.machine.name)?;
    }
    writeln!(out)?;
    for At { position, counted: c, predictions, .. } in contexts {
        let (cache, dram, ratio) = (c.cache_bytes as f64 / 1e6, dram_megabytes(c), c.dram_ratio);
        write!(out, "{position:>8} {cache:>10.2} {dram:>10.2} {ratio:>8.3} {:>12}", c.warp_instructions)?;
        for Row { prediction: p, .. } in predictions {
            write!(out, " {:>8.1} {:<8}", p.tokens_per_second, p.bound.name())?;
        }
        writeln!(out)?;
    }
    Ok(())
}
