//! Counts the cost of steps of several sequences on the software ga10b, and predicts from it the tokens per
//! second on a chip.

use std::io::{self, Write};
use std::iter;

use anyhow::ensure;
use ga10b_llm::{ColumnId, Columns, ColumnsOptions};
use ga10b_llm_tools::counted::{Counted, CountingDevice};
use ga10b_llm_tools::measured::Measurements;
use ga10b_llm_tools::roofline::{Machine, Phase, Prediction, StepCost};
use serde::Serialize;

use crate::cli::commands::Predict;
use crate::commands::predict::{NOTE, error_of_constants, machines};
use crate::outcome::{Outcome, Usage};
use crate::progress;
use crate::report::{self, ModelReport};
use crate::session;

/// The position of the steps by default: the middle of what `bench -b` decodes.
const POSITION: usize = 192;

/// The document of `--json`. Added fields are compatible; any other change increases the number.
#[derive(Debug, Serialize)]
struct Report {
    schema: &'static str,
    note: &'static str,
    chip: &'static str,
    model: ModelReport,
    kv: &'static str,
    /// Tokens of each sequence before the step.
    position: usize,
    batches: Vec<Batch>,
}

/// A step of some sequences.
#[derive(Debug, Serialize)]
struct Batch {
    batch: usize,
    counted: Counted,
    /// The counts that the predictions follow from.
    cost: StepCost,
    predictions: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    machine: Machine,
    /// Of a step; its tokens per second are those of one sequence.
    #[serde(flatten)]
    prediction: Prediction,
    /// Of all sequences.
    all_tokens_per_second: f64,
}

pub fn run(predict: &Predict) -> anyhow::Result<Outcome> {
    let model = session::model_to_run(&predict.model, predict.launching.kv)?;
    let most = predict.batch.iter().copied().max().unwrap_or(1) as usize;
    if predict.context.len() > 1 {
        let refused = format!("--context with -b is one position, not {}", predict.context.len());
        return Err(Usage(refused).into());
    }
    let room = model.config.context - 1;
    let position = predict.context.first().map_or(POSITION.min(room), |n| *n as usize);
    ensure!(position <= room, "position {position} is past the model's context of {}", room + 1);
    let counting = CountingDevice::with_cache(predict.chip.l2_bytes)?;
    let options = ColumnsOptions::new(most, position + 1).with_cache(predict.launching.kv);
    let columns = session::columns(&counting.device, &model, options, options.pages, None)?;
    let mut counter = Counter { counting, columns, ids: Vec::new(), position };
    let bar = progress::step_bar("counting");
    bar.set_length(predict.batch.len() as u64 + 2);
    for _ in 0..most {
        counter.ids.push(counter.columns.admit()?);
    }
    // The attention of a column is the same whatever is beside it: what one takes more at this position than at
    // the start.
    let empty = counter.step(1, 0)?;
    bar.inc(1);
    let full = counter.step(1, position)?;
    bar.inc(1);
    let per_column = full.warp_instructions.saturating_sub(empty.warp_instructions);
    let mut batches = Vec::new();
    for batch in predict.batch.iter().map(|batch| *batch as usize) {
        let counted = if batch == 1 { full.clone() } else { counter.step(batch, position)? };
        let cost = counter.cost(batch, &counted, per_column)?;
        let row = |machine: Machine| {
            let prediction = machine.predict_step(&cost);
            let all_tokens_per_second = batch as f64 * prediction.tokens_per_second;
            Row { machine, prediction, all_tokens_per_second }
        };
        let predictions = machines(predict, predict.chip, Machine::of_columns).map(row).collect();
        batches.push(Batch { batch, counted, cost, predictions });
        bar.inc(1);
    }
    bar.finish_and_clear();
    let report = Report {
        schema: "llm-demo.predict-batch/1",
        note: NOTE,
        chip: predict.chip.title,
        model: ModelReport::new(&model),
        kv: predict.launching.kv.name(),
        position,
        batches,
    };
    report::show(&report, predict.json, print)?;
    Ok(Outcome::Good)
}

