//! Steps of a sequence that is alone: position, tokens and logits have a state of their own on the device, so that
//! a step needs nothing from the host but, at times, its token.

use std::time::{Duration, Instant};

use hcq::{BackendKind, Device, Graph, Preemption, Queue};
use tracing::trace_span;

use crate::engine::batch::{Column, Steps, To};
use crate::engine::diagnosis::Suspect;
use crate::engine::launch::{Launch, record};
use crate::engine::matrix::fits;
use crate::engine::memory::DeviceModel;
use crate::engine::options::{EngineOptions, Mode};
use crate::engine::plan::StepPlan;
use crate::engine::programs::Programs;
use crate::engine::state::State;
use crate::engine::stream;
use crate::engine::timed::Tracing;
use crate::error::Result;
use crate::kernels::choices::Kernels;
use crate::kernels::heads::LONGEST_HEAD;
use crate::kernels::sample::kernel as sample;
use crate::model::config::Config;
use crate::sampler::Sampler;
use crate::spans::HOST;

/// A kernel that others wait for is counted against its channel from this time on (the driver's
/// `CTXSW_TIMEOUT_PERIOD_MS`).
const SWITCH_PATIENCE: Duration = Duration::from_millis(100);

/// The result of a step that the host reads.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// All logits.
    Logits,
    /// The most likely token.
    Greedy,
    /// The token that is drawn on the device.
    Sampled,
}

/// The buffer with the logits of the last step or prompt.
#[derive(Clone, Copy, Debug)]
pub enum LogitsAt {
    /// That which the host reads, of a step in one launch.
    Host,
    /// That which stays on the device.
    Device,
    /// That of batch steps, of this column.
    Column(usize),
}

/// A step in one launch.
#[derive(Debug)]
pub struct Stream {
    /// Its launches.
    pub plan: StepPlan,
    /// The recorded step.
    pub step: Graph,
    /// With logits that stay on the device, if those of `step` do not.
    resident: Option<Graph>,
}

/// The owner of the steps: a model whose first table of pages is the sequence's.
pub struct On<'a> {
    /// The model.
    pub model: &'a DeviceModel,
    /// Its batch steps.
    pub steps: &'a mut Steps,
    /// The queue of all of them.
    pub queue: &'a mut Queue,
}

/// The steps of the sequence.
#[derive(Debug)]
pub struct Alone {
    /// Position, tokens and logits.
    pub state: State,
    /// The launches of a batch step of one column.
    pub launches: Vec<Launch>,
    /// The step in one launch, if there is one for the model and it is wanted.
    pub stream: Option<Stream>,
    /// A step with logits that stay on the device, and the choice of the next token there.
    sampled: Option<Graph>,
    /// The position and the token there that the device's state has, as far as they are known.
    at: Option<usize>,
    next: Option<u32>,
    /// Where the last logits are.
    pub logits_at: LogitsAt,
    /// Whether weights that are no numbers would have been noticed.
    pub probed: bool,
    /// Whether a warning was given of steps that others wait for.
    warned: bool,
}

