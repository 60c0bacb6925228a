//! The layers of each architecture as data: one row per `general.architecture`.
//!
//! Weights, engines and synthesized files follow this table. The CPU reference does not read it: what an
//! engine and its reference read in common is not verified.

/// A family of models: how its layers differ from those of the others.
#[derive(Debug, PartialEq)]
pub struct Architecture {
    /// `general.architecture`, and the prefix of its keys.
    pub name: &'static str,
    /// The norms.
    pub norm: Norm,
    /// The rotation of queries and keys.
    pub rotation: Rotation,
    /// The last of each so many layers rotates nothing; files do not say it.
    pub unrotated: Option<usize>,
    /// Norms of queries and keys.
    pub head_norms: HeadNorms,
    /// Between the products of the feed-forward block.
    pub activation: Activation,
    /// Whether query, key and value projections are one tensor.
    pub fused_qkv: bool,
    /// Whether gate and up projections are one tensor, called as the latter.
    pub fused_gate_up: bool,
    /// The projections that have biases.
    pub biases: Biases,
    /// Whether each position has a vector that is added to the embedding, `position_embd.weight`.
    pub learned_positions: bool,
    /// The mixture of experts that the feed-forward block is, or may be.
    pub experts: Option<Mixture>,
    /// Whether the results of attention and of the feed-forward block are normalized before they are added to
    /// the residual stream.
    pub post_norms: bool,
    /// Whether embeddings are multiplied by the root of the width.
    pub scaled_embedding: bool,
    /// The layers that see a window of positions alone.
    pub windows: Windows,
    /// The values that are capped.
    pub caps: Caps,
    /// The number of layers of the model whose scores are divided by the root of width / heads instead of
    /// that of a head's length; files do not say it.
    pub wide_layers: Option<usize>,
}

/// A mixture of experts: the most likely ones by a softmax of the router's scores over all, weighted by their
/// shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mixture {
    /// The key of the length of an expert's feed-forward vector.
    pub length: &'static str,
    /// Whether files without `expert_count` have one block for all tokens.
    pub optional: bool,
    /// Whether the shares of a token's experts are divided by their sum.
    pub normalized: bool,
}

/// The layers that see a window of positions, in files that have one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Windows {
    /// None: a file with a window is refused.
    None,
    /// All.
    All,
    /// All but the last of each `period`; `usual` positions in files that do not say it.
    Alternating {
        /// Layers.
        period: usize,
        /// Positions.
        usual: usize,
    },
    /// All but the last of each `period`; layers with a window rotate by frequencies of this `base`, without
    /// scaling.
    Rotated {
        /// Layers.
        period: usize,
        /// The base in files that do not say it.
        base: f32,
    },
}

/// The values that are capped: a value x becomes `cap · tanh(x / cap)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Caps {
    /// Nothing.
    None,
    /// Scores of attention and logits; the caps of files that do not say them.
    Both {
        /// Of scores.
        scores: f32,
        /// Of logits.
        logits: f32,
    },
    /// Logits, in files that say so.
    Logits,
}

/// The norm before a block and before the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Norm {
    /// Divided by the root of the mean square.
    Rms,
    /// The mean is subtracted, then divided by the standard deviation; has a bias.
    Layer,
}

/// The values of a head that are a pair, rotated by the position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rotation {
    /// None.
    None,
    /// Neighbours, 2j and 2j + 1.
    Pairs,
    /// j and j + half the rotating length. The rows of queries and keys are permuted at load, so that kernels
    /// only know pairs: scores do not depend on the order of values.
    Halves,
}

/// RMS norms between the projections of queries and keys and their rotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadNorms {
    /// None.
    None,
    /// Of each head, with weights that all heads share.
    Each,
    /// Of all heads together.
    All,
}

/// The activation of the feed-forward block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `silu(gate) · up`.
    SiluGate,
    /// `gelu(gate) · up`, with the approximation by a hyperbolic tangent.
    GeluGate,
    /// `gelu(up)`, with the approximation by a hyperbolic tangent; there is no gate, and `up` has a bias.
    Gelu,
}

impl Activation {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::SiluGate, Self::GeluGate, Self::Gelu];

    /// Whether there is a gate.
    pub fn is_gated(self) -> bool {
        self != Self::Gelu
    }
}

