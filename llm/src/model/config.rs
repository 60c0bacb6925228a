//! The numbers that describe a LLaMA model, read from a file's metadata.

use crate::error::{Error, Result};
use crate::gguf::Gguf;
use crate::gguf::types::GgmlType;

/// Shape and constants of a LLaMA model.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Transformer layers.
    pub layers: usize,
    /// Length of the residual vector.
    pub hidden: usize,
    /// Length of the feed-forward vector.
    pub ff: usize,
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
    /// Added to the mean square in RMS norms.
    pub rms_eps: f32,
    /// Base of the rotary frequencies.
    pub rope_base: f32,
    /// Leading values of a head that rotate; even, at most `head_dim`. Pairs are neighbours (2j, 2j + 1).
    pub rope_dim: usize,
    /// Divisors of the rotary angles, one per pair (`rope_dim / 2`), if any is not 1: the angle of pair j at
    /// position p is `p * rope_base^(-2j / rope_dim) / rope_factors[j]`. From `rope_freqs.weight` or the
    /// scaling keys.
    pub rope_factors: Option<Vec<f32>>,
}

/// Largest accepted size, so that products of two stay far below 2^64.
const MAX_SIZE: u64 = 1 << 24;

impl Config {
    /// Reads the configuration of a `llama` model.
    ///
    /// # Errors
    /// [`Error::Architecture`] for another family; otherwise the key that is missing or out of range.
    pub fn from_gguf(gguf: &Gguf) -> Result<Self> {
        let arch = required(gguf.text("general.architecture")?, "general.architecture")?;
        if arch != "llama" {
            return Err(Error::Architecture { name: arch.into() });
        }
        if let Some(count) = gguf.uint("split.count")?
            && count > 1
        {
            return Err(Error::Split { count });
        }
        let layers = size(gguf, "llama.block_count")?;
        // Each layer has tensors: this bounds the memory that a damaged count can make a caller reserve.
        let rule = "there are fewer tensors than that";
        check(layers <= gguf.tensors().len(), "llama.block_count", layers, rule)?;
        let hidden = size(gguf, "llama.embedding_length")?;
        let ff = size(gguf, "llama.feed_forward_length")?;
        let heads = size(gguf, "llama.attention.head_count")?;
        let kv_heads = size_or(gguf, "llama.attention.head_count_kv", heads)?;
        let context = size(gguf, "llama.context_length")?;
        check(heads % kv_heads == 0, "llama.attention.head_count_kv", kv_heads, "it must divide head_count")?;

        let whole = hidden % heads == 0;
        let key = "llama.attention.key_length";
        check(
            whole || gguf.value(key).is_some(),
            key,
            "absent",
            "needed where heads do not divide the width",
        )?;
        let head_dim = size_or(gguf, key, hidden / heads)?;
        check(head_dim % 2 == 0, key, head_dim, "it must be even")?;
        let value_dim = size_or(gguf, "llama.attention.value_length", head_dim)?;
        check(value_dim == head_dim, "llama.attention.value_length", value_dim, "it must equal key_length")?;
        let experts = gguf.uint("llama.expert_count")?.unwrap_or(0);
        check(experts == 0, "llama.expert_count", experts, "mixtures of experts are not supported")?;

        let embedding = gguf.tensor("token_embd.weight");
        let embedding = embedding.ok_or_else(|| Error::MissingTensor { name: "token_embd.weight".into() })?;
        let vocab = size_or(gguf, "llama.vocab_size", embedding.rows())?;

        let rms_eps = positive(gguf, "llama.attention.layer_norm_rms_epsilon", None)?;
        let rope_base = positive(gguf, "llama.rope.freq_base", Some(10000.0))?;
        let rope_dim = size_or(gguf, "llama.rope.dimension_count", head_dim)?;
        check(
            rope_dim % 2 == 0 && rope_dim <= head_dim,
            "llama.rope.dimension_count",
            rope_dim,
            "it must be even and at most the length of a head",
        )?;
        let rope_factors = rope_factors(gguf, rope_base, rope_dim)?;
        Ok(Self {
            layers,
            hidden,
            ff,
            heads,
            kv_heads,
            head_dim,
            vocab,
            context,
            rms_eps,
            rope_base,
            rope_dim,
            rope_factors,
        })
    }

