//! Launches of the language model's kernels in the making.

use ga10b_llm::cache::BLOCK;
use ga10b_llm::kernels::committed;
use ga10b_tests::conformance::drive::Drive;
use ga10b_tests::conformance::{BufferNumber, Tolerance};
use half::f16;
use hcq::LaunchConfig;

/// The committed code of a module for the ga10b and for Hopper.
fn committed_code(module: &str) -> [&'static [u8]; 2] {
    [87, 90].map(|sm| committed::cubin(sm, module).unwrap_or_default())
}

/// Inputs of the model's kernels beside those of others.
pub(crate) trait OfModel: Sized {
    /// A kernel of a module.
    fn of(module: &str, kernel: &str, config: LaunchConfig) -> Self;

    /// A cache of `values` values in q8_0: random codes, then a scale for every [`BLOCK`] of them.
    fn quantized(&mut self, values: usize) -> BufferNumber;

    /// A cache of `values` values in q8_0 that the kernel fills.
    fn quantized_room(&mut self, values: usize) -> BufferNumber;

    /// Tolerance of the next buffer, a cache of `values` values in q8_0, for numbers that are uncertain in their last
    /// places: one near the middle of two codes becomes either, and so does a scale.
    fn within_codes(&mut self, values: usize) -> &mut Self;

    /// On SM 9.0, in place of its kernel: one of another module, with the same parameters.
    fn on_hopper_of(self, module: &str, kernel: String, config: LaunchConfig) -> Self;
}

impl OfModel for Drive {
    fn of(module: &str, kernel: &str, config: LaunchConfig) -> Self {
        Self::new("built in: model", committed_code(module), kernel, config)
    }

    fn quantized(&mut self, values: usize) -> BufferNumber {
        let noise = &mut self.noise;
        let mut words: Vec<u32> = (0..values / 4).map(|_| noise.bits()).collect();
        let mut scale = || {
            let part = (noise.bits() >> 8) as f32 / 16_777_216.0;
            u32::from(f16::from_f32(0.005 * (1.0 + part)).to_bits())
        };
        words.extend((0..values / BLOCK as usize / 2).map(|_| scale() | scale() << 16));
        self.words(words)
    }

    fn quantized_room(&mut self, values: usize) -> BufferNumber {
        self.room(values / 4 + values / BLOCK as usize / 2)
    }

    fn within_codes(&mut self, values: usize) -> &mut Self {
        self.within(Tolerance::Codes { steps: 1 })
            .within_from(values / 4, Tolerance::Halves { ulps: 1, absolute: 0.0 })
    }

    fn on_hopper_of(self, module: &str, kernel: String, config: LaunchConfig) -> Self {
        self.on_hopper(committed_code(module)[1], kernel, config)
    }
}
