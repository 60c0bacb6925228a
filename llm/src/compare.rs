//! The error of logits relative to a reference.

use crate::cache::CacheType;
use crate::reference::softmax;
use crate::sampler::argmax;

/// Differences between two sequences of logits, collected row by row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Comparison {
    rows: usize,
    signal: f64,
    error: f64,
    divergence: f64,
    divergence_max: f64,
    agreements: usize,
    difference_max: f64,
}

/// The bounds of a comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// Normalized mean square error: sum of squared differences by sum of squares.
    pub nmse: f64,
    /// Mean Kullback-Leibler divergence of the test's distribution from the reference's, in nats.
    pub divergence: f64,
    /// Least share of rows with the same most likely token on both sides.
    pub agreement: f64,
}

impl Bounds {
    /// For activations in `f16` or `f32`, whatever the type of the weights: both sides compute with the same
    /// weights.
    pub const FLOAT: Self = Self { nmse: 1e-5, divergence: 1e-4, agreement: 0.99 };

    /// The same with keys and values cached in q8_0 on both sides. A value near the middle of two quants may
    /// become different quants on the two sides: a few of ten thousand values in steps, a few of a hundred in
    /// prompts, which compute keys and values from f16. The error of the cache's rounding itself is larger
    /// (NMSE 9e-5 on a small random model).
    pub const Q8_0_CACHE: Self = Self { nmse: 5e-5, divergence: 3e-4, agreement: 0.99 };

    /// For an engine and a reference that both cache keys and values as `kv`.
    pub const fn of_cache(kv: CacheType) -> Self {
        match kv {
            CacheType::F16 => Self::FLOAT,
            CacheType::Q8_0 => Self::Q8_0_CACHE,
        }
    }

    /// These bounds, or this share of what the rounding of a cache changes by itself where that is more:
    /// `rounding` compares a reference with that cache with one that has an exact cache. The deeper a model is, the
    /// more of both; an engine whose cache is not rounded differs by all of it.
    #[must_use]
    pub fn beside(self, rounding: &Comparison, share: f64) -> Self {
        Self {
            nmse: self.nmse.max(share * rounding.nmse()),
            divergence: self.divergence.max(share * rounding.divergence()),
            ..self
        }
    }
}

impl Comparison {
    /// An empty comparison.
    pub fn new() -> Self {
        Self::default()
    }

    /// Compares one position.
    ///
    /// # Panics
    /// If the two have different lengths.
    pub fn add(&mut self, reference: &[f32], test: &[f32]) {
        assert_eq!(reference.len(), test.len(), "logits of different vocabularies");
        let wide = |logits: &[f32]| logits.iter().map(|&l| f64::from(l)).collect::<Vec<_>>();
        let (r, t) = (wide(reference), wide(test));
        let mut divergence = 0.0;
        for (p, q) in softmax(&r).iter().zip(softmax(&t)) {
            // A probability of zero contributes nothing to the sum.
            if *p > 0.0 {
                divergence += p * (p / q.max(f64::MIN_POSITIVE)).ln();
            }
        }
        for (r, t) in r.iter().zip(&t) {
            self.signal += r * r;
            self.error += (r - t) * (r - t);
            // `f64::max` would ignore NaN.
            let difference = (r - t).abs();
            if difference.is_nan() || difference > self.difference_max {
                self.difference_max = difference;
            }
        }
        self.rows += 1;
        self.divergence += divergence;
        self.divergence_max = self.divergence_max.max(divergence);
        self.agreements += usize::from(argmax(reference) == argmax(test));
    }

    /// Positions compared.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Normalized mean square error over all positions.
    pub fn nmse(&self) -> f64 {
        self.error / self.signal
    }

    /// Mean divergence per position, in nats.
    pub fn divergence(&self) -> f64 {
        self.divergence / self.rows as f64
    }

    /// Largest divergence of a position, in nats.
    pub fn divergence_max(&self) -> f64 {
        self.divergence_max
    }

    /// Share of positions with the same most likely token.
    pub fn agreement(&self) -> f64 {
        self.agreements as f64 / self.rows as f64
    }

    /// Largest difference of two logits.
    pub fn difference_max(&self) -> f64 {
        self.difference_max
    }

    /// Whether all figures are within `bounds`; false if any is NaN.
    pub fn is_within(&self, bounds: Bounds) -> bool {
        self.nmse() <= bounds.nmse
            && self.divergence() <= bounds.divergence
            && self.agreement() >= bounds.agreement
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_logits_have_no_distance() {
        let mut c = Comparison::new();
        c.add(&[1.0, -2.0, 0.5], &[1.0, -2.0, 0.5]);
        assert_eq!((c.nmse(), c.divergence(), c.agreement(), c.difference_max()), (0.0, 0.0, 1.0, 0.0));
        assert!(c.is_within(Bounds::FLOAT));
    }

    #[test]
    fn figures_equal_a_hand_calculation() {
        let mut c = Comparison::new();
        // Distributions (1/2, 1/2) and (1/4, 3/4).
        c.add(&[0.0, 0.0], &[0.0, 3f32.ln()]);
        let expected = 0.5 * (0.5f64 / 0.25).ln() + 0.5 * (0.5f64 / 0.75).ln();
        assert!((c.divergence() - expected).abs() < 1e-7);
        c.add(&[3.0, 4.0], &[3.0, 3.0]);
        // Squares: 9 + 16; errors: ln(3)² + 1.
        assert!((c.nmse() - (f64::from(3f32.ln()).powi(2) + 1.0) / 25.0).abs() < 1e-12);
        assert_eq!(c.agreement(), 0.0);
        assert!(!c.is_within(Bounds::FLOAT));
    }

    #[test]
    fn a_logit_that_is_not_a_number_is_never_within_bounds() {
        let mut c = Comparison::new();
        c.add(&[1.0, 2.0], &[1.0, f32::NAN]);
        assert!(!c.is_within(Bounds { nmse: 1e9, divergence: 1e9, agreement: 0.0 }));
        assert!(c.difference_max().is_nan());
    }
}
