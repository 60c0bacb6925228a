//! Decodes a model on a device: one recorded graph per step, nothing patched between steps.
//!
//! The position and the tokens are in device memory, where the last kernel of a step writes the next token and advances: a
//! greedy step needs nothing from the host at all. Weights stay quantized; logits stay on the device unless they are asked for.

pub(crate) mod matrix;
mod occupancy;
pub(crate) mod plan;
pub(crate) mod prefill;
mod profile;
pub(crate) mod programs;
pub(crate) mod step;
mod trace;

use std::fmt;
use std::time::{Duration, Instant};

use hcq::{Device, Graph, Queue, SyncPoint};
use tracing::trace_span;
use zerocopy::IntoBytes;

pub use self::occupancy::KernelUse;
use self::plan::{Plan, Stage, record};
use self::prefill::{CHUNK, Prefill};
pub use self::profile::{KernelStat, PhaseParts};
use self::step::StepPlan;
use self::trace::Tracing;
pub use self::trace::{LaunchTime, PhaseTime, Work};
use crate::decoder::Decoder;
use crate::error::{Error, Result};
use crate::kernels::step::Shape;
use crate::kernels::{CacheType, TOKENS_AT};
use crate::model::{Config, Model};
use crate::spans::HOST;
use crate::tuning::Tuning;

/// How to set up an [`Engine`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineOptions {
    /// Positions that there is room for.
    pub context: usize,
    /// How a step is launched.
    pub mode: Mode,
    /// What keys and values are cached as.
    pub kv: CacheType,
    /// Whether the phases of a step in one launch are timed, as [`Engine::profile`] needs it; costs a little.
    pub timed: bool,
}

/// How a step is launched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// One launch in which blocks wait for each other; one launch per operation where the model has no step kernel.
    #[default]
    Persistent,
    /// The same kernel, launched once per phase.
    Phases,
    /// One launch per operation, activations in single precision: slow, to compare with.
    Operations,
}

impl Mode {
    /// All of them.
    pub const ALL: [Mode; 3] = [Mode::Persistent, Mode::Phases, Mode::Operations];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Mode::Persistent => "persistent",
            Mode::Phases => "phases",
            Mode::Operations => "operations",
        }
    }
}

/// What setting up an [`Engine`] took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadTimes {
    /// Reading the weights where the file is mapped, packing them and bringing them to the device.
    pub weights: Duration,
    /// The rest: reserving memory, loading kernels, recording launches.
    pub kernels: Duration,
}

/// A model on a device.
pub struct Engine {
    queue: Queue,
    /// A whole step.
    step: Graph,
    /// A step that leaves out the output matrix.
    fill: Graph,
    plan: Plan,
    /// For prompts; `None` if the kernels cannot do the model's shape.
    prefill: Option<Prefill>,
    /// Launches of the step kernel, if there is one for the model.
    steps: Option<StepPlan>,
    mode: Mode,
    kv: CacheType,
    cache_bytes: u64,
    vocab: usize,
    context: usize,
    position: usize,
    /// The token at `position` in the device's state, where it is known.
    next: Option<u32>,
    /// The longest that a step may take.
    patience: Duration,
    load_times: LoadTimes,
    /// What is replayed instead where launches are timed.
    tracing: Option<Tracing>,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Engine(position {} of {}, {} launches)", self.position, self.context, self.stages().len())
    }
}

/// Bytes of keys and values per position of one layer.
fn cache_bytes_per_layer(c: &Config, kv: CacheType) -> u64 {
    2 * kv.bytes(c.kv_dim() as u64)
}

/// The longest that a step of `model` may take on `device`.
pub(crate) fn patience(device: &Device, model: &Model) -> Duration {
    match device.info().backend {
        // A software device takes about a nanosecond per weight and core.
        hcq::BackendKind::Sim => Duration::from_secs(60 + model.tensor_bytes() / 10_000_000),
        _ => Duration::from_secs(30),
    }
}

