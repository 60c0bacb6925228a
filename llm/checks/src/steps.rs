//! Decode steps of a small synthesized model: what the persistent step exchanges between blocks, streams, and
//! computes, as an engine launches it.

use anyhow::{Result, ensure};
use ga10b_llm::cache::BLOCK;
use ga10b_llm::engine::PAGE;
use ga10b_llm::model::Config;
use ga10b_llm::synthesize::Synthesis;
use ga10b_llm::{CacheType, Decoder, Engine, EngineOptions, Mode, Model};
use hcq::Device;

/// Tokens that are decoded, whatever the logits are.
const TOKENS: [u32; STEPS] = [1, 700, 3, 1023, 3, 88];
/// Steps.
pub const STEPS: usize = 6;
/// Positions of the cache.
const CONTEXT: usize = 8;
/// The seed of the weights.
pub const SEED: u64 = 3;

/// Largest ratio of a step's attention to its own position to that of the step after it: in the first step
/// all, in the second about half.
const MORE_ATTENTION: f64 = 2.0;

/// A model, and the cache that it has.
#[derive(Clone, Copy, Debug)]
pub struct Steps {
    /// Types of the matrices, as in `llm-demo synthesize`.
    pub mix: &'static str,
    /// Type of the cache.
    pub kv: CacheType,
}

/// The kind of a word in a step's part of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cached {
    /// An f16.
    Half,
    /// A signed byte, as a word.
    Code,
    /// The scale of 32 of them, in f16.
    Scale,
}

impl Steps {
    fn model(&self) -> Result<Model> {
        Ok(format!("tiny-llama:{}", self.mix).parse::<Synthesis>()?.model(SEED)?)
    }

    fn engine(&self, device: &Device, model: &Model) -> Result<Engine> {
        let options = EngineOptions::new(CONTEXT).with_mode(Mode::Stream).with_cache(self.kv);
        let engine = Engine::new(device, model, &options)?;
        ensure!(engine.mode() == Mode::Stream, "no step in one launch for {self:?}");
        Ok(engine)
    }

    /// The logits of every step as bits, then what every step has cached: the same whatever the number of SMs.
    ///
    /// # Errors
    /// The device's errors; a model that the persistent step does not take.
    pub fn run(&self, device: &Device) -> Result<Vec<Vec<u32>>> {
        let model = self.model()?;
        let mut engine = self.engine(device, &model)?;
        let bits = |logits: Vec<f32>| logits.into_iter().map(f32::to_bits).collect();
        let mut results: Vec<Vec<u32>> =
            TOKENS.into_iter().map(|token| Ok(bits(engine.step(token)?))).collect::<Result<_>>()?;
        let place = Place { config: &model.config, kv: self.kv };
        for position in 0..STEPS {
            results.push(place.get(&engine, position)?);
        }
        Ok(results)
    }

    /// The kinds of the words in a step's part of the cache.
    ///
    /// # Errors
    /// That the model cannot be made.
    pub fn cached(&self) -> Result<Vec<Cached>> {
        let model = self.model()?;
        let place = Place { config: &model.config, kv: self.kv };
        let of_buffer: Vec<Cached> = place.of(0).map(|(_, what)| what).collect();
        Ok(of_buffer.repeat(2 * model.config.layers))
    }

    /// Differences of each step's logits on a device due to the caches of two others in the steps up to it,
    /// `a` and `b` as [`Steps::run`] gives them: the difference for the cache before the step, and
    /// `MORE_ATTENTION` times that which the step's own part of the cache makes in the step after it.
    ///
    /// # Errors
    /// The device's errors.
    pub fn effect_of_caches(&self, device: &Device, a: &[Vec<u32>], b: &[Vec<u32>]) -> Result<Vec<f64>> {
        let model = self.model()?;
        let mut engine = self.engine(device, &model)?;
        let place = Place { config: &model.config, kv: self.kv };
        // The logits of step `step` after caches that are `first` up to position `from`, and `second` then.
        let mut logits = |step: usize, first: &[Vec<u32>], from: usize, second: &[Vec<u32>]| {
            engine.pretend(step)?;
            for position in 0..step {
                let words = if position < from { first } else { second };
                place.put(&engine, position, &words[STEPS + position])?;
            }
            anyhow::Ok(engine.step(TOKENS[step % STEPS])?)
        };
        let apart =
            |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from((a - b).abs())).fold(0.0, f64::max);
        let mut effects = Vec::new();
        for step in 0..STEPS {
            let before = apart(&logits(step, a, step, a)?, &logits(step, b, step, b)?);
            let own = apart(&logits(step + 1, a, step, a)?, &logits(step + 1, a, step, b)?);
            effects.push(before + MORE_ATTENTION * own);
        }
        Ok(effects)
    }
}

