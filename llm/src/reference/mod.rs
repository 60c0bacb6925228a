//! The model on the CPU, simple enough to be read as its definition: the reference of `llm-demo verify` and
//! of the engine's tests.
//!
//! Vectors are `f32`, every sum is computed in `f64`, nothing is fused or approximated. Keys and values stay
//! `f32`, or are rounded as the engine's cache does. All cores compute rows of a matrix, which changes no
//! result.

mod family;

use half::f16;
use rayon::prelude::*;

use crate::cache::{self, CacheType};
use crate::decoder::Decoder;
use crate::error::{Error, Result};
use crate::gguf::TensorView;
use crate::model::Model;
use crate::reference::family::File;

/// Values that share a scale in q8_0.
const BLOCK: usize = cache::BLOCK as usize;

/// A model on the CPU. Sizes are from the model's configuration, the rest from the file's own keys and
/// tensors: what an engine and its reference read in common is not verified.
#[derive(Debug)]
pub struct Reference<'m> {
    model: &'m Model,
    file: File<'m>,
    /// Added to mean squares and variances.
    epsilon: f64,
    /// Radians per position of each rotating pair.
    frequencies: Vec<f64>,
    /// The same in layers with a window, where they are others.
    window_frequencies: Option<Vec<f64>>,
    /// The factor of rotated queries and keys.
    rotated_length: f64,
    /// Positions that each layer sees, if it does not see all.
    windows: Vec<Option<usize>>,
    /// The caps of scores and of logits.
    caps: [Option<f64>; 2],
    /// The number by whose root scores are divided.
    score_length: usize,
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
        model.config.check_positions(context)?;
        for info in model.gguf.tensors() {
            if let Some(tensor) = model.tensor(&info.name) {
                tensor.check_supported()?;
            }
        }
        let file = File::new(&model.gguf)?;
        let c = &model.config;
        Ok(Self {
            model,
            file,
            epsilon: file.epsilon()?,
            frequencies: file.frequencies(c.head_dim, context)?,
            window_frequencies: file.window_frequencies(c.head_dim)?,
            rotated_length: file.rotated_length()?,
            windows: (0..c.layers).map(|layer| file.window(layer)).collect::<Result<_>>()?,
            caps: file.caps()?,
            score_length: file.score_length(c.head_dim)?,
            cache: vec![Default::default(); c.layers],
            kv,
            position: 0,
            context,
        })
    }

    /// Radians per position of each rotating pair.
    pub fn frequencies(&self) -> &[f64] {
        &self.frequencies
    }

    /// Row `row` of a tensor.
    fn row(&self, name: &str, row: usize) -> Result<Vec<f32>> {
        let tensor = present(self.file.tensor(name), name)?;
        let mut values = vec![0.0; tensor.row_len()];
        tensor.dequantize_row(row, &mut values)?;
        Ok(values)
    }

    /// The product of matrix `name` with `x`, and its bias if it has one.
    fn linear(&self, name: &str, x: &[f32]) -> Result<Vec<f32>> {
        let weight = format!("{name}.weight");
        let mut out = mat_vec(present(self.file.tensor(&weight), &weight)?, x)?;
        if let Some(bias) = self.file.tensor(&format!("{name}.bias")) {
            add(&mut out, &bias.to_f32()?);
        }
        Ok(out)
    }

    /// The norm `name` of `x`: a layer norm if it has a bias.
    fn norm(&self, name: &str, x: &[f32]) -> Result<Vec<f32>> {
        let weight = format!("{name}.weight");
        let weight = present(self.file.tensor(&weight), &weight)?.to_f32()?;
        match self.file.tensor(&format!("{name}.bias")) {
            Some(bias) => Ok(layer_norm(x, &weight, &bias.to_f32()?, self.epsilon)),
            None => Ok(rms_norm(x, &weight, self.epsilon)),
        }
    }

    /// Queries, keys and values of layer `index`; keys and values as the cache rounds them.
    fn heads(&self, index: usize, n: &[f32]) -> Result<(Vec<f32>, Vec<f32>, Vec<f32>)> {
        let c = &self.model.config;
        let of = |role: &str| format!("blk.{index}.{role}");
        let (mut q, mut k, mut v) = match self.file.of_layer(index, "attn_qkv.weight") {
            Some(_) => {
                let all = self.linear(&of("attn_qkv"), n)?;
                let (q, rest) = all.split_at(c.heads * c.head_dim);
                let (k, v) = rest.split_at(c.kv_heads * c.head_dim);
                (q.to_vec(), k.to_vec(), v.to_vec())
            }
            None => {
                let linear = |role| self.linear(&of(role), n);
                (linear("attn_q")?, linear("attn_k")?, linear("attn_v")?)
            }
        };
        for (values, role) in [(&mut q, "attn_q_norm.weight"), (&mut k, "attn_k_norm.weight")] {
            if let Some(weight) = self.file.of_layer(index, role) {
                let weight = weight.to_f32()?;
                // Of each head, or of all together.
                let normed =
                    values.chunks(weight.len()).flat_map(|head| rms_norm(head, &weight, self.epsilon));
                *values = normed.collect();
            }
        }
        let of_window = self.window_frequencies.as_ref().filter(|_| self.windows[index].is_some());
        let frequencies = of_window.unwrap_or(&self.frequencies);
        let rotating = if self.file.is_without_positions(index) { 0 } else { usize::MAX };
        let heads = q.chunks_exact_mut(c.head_dim).chain(k.chunks_exact_mut(c.head_dim));
        for head in heads.take(rotating) {
            rotate(head, self.position, frequencies, self.file.rotates_halves());
            let rotated = &mut head[..2 * self.frequencies.len()];
            rotated.iter_mut().for_each(|v| *v = (f64::from(*v) * self.rotated_length) as f32);
        }
        match self.kv {
            CacheType::F16 => k.iter_mut().chain(&mut v).for_each(|x| *x = f16::from_f32(*x).to_f32()),
            CacheType::Q8_0 => {
                let halves = if self.file.rotates_halves() { self.frequencies.len() } else { 0 };
                k.chunks_exact_mut(c.head_dim).for_each(|head| round_key(head, halves));
                v.chunks_exact_mut(BLOCK).for_each(round_q8_0);
            }
        }
        Ok((q, k, v))
    }

    /// The feed-forward block of layer `index`.
    fn feed_forward(&self, index: usize, n: &[f32]) -> Result<Vec<f32>> {
        let of = |role: &str| format!("blk.{index}.{role}");
        if let Some(router) = self.file.of_layer(index, "ffn_gate_inp.weight") {
            return self.experts(index, router, n);
        }
        let up = self.linear(&of("ffn_up"), n)?;
        let activate = if self.file.gates_by_gelu() { gelu } else { silu };
        let gated = |gate: &[f32], up: &[f32]| gate.iter().zip(up).map(|(&g, &u)| activate(g) * u).collect();
        let width = self.model.config.ff;
        let activated: Vec<f32> = match self.file.of_layer(index, "ffn_gate.weight") {
            Some(gate) => gated(&mat_vec(gate, n)?, &up),
            // Gate above up.
            None if up.len() == 2 * width => gated(&up[..width], &up[width..]),
            None => up.into_iter().map(gelu).collect(),
        };
        self.linear(&of("ffn_down"), &activated)
    }

    /// The experts that a softmax of the router's scores finds most likely, weighted by their shares, or by their
    /// shares of those.
    fn experts(&self, index: usize, router: TensorView<'_>, n: &[f32]) -> Result<Vec<f32>> {
        let scores: Vec<f64> = mat_vec(router, n)?.into_iter().map(f64::from).collect();
        let mut shares: Vec<(usize, f64)> = softmax(&scores).into_iter().enumerate().collect();
        // Stable: of equals the first.
        shares.sort_by(|a, b| b.1.total_cmp(&a.1));
        shares.truncate(self.file.experts_used()?);
        let total =
            if self.file.normalizes_shares() { shares.iter().map(|(_, share)| share).sum() } else { 1.0 };
        let product = |role: &str, expert: usize, x: &[f32]| {
            // One tensor for each, in older files.
            let own = format!("ffn_{role}.{expert}.weight");
            if let Some(tensor) = self.file.of_layer(index, &own) {
                return mat_vec(tensor, x);
            }
            let all = format!("ffn_{role}_exps.weight");
            let tensor = present(self.file.of_layer(index, &all), &all)?;
            let rows = tensor.dims[1] as usize;
            mat_vec_rows(tensor, expert * rows..(expert + 1) * rows, x)
        };
        let mut out = vec![0.0; n.len()];
        for (expert, share) in shares {
            let gate = product("gate", expert, n)?;
            let up = product("up", expert, n)?;
            let activated: Vec<f32> = gate.iter().zip(&up).map(|(&g, &u)| silu(g) * u).collect();
            let down = product("down", expert, &activated)?;
            out.iter_mut().zip(down).for_each(|(sum, d)| *sum += (share / total * f64::from(d)) as f32);
        }
        Ok(out)
    }

    /// Adds the result of attention or of the feed-forward block of layer `index`, normalized if there is a
    /// norm.
    fn add_result(&self, index: usize, x: &mut [f32], norm: &str, result: Vec<f32>) -> Result<()> {
        let name = format!("blk.{index}.{norm}");
        match self.file.tensor(&format!("{name}.weight")) {
            Some(_) => add(x, &self.norm(&name, &result)?),
            None => add(x, &result),
        }
        Ok(())
    }

    /// Softmax attention of all query heads over the positions of layer `index` that it sees.
    fn attend(&self, index: usize, q: &[f32]) -> Vec<f32> {
        let c = &self.model.config;
        let (keys, values) = &self.cache[index];
        let mut out = Vec::with_capacity(q.len());
        for (head, query) in q.chunks_exact(c.head_dim).enumerate() {
            // Consecutive query heads share a key and value head.
            let start = head / (c.heads / c.kv_heads) * c.head_dim;
            let at = |p: usize| p * c.kv_dim() + start..p * c.kv_dim() + start + c.head_dim;
            let scale = 1.0 / (self.score_length as f64).sqrt();
            let first = self.windows[index].map_or(0, |window| (self.position + 1).saturating_sub(window));
            let score = |p: usize| capped(scale * dot(query, &keys[at(p)]), self.caps[0]);
            let scores: Vec<f64> = (first..=self.position).map(score).collect();
            let mut sums = vec![0.0; c.head_dim];
            for (p, weight) in (first..).zip(softmax(&scores)) {
                for (sum, &value) in sums.iter_mut().zip(&values[at(p)]) {
                    *sum += weight * f64::from(value);
                }
            }
            out.extend(sums.iter().map(|&sum| sum as f32));
        }
        out
    }

    /// Processes a token. Returns its hidden state after the last layer and norm.
    ///
    /// # Errors
    /// As [`Decoder::step`].
    pub fn state(&mut self, token: u32) -> Result<Vec<f32>> {
        let c = &self.model.config;
        if token as usize >= c.vocab {
            return Err(Error::Token { token, vocab: c.vocab });
        }
        if self.position >= self.context {
            return Err(Error::ContextFull { position: self.position, context: self.context });
        }
        let mut x = self.row("token_embd.weight", token as usize)?;
        x.iter_mut().for_each(|v| *v *= self.file.embedding_factor(c.hidden));
        if self.file.tensor("position_embd.weight").is_some() {
            add(&mut x, &self.row("position_embd.weight", self.position)?);
        }
        for index in 0..c.layers {
            let of = |role: &str| format!("blk.{index}.{role}");
            let n = self.norm(&of("attn_norm"), &x)?;
            let (q, k, v) = self.heads(index, &n)?;
            self.cache[index].0.extend(k);
            self.cache[index].1.extend(v);
            let attended = self.attend(index, &q);
            let result = self.linear(&of("attn_output"), &attended)?;
            self.add_result(index, &mut x, "post_attention_norm", result)?;

            let n = self.norm(&of("ffn_norm"), &x)?;
            let result = self.feed_forward(index, &n)?;
            self.add_result(index, &mut x, "post_ffw_norm", result)?;
        }
        self.position += 1;
        self.norm("output_norm", &x)
    }
}

