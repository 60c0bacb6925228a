//! The model on the CPU, simple enough to be read as its definition: the reference of `--verify` and of the
//! engine's tests.
//!
//! Vectors are `f32`, every sum is computed in `f64`, nothing is fused or approximated. Keys and values stay
//! `f32`, or are rounded as the engine's cache does. All cores compute rows of a matrix, which changes no
//! result.

use half::f16;
use rayon::prelude::*;

use crate::cache::{self, CacheType};
use crate::decoder::Decoder;
use crate::error::{Error, Result};
use crate::gguf::{Gguf, TensorView};
use crate::model::Model;

/// Values that share a scale in q8_0.
const BLOCK: usize = cache::BLOCK as usize;

/// A LLaMA model on the CPU. Sizes are from the model's configuration, rotations from the file's own keys:
/// what an engine and its reference read in common is not verified.
#[derive(Debug)]
pub struct Reference<'m> {
    model: &'m Model,
    /// Radians per position of each rotating pair.
    frequencies: Vec<f64>,
    /// Keys and values of each layer: `kv_heads * head_dim` numbers per position.
    cache: Vec<(Vec<f32>, Vec<f32>)>,
    /// Type of the cache.
    kv: CacheType,
    position: usize,
    context: usize,
}

impl<'m> Reference<'m> {
    /// A reference with a cache of `context` positions in f16.
    ///
    /// # Errors
    /// [`Error::UnsupportedType`] if a tensor cannot be dequantized.
    pub fn new(model: &'m Model, context: usize) -> Result<Self> {
        Self::with_cache(model, context, CacheType::F16)
    }

    /// A reference with a cache of `context` positions that rounds as type `kv` does.
    ///
    /// # Errors
    /// As [`Reference::new`]; [`Error::KeyValue`] if heads are not whole blocks of q8_0.
    pub fn with_cache(model: &'m Model, context: usize, kv: CacheType) -> Result<Self> {
        kv.check(&model.config)?;
        for info in model.gguf.tensors() {
            if let Some(tensor) = model.tensor(&info.name) {
                tensor.check_supported()?;
            }
        }
        let frequencies = frequencies(&model.gguf, model.config.head_dim)?;
        let cache = vec![Default::default(); model.config.layers];
        Ok(Self { model, frequencies, cache, kv, position: 0, context })
    }

    /// Radians per position of each rotating pair.
    pub fn frequencies(&self) -> &[f64] {
        &self.frequencies
    }

    /// Softmax attention of all query heads over the positions of layer `index`.
    fn attend(&self, index: usize, q: &[f32]) -> Vec<f32> {
        let c = &self.model.config;
        let (keys, values) = &self.cache[index];
        let mut out = Vec::with_capacity(q.len());
        for (head, query) in q.chunks_exact(c.head_dim).enumerate() {
            // Consecutive query heads share a key and value head.
            let start = head / (c.heads / c.kv_heads) * c.head_dim;
            let at = |p: usize| p * c.kv_dim() + start..p * c.kv_dim() + start + c.head_dim;
            let scale = 1.0 / (c.head_dim as f64).sqrt();
            let scores: Vec<f64> = (0..=self.position).map(|p| scale * dot(query, &keys[at(p)])).collect();
            let mut sums = vec![0.0; c.head_dim];
            for (p, weight) in softmax(&scores).into_iter().enumerate() {
                for (sum, &value) in sums.iter_mut().zip(&values[at(p)]) {
                    *sum += weight * f64::from(value);
                }
            }
            out.extend(sums.iter().map(|&sum| sum as f32));
        }
        out
    }
}

impl Decoder for Reference<'_> {
    fn step(&mut self, token: u32) -> Result<Vec<f32>> {
        let c = &self.model.config;
        if token as usize >= c.vocab {
            return Err(Error::Token { token, vocab: c.vocab });
        }
        if self.position >= self.context {
            return Err(Error::ContextFull { position: self.position, context: self.context });
        }
        let mut x = vec![0.0; c.hidden];
        self.model.embedding().dequantize_row(token as usize, &mut x)?;

        for index in 0..c.layers {
            let layer = self.model.layer(index);
            let n = rms_norm(&x, layer.attn_norm, c.rms_eps)?;
            let mut q = mat_vec(layer.q, &n)?;
            let mut k = mat_vec(layer.k, &n)?;
            let mut v = mat_vec(layer.v, &n)?;
            for head in q.chunks_exact_mut(c.head_dim).chain(k.chunks_exact_mut(c.head_dim)) {
                rotate(head, self.position, &self.frequencies);
            }
            match self.kv {
                CacheType::F16 => k.iter_mut().chain(&mut v).for_each(|x| *x = f16::from_f32(*x).to_f32()),
                CacheType::Q8_0 => {
                    k.chunks_exact_mut(BLOCK).chain(v.chunks_exact_mut(BLOCK)).for_each(round_q8_0)
                }
            }
            self.cache[index].0.extend(k);
            self.cache[index].1.extend(v);
            let attended = self.attend(index, &q);
            add(&mut x, &mat_vec(layer.o, &attended)?);

            let n = rms_norm(&x, layer.ffn_norm, c.rms_eps)?;
            let gate = mat_vec(layer.gate, &n)?;
            let up = mat_vec(layer.up, &n)?;
            let product: Vec<f32> = gate.iter().zip(&up).map(|(&g, &u)| silu(g) * u).collect();
            add(&mut x, &mat_vec(layer.down, &product)?);
        }
        self.position += 1;
        let n = rms_norm(&x, self.model.output_norm(), c.rms_eps)?;
        mat_vec(self.model.output(), &n)
    }

    fn truncate(&mut self, count: usize) -> Result<()> {
        self.position = count.min(self.position);
        let numbers = self.position * self.model.config.kv_dim();
        self.cache.iter_mut().for_each(|(keys, values)| {
            keys.truncate(numbers);
            values.truncate(numbers);
        });
        Ok(())
    }

    fn position(&self) -> usize {
        self.position
    }

    fn context(&self) -> usize {
        self.context
    }
}

