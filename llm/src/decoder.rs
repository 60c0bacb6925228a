//! What generating, measuring and verifying need of whatever runs the model.

use crate::error::Result;
use crate::reference::Reference;
use crate::sampler::argmax;

/// Something that takes in tokens and gives logits: the engine on a GPU, or the CPU reference.
pub trait Decoder {
    /// Takes in `token` and returns the logits of the next one, one number per token of the vocabulary.
    ///
    /// # Errors
    /// A token outside the vocabulary, a full context, or what the device reports.
    fn step(&mut self, token: u32) -> Result<Vec<f32>>;

    /// Takes in `token` and returns the most likely next one, the lowest of equals.
    ///
    /// # Errors
    /// As [`Decoder::step`].
    fn step_greedy(&mut self, token: u32) -> Result<u32> {
        Ok(argmax(&self.step(token)?))
    }

    /// Takes in all of `tokens` and returns the logits after the last; empty for no tokens.
    ///
    /// # Errors
    /// As [`Decoder::step`].
    fn prefill(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        let mut logits = Vec::new();
        for &token in tokens {
            logits = self.step(token)?;
        }
        Ok(logits)
    }

    /// Forgets everything taken in.
    ///
    /// # Errors
    /// What the device reports.
    fn reset(&mut self) -> Result<()>;

    /// How many tokens have been taken in.
    fn position(&self) -> usize;
}

impl Decoder for Reference<'_> {
    fn step(&mut self, token: u32) -> Result<Vec<f32>> {
        Reference::step(self, token)
    }

    fn reset(&mut self) -> Result<()> {
        Reference::reset(self);
        Ok(())
    }

    fn position(&self) -> usize {
        Reference::position(self)
    }
}
