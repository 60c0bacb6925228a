//! The engine: processes tokens on a device and gives logits.

use std::fmt;
use std::time::{Duration, Instant};

use hcq::{BackendKind, Buffer, Device, Graph, Preemption, Queue, SyncPoint};
use tracing::trace_span;

use crate::cache::CacheType;
use crate::decoder::Decoder;
use crate::engine::diagnosis;
use crate::engine::launch::{Launch, record};
use crate::engine::matrix::fits;
use crate::engine::memory::DeviceModel;
use crate::engine::operations::Operations;
use crate::engine::options::{EngineOptions, LoadTimes, Mode};
use crate::engine::plan::StepPlan;
use crate::engine::programs::{Launched, Programs};
use crate::engine::prompt::chunks::{Place, Prompt, refuses};
use crate::engine::state::State;
use crate::engine::stream;
use crate::engine::timed::Tracing;
use crate::error::{Error, Result};
use crate::kernels::sample::kernel as sample;
use crate::model::Model;
use crate::model::config::Config;
use crate::sampler::Sampler;
use crate::spans::HOST;

/// Most replays in flight.
const IN_FLIGHT: usize = 32;

/// A kernel that others wait for is counted against its channel from this time on (the driver's
/// `CTXSW_TIMEOUT_PERIOD_MS`).
const SWITCH_PATIENCE: Duration = Duration::from_millis(100);

/// Prompts of fewer tokens are processed step by step.
const LEAST_PREFILL: usize = 8;

/// The result of a step that the host reads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Logits,
    Greedy,
    Sampled,
}

/// A model on a device.
pub struct Engine {
    pub(super) model: DeviceModel,
    pub(super) queue: Queue,
    /// A whole step.
    pub(super) step: Graph,
    /// A step with logits that stay on the device, if those of `step` do not.
    resident_step: Option<Graph>,
    /// A step with logits that stay on the device, and the choice of the next token there.
    sampled_step: Option<Graph>,
    /// A step without the head.
    fill: Graph,
    pub(super) operations: Operations,
    /// For prompts; `None` if the kernels do not take the model's shape.
    pub(super) prompt: Option<Prompt>,
    /// Launches of the persistent step, if there is one for the model.
    pub(super) step_plan: Option<StepPlan>,
    pub(super) mode: Mode,
    position: usize,
    /// Whether a warning was given of steps that others wait for.
    warned: bool,
    /// Whether weights that are no numbers would have been noticed.
    probed: bool,
    /// The token at `position` in the device's state, if it is known.
    next: Option<u32>,
    /// Whether the last logits are those that stay on the device.
    resident: bool,
    load_times: LoadTimes,
    /// The graphs that are replayed instead while launches are timed.
    pub(super) tracing: Option<Tracing>,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (context, launches) = (self.context(), self.launches().len());
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
        let mut model = DeviceModel::load(device, model, (context, context, options.kv), &mut |bytes| {
            done += bytes;
            progress(done, total);
        })?;
        let mut plan = |model: &DeviceModel| match options.mode {
            Mode::Operations => Ok(None),
            Mode::Persistent => stream::plan(model, &mut programs, options.timed),
        };
        let mut step_plan = plan(&model)?;
        let mode = if step_plan.is_some() { options.mode } else { Mode::Operations };
        let apart = mode == Mode::Persistent && !device.info().unified_memory;
        if options.host_state.unwrap_or(apart) {
            model.state = State::in_host_memory(device, model.config.vocab, model.cache.context)?;
            step_plan = plan(&model)?;
        }
        let operations = Operations::new(&model, &mut programs, &tuning.choices)?;
        let launches: Vec<&Launch> = match &step_plan {
            Some(plan) => vec![&plan.whole],
            None => operations.launches.iter().collect(),
        };
        let step = record(device, launches.iter().copied())?;
        let resident = step_plan.as_ref().and_then(|plan| plan.resident.as_ref());
        let resident_step = resident.map(|launch| record(device, [launch])).transpose()?;
        let choice = choice(&model, &mut programs, options.device_sampling)?;
        let launches = resident.map_or(launches, |launch| vec![launch]);
        let sampled = choice.map(|choice| record(device, launches.into_iter().chain([&choice])));
        let sampled_step = sampled.transpose()?;
        let fill = match &step_plan {
            Some(plan) => record(device, [&plan.fill])?,
            None => record(device, operations.without_head())?,
        };
        let queue = device.queue()?;
        let prompt = match refuses(&model.config) {
            None => Some(Prompt::new(&model, programs, tuning.choices.clone(), &operations)?),
            Some(reason) => {
                tracing::warn!("prompts are processed token by token: {reason}");
                None
            }
        };
        let weights = model.loading;
        let load_times = LoadTimes { weights, kernels: begin.elapsed().saturating_sub(weights) };
        let probed = step_plan.is_none();
        let mut engine = Self {
            model,
            queue,
            step,
            resident_step,
            sampled_step,
            fill,
            operations,
            prompt,
            step_plan,
            mode,
            position: 0,
            warned: false,
            probed,
            next: None,
            resident: false,
            load_times,
            tracing: None,
        };
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

