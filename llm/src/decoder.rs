//! The interface of whatever runs a model, for generating, measuring and verifying.

use crate::error::Result;
use crate::sampler::{Sampler, argmax};

/// Processes tokens and gives logits: the engine on a GPU, or the CPU reference.
pub trait Decoder {
    /// Processes `token` and returns the logits of the next one, one number per token of the vocabulary.
    ///
    /// # Errors
    /// [`Error::Token`](crate::Error::Token), [`Error::ContextFull`](crate::Error::ContextFull), or what the
    /// device reports.
    fn step(&mut self, token: u32) -> Result<Vec<f32>>;

    /// [`Decoder::step`] into memory that is used again and again: `logits` becomes one number per token of the
    /// vocabulary. After an error its content is not specified.
    ///
    /// # Errors
    /// As [`Decoder::step`].
    fn step_into(&mut self, token: u32, logits: &mut Vec<f32>) -> Result<()> {
        *logits = self.step(token)?;
        Ok(())
    }

    /// Processes `token` and returns the most likely next one, the lowest of equals. An engine copies no
    /// logits for it; if `token` is its last result, nothing is written to the device but the doorbell.
    ///
    /// # Errors
    /// As [`Decoder::step`].
    fn step_greedy(&mut self, token: u32) -> Result<u32> {
        Ok(argmax(&self.step(token)?))
    }

    /// Processes `token` and returns the next one as `sampler` chooses it. An engine may do so on the device,
    /// with the same result: it then copies no logits, and the host writes nothing but what is drawn if `token`
    /// is its last result.
    ///
    /// # Errors
    /// As [`Decoder::step`]. The sampler may have drawn a random number.
    fn step_sampled(&mut self, token: u32, sampler: &mut Sampler) -> Result<u32> {
        Ok(sampler.sample(&self.step(token)?))
    }

    /// Processes all of `tokens` and returns the logits after the last; empty for no tokens.
    ///
    /// # Errors
    /// As [`Decoder::step`]; an engine has then processed no token.
    fn prefill(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        let mut logits = Vec::new();
        for &token in tokens {
            logits = self.step(token)?;
        }
        Ok(logits)
    }

    /// Checks what is in the context for values that are no numbers; at the end of a text, because it reads
    /// all keys and values.
    ///
    /// # Errors
    /// [`Error::CacheRange`](crate::Error::CacheRange) or [`Error::NotFinite`](crate::Error::NotFinite), with
    /// the first place; an engine is then reset.
    fn check(&mut self) -> Result<()> {
        Ok(())
    }

    /// Empties the context.
    ///
    /// # Errors
    /// The device's errors.
    fn reset(&mut self) -> Result<()> {
        self.truncate(0)
    }

    /// Keeps the first `count` tokens of the context, for a text that begins like the one before; all of them
    /// if there are fewer.
    ///
    /// # Errors
    /// The device's errors.
    fn truncate(&mut self, count: usize) -> Result<()>;

    /// Tokens in the context.
    fn position(&self) -> usize;

    /// Most tokens in the context.
    fn context(&self) -> usize;
}