/// Rounds a block to q8_0 as ggml's `quantize_row_q8_0_ref` does.
fn round_q8_0(block: &mut [f32]) {
    let scale = block.iter().fold(0f32, |top, v| top.max(v.abs())) / 127.0;
    let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
    let kept = f16::from_f32(scale).to_f32();
    // `round` rounds halves away from zero.
    block.iter_mut().for_each(|v| *v = (*v * inverse).round() * kept);
}

fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(&x, &y)| f64::from(x) * f64::from(y)).sum()
}

fn add(x: &mut [f32], y: &[f32]) {
    x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
}

fn silu(x: f32) -> f32 {
    (f64::from(x) / (1.0 + (-f64::from(x)).exp())) as f32
}

/// `x / sqrt(mean(x²) + eps) * weight`.
fn rms_norm(x: &[f32], weight: TensorView<'_>, eps: f32) -> Result<Vec<f32>> {
    let weight = weight.to_f32()?;
    let mean = dot(x, x) / x.len() as f64;
    let scale = 1.0 / (mean + f64::from(eps)).sqrt();
    Ok(x.iter().zip(&weight).map(|(&x, &w)| (f64::from(x) * scale * f64::from(w)) as f32).collect())
}

/// The product of a matrix with `x`: one number per row.
fn mat_vec(matrix: TensorView<'_>, x: &[f32]) -> Result<Vec<f32>> {
    let row_buffer = || vec![0.0; matrix.row_len()];
    (0..matrix.rows())
        .into_par_iter()
        .map_init(row_buffer, |buffer, row| {
            matrix.dequantize_row(row, buffer)?;
            Ok(dot(buffer, x) as f32)
        })
        .collect()
}

/// Radians per position of each rotating pair, by the keys and the tensor of the file.
fn frequencies(gguf: &Gguf, head_dim: usize) -> Result<Vec<f64>> {
    let real = |key: &str| gguf.real(&format!("llama.rope.{key}"));
    let base = real("freq_base")?.unwrap_or(10000.0);
    let dims = gguf.uint("llama.rope.dimension_count")?.unwrap_or(head_dim as u64);
    let tensor = gguf.tensor("rope_freqs.weight").map(|t| t.to_f32()).transpose()?;
    let kind = gguf.text("llama.rope.scaling.type")?;
    let factor = real("scaling.factor")?.filter(|f| *f != 0.0);
    let scaled = |pair: u64| -> Result<f64> {
        let plain = base.powf(-(2.0 * pair as f64) / dims as f64);
        let plain = tensor.as_ref().map_or(plain, |t| plain / f64::from(t[pair as usize]));
        Ok(match kind {
            Some("none") => plain,
            Some("llama3") if tensor.is_some() => plain,
            Some("llama3") => {
                let low = real("scaling.low_freq_factor")?.unwrap_or(1.0);
                let high = real("scaling.high_freq_factor")?.unwrap_or(4.0);
                let trained = gguf.uint("llama.rope.scaling.original_context_length")?.unwrap_or(0) as f64;
                // Share of the unscaled frequency, by the turns within the trained context.
                let turns = trained * plain / std::f64::consts::TAU;
                let share = ((turns - low) / (high - low)).clamp(0.0, 1.0);
                share * plain + (1.0 - share) * plain / factor.unwrap_or(1.0)
            }
            _ => plain / factor.or(real("scale_linear")?.filter(|f| *f != 0.0)).unwrap_or(1.0),
        })
    };
    (0..dims / 2).map(scaled).collect()
}

/// Rotates the pairs (2j, 2j + 1) of one head by `position * frequencies[j]`.
fn rotate(head: &mut [f32], position: usize, frequencies: &[f64]) {
    for (pair, frequency) in head.as_chunks_mut().0.iter_mut().zip(frequencies) {
        let [a, b] = pair.map(f64::from);
        let (sin, cos) = (position as f64 * frequency).sin_cos();
        *pair = [(a * cos - b * sin) as f32, (a * sin + b * cos) as f32];
    }
}

/// `exp(s) / sum(exp(s))`, in range because the largest is subtracted.
pub(crate) fn softmax(scores: &[f64]) -> Vec<f64> {
    let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let exps: Vec<f64> = scores.iter().map(|s| (s - most).exp()).collect();
    let sum: f64 = exps.iter().sum();
    exps.iter().map(|e| e / sum).collect()
}
