//! The engine: processes tokens on a device and gives logits.

use std::fmt;
use std::time::{Duration, Instant};

use hcq::{BackendKind, Buffer, Device, Graph, Preemption, Queue};
use tracing::trace_span;

use crate::cache::CacheType;
use crate::decoder::Decoder;
use crate::engine::cache::pages_for;
use crate::engine::columns::{Column, Steps};
use crate::engine::diagnosis::{self, Suspect};
use crate::engine::finish::Prompt;
use crate::engine::launch::{Launch, record};
use crate::engine::matrix::fits;
use crate::engine::memory::DeviceModel;
use crate::engine::options::{EngineOptions, LoadTimes, Mode};
use crate::engine::plan::StepPlan;
use crate::engine::programs::{Launched, Programs};
use crate::engine::prompt::chunks::refuses;
use crate::engine::state::State;
use crate::engine::stream;
use crate::engine::timed::Tracing;
use crate::error::{Error, Result};
use crate::kernels::sample::kernel as sample;
use crate::model::Model;
use crate::model::config::Config;
use crate::sampler::Sampler;
use crate::spans::HOST;

/// A kernel that others wait for is counted against its channel from this time on (the driver's
/// `CTXSW_TIMEOUT_PERIOD_MS`).
const SWITCH_PATIENCE: Duration = Duration::from_millis(100);

/// The result of a step that the host reads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Logits,
    Greedy,
    Sampled,
}

/// The buffer with the logits of the last step or prompt.
#[derive(Clone, Copy)]
pub(super) enum LogitsAt {
    /// That which the host reads, of a step in one launch.
    Host,
    /// That which stays on the device.
    Device,
    /// That of batch steps, of this column.
    Column(usize),
}

/// A step in one launch.
pub(super) struct Stream {
    pub(super) plan: StepPlan,
    pub(super) step: Graph,
    /// With logits that stay on the device, if those of `step` do not.
    resident: Option<Graph>,
}

