//! Every launch of every step with its times, as a trace shows them.
//!
//! A traced engine replays graphs of its own, which take a timestamp after each launch. Launches that could overlap do not in
//! them, and none is started by the one before it, so that a step takes somewhat longer than without.

use hcq::{Device, Graph, LaunchConfig, Queue, Timestamp};

use super::plan::Stage;
use super::profile::PhaseParts;
use super::step::StepPlan;
use super::{Engine, Mode};
use crate::error::Result;

/// What launches belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// A step from a token to the next.
    Step,
    /// A step that leaves the logits out.
    Fill,
    /// A chunk of a prompt, or what follows the last one until its logits are there.
    Prompt,
}

impl Work {
    /// In a word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Step => "step",
            Self::Fill => "fill",
            Self::Prompt => "prompt",
        }
    }
}

/// When a launch ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchTime {
    /// What it belongs to.
    pub work: Work,
    /// Tokens that had been taken in before that.
    pub position: usize,
    /// The kernel.
    pub name: String,
    /// What it is for.
    pub role: &'static str,
    /// The layer it is part of, from 0, if it is of one.
    pub layer: Option<usize>,
    /// Thread blocks along x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub threads: u32,
    /// When everything before it had ended, in ns of the GPU's clock.
    pub start: u64,
    /// When it had ended.
    pub end: u64,
    /// Weights, keys and values that it read, in bytes.
    pub bytes: u64,
    /// Of a step in one launch whose phases are timed: those.
    pub phases: Vec<PhaseTime>,
}

/// When a phase of a launch ran, as the clock of its first block saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhaseTime {
    /// What it is for.
    pub role: &'static str,
    /// The layer it is part of, from 0, if it is of one.
    pub layer: Option<usize>,
    /// When it began, in ns of the GPU's clock.
    pub start: u64,
    /// When the next began.
    pub end: u64,
    /// Weights, keys and values that it read, in bytes.
    pub bytes: u64,
    /// What the time went to; together it is all of it.
    pub parts: PhaseParts,
}

/// The layer of each stage, by the role that every layer has once and first.
pub(super) fn layers(roles: &[&str]) -> Vec<Option<usize>> {
    let first = match roles.contains(&"attention norm") {
        true => "attention norm",
        false => "q k v",
    };
    let mut layer = None;
    let of = |role: &&str| match *role {
        role if role == first => {
            layer = Some(layer.map_or(0, |l| l + 1));
            layer
        }
        // Weights are expanded ahead of their use.
        "final norm" | "output" | "argmax" | "advance" | "expand" => None,
        _ => layer,
    };
    roles.iter().map(of).collect()
}

/// A launch whose time is taken, without the time.
#[derive(Debug)]
struct Launch {
    name: String,
    role: &'static str,
    layer: Option<usize>,
    config: LaunchConfig,
    weight_bytes: u64,
    cache_bytes: u64,
}

impl Launch {
    fn all(stages: &[&Stage]) -> Vec<Self> {
        let roles: Vec<&str> = stages.iter().map(|s| s.role).collect();
        let of = |(stage, layer): (&&Stage, Option<usize>)| Self {
            name: stage.kernel.name().to_owned(),
            role: stage.role,
            layer,
            config: stage.config,
            weight_bytes: stage.weight_bytes,
            cache_bytes: stage.cache_bytes,
        };
        stages.iter().zip(layers(&roles)).map(of).collect()
    }

    /// With its time. `positions` is how many positions of the cache it read.
    fn at(&self, work: Work, position: usize, positions: usize, [start, end]: [u64; 2]) -> LaunchTime {
        LaunchTime {
            work,
            position,
            name: self.name.clone(),
            role: self.role,
            layer: self.layer,
            grid: self.config.grid,
            threads: self.config.block.iter().product(),
            start,
            end: end.max(start),
            bytes: self.weight_bytes + self.cache_bytes * positions as u64,
            phases: Vec::new(),
        }
    }
}

/// Records `stages` one after the other into `queue`, hands them over, waits, and tells when each ran; they take in `tokens` tokens
/// at `position`.
///
/// # Errors
/// What the device reports.
pub(super) fn run_timed(
    queue: &mut Queue,
    stages: &[Stage],
    (position, tokens): (usize, usize),
    patience: std::time::Duration,
) -> Result<Vec<LaunchTime>> {
    let mut times = vec![queue.timestamp()?];
    for stage in stages {
        queue.barrier()?;
        // SAFETY: as for the recorded launches, see `record`; a barrier orders them all.
        unsafe { queue.launch(&stage.kernel, stage.config, &stage.args) }?;
        times.push(queue.timestamp()?);
    }
    queue.submit()?.wait(patience)?;
    let launches = Launch::all(&stages.iter().collect::<Vec<_>>());
    Ok(timed(&launches, &times, Work::Prompt, position, position + tokens))
}