/// Replays that may be under way at once.
const IN_FLIGHT: usize = 32;

/// Prompts of fewer tokens are taken in step by step.
const LEAST_PREFILL: usize = 8;

impl Engine {
    /// Brings `model` to `device` and records its step. `progress` hears of tensor bytes done and in all.
    ///
    /// # Errors
    /// [`Error::UnsupportedType`], [`Error::PartialBlock`] or [`Error::KeyValue`] for a model that the kernels cannot do,
    /// [`Error::NoKernels`] for a device they are not compiled for; what the device reports.
    pub fn new(
        device: &Device,
        model: &Model,
        options: EngineOptions,
        progress: &mut (dyn FnMut(u64, u64) + Send),
    ) -> Result<Self> {
        Self::tuned(device, model, options, &Tuning::default(), progress)
    }

    /// [`Engine::new`] with the kernels of `tuning`, which must be those for the device and the model.
    ///
    /// # Errors
    /// As [`Engine::new`].
    pub fn tuned(
        device: &Device,
        model: &Model,
        options: EngineOptions,
        tuning: &Tuning,
        progress: &mut (dyn FnMut(u64, u64) + Send),
    ) -> Result<Self> {
        let begin = Instant::now();
        let context = options.context.max(1);
        let (total, mut done) = (model.tensor_bytes(), 0);
        let room = (context, options.kv);
        let (plan, memory, mut programs) = Plan::new(device, model, room, tuning, &mut |bytes| {
            done += bytes;
            progress(done, total);
        })?;
        let outputs = (&plan.state, &plan.logits);
        let room = matrix::fits(context)?;
        let mut plan_step = |shape| {
            let (room, how) = ((room, options.kv), (shape, options.timed));
            StepPlan::new(device, &mut programs, &model.config, room, &memory, outputs, how)
        };
        let steps = match (options.mode, tuning.choices.step) {
            (Mode::Operations, _) => None,
            (_, None) => plan_step(Shape::default())?,
            // Longer contexts than the one that was tuned for may need more shared memory.
            (_, Some(shape)) => match plan_step(shape)? {
                None => plan_step(Shape::default())?,
                steps => steps,
            },
        };
        let mode = if steps.is_some() { options.mode } else { Mode::Operations };
        let (step, fill) = match &steps {
            Some(s) if mode == Mode::Persistent => (record(device, [&s.whole].into_iter())?, Some(&s.fill)),
            Some(s) => (record(device, s.phases.iter())?, Some(&s.fill)),
            None => (record(device, plan.stages.iter())?, None),
        };
        let fill = match fill {
            Some(fill) => record(device, [fill].into_iter())?,
            None => record(device, plan.without_head())?,
        };
        let patience = patience(device, model);
        let queue = device.queue()?;
        let prefill = match prefill::supports(&model.config) {
            true => {
                let (config, choices) = (&model.config, tuning.choices.clone());
                let room = (context, options.kv);
                Some(Prefill::new(device, (programs, choices), config, room, memory, &plan)?)
            }
            false => None,
        };
        let (vocab, weights) = (model.config.vocab, plan.loading);
        let load_times = LoadTimes { weights, kernels: begin.elapsed().saturating_sub(weights) };
        let cache_bytes = model.config.layers as u64 * cache_bytes_per_layer(&model.config, options.kv);
        let mut engine = Self {
            queue,
            step,
            fill,
            plan,
            prefill,
            steps,
            mode,
            kv: options.kv,
            cache_bytes,
            vocab,
            context,
            position: 0,
            next: None,
            patience,
            load_times,
            tracing: None,
        };
        engine.reset()?;
        Ok(engine)
    }

    /// Takes in `token` and returns the logits of the next one, `vocab` numbers.
    ///
    /// # Errors
    /// [`Error::Token`], [`Error::ContextFull`], what the device reports.
    pub fn step(&mut self, token: u32) -> Result<Vec<f32>> {
        self.run(token)?;
        self.logits()
    }

