//! The time of steps and prompts, kernel by kernel.

use std::time::{Duration, Instant};

use hcq::Graph;

use crate::decoder::Decoder;
use crate::engine::alone::Stream;
use crate::engine::batch::Column;
use crate::engine::decode::Engine;
use crate::engine::finish::Prompt;
use crate::engine::launch::record;
use crate::engine::matrix::fits;
use crate::engine::prompt::chunks::Place;
use crate::engine::timed::{phase_times, run_timed};
use crate::engine::times::{LaunchTime, PhaseParts, Work};
use crate::error::Result;

/// The cost of one kernel's launches in one role.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KernelStat {
    /// The kernel.
    pub name: String,
    /// Its role.
    pub role: &'static str,
    /// Number of launches, or of phases.
    pub count: u64,
    /// Total time, in ns of the GPU's clock.
    pub nanoseconds: u64,
    /// Weights, keys and values that it read, in bytes.
    pub bytes: u64,
    /// The parts of the time, if phases are timed.
    pub parts: Option<PhaseParts>,
}

/// Adds `stat` to the earlier ones of the same kernel and role.
fn add(stats: &mut Vec<KernelStat>, stat: KernelStat) {
    match stats.iter_mut().find(|s| s.name == stat.name && s.role == stat.role) {
        Some(known) => {
            known.count += stat.count;
            known.nanoseconds += stat.nanoseconds;
            known.bytes += stat.bytes;
            if let (Some(a), Some(b)) = (&mut known.parts, stat.parts) {
                a.waiting += b.waiting;
                a.input += b.input;
                a.products += b.products;
                a.results += b.results;
                a.end += b.end;
            }
        }
        None => stats.push(stat),
    }
}

/// Adds launches of which each is one kernel in one role.
fn add_launches(stats: &mut Vec<KernelStat>, times: Vec<LaunchTime>) {
    for LaunchTime { name, role, start, end, bytes, .. } in times {
        add(stats, KernelStat { name, role, count: 1, nanoseconds: end - start, bytes, parts: None });
    }
}

impl Engine {
    /// Times every launch of `steps` greedy steps from an empty context, one after the other, and resets the
    /// engine. A step in one launch is timed phase by phase, by the clock of its first block. Steps run for
    /// at least `warm_up` before.
    ///
    /// # Errors
    /// As [`Decoder::step`].
    pub fn profile(&mut self, steps: usize, warm_up: Duration) -> Result<Vec<KernelStat>> {
        self.reset()?;
        self.check_room(steps)?;
        let begin = Instant::now();
        while begin.elapsed() < warm_up {
            self.reset()?;
            let mut token = 0;
            for _ in 0..steps {
                token = self.step_greedy(token)?;
            }
        }
        self.reset()?;
        self.alone.state.set_position(0)?;
        self.alone.state.set_tokens(0, &[0])?;
        let (mut stats, patience) = (Vec::new(), self.model.patience);
        for position in 0..steps {
            if self.alone.stream.is_some() {
                self.profile_phases(position, &mut stats)?;
            } else {
                self.steps.write(&[Column { token: 0, position: fits(position)?, table: 0 }])?;
                let (at, launches) = ((position, 1), &self.alone.launches);
                add_launches(&mut stats, run_timed(&mut self.queue, launches, Work::Step, at, patience)?);
            }
        }
        self.reset()?;
        Ok(stats)
    }

    /// As [`Decoder::step`], with a launch for each phase of a step in one launch: no block waits for another
    /// inside a kernel, so that the software device counts what a phase does and no polls.
    ///
    /// # Errors
    /// As [`Decoder::step`].
    pub fn step_by_phases(&mut self, token: u32) -> Result<Vec<f32>> {
        let mut by_phases = match &self.alone.stream {
            Some(stream) => record(&self.model.device, &stream.plan.phases)?,
            None => return self.step(token),
        };
        self.exchange_step(&mut by_phases);
        let logits = self.step(token);
        self.exchange_step(&mut by_phases);
        logits
    }

    /// Exchanges the step in one launch, if there is one, for another.
    fn exchange_step(&mut self, step: &mut Graph) {
        if let Some(stream) = &mut self.alone.stream {
            std::mem::swap(&mut stream.step, step);
        }
    }

    /// Runs a step in one launch at `position`, and adds its phases.
    fn profile_phases(&mut self, position: usize, stats: &mut Vec<KernelStat>) -> Result<()> {
        let Some(Stream { plan, step, .. }) = &self.alone.stream else { return Ok(()) };
        let start = self.queue.timestamp()?;
        self.queue.replay(step)?;
        let end = self.queue.timestamp()?;
        self.queue.submit()?.wait(self.model.patience)?;
        let [start, end] = [start, end].map(|t| t.ns().unwrap_or_default());
        for phase in phase_times(plan, [start, end], position)? {
            let stat = KernelStat {
                name: plan.whole.kernel.name().to_owned(),
                role: phase.role,
                count: 1,
                nanoseconds: phase.end - phase.start,
                bytes: phase.bytes,
                parts: Some(phase.parts),
            };
            add(stats, stat);
        }
        Ok(())
    }

    /// Times every launch of a prompt of `tokens` tokens at an empty context, one after the other, after
    /// replaying it for `warm_up`, and resets the engine. Empty for a model whose prompts are not processed
    /// in chunks.
    ///
    /// # Errors
    /// As [`Decoder::prefill`].
    pub fn profile_prompt(&mut self, tokens: usize, warm_up: Duration) -> Result<Vec<KernelStat>> {
        self.reset()?;
        self.check_room(tokens)?;
        let Some(Prompt { chunks, .. }) = &mut self.prompt else { return Ok(Vec::new()) };
        if !chunks.in_range(&self.model, &mut self.queue)? {
            return Ok(Vec::new());
        }
        let patience = chunks.patience(&self.model);
        let zeros = vec![0; tokens];
        let begin = Instant::now();
        while begin.elapsed() < warm_up {
            for (position, chunk) in chunks.cut(&zeros) {
                let place = Place { position, table: 0 };
                chunks.run(&self.model, &mut self.queue, place, chunk)?.wait(patience)?;
            }
        }
        let mut stats = Vec::new();
        for (position, chunk) in chunks.cut(&zeros) {
            let place = Place { position, table: 0 };
            let times = chunks.timed(&self.model, &mut self.queue, place, chunk, patience)?;
            add_launches(&mut stats, times);
        }
        self.reset()?;
        Ok(stats)
    }
}
