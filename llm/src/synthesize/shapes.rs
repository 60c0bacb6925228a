//! The shapes that models are synthesized in: published dimensions, and tiny ones.

use crate::model::architecture::{Architecture, Rotation, Windows};
use crate::model::config::Config;
use crate::model::llama3_factors;
use crate::model::window::Window;

/// The dimensions of a model.
#[derive(Clone, Copy)]
struct Shape {
    name: &'static str,
    architecture: &'static str,
    layers: usize,
    hidden: usize,
    ff: usize,
    /// Experts, and those that a token is sent to.
    experts: (usize, usize),
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    vocab: usize,
    context: usize,
    rope_base: f32,
    /// Factor of LLaMA 3's rotary scaling.
    scaling: Option<f32>,
    /// Positions that layers with a window see, 0 if there are none.
    window: usize,
    /// Caps of scores and of logits.
    caps: [Option<f32>; 2],
    /// Whether the output matrix is the embedding.
    tied: bool,
}

const LLAMA_1B: Shape = Shape {
    name: "llama-3.2-1b",
    architecture: "llama",
    layers: 16,
    hidden: 2048,
    ff: 8192,
    experts: (0, 0),
    heads: 32,
    kv_heads: 8,
    head_dim: 64,
    vocab: 128_256,
    context: 131_072,
    rope_base: 500_000.0,
    scaling: Some(32.0),
    window: 0,
    caps: [None; 2],
    tied: true,
};

const LLAMA_3B: Shape =
    Shape { name: "llama-3.2-3b", layers: 28, hidden: 3072, heads: 24, head_dim: 128, ..LLAMA_1B };

const LLAMA_8B: Shape = Shape {
    name: "llama-3.1-8b",
    layers: 32,
    hidden: 4096,
    ff: 14_336,
    head_dim: 128,
    scaling: Some(8.0),
    tied: false,
    ..LLAMA_1B
};

/// `openlm-research/open_llama_3b`: its heads are no multiple of 8.
const OPEN_LLAMA_3B: Shape = Shape {
    name: "open-llama-3b",
    layers: 26,
    hidden: 3200,
    ff: 8640,
    kv_heads: 32,
    head_dim: 100,
    vocab: 32_000,
    context: 2048,
    rope_base: 10_000.0,
    scaling: None,
    tied: false,
    ..LLAMA_1B
};

/// `HuggingFaceTB/SmolLM3-3B`.
const SMOLLM3_3B: Shape = Shape {
    name: "smollm3-3b",
    architecture: "smollm3",
    layers: 36,
    ff: 11_008,
    heads: 16,
    kv_heads: 4,
    head_dim: 128,
    context: 65_536,
    rope_base: 5_000_000.0,
    scaling: None,
    ..LLAMA_1B
};

const QWEN2_1B: Shape = Shape {
    name: "qwen2.5-1.5b",
    architecture: "qwen2",
    layers: 28,
    hidden: 1536,
    ff: 8960,
    experts: (0, 0),
    heads: 12,
    kv_heads: 2,
    head_dim: 128,
    vocab: 151_936,
    context: 32_768,
    rope_base: 1_000_000.0,
    scaling: None,
    window: 0,
    caps: [None; 2],
    tied: true,
};

const QWEN3_1B: Shape = Shape {
    name: "qwen3-1.7b",
    architecture: "qwen3",
    hidden: 2048,
    ff: 6144,
    heads: 16,
    kv_heads: 8,
    context: 40_960,
    ..QWEN2_1B
};

const TINY_LLAMA: Shape = Shape {
    name: "tiny-llama",
    layers: 2,
    hidden: 512,
    ff: 1024,
    heads: 8,
    kv_heads: 2,
    vocab: 1024,
    context: 4096,
    ..LLAMA_1B
};

const TINY_QWEN2: Shape = Shape { name: "tiny-qwen2", architecture: "qwen2", scaling: None, ..TINY_LLAMA };

const GPT2: Shape = Shape {
    name: "gpt2",
    architecture: "gpt2",
    layers: 12,
    hidden: 768,
    ff: 3072,
    heads: 12,
    kv_heads: 12,
    head_dim: 64,
    vocab: 50_257,
    context: 1024,
    ..QWEN2_1B
};

const OLMOE: Shape = Shape {
    name: "olmoe-1b-7b",
    architecture: "olmoe",
    layers: 16,
    hidden: 2048,
    ff: 1024,
    experts: (64, 8),
    heads: 16,
    kv_heads: 16,
    vocab: 50_304,
    context: 4096,
    rope_base: 10_000.0,
    tied: false,
    ..QWEN2_1B
};

const TINY_OLMOE: Shape = Shape {
    name: "tiny-olmoe",
    architecture: "olmoe",
    ff: 512,
    kv_heads: 8,
    experts: (8, 3),
    tied: false,
    ..TINY_QWEN2
};

/// `Qwen/Qwen3-30B-A3B`.
const QWEN3_30B: Shape = Shape {
    name: "qwen3-30b-a3b",
    architecture: "qwen3moe",
    layers: 48,
    ff: 768,
    experts: (128, 8),
    heads: 32,
    kv_heads: 4,
    tied: false,
    ..QWEN3_1B
};

/// `mistralai/Mixtral-8x7B-v0.1`.
const MIXTRAL: Shape = Shape {
    name: "mixtral-8x7b",
    experts: (8, 2),
    vocab: 32_000,
    context: 32_768,
    rope_base: 1_000_000.0,
    scaling: None,
    ..LLAMA_8B
};