    /// Length of the query vector: `heads * head_dim`.
    pub fn q_dim(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Length of the key vector and of the value vector: `kv_heads * head_dim`.
    pub fn kv_dim(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    /// Angular frequency of each rotating pair, in radians per position, with scaling applied.
    pub fn rope_frequencies(&self) -> Vec<f64> {
        (0..self.rope_dim / 2)
            .map(|j| {
                let divisor = self.rope_factors.as_ref().map_or(1.0, |f| f64::from(f[j]));
                f64::from(self.rope_base).powf(-2.0 * j as f64 / self.rope_dim as f64) / divisor
            })
            .collect()
    }
}

/// Divisors of LLaMA 3's rotary scaling for `rope_dim / 2` pairs.
///
/// Frequencies of wavelengths up to `original / high` stay, those from `original / low` on are divided by
/// `factor`, and between them the two are blended. Source: the `llama3` rope type of Hugging Face
/// transformers (`modeling_rope_utils.py`).
pub fn llama3_factors(
    base: f32,
    rope_dim: usize,
    factor: f32,
    low: f32,
    high: f32,
    original: f32,
) -> Vec<f32> {
    (0..rope_dim / 2)
        .map(|j| {
            let wavelength = std::f64::consts::TAU * f64::from(base).powf(2.0 * j as f64 / rope_dim as f64);
            let (factor, low, high) = (f64::from(factor), f64::from(low), f64::from(high));
            let turns = f64::from(original) / wavelength;
            if turns > high {
                1.0
            } else if turns < low {
                factor as f32
            } else {
                let smooth = (turns - low) / (high - low);
                (1.0 / ((1.0 - smooth) / factor + smooth)) as f32
            }
        })
        .collect()
}

fn rope_factors(gguf: &Gguf, base: f32, rope_dim: usize) -> Result<Option<Vec<f32>>> {
    let mut factors = vec![1.0f32; rope_dim / 2];
    let tensor = gguf.tensor("rope_freqs.weight");
    if let Some(tensor) = tensor {
        let name = || tensor.name.to_owned();
        if tensor.ty != GgmlType::F32 {
            return Err(Error::UnsupportedType { name: name(), ty: tensor.ty });
        }
        let expected = vec![rope_dim as u64 / 2];
        if tensor.dims != expected {
            return Err(Error::TensorShape { name: name(), expected, found: tensor.dims.to_vec() });
        }
        for (factor, bytes) in factors.iter_mut().zip(tensor.data.as_chunks().0) {
            *factor = f32::from_le_bytes(*bytes);
        }
    }
    let key = "llama.rope.scaling.type";
    // Linear is the default, as in llama.cpp.
    match gguf.text(key)?.unwrap_or("linear") {
        "none" => {}
        "linear" => {
            let scale = linear_scale(gguf)?;
            factors.iter_mut().for_each(|f| *f *= scale);
        }
        // Converters that write this type also write the factors, as `rope_freqs.weight`.
        "llama3" if tensor.is_some() => {}
        "llama3" => {
            factors = llama3_factors(
                base,
                rope_dim,
                positive(gguf, "llama.rope.scaling.factor", None)?,
                positive(gguf, "llama.rope.scaling.low_freq_factor", Some(1.0))?,
                positive(gguf, "llama.rope.scaling.high_freq_factor", Some(4.0))?,
                size(gguf, "llama.rope.scaling.original_context_length")? as f32,
            );
        }
        other => check(false, key, other, "none, linear and llama3 are supported")?,
    }
    let sane = factors.iter().all(|f| f.is_finite() && *f > 0.0);
    check(sane, "rope_freqs.weight", format!("{factors:?}"), "all must be positive")?;
    Ok(factors.iter().any(|&f| f != 1.0).then_some(factors))
}

/// The divisor of linear scaling: `rope.scaling.factor`, or its older name; zero counts as absent.
fn linear_scale(gguf: &Gguf) -> Result<f32> {
    let given = |key: &str| -> Result<Option<f32>> {
        let absent = gguf.real(key)?.is_none_or(|v| v == 0.0);
        if absent { Ok(None) } else { positive(gguf, key, None).map(Some) }
    };
    let (factor, older) = ("llama.rope.scaling.factor", "llama.rope.scale_linear");
    let (scale, before) = (given(factor)?, given(older)?);
    if let (Some(scale), Some(before)) = (scale, before) {
        check(scale == before, older, before, "it must equal llama.rope.scaling.factor")?;
    }
    Ok(scale.or(before).unwrap_or(1.0))
}

fn required<T>(value: Option<T>, key: &str) -> Result<T> {
    value.ok_or_else(|| Error::MissingKey { key: key.into() })
}

fn check(holds: bool, key: &str, value: impl ToString, rule: &'static str) -> Result<()> {
    if holds { Ok(()) } else { Err(Error::KeyValue { key: key.into(), value: value.to_string(), rule }) }
}

/// A size under `key`, which must exist.
fn size(gguf: &Gguf, key: &str) -> Result<usize> {
    let value = required(gguf.uint(key)?, key)?;
    check((1..=MAX_SIZE).contains(&value), key, value, "it must be from 1 to 16777216")?;
    Ok(value as usize)
}

/// A size under `key`, or `default` if the key is absent.
fn size_or(gguf: &Gguf, key: &str, default: usize) -> Result<usize> {
    if gguf.value(key).is_some() { size(gguf, key) } else { Ok(default) }
}

/// A positive real number under `key`, or `default` if the key is absent.
fn positive(gguf: &Gguf, key: &str, default: Option<f32>) -> Result<f32> {
    let value = required(gguf.real(key)?.map(|v| v as f32).or(default), key)?;
    check(value.is_finite() && value > 0.0, key, value, "it must be a positive number")?;
    Ok(value)
}