/// The projections that have biases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Biases {
    /// None.
    None,
    /// Those of attention that the file has.
    OfFile,
    /// Queries, keys and values.
    Heads,
    /// All.
    All,
}

/// The key of the feed-forward vector's length.
const FF_LENGTH: &str = "feed_forward_length";

/// `llama`: also the architecture of Mistral's and Mixtral's files.
const LLAMA: Architecture = Architecture {
    name: "llama",
    norm: Norm::Rms,
    rotation: Rotation::Pairs,
    unrotated: None,
    head_norms: HeadNorms::None,
    activation: Activation::SiluGate,
    fused_qkv: false,
    fused_gate_up: false,
    biases: Biases::OfFile,
    learned_positions: false,
    experts: Some(Mixture { length: FF_LENGTH, optional: true, normalized: true }),
    post_norms: false,
    scaled_embedding: false,
    windows: Windows::All,
    caps: Caps::None,
    wide_layers: None,
};

const SMOLLM3: Architecture = Architecture {
    name: "smollm3",
    unrotated: Some(4),
    biases: Biases::None,
    windows: Windows::None,
    experts: None,
    ..LLAMA
};

const QWEN2: Architecture = Architecture {
    name: "qwen2",
    rotation: Rotation::Halves,
    biases: Biases::Heads,
    experts: None,
    windows: Windows::None,
    ..LLAMA
};

const QWEN3: Architecture =
    Architecture { name: "qwen3", head_norms: HeadNorms::Each, biases: Biases::None, ..QWEN2 };

const QWEN3MOE: Architecture = Architecture {
    name: "qwen3moe",
    experts: Some(Mixture { length: "expert_feed_forward_length", optional: false, normalized: true }),
    ..QWEN3
};

const GPT2: Architecture = Architecture {
    name: "gpt2",
    norm: Norm::Layer,
    rotation: Rotation::None,
    activation: Activation::Gelu,
    fused_qkv: true,
    biases: Biases::All,
    learned_positions: true,
    experts: None,
    windows: Windows::None,
    ..LLAMA
};

const OLMOE: Architecture = Architecture {
    name: "olmoe",
    rotation: Rotation::Halves,
    head_norms: HeadNorms::All,
    biases: Biases::None,
    experts: Some(Mixture { length: FF_LENGTH, optional: false, normalized: false }),
    windows: Windows::None,
    ..LLAMA
};

const PHI3: Architecture = Architecture {
    name: "phi3",
    rotation: Rotation::Halves,
    fused_qkv: true,
    fused_gate_up: true,
    biases: Biases::None,
    experts: None,
    ..LLAMA
};

const GEMMA: Architecture = Architecture {
    name: "gemma",
    rotation: Rotation::Halves,
    activation: Activation::GeluGate,
    biases: Biases::None,
    scaled_embedding: true,
    experts: None,
    windows: Windows::None,
    ..LLAMA
};

const GEMMA2: Architecture = Architecture {
    name: "gemma2",
    post_norms: true,
    windows: Windows::Alternating { period: 2, usual: 4096 },
    caps: Caps::Both { scores: 50.0, logits: 30.0 },
    wide_layers: Some(46),
    ..GEMMA
};

const GEMMA3: Architecture = Architecture {
    name: "gemma3",
    head_norms: HeadNorms::Each,
    windows: Windows::Rotated { period: 6, base: 10_000.0 },
    caps: Caps::Logits,
    wide_layers: Some(62),
    ..GEMMA2
};

impl Architecture {
    /// All of them.
    pub const ALL: [&'static Self; 11] =
        [&LLAMA, &SMOLLM3, &QWEN2, &QWEN3, &QWEN3MOE, &GPT2, &OLMOE, &PHI3, &GEMMA, &GEMMA2, &GEMMA3];

    /// The architecture called `name`.
    pub fn find(name: &str) -> Option<&'static Self> {
        Self::ALL.into_iter().find(|a| a.name == name)
    }

    /// The key `name` of this architecture.
    pub fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.name)
    }

    /// The names of all, for messages.
    pub fn names() -> String {
        Self::ALL.map(|a| a.name).join(", ")
    }

    /// The key of the feed-forward vector's length, or of an expert's in a mixture of experts.
    pub fn ff_length(&self, mixture: bool) -> &'static str {
        self.experts.filter(|_| mixture).map_or(FF_LENGTH, |experts| experts.length)
    }
}
