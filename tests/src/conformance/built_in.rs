//! The kernels of the repository itself: those of the language model and of the device suite.
//!
//! One `Drive` per kernel says how it is launched and on what. A new kernel takes a line in [`cases`];
//! [`undriven`] names those that have none.

use ga10b_llm::kernels::format::Format;
use ga10b_llm::kernels::heads::HEAD_DIMS;
use ga10b_llm::kernels::pack::pack;
use ga10b_llm::kernels::prompt::{attention, dequantize, shares, vector};
use ga10b_llm::kernels::sample::kernel as sample;
use ga10b_llm::sampler::arithmetic::Draw;
use half::f16;
use hcq::LaunchConfig;

use crate::conformance::case::{Arg, Case, Place};
use crate::conformance::cubins::cubins;
use crate::conformance::noise::Noise;
use crate::conformance::tolerance::Tolerance;

/// The modules of the language model, by name.
macro_rules! modules {
    ($($name:literal),* $(,)?) => {
        &[$(($name, cubins!(concat!("../../../llm/kernels/", $name)))),*]
    };
}

const MODULES: &[(&str, [&[u8]; 2])] = modules![
    "attention",
    "bf16",
    "dequantize",
    "f16",
    "f32",
    "gemm",
    "prompt",
    "q4_0",
    "q4_k",
    "q5_k",
    "q6_k",
    "q8_0",
    "sample",
    "vector"
];

/// What the manifest beside them says there is.
const MANIFEST: &str = include_str!("../../../llm/kernels/manifest.json");

/// A launch in the making: arguments in the kernel's order.
struct Drive {
    noise: Noise,
    case: Case,
    args: Vec<Arg>,
    tolerances: Vec<Tolerance>,
}

impl Drive {
    fn of(module: &str, kernel: &str, config: LaunchConfig) -> Self {
        let cubins =
            MODULES.iter().find(|(name, _)| *name == module).map_or([&[][..]; 2], |(_, cubins)| *cubins);
        Self::new("built in: model", cubins, kernel, config)
    }

    fn new(family: &'static str, cubins: [&'static [u8]; 2], kernel: &str, config: LaunchConfig) -> Self {
        let seed = kernel.bytes().fold(7, |seed: u64, b| seed.wrapping_mul(131).wrapping_add(b.into()));
        Self {
            noise: Noise::new(seed),
            case: Case {
                family,
                program: kernel.to_owned(),
                seed,
                cubins,
                kernel: kernel.to_owned(),
                config,
                launches: Vec::new(),
                buffers: Vec::new(),
                links: Vec::new(),
                steps: None,
                expected: None,
                by_architecture: false,
                slack: None,
                place: Box::new(|_, _| None),
            },
            args: Vec::new(),
            tolerances: Vec::new(),
        }
    }

    /// A buffer with these words.
    fn words(mut self, words: Vec<u32>) -> Self {
        self.args.push(Arg::Buffer(self.case.buffers.len(), 0));
        self.case.buffers.push(words);
        self.tolerances.push(Tolerance::Exact);
        self
    }

    /// A buffer that the kernel fills.
    fn room(self, words: usize) -> Self {
        self.words(vec![0xdead_beef; words])
    }

    /// A buffer of f32 evenly between −`scale` and `scale`.
    fn floats(mut self, count: usize, scale: f32) -> Self {
        let words = floats(&mut self.noise, count, scale);
        self.words(words)
    }

    /// A buffer of f16, likewise.
    fn halves(mut self, count: usize, scale: f32) -> Self {
        let words = floats(&mut self.noise, count, scale);
        let half = |w: u32| u32::from(f16::from_f32(f32::from_bits(w)).to_bits());
        self.words(words.chunks(2).map(|p| half(p[0]) | p.get(1).map_or(0, |w| half(*w) << 16)).collect())
    }

    /// A buffer of random words.
    fn random(mut self, words: usize) -> Self {
        let words = (0..words).map(|_| self.noise.bits()).collect();
        self.words(words)
    }

    /// The last buffer may differ by this much: something in it is a result of the special-function unit.
    fn within(mut self, tolerance: Tolerance) -> Self {
        if let Some(last) = self.tolerances.last_mut() {
            *last = tolerance;
        }
        self
    }

    fn arg(mut self, arg: Arg) -> Self {
        self.args.push(arg);
        self
    }

    fn u32(self, value: u32) -> Self {
        self.arg(Arg::U32(value))
    }

    fn f32(self, value: f32) -> Self {
        self.arg(Arg::F32(value))
    }

    /// The tensor core's sums are the architecture's own.
    fn on_tensor_cores(mut self) -> Self {
        self.case.by_architecture = true;
        self
    }

    fn done(mut self) -> Case {
        let (tolerances, kernel) = (self.tolerances, self.case.program.clone());
        self.case.launches = vec![self.args];
        self.case.place =
            Box::new(move |buffer, _| Some(Place { what: kernel.clone(), tolerance: tolerances[buffer] }));
        self.case
    }
}

