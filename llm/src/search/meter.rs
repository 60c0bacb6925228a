//! Comparison of candidates: by the GPU's clock, or by a prediction.

use std::fmt;

/// The measure by which candidates are compared.
#[derive(Debug)]
pub enum Meter {
    /// By the GPU's clock.
    Clock,
    /// By a prediction from the counts of the software device, whose times are not those of a GPU.
    Count(Box<dyn Counter>),
}

/// Predicts times from the counts of the software device.
pub trait Counter: fmt::Debug {
    /// Starts to count.
    fn start(&mut self);

    /// The predicted time in ns of the work since [`Counter::start`].
    fn predicted_ns(&mut self) -> f64;
}
