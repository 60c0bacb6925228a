//! Rotary scaling: other frequencies than those of the base, and the lengths of rotated queries and keys.

use crate::error::{Error, Result};
use crate::gguf::Gguf;
use crate::model::architecture::Architecture;
use crate::model::values::{check, positive, size, size_or};
use crate::model::yarn::Yarn;
use crate::tensor_type::GgmlType;

/// The tensor of divisors of rotary angles; optional.
pub const ROPE_FACTORS: &str = "rope_freqs.weight";
/// Those in short and in long contexts; optional.
pub const LONG_FACTORS: [&str; 2] = ["rope_factors_short.weight", "rope_factors_long.weight"];

/// The scaling of a file.
#[derive(Debug)]
pub struct Scaling {
    /// Divisors of the angles, one per pair, if any is not 1.
    pub factors: Option<Vec<f32>>,
    /// Others in long contexts.
    pub long: Option<LongFactors>,
    /// The key that lengthens rotated queries and keys, and its value, if one does.
    pub lengthened: Option<(String, String)>,
    /// The factor of products of rotated queries and keys.
    pub score_factor: f32,
}

/// Divisors of rotary angles in long contexts: longrope, as Phi-3 and later ones of 128k positions have it.
#[derive(Clone, Debug, PartialEq)]
pub struct LongFactors {
    /// Contexts of more positions have them.
    pub beyond: usize,
    /// One per pair.
    pub factors: Vec<f32>,
}

impl Scaling {
    /// None: what rotates, rotates by the base.
    pub fn none() -> Self {
        Self { factors: None, long: None, lengthened: None, score_factor: 1.0 }
    }

    /// The scaling of a file for `rope_dim / 2` pairs.
    ///
    /// # Errors
    /// As the keys' values; [`Error::MissingTensor`], [`Error::TensorShape`], [`Error::UnsupportedType`] for the
    /// tensors of factors.
    pub fn read(
        gguf: &Gguf,
        a: &Architecture,
        (base, rope_dim): (f32, usize),
        context: usize,
    ) -> Result<Self> {
        let of = |key: &str| a.key(&format!("rope.scaling.{key}"));
        let kind = gguf.text(&of("type"))?.unwrap_or("linear");
        let yarn = Yarn::read(gguf, a, context)?;
        let attention = positive(gguf, &of("attn_factor"), Some(1.0))?;
        let score_factor = yarn.map_or(1.0, Yarn::score_factor) * attention * attention;
        let lengthened = match yarn {
            Some(_) => Some((of("type"), "yarn".to_owned())),
            None => (attention != 1.0).then(|| (of("attn_factor"), attention.to_string())),
        };
        let tensor = |name: &str| tensor(gguf, name, rope_dim);
        let own = tensor(ROPE_FACTORS)?;
        let [short, long] = LONG_FACTORS.map(tensor);
        let scaled = |name: &str, given: Option<Vec<f32>>| -> Result<Option<Vec<f32>>> {
            let factors = match kind {
                "none" => given.unwrap_or_else(|| vec![1.0; rope_dim / 2]),
                // Linear is the default, as in llama.cpp.
                "linear" | "longrope" => {
                    let scale = linear_scale(gguf, a)?;
                    given.map_or_else(
                        || vec![scale; rope_dim / 2],
                        |all| all.iter().map(|f| f * scale).collect(),
                    )
                }
                // Converters that write this type also write the factors.
                "llama3" => given.map_or_else(|| llama3(gguf, a, (base, rope_dim)), Ok)?,
                "yarn" => {
                    let divisors = yarn.map_or_else(Vec::new, |yarn| yarn.divisors(base, rope_dim));
                    let given = given.unwrap_or_else(|| vec![1.0; rope_dim / 2]);
                    given.iter().zip(divisors).map(|(f, divisor)| f * divisor).collect()
                }
                other => {
                    let rule = "none, linear, llama3, yarn and longrope are supported";
                    return Err(Error::KeyValue { key: of("type"), value: other.into(), rule });
                }
            };
            let sane = factors.iter().all(|f| f.is_finite() && *f > 0.0);
            check(sane, name, format!("{factors:?}"), "all must be positive")?;
            Ok(factors.iter().any(|&f| f != 1.0).then_some(factors))
        };
        let missing = |name: &str| Error::MissingTensor { name: name.into() };
        let (factors, long) = match (own, short?, long?) {
            (None, Some(short), Some(long)) => {
                let beyond = size_or(gguf, &of("original_context_length"), context)?;
                let long = scaled(LONG_FACTORS[1], Some(long))?.unwrap_or_else(|| vec![1.0; rope_dim / 2]);
                (scaled(LONG_FACTORS[0], Some(short))?, Some(LongFactors { beyond, factors: long }))
            }
            (None, Some(_), None) => return Err(missing(LONG_FACTORS[1])),
            (None, None, Some(_)) => return Err(missing(LONG_FACTORS[0])),
            (None, None, None) if kind == "longrope" => return Err(missing(LONG_FACTORS[0])),
            (own, ..) => (scaled(ROPE_FACTORS, own)?, None),
        };
        Ok(Self { factors, long, lengthened, score_factor })
    }
}

/// The factors in a tensor, one per pair.
fn tensor(gguf: &Gguf, name: &str, rope_dim: usize) -> Result<Option<Vec<f32>>> {
    let Some(tensor) = gguf.tensor(name) else { return Ok(None) };
    let name = || tensor.name.to_owned();
    if tensor.ty != GgmlType::F32 {
        return Err(Error::UnsupportedType { name: name(), ty: tensor.ty });
    }
    let expected = vec![rope_dim as u64 / 2];
    if tensor.dims != expected {
        return Err(Error::TensorShape { name: name(), expected, found: tensor.dims.to_vec() });
    }
    Ok(Some(tensor.data.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()))
}

/// The factors of LLaMA 3's scaling, by its keys.
fn llama3(gguf: &Gguf, a: &Architecture, (base, rope_dim): (f32, usize)) -> Result<Vec<f32>> {
    let of = |key: &str| a.key(&format!("rope.scaling.{key}"));
    Ok(llama3_factors(
        base,
        rope_dim,
        positive(gguf, &of("factor"), None)?,
        positive(gguf, &of("low_freq_factor"), Some(1.0))?,
        positive(gguf, &of("high_freq_factor"), Some(4.0))?,
        size(gguf, &of("original_context_length"))? as f32,
    ))
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

/// The divisor of linear scaling: `rope.scaling.factor`, or its older name; zero counts as absent.
fn linear_scale(gguf: &Gguf, architecture: &Architecture) -> Result<f32> {
    let given = |key: &str| -> Result<Option<f32>> {
        let absent = gguf.real(key)?.is_none_or(|v| v == 0.0);
        if absent { Ok(None) } else { positive(gguf, key, None).map(Some) }
    };
    let [factor, older] = ["rope.scaling.factor", "rope.scale_linear"].map(|key| architecture.key(key));
    let (scale, before) = (given(&factor)?, given(&older)?);
    if let (Some(scale), Some(before)) = (scale, before) {
        check(scale == before, &older, before, "it must equal rope.scaling.factor")?;
    }
    Ok(scale.or(before).unwrap_or(1.0))
}