fn floats(noise: &mut Noise, count: usize, scale: f32) -> Vec<u32> {
    (0..count).map(|_| (scale * ((noise.bits() >> 8) as f32 / 8_388_608.0 - 1.0)).to_bits()).collect()
}

/// A weight format of the language model, and threads that unpack one row of [`COLS`] values.
struct Weights {
    format: Format,
    /// Values that a thread unpacks at once.
    unit: usize,
    content: Content,
}

/// What the blocks of a file hold.
enum Content {
    Singles,
    Halves,
    Brains,
    /// Random bytes, but f16 scales at these offsets of each block.
    Bytes(&'static [usize]),
}

const FORMATS: [Weights; 8] = [
    Weights { format: Format::F32, unit: 4, content: Content::Singles },
    Weights { format: Format::F16, unit: 8, content: Content::Halves },
    Weights { format: Format::Bf16, unit: 8, content: Content::Brains },
    Weights { format: Format::Q8_0, unit: 32, content: Content::Bytes(&[0]) },
    Weights { format: Format::Q4_0, unit: 32, content: Content::Bytes(&[0]) },
    Weights { format: Format::Q4K, unit: 32, content: Content::Bytes(&[0, 2]) },
    Weights { format: Format::Q5K, unit: 32, content: Content::Bytes(&[0, 2]) },
    Weights { format: Format::Q6K, unit: 32, content: Content::Bytes(&[208]) },
];

/// Values in a row and rows of a matrix.
const COLS: usize = 768;
const ROWS: usize = 37;

impl Weights {
    /// A matrix of `rows` rows, packed as the language model loads it.
    fn matrix(&self, mut drive: Drive, rows: usize) -> Drive {
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

    fn cases(&self) -> Vec<Case> {
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
            self.matrix(drive_of("dequantize", named("embed_prompt"), 8), ROWS)
                .words(vec![3, 6, 0, 0, 5, 29, 36, 0, 1, 2, 9, 9])
                .room(8 * COLS)
                .u32(rows)
                .u32(cols)
                .done(),
            product("gate_up", 8, 64).room(32).within(MILLIONTH).u32(32).u32(cols).done(),
        ]
    }
}

/// What a few functions of the special-function unit in a row leave uncertain.
const MILLIONTH: Tolerance = Tolerance::Single { ulps: 16, absolute: 1e-6 };

/// Attention over `positions` of a context, heads of `dims`.
fn attention(kernel: &str, dims: usize, positions: u32, shares: u32) -> Case {
    let (heads, context, group) = (4, 96, 2);
    let cache = heads as usize / 2 * context as usize * dims;
    let out =
        if shares > 1 { heads as usize * shares as usize * ((dims + 5) & !3) } else { heads as usize * dims };
    Drive::of("attention", kernel, LaunchConfig::new((heads, shares), 128))
        .floats(heads as usize * dims, 1.0)
        .halves(cache, 1.0)
        .halves(cache, 1.0)
        .words(vec![positions - 1, 0, 0, 0])
        .room(out)
        .within(Tolerance::Single { ulps: 64, absolute: 1e-5 })
        .u32(context)
        .u32(dims as u32)
        .u32(group)
        .f32(1.0 / (dims as f32).sqrt())
        .done()
}

/// A kernel of `blocks` blocks of 128 threads.
fn drive_of(module: &str, kernel: String, blocks: u32) -> Drive {
    Drive::of(module, &kernel, LaunchConfig::new(blocks, 128))
}

/// A matrix product on the tensor cores, by the kernel's name: `gemm_TOKENSxROWSxDEPTH_WARPSxWARPS_STAGES`,
/// or `gemm_gate_...`.
fn product(kernel: &str) -> Option<Case> {
    let (gate, shape) = match kernel.strip_prefix("gemm_gate_") {
        Some(shape) => (true, shape),
        None => (false, kernel.strip_prefix("gemm_")?),
    };
    let numbers: Vec<u32> = shape.split(['x', '_']).map_while(|n| n.parse().ok()).collect();
    let &[tokens, rows, depth, m, n, stages] = numbers.as_slice() else { return None };
    let shared = stages * (tokens + rows) * 2 * depth;
    let (given, results, cols) = (70_u32, 72_u32, 256_u32);
    let (rows_per_block, parts) = if gate { (rows / 2, 1) } else { (rows, 2) };
    let grid = [given.div_ceil(tokens), results.div_ceil(rows_per_block), parts];
    let config = LaunchConfig::new(grid, 32 * m * n).with_dynamic_shared(shared);
    let drive = Drive::of("gemm", kernel, config).on_tensor_cores().halves((given * cols) as usize, 1.0);
    let drive = if gate {
        drive
            .halves((2 * results * cols) as usize, 1.0)
            .room((80 * results / 2) as usize)
            .within(Tolerance::Halves { ulps: 2, absolute: 1e-3 })
    } else {
        drive.halves((results * cols) as usize, 1.0).room((2 * 80 * results) as usize)
    };
    let drive = drive.u32(given).u32(results).u32(cols).u32(results).u32(cols / parts).u32(80);
    Some(if gate { drive.f32(0.5) } else { drive }.done())
}

/// What sums of many products leave uncertain of a result in f16.
const ROUNDED: Tolerance = Tolerance::Halves { ulps: 2, absolute: 2e-3 };

/// Norm, rotation and last token of a chunk of prompt tokens.
fn prompts() -> Vec<Case> {
    let (halves, heads) = (ROUNDED, 4_u32);
    vec![
        Drive::of("prompt", "prompt_norm", LaunchConfig::new(5, vector::NORM_THREADS))
            .floats(5 * COLS, 3.0)
            .floats(2 * 6 * COLS, 1.0)
            .floats(COLS, 1.0)
            .room(5 * COLS / 2)
            .u32(COLS as u32)
            .f32(1e-5)
            .u32(2)
            .u32(6)
            .f32(2.0)
            .done(),
        Drive::of("prompt", "prompt_last", LaunchConfig::new(2, vector::NORM_THREADS))
            .floats(5 * COLS, 3.0)
            .words(vec![9, 4, 0, 0])
            .room(COLS)
            .u32(COLS as u32)
            .done(),
        Drive::of("prompt", "prompt_rope", LaunchConfig::new((1, 6), 128))
            .floats(2 * 6 * 8 * 32, 0.5)
            .words((0..32).map(|i: u32| i.wrapping_mul(0x1234_5677) >> 2).collect())
            .words(vec![9, 5, 0, 0, 1, 2, 3, 4, 5])
            .room(6 * 4 * 16)
            .within(halves)
            .room(2 * 40 * 16)
            .within(halves)
            .room(2 * 40 * 16)
            .within(halves)
            .u32(heads)
            .u32(2)
            .u32(16)
            .u32(40)
            .u32(2)
            .u32(6)
            .f32(0.5)
            .done(),
    ]
}

/// Attention of a chunk of prompt tokens, in shares too, and what merges them.
fn prompt_attention() -> Vec<Case> {
    let (halves, heads) = (ROUNDED, 4_u32);
    let positive = |i: u32| (0.5 + (i * 37 % 64) as f32 / 128.0).to_bits();
    let mut cases = Vec::new();
    let chunks = [(11, 70_u32, 1), (600, 6, 3), (11, 70, 2)];
    for (dims, (start, tokens, most)) in HEAD_DIMS.into_iter().zip(chunks) {
        let config = LaunchConfig::new((tokens.div_ceil(shares::TOKENS), heads, most), attention::THREADS)
            .with_dynamic_shared(attention::shared_bytes(dims));
        let context = start + tokens + 10;
        let cache = (2 * context * dims) as usize;
        let partials = (most * tokens * heads * shares::partial_words(dims)) as usize;
        cases.push(
            Drive::of("prompt", &format!("prompt_attention_{dims}"), config)
                .on_tensor_cores()
                .halves((tokens * heads * dims) as usize, 1.0)
                .halves(cache, 1.0)
                .halves(cache, 1.0)
                .words(vec![start, tokens, 0, 0])
                .room((tokens * heads * dims / 2) as usize)
                .within(halves)
                .u32(context)
                .u32(dims)
                .u32(2)
                .f32(1.0 / (dims as f32).sqrt())
                .room(partials)
                .within(Tolerance::Single { ulps: 64, absolute: 2e-3 })
                .done(),
        );
    }
    for dims in HEAD_DIMS {
        cases.push(
            Drive::of("prompt", &format!("prompt_merge_{dims}"), LaunchConfig::new((7, 1), shares::THREADS))
                .words((0..3 * 6 * heads * shares::partial_words(dims)).map(positive).collect())
                .words(vec![600, 6, 0, 0])
                .room((6 * heads * dims / 2) as usize)
                .within(halves)
                .u32(heads)
                .u32(dims)
                .u32(3)
                .done(),
        );
    }
    cases
}

/// The device suite's kernels, all exact.
fn suite() -> Vec<Case> {
    let drive = |kernel: &str, config: LaunchConfig| {
        Drive::new("built in: suite", cubins!("../../kernels/suite"), kernel, config)
    };
    vec![
        drive("fill", LaunchConfig::new(5, 96)).room(480).u32(450).u32(0xffff_ff00).done(),
        drive("step", LaunchConfig::new(5, 96)).random(480).u32(450).u32(0x0019_660d).u32(0x3c6e_f35f).done(),
        drive("append", LaunchConfig::new(1, 1)).room(16).words(vec![7]).u32(99).done(),
        drive("reverse", LaunchConfig::new(3, 96).with_dynamic_shared(384)).random(288).room(288).done(),
        drive("local_table", LaunchConfig::new(3, 160)).random(256).room(480).done(),
        drive("load_at", LaunchConfig::new(1, 1)).random(1).room(1).done(),
        drive("store_at", LaunchConfig::new(1, 1)).room(1).u32(0x1234_5678).done(),
        drive("count", LaunchConfig::new(64, 128)).words(vec![0; 17]).done(),
    ]
}

/// One case per kernel.
pub fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = FORMATS.iter().flat_map(Weights::cases).collect();
    let vector = |kernel: &str, blocks: u32, threads: u32| {
        Drive::of("vector", kernel, LaunchConfig::new(blocks, threads))
    };
    let turns = |noise: &mut Noise| (0..32).map(|_| noise.bits() >> 3).collect::<Vec<_>>();
    let halves = Tolerance::Halves { ulps: 1, absolute: 2e-3 };
    cases.extend([
        vector("rmsnorm", 1, 512)
            .floats(COLS, 3.0)
            .floats(COLS, 1.0)
            .room(COLS)
            .u32(COLS as u32)
            .f32(1e-5)
            .done(),
        vector("silu_mul", 6, 128)
            .floats(COLS, 6.0)
            .floats(COLS, 2.0)
            .room(COLS)
            .within(MILLIONTH)
            .u32(COLS as u32)
            .done(),
        vector("rope_cache", 2, 128)
            .floats(8 * 32, 1.0)
            .within(MILLIONTH)
            .words(turns(&mut Noise::new(5)))
            .words(vec![19, 0, 0, 0])
            .room(2 * 40 * 16)
            .within(halves)
            .room(2 * 40 * 16)
            .within(halves)
            .u32(4)
            .u32(2)
            .u32(16)
            .u32(40)
            .done(),
        vector("argmax", 64, 128).floats(40_000, 9.0).room(64).room(64).u32(40_000).done(),
        vector("argmax_finish", 1, 32).floats(64, 9.0).random(64).words(vec![1; 8]).u32(64).done(),
        vector("advance", 1, 32).words(vec![41; 8]).done(),
        Drive::of("attention", "attention_combine", LaunchConfig::new(4, 128))
            .floats(4 * 3 * 68, 2.0)
            .room(4 * 64)
            .within(Tolerance::Single { ulps: 64, absolute: 1e-4 })
            .u32(64)
            .u32(3)
            .done(),
    ]);
    cases.extend(draws());
    for dims in [64, 128, 256] {
        cases.push(attention(&format!("attention_{dims}"), dims, 77, 1));
        cases.push(attention(&format!("attention_split_{dims}"), dims, 77, 3));
    }
    cases.extend(kernels().iter().filter_map(|kernel| product(kernel)));
    cases.extend(prompts());
    cases.extend(prompt_attention());
    cases.extend(suite());
    cases
}