impl Alone {
    /// Records the steps of the model `m` with these `options`.
    pub fn new(
        m: &DeviceModel,
        steps: &mut Steps,
        programs: &mut Programs,
        options: &EngineOptions,
    ) -> Result<Self> {
        let device = &m.device;
        let launches = steps.launches(m, 1)?.all;
        let streams = options.mode == Mode::Stream && stream::takes(m);
        let host = options.host_state.unwrap_or(streams && !device.info().unified_memory);
        let state = State::new(device, m.config.vocab, fits(m.context)?, host)?;
        let plan = match options.mode {
            Mode::Stream => stream::plan(m, (&state, steps.tables()), programs, options.timed)?,
            Mode::Batch => None,
        };
        let stream = plan.map(|plan| -> Result<Stream> {
            let resident = plan.resident.as_ref().map(|launch| record(device, [launch])).transpose()?;
            Ok(Stream { step: record(device, [&plan.whole])?, resident, plan })
        });
        let stream = stream.transpose()?;
        let sampled = match draws(m, programs, options.device_sampling)? {
            None => None,
            Some(kernel) => {
                let logits = if stream.is_some() { &state.resident } else { &steps.buffers().logits };
                let choice = state.choice(kernel, logits)?;
                let before: Vec<&Launch> = match &stream {
                    Some(Stream { plan, .. }) => vec![plan.resident.as_ref().unwrap_or(&plan.whole)],
                    None => launches.iter().collect(),
                };
                Some(record(device, before.into_iter().chain([&choice]))?)
            }
        };
        let probed = stream.is_none();
        let (at, next, logits_at, warned) = (None, None, LogitsAt::Host, false);
        Ok(Self { state, launches, stream, sampled, at, next, logits_at, probed, warned })
    }

    /// The persistent step of the model `m`, if it has one.
    ///
    /// # Errors
    /// Errors of loading the kernels.
    pub fn persistent(m: &DeviceModel, steps: &mut Steps) -> Result<Option<Self>> {
        let mut programs = Programs::new(&m.device, Kernels::new())?;
        let alone = Self::new(m, steps, &mut programs, &EngineOptions::new(m.context))?;
        Ok(Some(alone).filter(|alone| alone.stream.is_some()))
    }

    /// Bytes of device memory that it takes for a model, at most.
    pub fn bytes(c: &Config, context: usize, sm_count: u32) -> u64 {
        // The split-K parts of attention are at most as many as there are SMs: a vector per head and share.
        let partials = 4 * c.heads as u64 * u64::from(sm_count) * u64::from(LONGEST_HEAD + 32);
        // Logits for the host, and those that stay on the device.
        partials + 4 * (2 * c.vocab as u64 + context as u64)
    }

    /// Makes the state follow another position: what the device has of it is not known.
    pub fn moved(&mut self) {
        (self.at, self.next) = (None, None);
    }

    /// As [`Alone::moved`], also after a step that failed.
    ///
    /// # Errors
    /// The device's errors.
    pub fn reset(&mut self) -> Result<()> {
        self.moved();
        self.stream.as_ref().map_or(Ok(()), |stream| stream.plan.reset())
    }