/// A model on a device.
pub struct Engine {
    pub(super) model: DeviceModel,
    pub(super) queue: Queue,
    pub(super) state: State,
    pub(super) steps: Steps,
    /// The launches of a batch step of one column.
    pub(super) launches: Vec<Launch>,
    /// The step in one launch, if there is one for the model and it is wanted.
    pub(super) stream: Option<Stream>,
    /// A step with logits that stay on the device, and the choice of the next token there.
    sampled: Option<Graph>,
    /// For prompts; `None` if the kernels do not take the model's shape.
    pub(super) prompt: Option<Prompt>,
    pub(super) position: usize,
    /// Whether a warning was given of steps that others wait for.
    warned: bool,
    /// Whether weights that are no numbers would have been noticed.
    pub(super) probed: bool,
    /// The token at `position` in the device's state, if it is known.
    pub(super) next: Option<u32>,
    pub(super) logits_at: LogitsAt,
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
        // The pages are in order: the step in one launch computes with no others.
        steps.write_table(0, &(0..fits(pages)?).collect::<Vec<u32>>())?;
        let launches = steps.launches(&model, 1)?.all;
        let streams = options.mode == Mode::Stream && stream::takes(&model);
        let host = options.host_state.unwrap_or(streams && !device.info().unified_memory);
        let state = State::new(device, model.config.vocab, fits(context)?, host)?;
        let plan = match options.mode {
            Mode::Stream => stream::plan(&model, &state, &mut programs, options.timed)?,
            Mode::Batch => None,
        };
        let stream = plan.map(|plan| -> Result<Stream> {
            let resident = plan.resident.as_ref().map(|launch| record(device, [launch])).transpose()?;
            Ok(Stream { step: record(device, [&plan.whole])?, resident, plan })
        });
        let stream = stream.transpose()?;
        let logits = match &stream {
            Some(_) => &state.resident,
            None => &steps.buffers().logits,
        };
        let choice = choice(&model, &state, logits, &mut programs, options.device_sampling)?;
        let before: Vec<&Launch> = match &stream {
            Some(Stream { plan, .. }) => vec![plan.resident.as_ref().unwrap_or(&plan.whole)],
            None => launches.iter().collect(),
        };
        let sampled = choice.map(|choice| record(device, before.into_iter().chain([&choice])));
        let sampled = sampled.transpose()?;
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
        let probed = stream.is_none();
        let mut engine = Self {
            model,
            queue,
            state,
            steps,
            launches,
            stream,
            sampled,
            prompt,
            position: 0,
            warned: false,
            probed,
            next: None,
            logits_at: LogitsAt::Host,
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

    /// Reads the logits; `logits` becomes as long as the vocabulary.
    fn read_logits(&self, logits: &mut Vec<f32>) -> Result<()> {
        let _read = trace_span!(target: HOST, "read the logits").entered();
        logits.resize(self.model.config.vocab, 0.0);
        match self.logits_at {
            LogitsAt::Host => self.state.read_logits(false, logits),
            LogitsAt::Device => self.state.read_logits(true, logits),
            LogitsAt::Column(column) => self.steps.read_logits(column, logits),
        }
    }

    /// The token that the last step has chosen on the device.
    fn chosen(&mut self, wanted: Wanted) -> Result<u32> {
        let _read = trace_span!(target: HOST, "read the token").entered();
        let in_state = self.stream.is_some() || wanted == Wanted::Sampled;
        let token = match in_state {
            true => self.state.token(self.position)?,
            false => self.steps.chosen(1)?[0].unwrap_or(0),
        };
        if token == 0 {
            // The choice among logits without any number, and among zeros.
            self.check_logits(&self.logits()?)?;
        }
        self.next = in_state.then_some(token);
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
        self.stream.as_ref().map_or(self.launches.len(), |stream| stream.step.launches()) as u64
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
        if self.stream.is_some() { Mode::Stream } else { Mode::Batch }
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
        self.state.set_position(position)?;
        self.position = position;
        Ok(())
    }

    /// Takes keys and values that were written to the cache for the context `tokens`.
    pub(super) fn resume(&mut self, tokens: &[u32]) -> Result<()> {
        self.truncate(0)?;
        self.state.set_tokens(0, tokens)?;
        self.state.set_position(tokens.len())?;
        self.position = tokens.len();
        Ok(())
    }

    /// The launches of a step: phases, or those of a batch step.
    fn phases(&self) -> &[Launch] {
        self.stream.as_ref().map_or(&self.launches, |stream| &stream.plan.phases)
    }

    /// The engine's parts that a diagnosis looks at.
    fn suspect(&mut self) -> Suspect<'_> {
        let Self { model, state, steps, launches, queue, .. } = self;
        Suspect { model, state, steps, launches, queue }
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
        self.state.set_position(self.position)?;
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
            self.state.set_tokens(self.position, &[token])?;
        }
        self.next = None;
        if !self.probed {
            let position = self.position;
            self.suspect().probe(token, position)?;
            self.probed = true;
        }
        if self.stream.is_none() {
            self.steps.write(&[Column { token, position: fits(self.position)?, table: 0 }])?;
            if wanted == Wanted::Sampled {
                // The kernel replaces the token of the next step, and none where no logit is a number.
                self.state.set_position(self.position + 1)?;
                self.state.set_tokens(self.position + 1, &[0])?;
            }
        }
        let Self { stream, steps, sampled, tracing, model, .. } = self;
        let resident = stream.as_ref().and_then(|stream| stream.resident.as_ref());
        let chosen = match wanted {
            Wanted::Logits => None,
            Wanted::Greedy => resident,
            Wanted::Sampled => sampled.as_ref(),
        };
        // A traced step leaves its logits where the host reads them.
        let is_resident = chosen.is_some() && tracing.is_none();
        self.logits_at = match (&stream, is_resident) {
            (None, _) => LogitsAt::Column(0),
            (Some(_), true) => LogitsAt::Device,
            (Some(_), false) => LogitsAt::Host,
        };
        let step = match (&*tracing, chosen, &*stream) {
            (Some(tracing), ..) => &tracing.step.graph,
            (None, Some(chosen), _) => chosen,
            (None, None, Some(stream)) => &stream.step,
            (None, None, None) => steps.recorded(model, 1, true)?,
        };
        let point = trace_span!(target: HOST, "submit").in_scope(|| self.queue.replay(step))?;
        let begin = Instant::now();
        trace_span!(target: HOST, "wait").in_scope(|| point.wait(model.patience))?;
        self.check_manners(begin.elapsed());
        if let Some(tracing) = &mut self.tracing {
            let timed = self.stream.as_ref().map(|stream| &stream.plan).filter(|plan| plan.timed);
            trace_span!(target: HOST, "read the times").in_scope(|| tracing.stepped(self.position, timed))?;
        }
        self.position += 1;
        Ok(())
    }

    /// Warns once of a step that kept other programs from the GPU for so long that the driver counts it.
    fn check_manners(&mut self, step: Duration) {
        if step <= SWITCH_PATIENCE || self.warned || self.stream.is_none() {
            return;
        }
        let device = &self.model.device;
        if device.info().backend == BackendKind::Nvgpu && device.preemption() == Preemption::WaitForIdle {
            self.warned = true;
            tracing::warn!(
                step_ms = step.as_millis(),
                "a step is one kernel that runs to its end, and a desktop waits for it: if its channel is given \
                 up, choose EngineOptions::mode Batch (llm-demo: --engine batch), or a profile with \
                 preemption cilp (nvdiag bringup --bisect)"
            );
        }
    }
}

/// The launch that chooses a token by `logits` on the device; `None` if none is to, or if the vocabulary is too
/// large for the kernel there.
fn choice(
    model: &DeviceModel,
    state: &State,
    logits: &Buffer,
    programs: &mut Programs,
    wanted: Option<bool>,
) -> Result<Option<Launch>> {
    let (info, vocab) = (model.device.info(), fits(model.config.vocab)?);
    if !wanted.unwrap_or(info.backend != BackendKind::Sim) || vocab > sample::MOST_TOKENS {
        return Ok(None);
    }
    let kernel = programs.kernel(sample::NAME, sample::NAME)?;
    let shared = u64::from(kernel.static_shared() + sample::dynamic_shared(vocab));
    let there = shared <= info.max_shared_per_block;
    there.then(|| state.choice(kernel, logits)).transpose()
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
        if sampler.is_greedy() {
            return self.step_greedy(token);
        }
        if self.sampled.is_none() || self.tracing.is_some() || sampler.adjusts() {
            self.run(token, Wanted::Logits)?;
            let logits = self.logits()?;
            self.check_logits(&logits)?;
            return Ok(trace_span!(target: HOST, "sample").in_scope(|| sampler.sample(&logits)));
        }
        self.state.set_draw(&sampler.draw())?;
        self.run(token, Wanted::Sampled)?;
        self.chosen(Wanted::Sampled)
    }

    fn prefill(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        self.process_prompt(tokens)
    }

    fn check(&mut self) -> Result<()> {
        if self.stream.is_none() {
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
        let position = count.min(self.position);
        self.state.set_position(position)?;
        if let Some(stream) = &self.stream {
            stream.plan.reset()?;
        }
        self.position = position;
        self.next = None;
        Ok(())
    }

    fn position(&self) -> usize {
        self.position
    }

    fn context(&self) -> usize {
        self.model.context
    }
}
