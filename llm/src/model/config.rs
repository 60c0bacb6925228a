//! The numbers that describe a model, read from a file's metadata.

use crate::error::{Error, Result};
use crate::gguf::Gguf;
use crate::model::architecture::{Architecture, Biases, Caps, HeadNorms, Norm, Rotation};
use crate::model::scaling::{LongFactors, Scaling};
use crate::model::values::{check, positive, required, same_size, size, size_or};
use crate::model::window::Window;

/// Shape and constants of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The computation of its layers.
    pub architecture: &'static Architecture,
    /// Transformer layers.
    pub layers: usize,
    /// Length of the residual vector.
    pub hidden: usize,
    /// Length of the feed-forward vector; of an expert's in a mixture of experts.
    pub ff: usize,
    /// Experts of each layer; 0 where the feed-forward block is no mixture.
    pub experts: usize,
    /// Experts that a token is sent to.
    pub experts_used: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Length of a head's vector; even.
    pub head_dim: usize,
    /// Tokens in the vocabulary, rows of the output matrix.
    pub vocab: usize,
    /// Positions that the model was trained for.
    pub context: usize,
    /// Added to the mean square, or to the variance, in norms.
    pub norm_eps: f32,
    /// Base of the rotary frequencies.
    pub rope_base: f32,
    /// Leading values of a head that rotate; even, at most `head_dim`, 0 if positions are no rotations.
    pub rope_dim: usize,
    /// Divisors of the rotary angles, one per pair (`rope_dim / 2`), if any is not 1: the angle of pair j at
    /// position p is `p * rope_base^(-2j / rope_dim) / rope_factors[j]`. From `rope_freqs.weight` or the
    /// scaling keys.
    pub rope_factors: Option<Vec<f32>>,
    /// Divisors instead of these in long contexts.
    pub rope_long: Option<LongFactors>,
    /// The factor of scores beside the inverse root of a head's length: not 1 with yarn and longrope, which
    /// lengthen rotated queries and keys. What does not rotate of a query is divided by it when it is loaded.
    pub score_factor: f32,
    /// Whether projections of attention's results have biases, where the architecture leaves it to the file.
    pub output_biases: bool,
    /// The window of positions that some layers see.
    pub window: Option<Window>,
    /// The cap of scores: a score x becomes `cap · tanh(x / cap)`.
    pub score_cap: Option<f32>,
    /// The cap of logits.
    pub logit_cap: Option<f32>,
}

/// The bias of attention's output projection, in a layer.
pub const OUTPUT_BIAS: &str = "attn_output.bias";

/// Largest cap of scores and of logits; models have 30 and 50.
const MAX_CAP: f32 = 1e4;
/// Most experts of a layer.
const MAX_EXPERTS: usize = 1024;