const GEMMA2_2B: Shape = Shape {
    name: "gemma-2-2b",
    architecture: "gemma2",
    layers: 26,
    hidden: 2304,
    ff: 9216,
    heads: 8,
    kv_heads: 4,
    head_dim: 256,
    vocab: 256_000,
    context: 8192,
    rope_base: 10_000.0,
    window: 4096,
    caps: [Some(50.0), Some(30.0)],
    ..QWEN2_1B
};

const GEMMA3_1B: Shape = Shape {
    name: "gemma-3-1b",
    architecture: "gemma3",
    hidden: 1152,
    ff: 6912,
    heads: 4,
    kv_heads: 1,
    vocab: 262_144,
    context: 32_768,
    rope_base: 1_000_000.0,
    window: 512,
    caps: [None; 2],
    ..GEMMA2_2B
};

/// The window of tiny models: shorter than the texts of tests.
const TINY_WINDOW: usize = 4;

const TINY_GEMMA: Shape =
    Shape { name: "tiny-gemma", architecture: "gemma", heads: 4, head_dim: 256, ..TINY_QWEN2 };

const SHAPES: [Shape; 27] = [
    LLAMA_1B,
    LLAMA_3B,
    LLAMA_8B,
    OPEN_LLAMA_3B,
    SMOLLM3_3B,
    QWEN2_1B,
    Shape { name: "qwen3-0.6b", hidden: 1024, ff: 3072, ..QWEN3_1B },
    QWEN3_1B,
    TINY_LLAMA,
    // The fourth layer does not rotate.
    Shape {
        name: "tiny-smollm3",
        architecture: "smollm3",
        layers: 4,
        hidden: 256,
        ff: 512,
        heads: 4,
        ..TINY_QWEN2
    },
    TINY_QWEN2,
    // The queries are twice as long as the residual stream.
    Shape { name: "tiny-qwen3", architecture: "qwen3", head_dim: 128, ..TINY_QWEN2 },
    GPT2,
    Shape { name: "tiny-gpt2", architecture: "gpt2", kv_heads: 8, context: 256, ..TINY_QWEN2 },
    OLMOE,
    TINY_OLMOE,
    QWEN3_30B,
    // The queries are twice as long as the residual stream.
    Shape { name: "tiny-qwen3moe", architecture: "qwen3moe", kv_heads: 2, head_dim: 128, ..TINY_OLMOE },
    MIXTRAL,
    Shape { name: "tiny-mixtral", architecture: "llama", kv_heads: 2, experts: (4, 2), ..TINY_OLMOE },
    Shape { name: "tiny-phi4", architecture: "phi3", tied: false, ..TINY_QWEN2 },
    Shape { name: "tiny-mistral", scaling: None, window: TINY_WINDOW, tied: false, ..TINY_LLAMA },
    TINY_GEMMA,
    GEMMA2_2B,
    // Caps that change much.
    Shape {
        name: "tiny-gemma2",
        architecture: "gemma2",
        window: TINY_WINDOW,
        caps: [Some(2.0), Some(4.0)],
        ..TINY_GEMMA
    },
    GEMMA3_1B,
    // The sixth layer sees the whole context.
    Shape {
        name: "tiny-gemma3",
        architecture: "gemma3",
        layers: 6,
        hidden: 256,
        ff: 512,
        heads: 2,
        kv_heads: 1,
        window: TINY_WINDOW,
        ..TINY_GEMMA
    },
];

/// The names of all shapes.
pub const NAMES: [&str; SHAPES.len()] = {
    let mut names = [""; SHAPES.len()];
    let mut i = 0;
    while i < names.len() {
        names[i] = SHAPES[i].name;
        i += 1;
    }
    names
};

/// A window of `positions` positions, none if there are none.
fn window(a: &Architecture, positions: usize) -> Option<Window> {
    let (period, rope_base) = match a.windows {
        Windows::None | Windows::All => (None, None),
        Windows::Alternating { period, .. } => (Some(period), None),
        Windows::Rotated { period, base } => (Some(period), Some(base)),
    };
    (positions > 0).then_some(Window { positions, period, rope_base })
}

/// Configuration of a shape, and whether its output matrix is the embedding.
pub fn config(name: &str) -> Option<(Config, bool)> {
    let s = SHAPES.into_iter().find(|shape| shape.name == name)?;
    let architecture = Architecture::find(s.architecture)?;
    let factors = |factor| llama3_factors(s.rope_base, s.head_dim, factor, 1.0, 4.0, 8192.0);
    let config = Config {
        architecture,
        layers: s.layers,
        hidden: s.hidden,
        ff: s.ff,
        experts: s.experts.0,
        experts_used: s.experts.1,
        heads: s.heads,
        kv_heads: s.kv_heads,
        head_dim: s.head_dim,
        vocab: s.vocab,
        context: s.context,
        norm_eps: 1e-5,
        rope_base: s.rope_base,
        rope_dim: if architecture.rotation == Rotation::None { 0 } else { s.head_dim },
        rope_factors: s.scaling.map(factors),
        rope_long: None,
        score_factor: 1.0,
        output_biases: false,
        window: window(architecture, s.window),
        score_cap: s.caps[0],
        logit_cap: s.caps[1],
    };
    Some((config, s.tied))
}
