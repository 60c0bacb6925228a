//! The engine: processes tokens on a device and gives logits.

use std::fmt;
use std::time::Instant;

use hcq::{Buffer, Device, Queue};
use tracing::trace_span;

use crate::cache::CacheType;
use crate::decoder::Decoder;
use crate::engine::alone::{Alone, On, Wanted};
use crate::engine::batch::Steps;
use crate::engine::cache::pages_for;
use crate::engine::diagnosis::{self, Suspect};
use crate::engine::finish::Prompt;
use crate::engine::launch::Launch;
use crate::engine::matrix::fits;
use crate::engine::memory::DeviceModel;
use crate::engine::options::{EngineOptions, LoadTimes, Mode};
use crate::engine::programs::{Launched, Programs};
use crate::engine::prompt::chunks::refuses;
use crate::engine::stream;
use crate::engine::timed::Tracing;
use crate::error::{Error, Result};
use crate::model::Model;
use crate::model::config::Config;
use crate::sampler::Sampler;
use crate::spans::HOST;

/// A model on a device.
pub struct Engine {
    pub(super) model: DeviceModel,
    pub(super) queue: Queue,
    pub(super) steps: Steps,
    pub(super) alone: Alone,
    /// The pages of all positions, in order.
    pub(super) pages: Vec<u32>,
    /// For prompts; `None` if the kernels do not take the model's shape.
    pub(super) prompt: Option<Prompt>,
    pub(super) position: usize,
    load_times: LoadTimes,
    /// The graphs that are replayed instead while launches are timed.
    pub(super) tracing: Option<Tracing>,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (context, launches) = (self.context(), self.phases().len());
        write!(f, "Engine(position {} of {context}, {launches} launches)", self.position)
    }
}

impl Engine {
    /// Copies `model` to `device` and records its step.
    ///
    /// # Errors
    /// [`Error::UnsupportedType`], [`Error::PartialBlock`] or [`Error::KeyValue`] for a model that has no
    /// kernels, [`Error::NoKernels`] for a device without kernels; what the device reports.
    pub fn new(device: &Device, model: &Model, options: &EngineOptions) -> Result<Self> {
        Self::with_progress(device, model, options, &mut |_, _| ())
    }

    /// [`Engine::new`], which calls `progress` with the tensor bytes copied so far and in all.
    ///
    /// # Errors
    /// As [`Engine::new`].
    pub fn with_progress(
        device: &Device,
        model: &Model,
        options: &EngineOptions,
        progress: &mut (dyn FnMut(u64, u64) + Send),
    ) -> Result<Self> {
        let begin = Instant::now();
        let tuning = &options.tuning;
        let mut programs = Programs::new(device, tuning.kernels.clone())?;
        // Before anything is copied, and once: memory for stacks that grew later would be taken twice.
        device.reserve_stacks(Programs::largest_stack(device, Launched::ByEngine, &tuning.kernels)?)?;
        let (total, mut done) = (model.tensor_bytes(), 0);
        let context = options.context.max(1);
        let pages = pages_for(context);
        let model = DeviceModel::load(device, model, (context, pages, options.kv), &mut |bytes| {
            done += bytes;
            progress(done, total);
        })?;
        let of_steps = Programs::new(device, tuning.kernels.clone())?;
        let mut steps = Steps::new(device, &model.config, of_steps, (1, pages))?;
        let pages: Vec<u32> = (0..fits(pages)?).collect();
        steps.write_table(0, &pages)?;
        let alone = Alone::new(&model, &mut steps, &mut programs, options)?;
        let queue = device.queue()?;
        let prompt = match refuses(&model.config) {
            None => {
                Some(Prompt::new(&model, programs, tuning.choices.clone(), &mut steps, options.expanded)?)
            }
            Some(reason) => {
                tracing::warn!("prompts are processed in batch steps: {reason}");
                None
            }
        };
        let weights = model.loading;
        let load_times = LoadTimes { weights, kernels: begin.elapsed().saturating_sub(weights) };
        let (position, tracing) = (0, None);
        let mut engine = Self { model, queue, steps, alone, pages, prompt, position, load_times, tracing };
        engine.reset()?;
        Ok(engine)
    }