impl Decoder for Reference<'_> {
    fn step(&mut self, token: u32) -> Result<Vec<f32>> {
        let n = self.state(token)?;
        let output = self.file.tensor("output.weight").or(self.file.tensor("token_embd.weight"));
        let logits = mat_vec(present(output, "output.weight")?, &n)?;
        Ok(logits.into_iter().map(|logit| capped(f64::from(logit), self.caps[1]) as f32).collect())
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

/// Rounds a key to q8_0. The engine's blocks have the values of rotating pairs beside each other, also where
/// the model pairs value j with value j + `halves`.
fn round_key(head: &mut [f32], halves: usize) {
    let place = |i: usize| if i < 2 * halves { i / 2 + i % 2 * halves } else { i };
    let mut values: Vec<f32> = (0..head.len()).map(|i| head[place(i)]).collect();
    values.chunks_exact_mut(BLOCK).for_each(round_q8_0);
    values.into_iter().enumerate().for_each(|(i, value)| head[place(i)] = value);
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

/// `cap · tanh(x / cap)`.
fn capped(x: f64, cap: Option<f64>) -> f64 {
    cap.map_or(x, |cap| cap * (x / cap).tanh())
}

fn silu(x: f32) -> f32 {
    (f64::from(x) / (1.0 + (-f64::from(x)).exp())) as f32
}

/// `x / 2 · (1 + tanh(√(2/π) · (x + 0.044715 x³)))`.
fn gelu(x: f32) -> f32 {
    let x = f64::from(x);
    let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
    (0.5 * x * (1.0 + inner.tanh())) as f32
}

/// `x / sqrt(mean(x²) + eps) * weight`.
fn rms_norm(x: &[f32], weight: &[f32], eps: f64) -> Vec<f32> {
    let scale = 1.0 / (dot(x, x) / x.len() as f64 + eps).sqrt();
    x.iter().zip(weight).map(|(&x, &w)| (f64::from(x) * scale * f64::from(w)) as f32).collect()
}

/// `(x - mean(x)) / sqrt(variance(x) + eps) * weight + bias`.
fn layer_norm(x: &[f32], weight: &[f32], bias: &[f32], eps: f64) -> Vec<f32> {
    let len = x.len() as f64;
    let mean = x.iter().map(|v| f64::from(*v)).sum::<f64>() / len;
    let variance = x.iter().map(|v| (f64::from(*v) - mean).powi(2)).sum::<f64>() / len;
    let scale = 1.0 / (variance + eps).sqrt();
    let normed = |((x, w), b): ((&f32, &f32), &f32)| {
        ((f64::from(*x) - mean) * scale * f64::from(*w) + f64::from(*b)) as f32
    };
    x.iter().zip(weight).zip(bias).map(normed).collect()
}

/// A tensor that the model has.
fn present<'m>(tensor: Option<TensorView<'m>>, name: &str) -> Result<TensorView<'m>> {
    tensor.ok_or_else(|| Error::MissingTensor { name: name.into() })
}

