//! How long something takes: by the GPU's clock, or computed from what the software device counts.

use std::fmt;

use super::Bench;
use crate::error::Result;

/// How candidates are compared.
#[derive(Debug)]
pub enum Meter {
    /// By the GPU's clock.
    Clock,
    /// By a prediction from what a software device counts, since times on it mean nothing.
    Count(Box<dyn Counter>),
}

/// Predicts times from what the software device counts.
pub trait Counter: fmt::Debug {
    /// What runs from here on counts.
    fn start(&mut self);

    /// Predicted time in ns of what ran since [`Counter::start`].
    fn predicted_ns(&mut self) -> f64;
}

impl Bench<'_> {
    /// The time in ns of what `run` records, from its start to its end.
    pub(super) fn time(&mut self, run: &mut dyn FnMut(&mut Self) -> Result<()>) -> Result<f64> {
        if let Meter::Count(counter) = &mut self.meter {
            counter.start();
        }
        let start = self.queue.timestamp()?;
        run(self)?;
        let end = self.queue.timestamp()?;
        self.finish()?;
        if let Meter::Count(counter) = &mut self.meter {
            return Ok(counter.predicted_ns());
        }
        let ns = end.ns().zip(start.ns());
        Ok(ns.map_or(f64::INFINITY, |(end, start)| end.saturating_sub(start) as f64))
    }
}
