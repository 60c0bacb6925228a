//! Taking the time of every launch of an engine.

use crate::engine::decode::Engine;
use crate::engine::launch::Launch;
use crate::engine::timed::{TimedGraph, Tracing};
use crate::engine::times::LaunchTime;
use crate::error::Result;

impl Engine {
    /// Takes the time of every launch from now on, for [`Engine::take_trace`]. The phases of a step in one
    /// launch are included if the engine was set up to time them.
    ///
    /// # Errors
    /// The device's errors.
    pub fn start_trace(&mut self) -> Result<()> {
        let device = &self.model.device;
        let step: Vec<&Launch> = match &self.alone.stream {
            Some(stream) => vec![&stream.plan.whole],
            None => self.alone.launches.iter().collect(),
        };
        let finish = self.prompt.as_ref().map(|prompt| TimedGraph::new(device, &prompt.launches));
        self.tracing = Some(Tracing {
            step: TimedGraph::new(device, step)?,
            finish: finish.transpose()?,
            seen: Vec::new(),
        });
        Ok(())
    }

    /// The launches since [`Engine::start_trace`] or the last call of this, in order.
    pub fn take_trace(&mut self) -> Vec<LaunchTime> {
        self.tracing.as_mut().map(|t| std::mem::take(&mut t.seen)).unwrap_or_default()
    }
}
