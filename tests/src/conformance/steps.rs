//! Decode steps of a small synthesized model: what the step kernel exchanges between blocks, streams, and
//! computes, as an engine launches it.

use anyhow::{Result, ensure};
use ga10b_llm::synthesize::Synthesis;
use ga10b_llm::{CacheType, Decoder, Engine, EngineOptions, Mode};
use hcq::Device;

/// Tokens that are decoded, whatever the logits are.
const TOKENS: [u32; 6] = [1, 700, 3, 1023, 3, 88];
/// Positions of the cache.
const CONTEXT: usize = 8;
/// What the weights follow from.
pub const SEED: u64 = 3;

/// A model, and the cache that it has.
#[derive(Clone, Copy, Debug)]
pub struct Steps {
    /// Types of the matrices, as in `--synthesize`.
    pub mix: &'static str,
    /// Type of the cache.
    pub kv: CacheType,
}

impl Steps {
    /// The logits of every step, as bits: the same whatever the number of SMs.
    ///
    /// # Errors
    /// What the device reports; a model that the step kernel does not take.
    pub fn run(&self, device: &Device) -> Result<Vec<Vec<u32>>> {
        let model = format!("tiny-llama:{}", self.mix).parse::<Synthesis>()?.model(SEED)?;
        let options = EngineOptions::new(CONTEXT).with_mode(Mode::Persistent).with_cache(self.kv);
        let mut engine = Engine::new(device, &model, &options)?;
        ensure!(engine.mode() == Mode::Persistent, "no step in one launch for {self:?}");
        let bits = |logits: Vec<f32>| logits.into_iter().map(f32::to_bits).collect();
        TOKENS.into_iter().map(|token| Ok(bits(engine.step(token)?))).collect()
    }
}
