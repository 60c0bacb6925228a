//! How candidates are compared: by the GPU's clock, or by a prediction.

use std::fmt;

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
    /// Starts to count.
    fn start(&mut self);

    /// The predicted time in ns of the work since [`Counter::start`].
    fn predicted_ns(&mut self) -> f64;
}