    /// The logits after the last step or prompt, `vocab` numbers.
    ///
    /// # Errors
    /// The device's errors.
    pub fn logits(&self) -> Result<Vec<f32>> {
        let mut logits = Vec::new();
        self.read_logits(&mut logits)?;
        Ok(logits)
    }

    /// Reads the logits; `logits` becomes as long as the vocabulary.
    fn read_logits(&self, logits: &mut Vec<f32>) -> Result<()> {
        logits.resize(self.model.config.vocab, 0.0);
        self.alone.read_logits(&self.steps, logits)
    }

    /// The token that the last step has chosen on the device.
    fn chosen(&mut self, wanted: Wanted) -> Result<u32> {
        let token = self.alone.chosen(&self.steps, wanted)?;
        if token == 0 {
            // The choice among logits without any number, and among zeros.
            self.check_logits(&self.logits()?)?;
        }
        Ok(token)
    }

    /// Bytes of weights that one step reads.
    pub fn weight_bytes_per_token(&self) -> u64 {
        self.phases().iter().map(|l| l.weight_bytes).sum()
    }

    /// Bytes of weights, and of keys and values per position, that each phase of a step reads, in order;
    /// where a step is not one launch, each launch.
    pub fn bytes_of_phases(&self) -> impl Iterator<Item = (u64, u64)> {
        self.phases().iter().map(|launch| (launch.weight_bytes, launch.cache_bytes))
    }

    /// Type of the key/value cache.
    pub fn kv(&self) -> CacheType {
        self.model.cache.kv
    }

    /// Bytes of keys and values of one position in all layers; a step reads them for every position in the
    /// context.
    pub fn cache_bytes_per_position(&self) -> u64 {
        self.model.config.layers as u64 * self.model.cache.bytes_per_position()
    }

    /// The cached keys and values of each layer: `[page][head of keys and values][position][dimension]`, in
    /// f16, or in signed bytes with one f16 scale for 32 of them, which lie in the same order after all bytes.
    /// Pages of [`PAGE`](crate::engine::PAGE) positions are in order.
    pub fn caches(&self) -> impl Iterator<Item = [&Buffer; 2]> {
        self.model.layers.iter().map(|layer| [&layer.keys, &layer.values])
    }

    /// Kernel launches of one step.
    pub fn launches_per_token(&self) -> u64 {
        let Alone { stream, launches, .. } = &self.alone;
        stream.as_ref().map_or(launches.len(), |stream| stream.step.launches()) as u64
    }

    /// Time that setting it up took.
    pub fn load_times(&self) -> LoadTimes {
        self.load_times
    }