impl Config {
    /// Reads the configuration of a model.
    ///
    /// # Errors
    /// [`Error::Architecture`] for a family that is not in the table; otherwise the key that is missing or
    /// out of range.
    pub fn from_gguf(gguf: &Gguf) -> Result<Self> {
        let name = required(gguf.text("general.architecture")?, "general.architecture")?;
        let unknown = || Error::Architecture { name: name.into(), known: Architecture::names() };
        let architecture = Architecture::find(name).ok_or_else(unknown)?;
        let of = |key: &str| architecture.key(key);
        let layers = size(gguf, &of("block_count"))?;
        // Each layer has tensors: this bounds the memory that a damaged count can make a caller reserve.
        let rule = "there are fewer tensors than that";
        check(layers <= gguf.tensors().len(), &of("block_count"), layers, rule)?;
        let hidden = size(gguf, &of("embedding_length"))?;
        let per_layer = |key: &str| same_size(gguf, &of(key), layers);
        let [experts, experts_used] = experts(gguf, architecture)?;
        let ff = architecture.ff_length(experts > 0);
        let ff = required(per_layer(ff)?, &of(ff))?;
        let heads = required(per_layer("attention.head_count")?, &of("attention.head_count"))?;
        let kv_heads = per_layer("attention.head_count_kv")?.unwrap_or(heads);
        let context = size(gguf, &of("context_length"))?;
        let rule = "it must divide head_count";
        check(heads % kv_heads == 0, &of("attention.head_count_kv"), kv_heads, rule)?;

        let whole = hidden % heads == 0;
        let key = of("attention.key_length");
        let rule = "needed where heads do not divide the width";
        check(whole || gguf.value(&key).is_some(), &key, "absent", rule)?;
        let head_dim = size_or(gguf, &key, hidden / heads)?;
        check(head_dim % 2 == 0, &key, head_dim, "it must be even")?;
        let value_dim = size_or(gguf, &of("attention.value_length"), head_dim)?;
        let rule = "it must equal key_length";
        check(value_dim == head_dim, &of("attention.value_length"), value_dim, rule)?;

        let embedding = gguf.tensor("token_embd.weight");
        let embedding = embedding.ok_or_else(|| Error::MissingTensor { name: "token_embd.weight".into() })?;
        let vocab = size_or(gguf, &of("vocab_size"), embedding.rows())?;

        let eps = match architecture.norm {
            Norm::Rms => "attention.layer_norm_rms_epsilon",
            Norm::Layer => "attention.layer_norm_epsilon",
        };
        let norm_eps = positive(gguf, &of(eps), None)?;
        let rotates = architecture.rotation != Rotation::None;
        let rope_base = positive(gguf, &of("rope.freq_base"), Some(10000.0))?;
        let rope_dim = if rotates { size_or(gguf, &of("rope.dimension_count"), head_dim)? } else { 0 };
        check(
            rope_dim % 2 == 0 && rope_dim <= head_dim,
            &of("rope.dimension_count"),
            rope_dim,
            "it must be even and at most the length of a head",
        )?;
        let scaling = match rotates {
            true => Scaling::read(gguf, architecture, (rope_base, rope_dim), context)?,
            false => Scaling::none(),
        };
        let window = Window::read(gguf, architecture, context)?;
        check_lengthened(&scaling, architecture, window, rope_dim == head_dim)?;
        let [score_cap, logit_cap] = caps(gguf, architecture)?;
        Ok(Self {
            architecture,
            layers,
            hidden,
            ff,
            experts,
            experts_used,
            heads,
            kv_heads,
            head_dim,
            vocab,
            context,
            norm_eps,
            rope_base,
            rope_dim,
            rope_factors: scaling.factors,
            rope_long: scaling.long,
            score_factor: scaling.score_factor,
            output_biases: architecture.biases == Biases::OfFile
                && gguf.tensors().iter().any(|tensor| tensor.name.ends_with(OUTPUT_BIAS)),
            window,
            score_cap,
            logit_cap,
        })
    }

    /// The factor of products of queries and keys.
    pub fn score_scale(&self) -> f32 {
        let wide = self.architecture.wide_layers == Some(self.layers);
        let length = if wide { self.hidden / self.heads } else { self.head_dim };
        1.0 / (length as f32).sqrt() * self.score_factor
    }

    /// The factor of embeddings, if there is one.
    pub fn embedding_scale(&self) -> Option<f32> {
        self.architecture.scaled_embedding.then(|| (self.hidden as f32).sqrt())
    }

    /// Whether the shares of a token's experts are divided by their sum.
    pub fn normalizes_shares(&self) -> bool {
        self.architecture.experts.is_some_and(|experts| experts.normalized)
    }

    /// Positions that layer `layer` sees, the newest with them, where it does not see all of the `context`
    /// that there are at most.
    pub fn window_of(&self, layer: usize, context: usize) -> Option<usize> {
        let window = self.window.filter(|w| w.is_of(layer) && w.positions < context);
        window.map(|w| w.positions)
    }

    /// Whether layer `layer` rotates queries and keys.
    pub fn rotates(&self, layer: usize) -> bool {
        let kept = self.architecture.unrotated.is_none_or(|period| !(layer + 1).is_multiple_of(period));
        kept && self.architecture.rotation != Rotation::None
    }

