//! Launches with a timestamp after each.
//!
//! A traced engine replays graphs of its own. Launches that could overlap do not in them, and none is started
//! by its predecessor, so a step takes somewhat longer than without a trace.

use std::time::Duration;

use hcq::{Device, Graph, Queue, Timestamp};

use crate::engine::launch::Launch;
use crate::engine::plan::StepPlan;
use crate::engine::times::{LaunchTime, PhaseParts, PhaseTime, Work, layers};
use crate::error::Result;
use crate::kernels::stream::sync::MARKS;

/// Submits `launches` one after the other, waits, and returns their times; they take `tokens` tokens at
/// `position`.
pub fn run_timed(
    queue: &mut Queue,
    launches: &[Launch],
    work: Work,
    (position, tokens): (usize, usize),
    patience: Duration,
) -> Result<Vec<LaunchTime>> {
    let mut times = vec![queue.timestamp()?];
    for launch in launches {
        queue.barrier();
        // SAFETY: as for the recorded launches, see `record`; a barrier orders them all.
        unsafe { queue.launch(&launch.kernel, launch.config, &launch.args) }?;
        times.push(queue.timestamp()?);
    }
    queue.submit()?.wait(patience)?;
    Ok(timed(launches, &times, work, (position, position + tokens)))
}

/// The times of `launches`, which ran between `times` and read `positions` positions of the cache.
fn timed(
    launches: &[Launch],
    times: &[Timestamp],
    work: Work,
    (position, positions): (usize, usize),
) -> Vec<LaunchTime> {
    let roles: Vec<&str> = launches.iter().map(|l| l.role).collect();
    let times: Vec<u64> = times.iter().map(|t| t.ns().unwrap_or_default()).collect();
    let of = |((launch, layer), [start, end]): ((&Launch, Option<usize>), &[u64; 2])| LaunchTime {
        work,
        position,
        name: launch.kernel.name().to_owned(),
        role: launch.role,
        layer,
        grid: launch.config.grid,
        threads: launch.config.block.iter().product(),
        start: *start,
        end: *end.max(start),
        bytes: launch.weight_bytes + launch.cache_bytes * positions as u64,
        phases: Vec::new(),
    };
    launches.iter().zip(layers(&roles)).zip(times.array_windows()).map(of).collect()
}

/// A recorded list of launches with a timestamp after each.
#[derive(Debug)]
pub struct TimedGraph {
    pub graph: Graph,
    times: Vec<Timestamp>,
    launches: Vec<Launch>,
}

impl TimedGraph {
    /// Records `launches` one after the other.
    pub fn new<'a>(device: &Device, launches: impl IntoIterator<Item = &'a Launch>) -> Result<Self> {
        let mut graph = device.graph();
        let mut times = vec![graph.timestamp()?];
        let launches: Vec<Launch> = launches.into_iter().cloned().collect();
        for launch in &launches {
            graph.barrier();
            // SAFETY: as in `record`; a barrier orders them all.
            unsafe { graph.launch(&launch.kernel, launch.config, &launch.args) }?;
            times.push(graph.timestamp()?);
        }
        Ok(Self { graph: graph.build()?, times, launches })
    }

    /// The launches of the last replay, of one token at `position`.
    pub fn launches(&self, work: Work, position: usize) -> Vec<LaunchTime> {
        self.launches_of(work, position, position + 1)
    }

    /// The launches of the last replay, which read `positions` positions of the cache.
    pub fn launches_of(&self, work: Work, position: usize, positions: usize) -> Vec<LaunchTime> {
        timed(&self.launches, &self.times, work, (position, positions))
    }
}

/// The step that a traced engine replays, and the launches it has timed.
#[derive(Debug)]
pub struct Tracing {
    /// A step.
    pub step: TimedGraph,
    /// From a prompt's last chunk to its logits.
    pub finish: Option<TimedGraph>,
    /// The launches that have completed.
    pub seen: Vec<LaunchTime>,
}

impl Tracing {
    /// Adds the step at `position`, which has completed; `timed` has its phases, if they are timed.
    pub fn stepped(&mut self, position: usize, timed: Option<&StepPlan>) -> Result<()> {
        let mut launches = self.step.launches(Work::Step, position);
        if let (Some(plan), Some(launch)) = (timed, launches.first_mut()) {
            launch.phases = phase_times(plan, [launch.start, launch.end], position)?;
        }
        self.seen.append(&mut launches);
        Ok(())
    }

    /// Adds the launches from a prompt's last chunk to its logits.
    pub fn finished(&mut self, position: usize) {
        if let Some(finish) = &self.finish {
            self.seen.append(&mut finish.launches(Work::Prompt, position));
        }
    }
}

/// When the phases of the last timed step in one launch ran, which took from `start` to `end` on the GPU's
/// clock, after `position` tokens.
pub fn phase_times(plan: &StepPlan, [start, end]: [u64; 2], position: usize) -> Result<Vec<PhaseTime>> {
    let clocks = plan.times.read_vec::<u32>(0, plan.times.len() as usize / 4)?;
    let marks: Vec<&[u32]> = clocks.chunks(MARKS as usize).collect();
    let (Some(first), Some(last)) = (marks.first(), marks.last()) else { return Ok(Vec::new()) };
    // The clock wraps after some seconds.
    let since = |mark: u32| u128::from(mark.wrapping_sub(first[0]));
    let whole = since(last[5]).max(1);
    let elapsed = u128::from(end.saturating_sub(start));
    let at = |mark: u32| start + (since(mark) * elapsed / whole) as u64;
    let roles: Vec<&str> = plan.phases.iter().map(|launch| launch.role).collect();
    let mut phases = Vec::new();
    for (i, ((launch, m), layer)) in plan.phases.iter().zip(&marks).zip(layers(&roles)).enumerate() {
        let next = marks.get(i + 1).map_or(m[5], |next| next[0]);
        let mut times = [m[0], m[1], m[2], m[3], m[4], next].map(at);
        for i in 1..times.len() {
            times[i] = times[i].max(times[i - 1]);
        }
        let [start, input, products, results, signal, end] = times;
        let parts = PhaseParts {
            waiting: input - start,
            input: products - input,
            products: results - products,
            results: signal - results,
            end: end - signal,
        };
        let bytes = launch.weight_bytes + launch.cache_bytes * (position as u64 + 1);
        phases.push(PhaseTime { role: launch.role, layer, start, end, bytes, parts });
    }
    Ok(phases)
}