    /// Takes in `token` and returns the most likely next one, the lowest of equals. No logits are copied; if `token` is the
    /// one returned last, nothing is sent to the device but the doorbell.
    ///
    /// # Errors
    /// As [`Engine::step`].
    pub fn step_greedy(&mut self, token: u32) -> Result<u32> {
        self.run(token)?;
        let mut bytes = [0; 4];
        let read = trace_span!(target: HOST, "read the token");
        read.in_scope(|| self.plan.state.read(self.token_at(self.position), &mut bytes))?;
        let token = u32::from_le_bytes(bytes);
        self.next = Some(token);
        Ok(token)
    }

    /// Records the launches of a prompt of `tokens` tokens ahead of it; else the first such prompt does.
    ///
    /// # Errors
    /// What loading the kernels reports.
    pub fn record_prompt(&mut self, tokens: usize) -> Result<()> {
        match &mut self.prefill {
            Some(prefill) if tokens >= LEAST_PREFILL => prefill.record(tokens),
            _ => Ok(()),
        }
    }

    /// Takes in all of `tokens` and returns the logits after the last; empty for no tokens.
    ///
    /// # Errors
    /// As [`Engine::step`]; then nothing has been taken in.
    pub fn prefill(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        let Some((last, before)) = tokens.split_last() else {
            return Ok(Vec::new());
        };
        tokens.iter().try_for_each(|t| self.check(*t))?;
        self.room(tokens.len())?;
        let _prompt =
            trace_span!(target: HOST, "prompt", position = self.position, tokens = tokens.len()).entered();
        let bytes: Vec<u8> = tokens.iter().flat_map(|t| t.to_le_bytes()).collect();
        self.plan.state.write(self.token_at(self.position), &bytes)?;
        self.next = None;
        if tokens.len() >= LEAST_PREFILL
            && let Some(prefill) = &mut self.prefill
        {
            // As many steps at most.
            let patience = self.patience * CHUNK as u32;
            let mut point: Option<SyncPoint> = None;
            for (i, chunk) in tokens.chunks(CHUNK).enumerate() {
                if let Some(tracing) = &mut self.tracing {
                    tracing.add(prefill.timed(
                        &mut self.queue,
                        self.position + i * CHUNK,
                        chunk,
                        patience,
                    )?);
                    continue;
                }
                if let Some(point) = point {
                    point.wait(patience)?;
                }
                point = Some(prefill.run(&mut self.queue, self.position + i * CHUNK, chunk)?);
            }
            let newest = self.position + before.len();
            self.plan.state.write(0, &(newest as u32).to_le_bytes())?;
            let finish = self.tracing.as_ref().and_then(Tracing::finish).unwrap_or(prefill.finish());
            self.queue.replay(finish)?.wait(patience)?;
            if let Some(tracing) = &mut self.tracing {
                tracing.finished(newest);
            }
            self.position = newest + 1;
            return self.logits();
        }
        if let Some(tracing) = &mut self.tracing {
            for _ in before {
                self.queue.replay(tracing.fill())?.wait(self.patience)?;
                tracing.filled(self.position);
                self.position += 1;
            }
            self.next = Some(*last);
            return self.step(*last);
        }
        for steps in before.chunks(IN_FLIGHT) {
            let mut point: Option<SyncPoint> = None;
            for _ in steps {
                point = Some(self.queue.replay(&self.fill)?);
            }
            if let Some(point) = point {
                // At most IN_FLIGHT.
                point.wait(self.patience * steps.len() as u32)?;
            }
            self.position += steps.len();
        }
        self.next = Some(*last);
        self.step(*last)
    }

    /// Forgets everything taken in.
    ///
    /// # Errors
    /// What the device reports.
    pub fn reset(&mut self) -> Result<()> {
        self.plan.state.write(0, &0u32.to_le_bytes())?;
        if let Some(steps) = &self.steps {
            // A step that failed may have left the blocks' counter as it was.
            steps.sync.write(0, &0u32.to_le_bytes())?;
        }
        self.position = 0;
        self.next = None;
        Ok(())
    }

