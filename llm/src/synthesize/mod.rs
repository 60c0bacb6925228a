//! Models of real shapes with random weights, for benchmarks: the time of a token depends on shapes and
//! formats alone.
//!
//! Weights are drawn as quantized blocks, with a spread that keeps activations near 1 through all layers, so
//! logits are finite and not flat. Names and keys are those of converters, so llama.cpp loads the files.
//! Every tensor has its own random sequence, and the file for a seed is the same on every machine.

mod blocks;
mod shapes;
mod vocabulary;

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::str::FromStr;

use rayon::prelude::*;

use crate::error::{Error, Result};
use crate::gguf::Gguf;
use crate::gguf::value::{Array, Value};
use crate::gguf::write::{TensorWriter, Writer};
use crate::model::Model;
use crate::model::architecture::{Norm, Rotation};
use crate::model::config::Config;
use crate::model::tensors;
use crate::tensor_type::GgmlType;

/// The choice of tensor types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// One type for all matrices; below six bits the output matrix is Q6_K, as in llama.cpp's quantizer.
    Uniform(GgmlType),
    /// llama.cpp's `Q4_K_M` and `Q5_K_M`: Q6_K for the output and for `attn_v` and `ffn_down` of about half
    /// the layers.
    Medium(GgmlType),
}

/// A shape and a mix, written `llama-3.2-1b:q6_k`.
#[derive(Clone, Debug, PartialEq)]
pub struct Synthesis {
    name: String,
    config: Box<Config>,
    tied: bool,
    mix: Mix,
}

/// The shapes: published dimensions of the models that they are named after, and tiny ones.
pub const SHAPES: &[&str] = &shapes::NAMES;
/// The mixes.
pub const MIXES: [&str; 25] = [
    "q6_k", "q4_k_m", "q5_k_m", "q4_k", "q5_k", "q8_0", "q4_0", "f16", "bf16", "f32", "q4_1", "q5_0", "q5_1",
    "q2_k", "q3_k", "iq4_nl", "iq4_xs", "mxfp4", "iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs",
    "iq3_s",
];

impl FromStr for Synthesis {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let unknown =
            || Error::Synthesis { text: text.into(), shapes: SHAPES.join(", "), mixes: MIXES.join(", ") };
        let (shape, mix) = text.split_once(':').ok_or_else(unknown)?;
        let mix = mix.to_ascii_lowercase();
        let medium = mix.strip_suffix("_k_m").map(|bits| format!("{bits}_k"));
        let ty = GgmlType::from_name(medium.as_ref().unwrap_or(&mix));
        let ty = ty.filter(|_| MIXES.contains(&mix.as_str())).ok_or_else(unknown)?;
        let (config, tied) = shapes::config(shape).ok_or_else(unknown)?;
        let mix = if medium.is_some() { Mix::Medium(ty) } else { Mix::Uniform(ty) };
        let synthesis = Self { name: text.into(), config: Box::new(config), tied, mix };
        let partial = synthesis.tensors().into_iter().find_map(|(name, ty, dims, _)| {
            let (row, block) = (dims[0], ty.block_values());
            (!row.is_multiple_of(block)).then_some(Error::PartialBlock { name, ty, row, block })
        });
        partial.map_or(Ok(synthesis), Err)
    }
}

impl Mix {
    /// The type of the matrix with `role` in layer `layer` of `layers`.
    fn pick(self, role: &str, layer: usize, layers: usize) -> GgmlType {
        let eighth = layers / 8;
        let more_bits = layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2;
        match self {
            Self::Medium(_) if role == "output" => GgmlType::Q6K,
            Self::Medium(_) if matches!(role, "attn_v" | "ffn_down") && more_bits => GgmlType::Q6K,
            Self::Uniform(GgmlType::Q4K | GgmlType::Q5K | GgmlType::Q4_0) if role == "output" => {
                GgmlType::Q6K
            }
            Self::Uniform(ty) | Self::Medium(ty) => ty,
        }
    }

