//! The kernels that read weights, for every format, each on a matrix as the language model loads it.

use ga10b_llm::kernels::format::Format;
use ga10b_llm::kernels::layers::experts;
use ga10b_llm::kernels::mixture::{self, scores};
use ga10b_llm::kernels::operations::matvec::Matvec;
use ga10b_llm::kernels::operations::token;
use ga10b_llm::kernels::pack::pack;
use ga10b_llm::kernels::prompt::dequantize;
use half::f16;
use hcq::LaunchConfig;

use crate::drive::OfModel;
use ga10b_tests::conformance::BufferNumber;
use ga10b_tests::conformance::Case;
use ga10b_tests::conformance::Noise;
use ga10b_tests::conformance::drive::{COLS, Drive, MILLIONTH, floats};

/// A weight format of the language model, and threads that unpack one row of [`COLS`] values.
pub(super) struct Weights {
    pub format: Format,
    /// Values that a thread unpacks at once.
    unit: usize,
    content: Content,
}

/// The content of a file's blocks.
enum Content {
    Singles,
    Halves,
    Brains,
    /// Random bytes, but f16 scales at these offsets of each block.
    Bytes(&'static [usize]),
}

/// Every format.
pub(super) const FORMATS: [Weights; 8] = [
    Weights { format: Format::F32, unit: 4, content: Content::Singles },
    Weights { format: Format::F16, unit: 8, content: Content::Halves },
    Weights { format: Format::Bf16, unit: 8, content: Content::Brains },
    Weights { format: Format::Q8_0, unit: 32, content: Content::Bytes(&[0]) },
    Weights { format: Format::Q4_0, unit: 32, content: Content::Bytes(&[0]) },
    Weights { format: Format::Q4K, unit: 32, content: Content::Bytes(&[0, 2]) },
    Weights { format: Format::Q5K, unit: 32, content: Content::Bytes(&[0, 2]) },
    Weights { format: Format::Q6K, unit: 32, content: Content::Bytes(&[208]) },
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
        };
        let mut packed = Vec::new();
        pack(self.format, COLS as u32, &file, &mut packed);
        packed.resize(packed.len().next_multiple_of(4), 0);
        drive.words(packed.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect())
    }

    /// A row, products, what prompts need of a matrix, and the products and scores of experts.
    pub fn cases(&self) -> Vec<Case> {
        let mut cases = self.of_matrix();
        cases.extend([self.experts(), self.scores()]);
        cases
    }

    /// The products of three of five experts, each with a vector of its own.
    fn experts(&self) -> Case {
        let (rows, cols) = (ROWS as u32, COLS as u32);
        let config = LaunchConfig::new((rows.div_ceil(experts::THREADS / 32), 3), experts::THREADS);
        let drive = Drive::of(experts::PRODUCTS, &experts::product_name(self.format), config);
        drive.done(|d| experts::ExpertProduct {
            weights: self.matrix(d, 5 * ROWS),
            x: d.floats(3 * COLS, 1.0),
            chosen: d.words(vec![4, 0, 2]),
            out: d.room(3 * ROWS),
            rows,
            cols,
            pitch: cols,
        })
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
        let named = |prefix: &str| format!("{prefix}_{}", self.format.suffix());
        let product = |prefix: &str, blocks: u32| {
            Drive::of(self.format.suffix(), &named(prefix), LaunchConfig::new(blocks, 128))
        };
        let factors = |d: &mut Drive, rows: usize| (self.matrix(d, rows), d.floats(COLS, 1.0));
        let blocks = (COLS / self.unit).div_ceil(128) as u32;
        let expansion = LaunchConfig::new(dequantize::grid(self.format, rows, cols), dequantize::THREADS);
        vec![
            product("embed", blocks).done(|d| {
                let (weights, state) = (self.matrix(d, ROWS), d.words(vec![1, 0, 0, 0, 5, 29]));
                token::Embed { weights, state, out: d.room(COLS), rows, cols }
            }),
            product("matvec", rows.div_ceil(8)).done(|d| {
                let (weights, x) = factors(d, ROWS);
                Matvec { weights, x, out: d.room(ROWS), rows, cols }
            }),
            product("matvec_add", rows.div_ceil(8)).done(|d| {
                let (weights, x) = factors(d, ROWS);
                Matvec { weights, x, out: d.floats(ROWS, 1.0), rows, cols }
            }),
            Drive::of("dequantize", &named("dequantize"), expansion).done(|d| {
                let (weights, out) = (self.matrix(d, ROWS), d.room(ROWS * COLS / 2));
                dequantize::Dequantize { weights, out, rows, cols }
            }),
            Drive::of("dequantize", &named("embed_prompt"), LaunchConfig::new(8, 128)).done(|d| {
                let weights = self.matrix(d, ROWS);
                let prompt = d.words(vec![3, 6, 0, 0, 5, 29, 36, 0, 1, 2, 9, 9]);
                dequantize::EmbedPrompt { weights, prompt, out: d.room(8 * COLS), rows, cols }
            }),
            product("gate_up", 8).done(|d| {
                let (weights, x) = factors(d, 64);
                Matvec { weights, x, out: d.within(MILLIONTH).room(32), rows: 32, cols }
            }),
        ]
    }
}
