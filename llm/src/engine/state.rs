//! The decode state of a sequence: position, tokens, and the logits after the last step.

use hcq::{Buffer, Device, Kernel, LaunchConfig};
use ptxgen::Params;

use crate::engine::launch::Launch;
use crate::engine::matrix::fits;
use crate::error::Result;
use crate::kernels::sample::kernel;
use crate::kernels::state::TOKENS_AT;
use crate::sampler::arithmetic::Draw;

/// The buffers that the host writes before a step and reads after it.
#[derive(Debug)]
pub struct State {
    /// Position and tokens, in the layout of [`crate::kernels::state`].
    pub words: Buffer,
    /// Logits for the host, `vocab` numbers.
    pub logits: Buffer,
    /// Logits of steps that choose a token on the device, in its memory: the same buffer unless that of the
    /// others is in the host's.
    pub resident: Buffer,
    /// Parameters of a choice on the device, as [`crate::kernels::sample::kernel`] takes them, in the host's memory:
    /// it writes them for every token.
    draw: Buffer,
    vocab: usize,
}

impl State {
    /// A state for `context` positions. In the `host`'s own memory, which the device reaches over its bus, no
    /// token waits for a copy: for steps of one launch, which read it once.
    pub fn new(device: &Device, vocab: usize, context: u32, host: bool) -> Result<Self> {
        let alloc = |len| if host { device.alloc_host(len) } else { device.alloc(len) };
        let words = alloc(4 * (u64::from(TOKENS_AT) + u64::from(context) + 1))?;
        let logits = alloc(4 * vocab as u64)?;
        let resident = if host { device.alloc(4 * vocab as u64)? } else { logits.clone() };
        words.set_name("state");
        logits.set_name("logits");
        if host {
            resident.set_name("logits on the device");
        }
        let draw = device.alloc_host(4 * kernel::DRAW_WORDS as u64)?;
        draw.set_name("draw");
        Ok(Self { words, logits, resident, draw, vocab })
    }

    /// Whether the logits of steps that choose a token on the device are not where the host reads them.
    pub fn is_apart(&self) -> bool {
        self.resident.va() != self.logits.va()
    }

    /// Sets what the next choice on the device depends on.
    pub fn set_draw(&self, draw: &Draw) -> Result<()> {
        Ok(self.draw.write_slice(0, &kernel::words(draw))?)
    }

    /// The launch that chooses a token by `logits` and what [`State::set_draw`] has set.
    pub fn choice(&self, code: Kernel, logits: &Buffer) -> Result<Launch> {
        let (state, draw, vocab) = (&self.words, &self.draw, fits(self.vocab)?);
        let args = kernel::SampleToken { logits, state, draw, count: vocab }.args();
        let config = LaunchConfig::new(1, kernel::BLOCK).with_dynamic_shared(kernel::dynamic_shared(vocab));
        Ok(Launch::new("sample", code, config, args))
    }

    /// Sets the position.
    pub fn set_position(&self, position: usize) -> Result<()> {
        Ok(self.words.write_slice(0, &[fits(position)?])?)
    }

    /// Sets the tokens from `position` on.
    pub fn set_tokens(&self, position: usize, tokens: &[u32]) -> Result<()> {
        Ok(self.words.write_slice(token_at(position), tokens)?)
    }

    /// The token at `position`.
    pub fn token(&self, position: usize) -> Result<u32> {
        Ok(self.words.read_vec(token_at(position), 1)?[0])
    }

    /// Reads the logits, the resident ones if so said.
    pub fn read_logits(&self, resident: bool, logits: &mut [f32]) -> Result<()> {
        let from = if resident { &self.resident } else { &self.logits };
        Ok(from.read_slice(0, logits)?)
    }
}

/// Byte offset of the token at `position`.
fn token_at(position: usize) -> u64 {
    4 * (u64::from(TOKENS_AT) + position as u64)
}