    /// The sequence's parts that a diagnosis looks at; `pages` are those of its positions.
    pub fn suspect<'a>(&'a self, on: On<'a>, pages: &'a [u32]) -> Suspect<'a> {
        let On { model, steps, queue } = on;
        Suspect { model, state: &self.state, steps, launches: &self.launches, queue, pages }
    }

    /// The result that a choice by `sampler` takes; what it draws is told to the device, if the device draws.
    ///
    /// # Errors
    /// The device's errors.
    pub fn wanted(&self, sampler: &mut Sampler, is_traced: bool) -> Result<Wanted> {
        if sampler.is_greedy() {
            return Ok(Wanted::Greedy);
        }
        if self.sampled.is_none() || is_traced || sampler.adjusts() {
            return Ok(Wanted::Logits);
        }
        self.state.set_draw(&sampler.draw())?;
        Ok(Wanted::Sampled)
    }

    /// Processes `token` at `position`.
    ///
    /// # Errors
    /// The device's errors.
    pub fn run(
        &mut self,
        on: On<'_>,
        (token, position): (u32, usize),
        wanted: Wanted,
        tracing: &mut Option<Tracing>,
    ) -> Result<()> {
        let On { model, steps, queue } = on;
        if self.at != Some(position) {
            self.state.set_position(position)?;
            self.next = None;
        }
        if self.next != Some(token) {
            self.state.set_tokens(position, &[token])?;
        }
        self.moved();
        if self.stream.is_none() {
            steps.write(&[Column { token, position: fits(position)?, table: 0 }])?;
            if wanted == Wanted::Sampled {
                // The kernel replaces the token of the next step, and none where no logit is a number.
                self.state.set_position(position + 1)?;
                self.state.set_tokens(position + 1, &[0])?;
            }
        }
        let resident = self.stream.as_ref().and_then(|stream| stream.resident.as_ref());
        let chosen = match wanted {
            Wanted::Logits => None,
            Wanted::Greedy => resident,
            Wanted::Sampled => self.sampled.as_ref(),
        };
        // A traced step leaves its logits where the host reads them.
        let is_resident = chosen.is_some() && tracing.is_none();
        self.logits_at = match (&self.stream, is_resident) {
            (None, _) => LogitsAt::Column(0),
            (Some(_), true) => LogitsAt::Device,
            (Some(_), false) => LogitsAt::Host,
        };
        let step = match (&*tracing, chosen, &self.stream) {
            (Some(tracing), ..) => &tracing.step.graph,
            (None, Some(chosen), _) => chosen,
            (None, None, Some(stream)) => &stream.step,
            (None, None, None) => steps.recorded(model, 1, To::Logits)?,
        };
        let point = trace_span!(target: HOST, "submit").in_scope(|| queue.replay(step))?;
        let begin = Instant::now();
        trace_span!(target: HOST, "wait").in_scope(|| point.wait(model.patience))?;
        self.check_manners(&model.device, begin.elapsed());
        if let Some(tracing) = tracing {
            let timed = self.stream.as_ref().map(|stream| &stream.plan).filter(|plan| plan.timed);
            trace_span!(target: HOST, "read the times").in_scope(|| tracing.stepped(position, timed))?;
        }
        // A batch step leaves the state as it is.
        self.at = (self.stream.is_some() || wanted == Wanted::Sampled).then_some(position + 1);
        Ok(())
    }

    /// The token that the last step has chosen on the device, which `wanted` it; 0 also where no logit is a number.
    ///
    /// # Errors
    /// The device's errors.
    pub fn chosen(&mut self, steps: &Steps, wanted: Wanted) -> Result<u32> {
        let _read = trace_span!(target: HOST, "read the token").entered();
        match self.at {
            Some(position) if self.stream.is_some() || wanted == Wanted::Sampled => {
                let token = self.state.token(position)?;
                self.next = Some(token);
                Ok(token)
            }
            _ => Ok(steps.chosen(1)?[0].unwrap_or(0)),
        }
    }

    /// Reads the last logits; `logits` has the length of the vocabulary.
    ///
    /// # Errors
    /// The device's errors.
    pub fn read_logits(&self, steps: &Steps, logits: &mut [f32]) -> Result<()> {
        let _read = trace_span!(target: HOST, "read the logits").entered();
        match self.logits_at {
            LogitsAt::Host => self.state.read_logits(false, logits),
            LogitsAt::Device => self.state.read_logits(true, logits),
            LogitsAt::Column(column) => steps.read_logits(column, logits),
        }
    }

    /// Warns once of a step that kept other programs from the GPU for so long that the driver counts it.
    fn check_manners(&mut self, device: &Device, step: Duration) {
        if step <= SWITCH_PATIENCE || self.warned || self.stream.is_none() {
            return;
        }
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

/// The kernel that draws a token on the device; `None` if none is to be drawn there, or if the vocabulary is too
/// large for it.
fn draws(m: &DeviceModel, programs: &mut Programs, wanted: Option<bool>) -> Result<Option<hcq::Kernel>> {
    let (info, vocab) = (m.device.info(), fits(m.config.vocab)?);
    if !wanted.unwrap_or(info.backend != BackendKind::Sim) || vocab > sample::MOST_TOKENS {
        return Ok(None);
    }
    let kernel = programs.kernel(sample::NAME, sample::NAME)?;
    let shared = u64::from(kernel.static_shared() + sample::dynamic_shared(vocab));
    Ok((shared <= info.max_shared_per_block).then_some(kernel))
}