/// The product of a matrix with `x`: one number per row.
fn mat_vec(matrix: TensorView<'_>, x: &[f32]) -> Result<Vec<f32>> {
    mat_vec_rows(matrix, 0..matrix.rows(), x)
}

/// The product of some rows of a matrix with `x`.
fn mat_vec_rows(matrix: TensorView<'_>, rows: std::ops::Range<usize>, x: &[f32]) -> Result<Vec<f32>> {
    let row_buffer = || vec![0.0; matrix.row_len()];
    rows.into_par_iter()
        .map_init(row_buffer, |buffer, row| {
            matrix.dequantize_row(row, buffer)?;
            Ok(dot(buffer, x) as f32)
        })
        .collect()
}

/// Rotates the pairs of one head by `position * frequencies[j]`: values j and j + half if `halves`, else 2j
/// and
/// 2j + 1.
fn rotate(head: &mut [f32], position: usize, frequencies: &[f64], halves: bool) {
    for (j, frequency) in frequencies.iter().enumerate() {
        let (first, second) = if halves { (j, j + frequencies.len()) } else { (2 * j, 2 * j + 1) };
        let [a, b] = [head[first], head[second]].map(f64::from);
        let (sin, cos) = (position as f64 * frequency).sin_cos();
        (head[first], head[second]) = ((a * cos - b * sin) as f32, (a * sin + b * cos) as f32);
    }
}

/// `exp(s) / sum(exp(s))`, in range because the largest is subtracted.
pub(crate) fn softmax(scores: &[f64]) -> Vec<f64> {
    let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let exps: Vec<f64> = scores.iter().map(|s| (s - most).exp()).collect();
    let sum: f64 = exps.iter().sum();
    exps.iter().map(|e| e / sum).collect()
}
