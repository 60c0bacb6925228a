//! Where the time of a step goes.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::step::StepPlan;
use super::trace::{PhaseTime, layers};
use super::{Engine, Mode};
use crate::error::Result;
use crate::kernels::step::MARKS;

/// What one kind of launch cost over some steps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KernelStat {
    /// The kernel.
    pub name: String,
    /// What it is for.
    pub role: &'static str,
    /// How often it ran.
    pub count: u64,
    /// Time in all, in ns of the GPU's clock.
    pub nanoseconds: u64,
    /// Weights, keys and values that it read, in bytes.
    pub bytes: u64,
    /// What the time went to, where phases are timed.
    pub parts: Option<PhaseParts>,
}

/// What the time of a phase went to, in ns as its first block saw it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PhaseParts {
    /// Until the phase before had ended in all blocks; first loads of weights start in this time.
    pub waiting: u64,
    /// Bringing the input to shared memory.
    pub input: u64,
    /// Products, or attention.
    pub products: u64,
    /// Using the results.
    pub results: u64,
    /// Telling the other blocks.
    pub end: u64,
}

/// Adds `stat` to those before it of the same kernel and role.
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

impl Engine {
    /// Times every launch of `steps` greedy steps from an empty context, one after the other, and forgets them again. A step in
    /// one launch is timed phase by phase, by the clock of its first block. Steps for at least `warm_up` go before.
    ///
    /// # Errors
    /// As [`Engine::step`].
    pub fn profile(&mut self, steps: usize, warm_up: Duration) -> Result<Vec<KernelStat>> {
        self.reset()?;
        self.room(steps)?;
        let begin = Instant::now();
        while begin.elapsed() < warm_up {
            self.reset()?;
            let mut token = 0;
            for _ in 0..steps {
                token = self.step_greedy(token)?;
            }
        }
        if self.mode == Mode::Persistent {
            return self.profile_phases(steps);
        }
        self.reset()?;
        self.room(steps)?;
        self.plan.state.write(self.token_at(0), &0u32.to_le_bytes())?;
        let mut stats = Vec::new();
        for position in 1..=steps as u64 {
            let mut times = vec![self.queue.timestamp()?];
            for stage in self.steps.as_ref().map_or(&self.plan.stages, |s| &s.phases) {
                // SAFETY: as for the recorded launches, see `record`; a timestamp orders them all.
                unsafe { self.queue.launch(&stage.kernel, stage.config, &stage.args) }?;
                times.push(self.queue.timestamp()?);
                self.queue.barrier()?;
            }
            self.queue.submit()?.wait(self.patience)?;
            for (stage, pair) in self.stages().iter().zip(times.windows(2)) {
                let ns = pair[1].ns().zip(pair[0].ns()).map_or(0, |(end, start)| end.saturating_sub(start));
                let bytes = stage.weight_bytes + stage.cache_bytes * position;
                let stat = KernelStat {
                    name: stage.kernel.name().to_owned(),
                    role: stage.role,
                    count: 1,
                    nanoseconds: ns,
                    bytes,
                    parts: None,
                };
                add(&mut stats, stat);
            }
        }
        self.reset()?;
        Ok(stats)
    }

    /// [`Engine::profile`] of steps in one launch.
    fn profile_phases(&mut self, steps: usize) -> Result<Vec<KernelStat>> {
        self.reset()?;
        self.room(steps)?;
        self.plan.state.write(self.token_at(0), &0u32.to_le_bytes())?;
        let mut stats = Vec::new();
        let Some(plan) = &self.steps else { return Ok(stats) };
        for position in 0..steps {
            let start = self.queue.timestamp()?;
            self.queue.replay(&self.step)?;
            let end = self.queue.timestamp()?;
            self.queue.submit()?.wait(self.patience)?;
            let [start, end] = [start, end].map(|t| t.ns().unwrap_or_default());
            for phase in plan.phase_times([start, end], position)? {
                let stat = KernelStat {
                    name: plan.whole.kernel.name().to_owned(),
                    role: phase.role,
                    count: 1,
                    nanoseconds: phase.end - phase.start,
                    bytes: phase.bytes,
                    parts: Some(phase.parts),
                };
                add(&mut stats, stat);
            }
        }
        self.reset()?;
        Ok(stats)
    }
}

impl StepPlan {
    /// When the phases of the last step ran, which is timed, in one launch, and took from `start` to `end` on the GPU's clock.
    /// `position` is how many tokens were taken in before it.
    ///
    /// # Errors
    /// What the device reports.
    pub fn phase_times(&self, [start, end]: [u64; 2], position: usize) -> Result<Vec<PhaseTime>> {
        let mut bytes = vec![0; self.times.len() as usize];
        self.times.read(0, &mut bytes)?;
        let clocks: Vec<u32> = bytes.as_chunks().0.iter().map(|b| u32::from_le_bytes(*b)).collect();
        let marks: Vec<&[u32]> = clocks.chunks(MARKS as usize).collect();
        let (Some(first), Some(last)) = (marks.first(), marks.last()) else { return Ok(Vec::new()) };
        // Wraps after some seconds.
        let since = |mark: u32| u128::from(mark.wrapping_sub(first[0]));
        let whole = since(last[5]).max(1);
        let elapsed = u128::from(end.saturating_sub(start));
        let at = |mark: u32| start + (since(mark) * elapsed / whole) as u64;
        let roles: Vec<&str> = self.phases.iter().map(|stage| stage.role).collect();
        let mut phases = Vec::new();
        for (i, ((stage, m), layer)) in self.phases.iter().zip(&marks).zip(layers(&roles)).enumerate() {
            let next = marks.get(i + 1).map_or(m[5], |next| next[0]);
            let mut times = [m[0], m[1], m[2], m[3], m[4], next].map(at);
            for i in 1..times.len() {
                times[i] = times[i].max(times[i - 1]);
            }
            let [start, input, products, results, told, end] = times;
            let parts = PhaseParts {
                waiting: input - start,
                input: products - input,
                products: results - products,
                results: told - results,
                end: end - told,
            };
            let bytes = stage.weight_bytes + stage.cache_bytes * (position as u64 + 1);
            phases.push(PhaseTime { role: stage.role, layer, start, end, bytes, parts });
        }
        Ok(phases)
    }
}