/// Columns on a device that counts.
struct Counter {
    counting: CountingDevice,
    columns: Columns,
    ids: Vec<ColumnId>,
    position: usize,
}

impl Counter {
    /// The cost of a step of the first `batch` sequences at `position`.
    fn step(&mut self, batch: usize, position: usize) -> anyhow::Result<Counted> {
        let ids = &self.ids[..batch];
        ids.iter().try_for_each(|id| self.columns.pretend(*id, position))?;
        let vocab = self.columns.vocab();
        let work: Vec<(ColumnId, u32)> =
            ids.iter().enumerate().map(|(i, id)| (*id, (i * 7919 % vocab) as u32)).collect();
        // The first recording is not part of the step.
        self.columns.record_all()?;
        let before = self.counting.counters();
        self.columns.step(&work)?;
        let cache = (batch * position * self.columns.layers()) as u64 * self.columns.cache_bytes_of_layer();
        Ok(Counted::between(&before, &self.counting.counters(), self.columns.weight_bytes(), cache))
    }

    /// The cost of a step at the position, launch by launch. Attention's instructions are `per_column`.
    fn cost(&mut self, batch: usize, counted: &Counted, per_column: u64) -> anyhow::Result<StepCost> {
        let weights = self.columns.weight_bytes_of_launches(batch)?;
        let cache_bytes = (batch * self.position) as u64 * self.columns.cache_bytes_of_layer();
        let products = weights.iter().copied().filter(|bytes| *bytes > 0).map(|bytes| (bytes, 0));
        let attention = iter::repeat_n((0, cache_bytes), self.columns.layers());
        let cache_instructions = batch as u64 * per_column;
        Ok(StepCost {
            launches: weights.len() as u64,
            phases: Phase::counted(products.chain(attention)),
            weight_instructions: counted.warp_instructions.saturating_sub(cache_instructions),
            cache_instructions,
            dram_ratio: counted.dram_ratio,
            split: false,
        })
    }
}

fn print(report: &Report, out: &mut impl Write) -> io::Result<()> {
    report.model.print(out)?;
    writeln!(out, "cache       {} in pages, {} positions of each sequence", report.kv, report.position)?;
    writeln!(out, "\na step, counted on the software ga10b (sm_87 code)")?;
    writeln!(
        out,
        "{:>6} {:>9} {:>14} {:>12} {:>10}",
        "batch", "launches", "instructions", "DRAM MB", "ratio"
    )?;
    for Batch { batch, counted: c, cost, .. } in &report.batches {
        let dram = (c.dram_read_bytes + c.dram_write_bytes) as f64 / 1e6;
        let (launches, instructions, ratio) = (cost.launches, c.warp_instructions, c.dram_ratio);
        writeln!(out, "{batch:>6} {launches:>9} {instructions:>14} {dram:>12.2} {ratio:>10.3}")?;
    }
    let (chip, error) = (report.chip, error_of_constants(Measurements::of_h100_columns()));
    writeln!(out, "\nPREDICTED tok/s of all sequences for {chip}, not measured; {error}")?;
    write!(out, "{:<10} {:>4} {:>8} {:>7}", "mode", "SMs", "MHz", "GB/s")?;
    for Batch { batch, .. } in &report.batches {
        write!(out, " {:>15}", format!("-b {batch}"))?;
    }
    writeln!(out)?;
    let modes = report.batches.first().map_or(0, |batch| batch.predictions.len());
    for mode in 0..modes {
        for (i, Batch { predictions, .. }) in report.batches.iter().enumerate() {
            let Row { machine, prediction, all_tokens_per_second: all } = &predictions[mode];
            if i == 0 {
                let Machine { name, sms, mhz, gbps, .. } = machine;
                write!(out, "{name:<10} {sms:>4} {mhz:>8} {gbps:>7}")?;
            }
            write!(out, " {all:>8.1} {:<6}", prediction.bound.name())?;
        }
        writeln!(out)?;
    }
    Ok(())
}