/// Choices of a token: among few that are collected first, and among all.
fn draws() -> Vec<Case> {
    let draw = Draw { top_k: 40, top_p: 0xf000 << 48, least: 1 << 25, slope: 1.8, random: 0x9e37 << 48 };
    let all = Draw { top_k: 0, ..draw };
    let case = |draw: &Draw| {
        let config = LaunchConfig::new(1, sample::BLOCK);
        let config = config.with_dynamic_shared(sample::dynamic_shared(5_003));
        Drive::of(sample::NAME, sample::NAME, config)
            .floats(5_003, 9.0)
            .words(vec![1; 8])
            .words(sample::words(draw).to_vec())
            .u32(5_003)
            .done()
    };
    [draw, all].iter().map(case).collect()
}

/// All kernels of the language model.
fn kernels() -> Vec<String> {
    let manifest: Result<ptxgen::Manifest, _> = serde_json::from_str(MANIFEST);
    let cubins = manifest.into_iter().flat_map(|m| m.cubins).filter(|c| c.target == "sm_87");
    cubins.flat_map(|c| c.kernels).collect()
}

/// Kernels of the language model that no case launches by itself. The step kernel is among them: a case of
/// [`decode`](crate::conformance::decode) runs it as an engine does, and compares logits.
pub fn undriven() -> Vec<String> {
    let driven: Vec<String> = cases().into_iter().map(|c| c.kernel).collect();
    kernels().into_iter().filter(|kernel| !driven.contains(kernel)).collect()
}