    fn read_logits(&self, logits: &mut Vec<f32>) -> Result<()> {
        let read = trace_span!(target: HOST, "read the logits");
        read.in_scope(|| self.model.state.read_logits(self.resident, logits))
    }

    /// The token that the last step has chosen on the device.
    fn chosen(&mut self) -> Result<u32> {
        let read = trace_span!(target: HOST, "read the token");
        let token = read.in_scope(|| self.model.state.token(self.position))?;
        if token == 0 {
            // The choice among logits without any number, and among zeros.
            self.check_logits(&self.logits()?)?;
        }
        self.next = Some(token);
        Ok(token)
    }

    /// Records the launches of a prompt of `tokens` tokens before it is processed; else its first chunks
    /// record them.
    ///
    /// # Errors
    /// Errors of loading the kernels.
    pub fn record_prompt(&mut self, tokens: usize) -> Result<()> {
        if !self.takes_chunks(tokens)? {
            return Ok(());
        }
        self.prompt.as_mut().map_or(Ok(()), |prompt| prompt.chunks.record(&self.model, tokens))
    }

    /// Whether a prompt of `tokens` tokens is processed in chunks.
    pub(super) fn takes_chunks(&mut self, tokens: usize) -> Result<bool> {
        match &mut self.prompt {
            Some(prompt) if tokens >= LEAST_PREFILL => prompt.chunks.in_range(&self.model, &mut self.queue),
            _ => Ok(false),
        }
    }

    /// Processes a prompt whose tokens are in the state, in chunks.
    fn prefill_chunks(&mut self, tokens: &[u32]) -> Result<()> {
        let Some(Prompt { chunks, finish, .. }) = &mut self.prompt else { return Ok(()) };
        let patience = chunks.patience(&self.model);
        let mut point: Option<SyncPoint> = None;
        for (before, chunk) in chunks.cut(tokens) {
            let place = Place { position: self.position + before, table: 0 };
            if let Some(tracing) = &mut self.tracing {
                let times = chunks.timed(&self.model, &mut self.queue, place, chunk, patience)?;
                tracing.seen.extend(times);
                continue;
            }
            if let Some(point) = point {
                point.wait(patience)?;
            }
            point = Some(chunks.run(&self.model, &mut self.queue, place, chunk)?);
        }
        let newest = self.position + tokens.len() - 1;
        self.model.state.set_position(newest)?;
        let finish = self.tracing.as_ref().and_then(|t| t.finish.as_ref()).map_or(&*finish, |f| &f.graph);
        self.queue.replay(finish)?.wait(patience)?;
        if let Some(tracing) = &mut self.tracing {
            tracing.finished(newest);
        }
        self.position = newest + 1;
        Ok(())
    }

    /// Processes the next `count` tokens of the state step by step, without logits.
    fn prefill_steps(&mut self, count: usize) -> Result<()> {
        if let Some(tracing) = &mut self.tracing {
            for _ in 0..count {
                self.queue.replay(&tracing.fill.graph)?.wait(self.model.patience)?;
                tracing.filled(self.position);
                self.position += 1;
            }
            return Ok(());
        }
        let mut left = count;
        while left > 0 {
            let steps = left.min(IN_FLIGHT);
            let mut point: Option<SyncPoint> = None;
            for _ in 0..steps {
                point = Some(self.queue.replay(&self.fill)?);
            }
            if let Some(point) = point {
                point.wait(self.model.patience * steps as u32)?;
            }
            self.position += steps;
            left -= steps;
        }
        Ok(())
    }