    /// Length of the query vector: `heads * head_dim`.
    pub fn q_dim(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Length of the key vector and of the value vector: `kv_heads * head_dim`.
    pub fn kv_dim(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    /// Values that a head takes on a device: those of the file, then zeros up to a multiple of 8.
    pub fn padded_head(&self) -> usize {
        self.head_dim.next_multiple_of(8)
    }

    /// Length of the query vector on a device.
    pub fn padded_q_dim(&self) -> usize {
        self.heads * self.padded_head()
    }

    /// Length of the key vector, and of the value vector, on a device.
    pub fn padded_kv_dim(&self) -> usize {
        self.kv_heads * self.padded_head()
    }

    /// Refuses a context of more positions than a model with learned positions has vectors for.
    ///
    /// # Errors
    /// [`Error::KeyValue`].
    pub(crate) fn check_positions(&self, context: usize) -> Result<()> {
        let rule = "a position has a vector of its own, so there are no more; choose a shorter context";
        let enough = !self.architecture.learned_positions || context <= self.context;
        check(enough, &self.architecture.key("context_length"), self.context, rule)
    }

    /// Divisors of the rotary angles in texts of at most `context` positions.
    pub fn rope_factors_of(&self, context: usize) -> Option<&[f32]> {
        let long = self.rope_long.as_ref().filter(|long| context > long.beyond);
        long.map(|long| &long.factors).or(self.rope_factors.as_ref()).map(Vec::as_slice)
    }

    /// Angular frequency of each rotating pair in texts of at most `context` positions, in radians per position,
    /// with scaling applied; of layers with a window where those have frequencies of their own if `windowed`.
    pub fn rope_frequencies(&self, windowed: bool, context: usize) -> Vec<f64> {
        let local = self.window.and_then(|window| window.rope_base).filter(|_| windowed);
        let factors = self.rope_factors_of(context).filter(|_| local.is_none());
        let base = f64::from(local.unwrap_or(self.rope_base));
        let frequency = |j: usize| {
            let divisor = factors.map_or(1.0, |f| f64::from(f[j]));
            base.powf(-2.0 * j as f64 / self.rope_dim as f64) / divisor
        };
        (0..self.rope_dim / 2).map(frequency).collect()
    }
}

/// Experts of a layer, and those that a token is sent to.
fn experts(gguf: &Gguf, architecture: &Architecture) -> Result<[usize; 2]> {
    let [all, used] = ["expert_count", "expert_used_count"].map(|key| architecture.key(key));
    if architecture.experts.is_none_or(|experts| experts.optional) {
        let (experts, rule) =
            (gguf.uint(&all)?.unwrap_or(0), "mixtures of experts of this architecture are not supported");
        check(experts == 0 || architecture.experts.is_some(), &all, experts, rule)?;
        if experts == 0 {
            return Ok([0, 0]);
        }
    }
    let (count, sent) = (size(gguf, &all)?, size(gguf, &used)?);
    check(count <= MAX_EXPERTS, &all, count, "it must be at most 1024")?;
    check(sent <= count, &used, sent, "it must be at most expert_count")?;
    Ok([count, sent])
}

/// One cap. The hyperbolic tangent of a number far below 1 has few of its bits in single precision.
fn cap(gguf: &Gguf, key: &str, usual: Option<f32>) -> Result<f32> {
    let cap = positive(gguf, key, usual)?;
    check(
        cap <= MAX_CAP,
        key,
        cap,
        "it must be at most 10000: the tangent of less is not exact in single precision",
    )?;
    Ok(cap)
}

/// The caps of scores and of logits.
fn caps(gguf: &Gguf, architecture: &Architecture) -> Result<[Option<f32>; 2]> {
    let [scores, logits] =
        ["attn_logit_softcapping", "final_logit_softcapping"].map(|key| architecture.key(key));
    Ok(match architecture.caps {
        Caps::None => [None, None],
        Caps::Both { scores: usual, logits: usual_logits } => {
            [Some(cap(gguf, &scores, Some(usual))?), Some(cap(gguf, &logits, Some(usual_logits))?)]
        }
        Caps::Logits => {
            let absent = gguf.real(&logits)?.is_none_or(|cap| cap == 0.0);
            [None, if absent { None } else { Some(cap(gguf, &logits, None)?) }]
        }
    })
}

/// Refuses lengthened queries and keys where not all of what is multiplied is lengthened alike.
fn check_lengthened(scaling: &Scaling, a: &Architecture, window: Option<Window>, whole: bool) -> Result<()> {
    let Some((key, value)) = &scaling.lengthened else { return Ok(()) };
    let rule = "queries and keys would be lengthened in some layers alone";
    let some = a.unrotated.is_some() || window.is_some_and(|window| window.rope_base.is_some());
    check(!some, key, value, rule)?;
    let rule = "normalized heads would be lengthened in part, for which there are no kernels";
    check(whole || a.head_norms == HeadNorms::None, key, value, rule)
}