    /// How many tokens have been taken in.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Bytes of weights that one step reads.
    pub fn weight_bytes_per_token(&self) -> u64 {
        self.stages().iter().map(|s| s.weight_bytes).sum()
    }

    /// What keys and values are cached as.
    pub fn kv(&self) -> CacheType {
        self.kv
    }

    /// Bytes of keys and values that one position takes in all layers, each of which a step reads.
    pub fn cache_bytes_per_position(&self) -> u64 {
        self.cache_bytes
    }

    /// Pretends that `position` tokens have been taken in, to see what a step costs there: what the cache holds of them is not
    /// defined, so neither are the logits that follow.
    ///
    /// # Errors
    /// [`Error::ContextFull`] if there is no room for that many and one more.
    pub fn pretend(&mut self, position: usize) -> Result<()> {
        self.reset()?;
        self.room(position + 1)?;
        let word = matrix::fits(position)?;
        self.plan.state.write(0, &word.to_le_bytes())?;
        self.position = position;
        Ok(())
    }

    /// Kernel launches of one step.
    pub fn launches_per_token(&self) -> u64 {
        self.step.launches() as u64
    }

    /// What setting it up took.
    pub fn load_times(&self) -> LoadTimes {
        self.load_times
    }

    /// How a step is launched.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// What a step consists of: phases or operations.
    fn stages(&self) -> &[Stage] {
        self.steps.as_ref().map_or(&self.plan.stages, |s| &s.phases)
    }

    /// Byte offset of the token at `position` in the state.
    fn token_at(&self, position: usize) -> u64 {
        4 * (u64::from(TOKENS_AT) + position as u64)
    }

    fn check(&self, token: u32) -> Result<()> {
        if (token as usize) < self.vocab { Ok(()) } else { Err(Error::Token { token, vocab: self.vocab }) }
    }

    fn room(&self, tokens: usize) -> Result<()> {
        match tokens <= self.context - self.position {
            true => Ok(()),
            false => Err(Error::ContextFull { position: self.context, context: self.context }),
        }
    }

    fn run(&mut self, token: u32) -> Result<()> {
        self.check(token)?;
        self.room(1)?;
        if self.next != Some(token) {
            self.plan.state.write(self.token_at(self.position), &token.to_le_bytes())?;
        }
        self.next = None;
        let step = self.tracing.as_ref().map_or(&self.step, Tracing::step);
        let point = trace_span!(target: HOST, "submit").in_scope(|| self.queue.replay(step))?;
        trace_span!(target: HOST, "wait").in_scope(|| point.wait(self.patience))?;
        if let Some(tracing) = &mut self.tracing {
            let timed = self.steps.as_ref().filter(|s| self.mode == Mode::Persistent && s.timed);
            trace_span!(target: HOST, "read the times").in_scope(|| tracing.stepped(self.position, timed))?;
        }
        self.position += 1;
        Ok(())
    }

    /// The logits after the last step or prompt, `vocab` numbers.
    ///
    /// # Errors
    /// What the device reports.
    pub fn logits(&self) -> Result<Vec<f32>> {
        let _read = trace_span!(target: HOST, "read the logits").entered();
        let mut logits = vec![0f32; self.vocab];
        // The GPU's numbers are little-endian, as those of every CPU that it is attached to.
        self.plan.logits.read(0, logits.as_mut_bytes())?;
        Ok(logits)
    }
}

impl Decoder for Engine {
    fn step(&mut self, token: u32) -> Result<Vec<f32>> {
        Engine::step(self, token)
    }

    fn step_greedy(&mut self, token: u32) -> Result<u32> {
        Engine::step_greedy(self, token)
    }

    fn prefill(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        Engine::prefill(self, tokens)
    }

    fn reset(&mut self) -> Result<()> {
        Engine::reset(self)
    }

    fn position(&self) -> usize {
        Engine::position(self)
    }
}