    /// Bytes of weights that one step reads.
    pub fn weight_bytes_per_token(&self) -> u64 {
        self.launches().iter().map(|l| l.weight_bytes).sum()
    }

    /// Bytes of weights, and of keys and values per position, that each phase of a step reads, in order;
    /// where a step is one launch per operation, each launch.
    pub fn bytes_of_phases(&self) -> impl Iterator<Item = (u64, u64)> {
        self.launches().iter().map(|launch| (launch.weight_bytes, launch.cache_bytes))
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

    /// The cached keys and values of each layer: `[head of keys and values][position][dimension]`, in f16, or
    /// in signed bytes with one f16 scale for 32 of them, which lie in the same order after all bytes.
    pub fn caches(&self) -> impl Iterator<Item = [&Buffer; 2]> {
        self.model.layers.iter().map(|layer| [&layer.keys, &layer.values])
    }

    /// Kernel launches of one step.
    pub fn launches_per_token(&self) -> u64 {
        self.step.launches() as u64
    }

    /// Time that setting it up took.
    pub fn load_times(&self) -> LoadTimes {
        self.load_times
    }

    /// The features of a model's layers in `context` positions that the kernel of [`Mode::Persistent`] does
    /// not compute, in words; `None` if it computes all. Steps then take one launch per operation.
    pub fn step_kernel_lacks(config: &Config, context: usize) -> Option<&'static str> {
        stream::lacks(config, context)
    }

    /// The launch mode of a step.
    pub fn mode(&self) -> Mode {
        self.mode
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
        self.probed = true;
        self.model.state.set_position(position)?;
        self.position = position;
        Ok(())
    }

    /// Takes keys and values that were written to the cache for the context `tokens`.
    pub(super) fn resume(&mut self, tokens: &[u32]) -> Result<()> {
        self.truncate(0)?;
        self.model.state.set_tokens(0, tokens)?;
        self.model.state.set_position(tokens.len())?;
        self.position = tokens.len();
        Ok(())
    }

    /// The launches of a step: phases or operations.
    fn launches(&self) -> &[Launch] {
        self.step_plan.as_ref().map_or(&self.operations.launches, |plan| &plan.phases)
    }

    /// Finds the reason if `logits` are not what a model gives, and resets the engine then.
    fn check_logits(&mut self, logits: &[f32]) -> Result<()> {
        if diagnosis::are_plausible(logits) {
            return Ok(());
        }
        let position = self.position.saturating_sub(1);
        let (m, queue) = (&self.model, &mut self.queue);
        let error = if logits.first() == Some(&0.0) {
            diagnosis::find_zeros(m, &self.operations, queue, position)?
        } else {
            Some(diagnosis::find(m, &self.operations, queue, position)?)
        };
        self.model.state.set_position(self.position)?;
        self.next = None;
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
        if self.next != Some(token) {
            self.model.state.set_tokens(self.position, &[token])?;
        }
        self.next = None;
        if !self.probed {
            diagnosis::probe(&self.model, &self.operations, &mut self.queue, self.position)?;
            self.probed = true;
        }
        let chosen = match wanted {
            Wanted::Logits => None,
            Wanted::Greedy => self.resident_step.as_ref(),
            Wanted::Sampled => self.sampled_step.as_ref(),
        };
        // A traced step leaves its logits where the host reads them.
        self.resident = chosen.is_some() && self.tracing.is_none();
        let step = self.tracing.as_ref().map_or(chosen.unwrap_or(&self.step), |t| &t.step.graph);
        let point = trace_span!(target: HOST, "submit").in_scope(|| self.queue.replay(step))?;
        let begin = Instant::now();
        trace_span!(target: HOST, "wait").in_scope(|| point.wait(self.model.patience))?;
        self.check_manners(begin.elapsed());
        if let Some(tracing) = &mut self.tracing {
            let timed = self.step_plan.as_ref().filter(|p| p.timed);
            trace_span!(target: HOST, "read the times").in_scope(|| tracing.stepped(self.position, timed))?;
        }
        self.position += 1;
        Ok(())
    }