    /// The features of a model's layers in `context` positions that the kernel of [`Mode::Stream`] does not
    /// compute, in words; `None` if it computes all. Steps then are those of batches.
    pub fn step_kernel_lacks(config: &Config, context: usize) -> Option<&'static str> {
        stream::lacks(config, context)
    }

    /// The launch mode of a step.
    pub fn mode(&self) -> Mode {
        if self.alone.stream.is_some() { Mode::Stream } else { Mode::Batch }
    }

    /// Sets the position without processing tokens, to measure a step there. The cache up to `position` is
    /// undefined, and so are the logits that follow.
    ///
    /// # Errors
    /// [`Error::ContextFull`] if the cache has no room for that many tokens and one more.
    pub fn pretend(&mut self, position: usize) -> Result<()> {
        self.reset()?;
        self.check_room(position + 1)?;
        // Values in the cache need not be numbers.
        self.alone.probed = true;
        self.alone.moved();
        self.position = position;
        Ok(())
    }

    /// Takes keys and values that were written to the cache for the context `tokens`.
    pub(super) fn resume(&mut self, tokens: &[u32]) -> Result<()> {
        self.truncate(0)?;
        self.alone.state.set_tokens(0, tokens)?;
        self.position = tokens.len();
        Ok(())
    }

    /// The launches of a step: phases, or those of a batch step.
    fn phases(&self) -> &[Launch] {
        let Alone { stream, launches, .. } = &self.alone;
        stream.as_ref().map_or(launches, |stream| &stream.plan.phases)
    }

    /// The engine's parts that a diagnosis looks at.
    fn suspect(&mut self) -> Suspect<'_> {
        let Self { model, steps, queue, alone, pages, .. } = self;
        alone.suspect(On { model, steps, queue }, pages)
    }

    /// Finds the reason if `logits` are not what a model gives, and resets the engine then.
    pub(super) fn check_logits(&mut self, logits: &[f32]) -> Result<()> {
        if diagnosis::are_plausible(logits) {
            return Ok(());
        }
        let position = self.position.saturating_sub(1);
        let error = match logits.first() {
            Some(first) if *first == 0.0 => self.suspect().find_zeros(position)?,
            _ => Some(self.suspect().find(position)?),
        };
        self.alone.moved();
        let Some(error) = error else { return Ok(()) };
        self.reset()?;
        Err(error)
    }

    pub(super) fn check_token(&self, token: u32) -> Result<()> {
        let vocab = self.model.config.vocab;
        if (token as usize) < vocab { Ok(()) } else { Err(Error::Token { token, vocab }) }
    }

    pub(super) fn check_room(&self, tokens: usize) -> Result<()> {
        let context = self.context();
        match tokens <= context - self.position {
            true => Ok(()),
            false => Err(Error::ContextFull { position: context, context }),
        }
    }

    fn run(&mut self, token: u32, wanted: Wanted) -> Result<()> {
        self.check_token(token)?;
        self.check_room(1)?;
        if !self.alone.probed {
            let position = self.position;
            self.alone.state.set_tokens(position, &[token])?;
            self.suspect().probe(token, position)?;
            self.alone.probed = true;
        }
        let Self { model, steps, queue, alone, tracing, .. } = self;
        alone.run(On { model, steps, queue }, (token, self.position), wanted, tracing)?;
        self.position += 1;
        Ok(())
    }
}

impl Decoder for Engine {
    fn step(&mut self, token: u32) -> Result<Vec<f32>> {
        self.run(token, Wanted::Logits)?;
        let logits = self.logits()?;
        self.check_logits(&logits)?;
        Ok(logits)
    }

    fn step_into(&mut self, token: u32, logits: &mut Vec<f32>) -> Result<()> {
        self.run(token, Wanted::Logits)?;
        self.read_logits(logits)
    }

    fn step_greedy(&mut self, token: u32) -> Result<u32> {
        self.run(token, Wanted::Greedy)?;
        self.chosen(Wanted::Greedy)
    }

    fn step_sampled(&mut self, token: u32, sampler: &mut Sampler) -> Result<u32> {
        let wanted = self.alone.wanted(sampler, self.tracing.is_some())?;
        self.run(token, wanted)?;
        if wanted != Wanted::Logits {
            return self.chosen(wanted);
        }
        let logits = self.logits()?;
        self.check_logits(&logits)?;
        Ok(trace_span!(target: HOST, "sample").in_scope(|| sampler.sample(&logits)))
    }

    fn prefill(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        self.process_prompt(tokens)
    }

    fn check(&mut self) -> Result<()> {
        if self.alone.stream.is_none() {
            // NaN in the cache is NaN in the logits.
            return Ok(());
        }
        let position = self.position;
        let checked = self.suspect().check_cache(position);
        if checked.is_err() {
            self.reset()?;
        }
        checked
    }

    fn truncate(&mut self, count: usize) -> Result<()> {
        self.position = count.min(self.position);
        self.alone.reset()
    }

    fn position(&self) -> usize {
        self.position
    }

    fn context(&self) -> usize {
        self.model.context
    }
}