/// The place of a position in a layer's cache.
struct Place<'a> {
    config: &'a Config,
    kv: CacheType,
}

impl Place<'_> {
    /// The cached values of a position in all layers, a number a word.
    fn get(&self, engine: &Engine, position: usize) -> Result<Vec<u32>> {
        let mut words = Vec::new();
        for buffer in engine.caches().flatten() {
            let mut bytes = vec![0; buffer.len() as usize];
            buffer.read(0, &mut bytes)?;
            words.extend(self.of(position).map(|(at, what)| match what {
                Cached::Code => i32::from(bytes[at].cast_signed()).cast_unsigned(),
                Cached::Half | Cached::Scale => u32::from(u16::from_le_bytes([bytes[at], bytes[at + 1]])),
            }));
        }
        Ok(words)
    }

    /// Caches that.
    fn put(&self, engine: &Engine, position: usize, words: &[u32]) -> Result<()> {
        let mut words = words.iter();
        for buffer in engine.caches().flatten() {
            let mut bytes = vec![0; buffer.len() as usize];
            buffer.read(0, &mut bytes)?;
            for ((at, what), word) in self.of(position).zip(&mut words) {
                let [low, high, ..] = word.to_le_bytes();
                bytes[at] = low;
                if what != Cached::Code {
                    bytes[at + 1] = high;
                }
            }
            buffer.write(0, &bytes)?;
        }
        Ok(())
    }

    /// The byte offsets of what it holds, codes before scales. The context is one page.
    fn of(&self, position: usize) -> impl Iterator<Item = (usize, Cached)> {
        let (head_dim, kv_heads) = (self.config.head_dim, self.config.kv_heads);
        let all = kv_heads * PAGE * head_dim;
        let rows = move |len: usize| {
            (0..kv_heads).flat_map(move |head| (0..len).map(move |i| (head * PAGE + position) * len + i))
        };
        let (bytes, what, blocks) = match self.kv {
            CacheType::F16 => (2, Cached::Half, 0),
            CacheType::Q8_0 => (1, Cached::Code, head_dim / BLOCK as usize),
        };
        let numbers = rows(head_dim).map(move |i| (bytes * i, what));
        numbers.chain(rows(blocks).map(move |i| (all + 2 * i, Cached::Scale)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ga10b_tests::conformance::Runner;
    use hcq::Selector;

    /// Nothing of the caches that are compared is memory that nothing wrote.
    #[test]
    fn every_head_has_cached_something_at_every_position() {
        let steps = Steps { mix: "f16", kv: CacheType::F16 };
        let config = steps.model().unwrap().config;
        let results = steps.run(Runner::open(Selector::Sim).unwrap().device()).unwrap();
        for head in results[STEPS..].iter().flat_map(|words| words.chunks(config.head_dim)) {
            assert!(head.iter().any(|word| *word != 0));
        }
    }

    /// A code that differs by one changes the logits of its step and of later ones, and none before.
    #[test]
    fn a_code_of_the_cache_changes_logits_from_its_step_on() {
        let steps = Steps { mix: "f16", kv: CacheType::Q8_0 };
        let runner = Runner::open(Selector::Sim).unwrap();
        let right = steps.run(runner.device()).unwrap();
        let mut moved = right.clone();
        let code = &mut moved[STEPS + 2][7];
        *code = (code.cast_signed() ^ 1).cast_unsigned();
        let effects = steps.effect_of_caches(runner.device(), &right, &moved).unwrap();
        assert_eq!(effects[..2], [0.0; 2]);
        assert!(effects[2..].iter().all(|effect| (1e-6..0.1).contains(effect)), "{effects:?}");
    }
}
