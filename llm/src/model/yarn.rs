//! Yarn: pairs of many rotations within the trained context keep their frequency, those of few
//! are slowed down, and rotated queries and keys become longer. Source: `ggml_rope_yarn_corr_dims` of ggml,
//! and the paper (Peng and others, 2023).

use crate::error::Result;
use crate::gguf::Gguf;
use crate::model::architecture::Architecture;
use crate::model::values::{positive, size_or};

/// Rotations within the trained context from which a pair keeps its frequency, and up to which it is slowed
/// down.
const FAST: f64 = 32.0;
const SLOW: f64 = 1.0;

/// The parameters.
#[derive(Clone, Copy, Debug)]
pub struct Yarn {
    /// Ratio of the context to the trained one.
    factor: f64,
    /// Positions of the trained context.
    original: f64,
}

impl Yarn {
    /// The parameters of a file whose scaling is yarn; a missing length of the trained context is `context`.
    ///
    /// # Errors
    /// As the keys' values.
    pub fn read(gguf: &Gguf, architecture: &Architecture, context: usize) -> Result<Option<Self>> {
        let of = |key: &str| architecture.key(&format!("rope.scaling.{key}"));
        if gguf.text(&of("type"))? != Some("yarn") {
            return Ok(None);
        }
        let factor = f64::from(positive(gguf, &of("factor"), Some(1.0))?);
        let original = size_or(gguf, &of("original_context_length"), context)? as f64;
        Ok(Some(Self { factor, original }))
    }

    /// The factor of scores.
    pub fn score_factor(self) -> f32 {
        (1.0 + 0.1 * self.factor.ln()).powi(2) as f32
    }

    /// Divisors of the angles of `rope_dim / 2` pairs.
    pub fn divisors(self, base: f32, rope_dim: usize) -> Vec<f32> {
        // The pair of so many rotations within the trained context.
        let pair = |turns: f64| {
            let ratio = self.original / (turns * std::f64::consts::TAU);
            rope_dim as f64 * ratio.ln() / (2.0 * f64::from(base).ln())
        };
        let (first, last) = (pair(FAST).floor().max(0.0), pair(SLOW).ceil().min(rope_dim as f64 - 1.0));
        let divisor = |j: usize| {
            let slowed = ((j as f64 - first) / (last - first).max(0.001)).clamp(0.0, 1.0);
            (1.0 / (slowed / self.factor + (1.0 - slowed))) as f32
        };
        (0..rope_dim / 2).map(divisor).collect()
    }
}