    /// Warns once of a step that kept other programs from the GPU for so long that the driver counts it.
    fn check_manners(&mut self, step: Duration) {
        if step <= SWITCH_PATIENCE || self.warned || self.mode != Mode::Persistent {
            return;
        }
        let device = &self.model.device;
        if device.info().backend == BackendKind::Nvgpu && device.preemption() == Preemption::WaitForIdle {
            self.warned = true;
            tracing::warn!(
                step_ms = step.as_millis(),
                "a step is one kernel that runs to its end, and a desktop waits for it: if its channel is given \
                 up, choose EngineOptions::mode Operations (llm-demo: --engine operations), or a profile with \
                 preemption cilp (nvdiag bringup --bisect)"
            );
        }
    }
}

/// The launch that chooses a token on the device; `None` if none is to, or if the vocabulary is too large for
/// the kernel there.
fn choice(model: &DeviceModel, programs: &mut Programs, wanted: Option<bool>) -> Result<Option<Launch>> {
    let (info, vocab) = (model.device.info(), fits(model.config.vocab)?);
    if !wanted.unwrap_or(info.backend != BackendKind::Sim) || vocab > sample::MOST_TOKENS {
        return Ok(None);
    }
    let kernel = programs.kernel(sample::NAME, sample::NAME)?;
    let shared = u64::from(kernel.static_shared() + sample::dynamic_shared(vocab));
    let there = shared <= info.max_shared_per_block;
    there.then(|| model.state.choice(kernel)).transpose()
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
        self.chosen()
    }

    fn step_sampled(&mut self, token: u32, sampler: &mut Sampler) -> Result<u32> {
        if sampler.is_greedy() {
            return self.step_greedy(token);
        }
        if self.sampled_step.is_none() || self.tracing.is_some() || sampler.adjusts() {
            self.run(token, Wanted::Logits)?;
            let logits = self.logits()?;
            self.check_logits(&logits)?;
            return Ok(trace_span!(target: HOST, "sample").in_scope(|| sampler.sample(&logits)));
        }
        self.model.state.set_draw(&sampler.draw())?;
        self.run(token, Wanted::Sampled)?;
        self.chosen()
    }

    fn prefill(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        if tokens.is_empty() {
            return Ok(Vec::new());
        }
        tokens.iter().try_for_each(|t| self.check_token(*t))?;
        self.check_room(tokens.len())?;
        let (position, count) = (self.position, tokens.len());
        let _prompt = trace_span!(target: HOST, "prompt", position = position, tokens = count).entered();
        self.model.state.set_tokens(position, tokens)?;
        (self.next, self.resident) = (None, false);
        if self.takes_chunks(count)? {
            self.prefill_chunks(tokens)?;
            let logits = self.logits()?;
            if diagnosis::all_finite(&logits) && diagnosis::are_plausible(&logits) {
                self.probed = true;
                return Ok(logits);
            }
            // Steps compute in single precision: they find the reason, or do without f16.
            tracing::warn!("a prompt left the range of f16 and is processed again, token by token");
            self.position = position;
            self.model.state.set_position(position)?;
        }
        self.prefill_steps(count - 1)?;
        let last = tokens[count - 1];
        self.next = Some(last);
        let logits = self.step(last)?;
        if let Some(bad) = logits.iter().find(|logit| !logit.is_finite()) {
            self.check_logits(&[*bad])?;
        }
        Ok(logits)
    }

    fn check(&mut self) -> Result<()> {
        if self.step_plan.is_none() {
            // NaN in the cache is NaN in the logits.
            return Ok(());
        }
        let checked = diagnosis::check_cache(&self.model, &self.operations, &mut self.queue, self.position);
        if checked.is_err() {
            self.reset()?;
        }
        checked
    }

    fn truncate(&mut self, count: usize) -> Result<()> {
        let position = count.min(self.position);
        self.model.state.set_position(position)?;
        if let Some(plan) = &self.step_plan {
            plan.reset()?;
        }
        self.position = position;
        self.next = None;
        Ok(())
    }

    fn position(&self) -> usize {
        self.position
    }

    fn context(&self) -> usize {
        self.model.cache.context as usize
    }
}