    /// `general.file_type` (`enum llama_ftype` of llama.cpp).
    fn file_type(self) -> u32 {
        match self {
            Self::Uniform(GgmlType::F32) => 0,
            Self::Uniform(GgmlType::F16) => 1,
            Self::Uniform(GgmlType::Q4_0) => 2,
            Self::Uniform(GgmlType::Q4_1) => 3,
            Self::Uniform(GgmlType::Q5_0) => 8,
            Self::Uniform(GgmlType::Q5_1) => 9,
            Self::Uniform(GgmlType::Q2K) => 10,
            Self::Uniform(GgmlType::Q3K) => 11,
            Self::Uniform(GgmlType::Iq2Xxs) => 19,
            Self::Uniform(GgmlType::Iq2Xs) => 20,
            Self::Uniform(GgmlType::Iq3Xxs) => 23,
            Self::Uniform(GgmlType::Iq1S) => 24,
            Self::Uniform(GgmlType::Iq4Nl) => 25,
            Self::Uniform(GgmlType::Iq3S) => 26,
            Self::Uniform(GgmlType::Iq2S) => 28,
            Self::Uniform(GgmlType::Iq1M) => 31,
            Self::Uniform(GgmlType::Iq4Xs) => 30,
            Self::Uniform(GgmlType::Mxfp4) => 38,
            Self::Uniform(GgmlType::Q8_0) => 7,
            Self::Uniform(GgmlType::Q4K) => 14,
            Self::Medium(GgmlType::Q4K) => 15,
            Self::Uniform(GgmlType::Q5K) => 16,
            Self::Uniform(GgmlType::Bf16) => 32,
            Self::Medium(_) => 17,
            Self::Uniform(_) => 18,
        }
    }
}

/// The values of a tensor.
#[derive(Clone, Copy, Debug)]
enum Fill<'a> {
    /// Nearly normal, with mean 0 and this standard deviation.
    Random(f32),
    /// Uniform between 0.7 and 1.3 times this.
    Norm(f32),
    /// These.
    Exact(&'a [f32]),
}

impl Synthesis {
    /// Sets other sizes: layers, and the lengths of the residual and the feed-forward vector.
    #[must_use]
    pub fn with_sizes(mut self, layers: usize, hidden: usize, ff: usize) -> Self {
        self.config = Box::new(Config { layers, hidden, ff, ..*self.config });
        self
    }

    /// Sets another number of query heads, a multiple of that of keys.
    #[must_use]
    pub fn with_heads(mut self, heads: usize) -> Self {
        self.config = Box::new(Config { heads, ..*self.config });
        self
    }

    /// Sets another length of a head's vector, which rotates whole, without factors.
    #[must_use]
    pub fn with_head_dim(mut self, head_dim: usize) -> Self {
        let config = Config { head_dim, rope_dim: head_dim, rope_factors: None, ..*self.config };
        self.config = Box::new(config);
        self
    }

    /// Shape and constants.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Bytes of all tensor data.
    pub fn tensor_bytes(&self) -> u64 {
        let bytes = |ty: GgmlType, dims: &[u64]| ty.bytes_for(dims.iter().product()).unwrap_or(0);
        self.tensors().iter().map(|(_, ty, dims, _)| bytes(*ty, dims)).sum()
    }

