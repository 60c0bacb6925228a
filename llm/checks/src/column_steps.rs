//! Steps of several sequences of a small synthesized model, as columns launch them.

use anyhow::Result;
use ga10b_llm::synthesize::Synthesis;
use ga10b_llm::{CacheType, ColumnId, Columns, ColumnsOptions};
use hcq::Device;

use crate::steps::SEED;

/// Steps.
const STEPS: usize = 3;
/// Positions of a sequence.
const CONTEXT: usize = 64;
/// Tokens of the chunk of a case with one.
const CHUNK: usize = 40;

/// A model, its cache, and how many sequences it has.
#[derive(Clone, Copy, Debug)]
pub struct ColumnSteps {
    /// Types of the matrices, as in `llm-demo synthesize`.
    pub mix: &'static str,
    /// Type of the cache.
    pub kv: CacheType,
    /// Sequences.
    pub sequences: usize,
    /// Whether the first sequence begins with a chunk.
    pub chunk: bool,
}

impl ColumnSteps {
    /// The logits of all columns as bits, a list per step.
    ///
    /// # Errors
    /// The device's errors.
    pub fn run(&self, device: &Device) -> Result<Vec<Vec<u32>>> {
        Ok(self
            .logits(device, self.kv)?
            .into_iter()
            .map(|l| l.into_iter().map(f32::to_bits).collect())
            .collect())
    }

    fn logits(&self, device: &Device, kv: CacheType) -> Result<Vec<Vec<f32>>> {
        let model = format!("tiny-llama:{}", self.mix).parse::<Synthesis>()?.model(SEED)?;
        let options = ColumnsOptions::new(self.sequences, CONTEXT).with_cache(kv);
        let options = ColumnsOptions { chunks: self.chunk, ..options };
        let mut columns = Columns::new(device, &model, &options)?;
        let ids = (0..self.sequences).map(|_| columns.admit()).collect::<Result<Vec<_>, _>>()?;
        let token = |at: usize, number: usize| ((at * 389 + number * 71 + 3) % model.config.vocab) as u32;
        if self.chunk {
            let tokens: Vec<u32> = (0..CHUNK).map(|at| token(at, 0)).collect();
            columns.chunk(ids[0], &tokens)?;
        }
        let step = |at: usize| -> Result<Vec<f32>> {
            let work: Vec<(ColumnId, u32)> =
                ids.iter().enumerate().map(|(number, id)| (*id, token(at, number))).collect();
            columns.step(&work)?;
            let mut logits = Vec::new();
            for column in 0..work.len() {
                logits.extend(columns.logits(column)?);
            }
            Ok(logits)
        };
        (0..STEPS).map(step).collect()
    }

    /// The effect of the cache's rounding on the logits of each step, in the model.
    ///
    /// # Errors
    /// The device's errors.
    pub fn effect_of_rounding(&self, model: &Device) -> Result<Vec<f64>> {
        let [whole, rounded] = [CacheType::F16, self.kv].map(|kv| self.logits(model, kv));
        let apart = |(a, b): (Vec<f32>, Vec<f32>)| {
            a.into_iter().zip(b).map(|(a, b)| f64::from((a - b).abs())).fold(0.0, f64::max)
        };
        Ok(whole?.into_iter().zip(rounded?).map(apart).collect())
    }
}