/// Launches with the times between which they ran.
fn timed(
    launches: &[Launch],
    times: &[Timestamp],
    work: Work,
    position: usize,
    positions: usize,
) -> Vec<LaunchTime> {
    let times: Vec<u64> = times.iter().map(|t| t.ns().unwrap_or_default()).collect();
    let pairs = times.array_windows().copied();
    launches.iter().zip(pairs).map(|(l, pair)| l.at(work, position, positions, pair)).collect()
}

/// A recorded list of launches with a timestamp after each.
#[derive(Debug)]
struct TimedGraph {
    graph: Graph,
    times: Vec<Timestamp>,
    launches: Vec<Launch>,
}

impl TimedGraph {
    fn new(device: &Device, stages: &[&Stage]) -> Result<Self> {
        let mut graph = device.graph();
        let mut times = vec![graph.timestamp()?];
        for stage in stages {
            graph.barrier();
            // SAFETY: as in `record`; a barrier orders them all.
            unsafe { graph.launch(&stage.kernel, stage.config, &stage.args) }?;
            times.push(graph.timestamp()?);
        }
        Ok(Self { graph: graph.build()?, times, launches: Launch::all(stages) })
    }

    /// The launches of the last replay.
    fn launches(&self, work: Work, position: usize) -> Vec<LaunchTime> {
        timed(&self.launches, &self.times, work, position, position + 1)
    }
}

/// What a traced engine replays, and what it has seen.
#[derive(Debug)]
pub(super) struct Tracing {
    step: TimedGraph,
    fill: TimedGraph,
    /// From a prompt's last chunk to its logits.
    finish: Option<TimedGraph>,
    seen: Vec<LaunchTime>,
}

impl Tracing {
    pub(super) fn step(&self) -> &Graph {
        &self.step.graph
    }

    pub(super) fn fill(&self) -> &Graph {
        &self.fill.graph
    }

    pub(super) fn finish(&self) -> Option<&Graph> {
        self.finish.as_ref().map(|finish| &finish.graph)
    }

    /// A step at `position` has ended; `timed` has its phases, where they are timed.
    pub(super) fn stepped(&mut self, position: usize, timed: Option<&StepPlan>) -> Result<()> {
        let mut launches = self.step.launches(Work::Step, position);
        if let (Some(plan), Some(launch)) = (timed, launches.first_mut()) {
            launch.phases = plan.phase_times([launch.start, launch.end], position)?;
        }
        self.seen.append(&mut launches);
        Ok(())
    }

    pub(super) fn filled(&mut self, position: usize) {
        self.seen.append(&mut self.fill.launches(Work::Fill, position));
    }

    pub(super) fn finished(&mut self, position: usize) {
        if let Some(finish) = &self.finish {
            self.seen.append(&mut finish.launches(Work::Prompt, position));
        }
    }

    pub(super) fn add(&mut self, mut launches: Vec<LaunchTime>) {
        self.seen.append(&mut launches);
    }
}

impl Engine {
    /// From now on takes the time of every launch, for [`Engine::take_trace`]. The phases of a step in one launch are there if
    /// the engine was set up to time them.
    ///
    /// # Errors
    /// What the device reports.
    pub fn start_trace(&mut self, device: &Device) -> Result<()> {
        let step: Vec<&Stage> = match &self.steps {
            Some(steps) if self.mode == Mode::Persistent => vec![&steps.whole],
            Some(steps) => steps.phases.iter().collect(),
            None => self.plan.stages.iter().collect(),
        };
        let fill: Vec<&Stage> = match &self.steps {
            Some(steps) => vec![&steps.fill],
            None => self.plan.without_head().collect(),
        };
        let finish = self.prefill.as_ref().map(|prefill| {
            let rest = &self.plan.stages[self.plan.last_layer..];
            TimedGraph::new(device, &[prefill.last()].into_iter().chain(rest).collect::<Vec<_>>())
        });
        let finish = finish.transpose()?;
        let (step, fill) = (TimedGraph::new(device, &step)?, TimedGraph::new(device, &fill)?);
        self.tracing = Some(Tracing { step, fill, finish, seen: Vec::new() });
        Ok(())
    }

    /// The launches since [`Engine::start_trace`] or the last call of this, in their order.
    pub fn take_trace(&mut self) -> Vec<LaunchTime> {
        self.tracing.as_mut().map(|t| std::mem::take(&mut t.seen)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_counted_by_their_first_role() {
        let operations = ["embedding", "attention norm", "q k v", "q k v", "down", "attention norm", "q k v"];
        let wanted = [None, Some(0), Some(0), Some(0), Some(0), Some(1), Some(1)];
        assert_eq!(layers(&operations), wanted);
        let phases = ["embedding", "q k v", "attention", "q k v", "down", "output"];
        assert_eq!(layers(&phases), [None, Some(0), Some(0), Some(1), Some(1), None]);
        assert_eq!(layers(&["step"]), [None]);
    }
}