    /// The tensors: name, type, dimensions and values.
    fn tensors(&self) -> Vec<(String, GgmlType, Vec<u64>, Fill<'_>)> {
        let c = &self.config;
        let mut all = Vec::new();
        if let Some(factors) = &c.rope_factors {
            let dims = vec![factors.len() as u64];
            all.push(("rope_freqs.weight".to_owned(), GgmlType::F32, dims, Fill::Exact(factors)));
        }
        for (name, dims) in tensors::shapes(c) {
            let stem = name.trim_end_matches(".weight");
            let (layer, role) = match stem.strip_prefix("blk.").and_then(|rest| rest.split_once('.')) {
                Some((layer, role)) => (layer.parse().unwrap_or(0), role.to_owned()),
                None => (0, stem.to_owned()),
            };
            // Tied: a small embedding and a large last gain, so that a token does not predict itself.
            let (small, logit) = (0.3, 2.2);
            let spread = |gain: f32| Fill::Random(gain / (dims[0] as f32).sqrt());
            let pick = |role: &str| self.mix.pick(role, layer, c.layers);
            let (ty, fill) = match role.as_str() {
                "token_embd" => (pick(if self.tied { "output" } else { "token_embd" }), spread(small)),
                "output" if self.tied => continue,
                "output" => (pick("output"), spread(logit)),
                "output_norm" if self.tied => (GgmlType::F32, Fill::Norm(logit / small)),
                norm if norm.ends_with("_norm") => (GgmlType::F32, Fill::Norm(1.0)),
                // Scores far enough apart that rounding seldom changes the choice of experts.
                "ffn_gate_inp" => (GgmlType::F32, spread(3.0)),
                "position_embd" => (GgmlType::F32, spread(small)),
                biased if biased.ends_with(".bias") => (GgmlType::F32, Fill::Random(0.2)),
                "attn_output" | "ffn_down" | "ffn_down_exps" => (pick(&role), spread(0.9)),
                _ => (pick(&role), spread(1.0)),
            };
            all.push((name, ty, dims, fill));
        }
        all
    }

    /// Metadata of the file.
    fn header(&self) -> Writer {
        let c = &self.config;
        let mut w = Writer::new();
        let a = c.architecture;
        let number = |n: usize| Value::U32(n as u32);
        w.key("general.architecture", Value::String(a.name.into()));
        w.key("general.name", Value::String(format!("synthetic {}", self.name)));
        w.key("general.file_type", Value::U32(self.mix.file_type()));
        w.key("general.quantization_version", Value::U32(2));
        let mut key = |name: &str, value: Value| w.key(a.key(name), value);
        key("context_length", number(c.context));
        key("embedding_length", number(c.hidden));
        key("block_count", number(c.layers));
        key(a.ff_length(c.experts > 0), number(c.ff));
        if c.experts > 0 {
            key("expert_count", number(c.experts));
            key("expert_used_count", number(c.experts_used));
        }
        key("attention.head_count", number(c.heads));
        key("attention.head_count_kv", number(c.kv_heads));
        key("attention.key_length", number(c.head_dim));
        key("attention.value_length", number(c.head_dim));
        match a.norm {
            Norm::Rms => key("attention.layer_norm_rms_epsilon", Value::F32(c.norm_eps)),
            Norm::Layer => key("attention.layer_norm_epsilon", Value::F32(c.norm_eps)),
        }
        if a.rotation != Rotation::None {
            key("rope.freq_base", Value::F32(c.rope_base));
            key("rope.dimension_count", number(c.rope_dim));
        }
        if let Some(window) = c.window {
            key("attention.sliding_window", number(window.positions));
        }
        let caps = [("attn_logit_softcapping", c.score_cap), ("final_logit_softcapping", c.logit_cap)];
        caps.into_iter()
            .filter_map(|(name, cap)| Some((name, cap?)))
            .for_each(|(n, cap)| key(n, Value::F32(cap)));
        key("vocab_size", number(c.vocab));
        let v = vocabulary::Vocabulary::new(c.vocab);
        w.key("tokenizer.ggml.model", Value::String("gpt2".into()));
        w.key("tokenizer.ggml.pre", Value::String("llama-bpe".into()));
        w.key("tokenizer.ggml.tokens", Value::Array(Array::String(v.tokens)));
        w.key("tokenizer.ggml.token_type", Value::Array(Array::I32(v.types)));
        w.key("tokenizer.ggml.merges", Value::Array(Array::String(v.merges)));
        w.key("tokenizer.ggml.bos_token_id", Value::U32(v.bos));
        w.key("tokenizer.ggml.eos_token_id", Value::U32(v.eos));
        w.key("tokenizer.ggml.eot_token_id", Value::U32(v.eot));
        w.key("tokenizer.ggml.add_bos_token", Value::Bool(true));
        w
    }

