//! The kernels that read weights, for every format, each on a matrix as the language model loads it.

use ga10b_llm::kernels::format::Format;
use ga10b_llm::kernels::mixture::{self, scores};
use ga10b_llm::kernels::pack::pack;
use ga10b_llm::kernels::prompt::dequantize;
use half::f16;
use hcq::LaunchConfig;

use crate::drive::OfModel;
use ga10b_tests::conformance::BufferNumber;
use ga10b_tests::conformance::Case;
use ga10b_tests::conformance::Noise;
use ga10b_tests::conformance::drive::{COLS, Drive, floats};

/// A weight format of the language model.
pub(super) struct Weights {
    pub format: Format,
    content: Content,
}

/// The content of a file's blocks.
enum Content {
    Singles,
    Halves,
    Brains,
    /// Random bytes, but f16 scales at these offsets of each block.
    Bytes(&'static [usize]),
    /// Random bytes, but an f16 scale in the upper nibbles of the bytes at these offsets of each block.
    Nibbles([usize; 4]),
}

/// Every format.
pub(super) const FORMATS: [Weights; 15] = [
    Weights { format: Format::F32, content: Content::Singles },
    Weights { format: Format::F16, content: Content::Halves },
    Weights { format: Format::Bf16, content: Content::Brains },
    Weights { format: Format::Q8_0, content: Content::Bytes(&[0]) },
    Weights { format: Format::Q4_0, content: Content::Bytes(&[0]) },
    Weights { format: Format::Q4K, content: Content::Bytes(&[0, 2]) },
    Weights { format: Format::Q5K, content: Content::Bytes(&[0, 2]) },
    Weights { format: Format::Q6K, content: Content::Bytes(&[208]) },
    Weights { format: Format::Q2K, content: Content::Bytes(&[80, 82]) },
    Weights { format: Format::Iq2Xxs, content: Content::Bytes(&[0]) },
    Weights { format: Format::Iq2Xs, content: Content::Bytes(&[0]) },
    Weights { format: Format::Iq2S, content: Content::Bytes(&[0]) },
    Weights { format: Format::Iq3Xxs, content: Content::Bytes(&[0]) },
    Weights { format: Format::Iq3S, content: Content::Bytes(&[0]) },
    Weights { format: Format::Iq1M, content: Content::Nibbles([49, 51, 53, 55]) },
];

/// Rows of a matrix.
pub(super) const ROWS: usize = 37;

impl Weights {
    /// A matrix of `rows` rows, packed as the language model loads it.
    pub fn matrix(&self, drive: &mut Drive, rows: usize) -> BufferNumber {
        let noise = &mut drive.noise;
        let scale =
            |noise: &mut Noise| f16::from_f32(0.01 * ((noise.bits() >> 8) as f32 / 8_388_608.0 - 1.0));
        let len = self.format.ty().bytes_for(COLS as u64).expect("whole blocks") as usize * rows;
        let words = |word: &mut dyn FnMut() -> u32| -> Vec<u8> {
            (0..len.div_ceil(4)).flat_map(|_| word().to_le_bytes()).take(len).collect()
        };
        let file = match &self.content {
            Content::Singles => floats(noise, len / 4, 1.0).into_iter().flat_map(u32::to_le_bytes).collect(),
            Content::Brains => words(&mut || noise.bits() & 0x807f_807f | 0x3f00_3f00),
            Content::Halves => {
                words(&mut || u32::from(scale(noise).to_bits()) | u32::from(scale(noise).to_bits()) << 16)
            }
            Content::Bytes(scales) => {
                let mut file = words(&mut || noise.bits());
                let block = len / (rows * COLS / self.format.block() as usize);
                for block in file.chunks_exact_mut(block) {
                    for &at in *scales {
                        block[at..at + 2].copy_from_slice(&scale(noise).to_le_bytes());
                    }
                }
                file
            }
            Content::Nibbles(places) => {
                let mut file = words(&mut || noise.bits());
                for block in file.chunks_exact_mut(self.format.ty().block_bytes() as usize) {
                    let scale = scale(noise).to_bits();
                    for (i, at) in places.iter().enumerate() {
                        block[*at] = block[*at] & 15 | ((scale >> (4 * i) & 15) as u8) << 4;
                    }
                }
                file
            }
        };
        let mut packed = Vec::new();
        pack(self.format, COLS as u32, &file, &mut packed);
        packed.resize(packed.len().next_multiple_of(4), 0);
        drive.words(packed.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect())
    }

    /// The kernels of prompts that read a matrix, and the scores of experts, which no codebook has.
    pub fn cases(&self) -> Vec<Case> {
        let mut cases = self.of_matrix();
        cases.extend((!self.format.has_codebook()).then(|| self.scores()));
        cases
    }

    /// The router's scores of 11 tokens; the grid has room for more.
    fn scores(&self) -> Case {
        let (experts, tokens) = (ROWS as u32, 11);
        let config = LaunchConfig::new(scores::grid(tokens + 6, experts), scores::THREADS);
        Drive::of(mixture::NAME, &scores::name(self.format), config).done(|d| scores::Scores {
            weights: self.matrix(d, ROWS),
            x: d.floats(tokens as usize * COLS, 3.0),
            norm: d.floats(COLS, 1.0),
            prompt: d.words(vec![3, tokens, 0, 0]),
            out: d.room((tokens + 6) as usize * ROWS),
            experts,
            cols: COLS as u32,
            eps: 1e-5,
        })
    }

    fn of_matrix(&self) -> Vec<Case> {
        let (rows, cols) = (ROWS as u32, COLS as u32);
        let module = self.format.module("dequantize");
        let named = |prefix: &str| format!("{prefix}_{}", self.format.suffix());
        let expansion = LaunchConfig::new(dequantize::grid(self.format, rows, cols), dequantize::THREADS);
        vec![
            Drive::of(module, &named("dequantize"), expansion).done(|d| {
                let (weights, out) = (self.matrix(d, ROWS), d.room(ROWS * COLS / 2));
                dequantize::Dequantize { weights, out, rows, cols }
            }),
            Drive::of(module, &named("embed_prompt"), LaunchConfig::new(8, 128)).done(|d| {
                let weights = self.matrix(d, ROWS);
                let prompt = d.words(vec![3, 6, 0, 0, 5, 29, 36, 0, 1, 2, 9, 9]);
                dequantize::EmbedPrompt { weights, prompt, out: d.room(8 * COLS), rows, cols }
            }),
        ]
    }
}
