//! The decode state of a sequence: position, tokens, and the logits after the last step.

use hcq::{Buffer, Device};
use zerocopy::IntoBytes;

use crate::engine::matrix::fits;
use crate::error::Result;
use crate::kernels::state::TOKENS_AT;

/// The buffers that the host writes before a step and reads after it.
#[derive(Debug)]
pub struct State {
    /// Position and tokens, in the layout of [`crate::kernels::state`].
    pub words: Buffer,
    /// Logits, `vocab` numbers.
    pub logits: Buffer,
    vocab: usize,
}

impl State {
    /// A state for `context` positions, in the device's memory.
    pub fn new(device: &Device, vocab: usize, context: u32) -> Result<Self> {
        Self::from(vocab, context, |len| device.alloc(len))
    }

    /// A state that the host reads and writes in its own memory, where the device reaches it over its bus: no
    /// token waits for a copy. For steps of one launch, which read it once; each launch of another step would
    /// wait for the bus.
    pub fn in_host_memory(device: &Device, vocab: usize, context: u32) -> Result<Self> {
        Self::from(vocab, context, |len| device.alloc_host(len))
    }

    fn from(
        vocab: usize,
        context: u32,
        alloc: impl Fn(u64) -> std::result::Result<Buffer, hcq::Error>,
    ) -> Result<Self> {
        let words = alloc(4 * (u64::from(TOKENS_AT) + u64::from(context) + 1))?;
        let logits = alloc(4 * vocab as u64)?;
        words.set_name("state");
        logits.set_name("logits");
        Ok(Self { words, logits, vocab })
    }

    /// Sets the position.
    pub fn set_position(&self, position: usize) -> Result<()> {
        Ok(self.words.write(0, &fits(position)?.to_le_bytes())?)
    }

    /// Sets the tokens from `position` on.
    pub fn set_tokens(&self, position: usize, tokens: &[u32]) -> Result<()> {
        let bytes: Vec<u8> = tokens.iter().flat_map(|t| t.to_le_bytes()).collect();
        Ok(self.words.write(token_at(position), &bytes)?)
    }

    /// The token at `position`.
    pub fn token(&self, position: usize) -> Result<u32> {
        let mut bytes = [0; 4];
        self.words.read(token_at(position), &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    /// Reads the logits; `logits` becomes as long as the vocabulary.
    pub fn read_logits(&self, logits: &mut Vec<f32>) -> Result<()> {
        logits.resize(self.vocab, 0.0);
        // The GPU is little-endian, like every CPU that it is attached to.
        Ok(self.logits.read(0, logits.as_mut_bytes())?)
    }

    /// The logits.
    pub fn logits(&self) -> Result<Vec<f32>> {
        let mut logits = Vec::new();
        self.read_logits(&mut logits)?;
        Ok(logits)
    }
}

/// Byte offset of the token at `position`.
fn token_at(position: usize) -> u64 {
    4 * (u64::from(TOKENS_AT) + position as u64)
}
