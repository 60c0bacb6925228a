//! The kernels that read weights, for every format, each on a matrix as the language model loads it.

use ga10b_llm::kernels::format::Format;
use ga10b_llm::kernels::layers::experts;
use ga10b_llm::kernels::mixture::{self, scores};
use ga10b_llm::kernels::pack::pack;
use ga10b_llm::kernels::prompt::dequantize;
use half::f16;
use hcq::LaunchConfig;

use crate::drive::OfModel;
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
    pub fn matrix(&self, mut drive: Drive, rows: usize) -> Drive {
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
        let chosen = vec![4, 0, 2];
        let config = LaunchConfig::new((rows.div_ceil(experts::THREADS / 32), 3), experts::THREADS);
        let drive = Drive::of(experts::PRODUCTS, &experts::product_name(self.format), config);
        self.matrix(drive, 5 * ROWS)
            .floats(3 * COLS, 1.0)
            .words(chosen)
            .room(3 * ROWS)
            .u32(rows)
            .u32(cols)
            .u32(cols)
            .done()
    }

    /// The router's scores of 11 tokens; the grid has room for more.
    fn scores(&self) -> Case {
        let (experts, tokens) = (ROWS as u32, 11);
        let config = LaunchConfig::new(scores::grid(tokens + 6, experts), scores::THREADS);
        self.matrix(Drive::of(mixture::NAME, &scores::name(self.format), config), ROWS)
            .floats(tokens as usize * COLS, 3.0)
            .floats(COLS, 1.0)
            .words(vec![3, tokens, 0, 0])
            .room((tokens + 6) as usize * ROWS)
            .u32(experts)
            .u32(COLS as u32)
            .f32(1e-5)
            .done()
    }

    fn of_matrix(&self) -> Vec<Case> {
        let (rows, cols) = (ROWS as u32, COLS as u32);
        let named = |prefix: &str| format!("{prefix}_{}", self.format.suffix());
        let product = |prefix: &str, blocks: u32, matrix_rows: usize| {
            let drive = Drive::of(self.format.suffix(), &named(prefix), LaunchConfig::new(blocks, 128));
            self.matrix(drive, matrix_rows).floats(COLS, 1.0)
        };
        let blocks = (COLS / self.unit).div_ceil(128) as u32;
        let expansion = LaunchConfig::new(dequantize::grid(self.format, rows, cols), dequantize::THREADS);
        let embed = Drive::of(self.format.suffix(), &named("embed"), LaunchConfig::new(blocks, 128));
        vec![
            self.matrix(embed, ROWS).words(vec![1, 0, 0, 0, 5, 29]).room(COLS).u32(rows).u32(cols).done(),
            product("matvec", rows.div_ceil(8), ROWS).room(ROWS).u32(rows).u32(cols).done(),
            product("matvec_add", rows.div_ceil(8), ROWS).floats(ROWS, 1.0).u32(rows).u32(cols).done(),
            self.matrix(Drive::of("dequantize", &named("dequantize"), expansion), ROWS)
                .room(ROWS * COLS / 2)
                .u32(rows)
                .u32(cols)
                .done(),
            self.matrix(Drive::of("dequantize", &named("embed_prompt"), LaunchConfig::new(8, 128)), ROWS)
                .words(vec![3, 6, 0, 0, 5, 29, 36, 0, 1, 2, 9, 9])
                .room(8 * COLS)
                .u32(rows)
                .u32(cols)
                .done(),
            product("gate_up", 8, 64).room(32).within(MILLIONTH).u32(32).u32(cols).done(),
        ]
    }
}