    /// The model for `seed`, in memory.
    ///
    /// # Errors
    /// As [`Model::new`], for sizes that make no model.
    pub fn model(&self, seed: u64) -> Result<Model> {
        let mut bytes = Vec::new();
        let failed = |source| Error::File { action: "write", path: self.name.clone().into(), source };
        self.write(seed, &mut bytes, &mut |_, _| ()).map_err(failed)?;
        Model::new(Gguf::from_bytes(bytes)?)
    }

    /// Writes the model to `out`; `progress` is called with the bytes written so far and in all. Memory use
    /// does not depend on the size of the model.
    ///
    /// # Errors
    /// The errors of `out`.
    pub fn write(
        &self,
        seed: u64,
        out: impl io::Write,
        progress: &mut dyn FnMut(u64, u64),
    ) -> io::Result<()> {
        let tensors = self.tensors();
        let mut header = self.header();
        for (name, ty, dims, _) in &tensors {
            header.tensor(name, *ty, dims);
        }
        let total = header.file_bytes();
        let mut done = 0;
        let mut out = header.begin(out)?;
        for (name, ty, dims, fill) in &tensors {
            let values = dims.iter().product::<u64>();
            match *fill {
                Fill::Exact(values) => out.write(&le_bytes(values))?,
                Fill::Norm(gain) => out.write(&le_bytes(&blocks::norm(seed, name, values as usize, gain)))?,
                Fill::Random(sigma) => {
                    let count = values / ty.block_values();
                    write_blocks(&mut out, seed, name, *ty, count, sigma, &mut |bytes| {
                        done += bytes;
                        progress(done, total);
                    })?;
                }
            }
        }
        out.finish()?;
        progress(total, total);
        Ok(())
    }

    /// Writes the model to the file `path`, which exists only once it is complete.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn write_file(&self, seed: u64, path: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
        let failed = |action| move |source| Error::File { action, path: path.to_owned(), source };
        // A file takes the place of a file, never that of a device, a folder or a link.
        let target = match std::fs::metadata(path) {
            Ok(there) if !there.is_file() => {
                let source = io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file");
                return Err(failed("replace")(source));
            }
            Ok(_) => path.canonicalize().map_err(failed("find"))?,
            Err(_) => path.to_owned(),
        };
        let folder =
            target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        // Less the umask, as of any other file.
        let mode = Permissions::from_mode(0o666);
        let partial =
            tempfile::Builder::new().permissions(mode).tempfile_in(folder).map_err(failed("create"))?;
        self.write(seed, partial.as_file(), progress).map_err(failed("write"))?;
        partial.persist(&target).map(drop).map_err(|error| failed("rename")(error.error))
    }
}

fn le_bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

/// Blocks per stream of a tensor's random sequence.
const CHUNK_BLOCKS: u64 = 1 << 14;

/// Writes `count` random blocks, drawn by all cores.
fn write_blocks(
    out: &mut TensorWriter<impl io::Write>,
    seed: u64,
    name: &str,
    ty: GgmlType,
    count: u64,
    sigma: f32,
    progress: &mut dyn FnMut(u64),
) -> io::Result<()> {
    let chunks = count.div_ceil(CHUNK_BLOCKS);
    let step = rayon::current_num_threads() as u64;
    for first in (0..chunks).step_by(step as usize) {
        let made: Vec<Vec<u8>> = (first..chunks.min(first + step))
            .into_par_iter()
            .map(|chunk| {
                let blocks = CHUNK_BLOCKS.min(count - chunk * CHUNK_BLOCKS);
                blocks::random(seed, name, chunk, ty, blocks as usize, sigma)
            })
            .collect();
        for bytes in &made {
            out.write(bytes)?;
            progress(bytes.len() as u64);
        }
    }
    Ok(())
}
