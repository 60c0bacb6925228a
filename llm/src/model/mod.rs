//! A LLaMA model: its configuration and its tensors, checked when it is loaded.

pub(crate) mod config;
mod keys;

use std::collections::BTreeMap;

pub use config::{Config, llama3_factors};

use crate::error::{Error, Result};
use crate::gguf::{Gguf, TensorView};

/// A LLaMA model in a GGUF file.
///
/// Loading checks that every tensor exists with the shape that the configuration implies and that no other
/// tensor exists, so the accessors cannot fail. It does not check that kernels exist for the tensors' types.
#[derive(Debug)]
pub struct Model {
    /// Shape and constants.
    pub config: Config,
    /// The file: metadata (the tokenizer reads it) and tensor data.
    pub gguf: Gguf,
}

/// The tensors of one layer, all `[row length, rows]`.
#[derive(Clone, Copy, Debug)]
pub struct Layer<'a> {
    /// Norm before attention, `[hidden]`.
    pub attn_norm: TensorView<'a>,
    /// Query projection, `[hidden, heads * head_dim]`.
    pub q: TensorView<'a>,
    /// Key projection, `[hidden, kv_heads * head_dim]`.
    pub k: TensorView<'a>,
    /// Value projection, `[hidden, kv_heads * head_dim]`.
    pub v: TensorView<'a>,
    /// Attention output projection, `[heads * head_dim, hidden]`.
    pub o: TensorView<'a>,
    /// Norm before the feed-forward block, `[hidden]`.
    pub ffn_norm: TensorView<'a>,
    /// Gate projection, `[hidden, ff]`.
    pub gate: TensorView<'a>,
    /// Up projection, `[hidden, ff]`.
    pub up: TensorView<'a>,
    /// Down projection, `[ff, hidden]`.
    pub down: TensorView<'a>,
}

impl Model {
    /// Maps the GGUF file at `path` and checks it. The file must not change while the model is in use.
    ///
    /// # Errors
    /// As [`Gguf::open`] and [`Model::new`].
    pub fn open(path: impl AsRef<std::path::Path>) -> Result<Self> {
        Self::new(Gguf::open(path)?)
    }

    /// Reads the configuration from `gguf` and checks the tensors against it.
    ///
    /// # Errors
    /// The key or tensor that is missing, has another shape, or belongs to a model that is not supported;
    /// [`Error::UnknownKey`] for a key that may change the result and is not read.
    pub fn new(gguf: Gguf) -> Result<Self> {
        keys::check_kind(&gguf)?;
        let config = Config::from_gguf(&gguf)?;
        keys::check(&gguf, config.head_dim, config.context)?;
        let wanted = tensor_shapes(&config);
        for (name, expected) in &wanted {
            let Some(tensor) = gguf.tensor(name) else {
                if name == OUTPUT {
                    continue;
                }
                return Err(Error::MissingTensor { name: name.clone() });
            };
            // A vector may be stored with trailing dimensions of one.
            let found = tensor.dims;
            let trimmed = &found[..expected.len().min(found.len())];
            if trimmed != expected || found[trimmed.len()..].iter().any(|&d| d != 1) {
                let (expected, found) = (expected.clone(), found.to_vec());
                return Err(Error::TensorShape { name: name.clone(), expected, found });
            }
        }
        let known: std::collections::HashSet<&str> = wanted.iter().map(|(name, _)| name.as_str()).collect();
        let unknown = |name: &&str| !known.contains(*name) && *name != "rope_freqs.weight";
        if let Some(name) = gguf.tensors().iter().map(|t| t.name.as_str()).find(unknown) {
            return Err(Error::UnexpectedTensor { name: name.into() });
        }
        Ok(Self { config, gguf })
    }

    /// The tensor called `name`, if the file has it.
    pub fn tensor(&self, name: &str) -> Option<TensorView<'_>> {
        self.gguf.tensor(name)
    }

    /// The token embedding, `[hidden, vocab]`.
    pub fn embedding(&self) -> TensorView<'_> {
        self.checked("token_embd.weight")
    }

    /// The norm before the output matrix, `[hidden]`.
    pub fn output_norm(&self) -> TensorView<'_> {
        self.checked("output_norm.weight")
    }

    /// The output matrix, `[hidden, vocab]`: the embedding itself where the two are tied.
    pub fn output(&self) -> TensorView<'_> {
        self.tensor(OUTPUT).unwrap_or_else(|| self.embedding())
    }

    /// Whether the embedding also serves as the output matrix.
    pub fn is_tied(&self) -> bool {
        self.tensor(OUTPUT).is_none()
    }

    /// The tensors of layer `index`.
    ///
    /// # Panics
    /// If `index` is not below `config.layers`.
    pub fn layer(&self, index: usize) -> Layer<'_> {
        assert!(index < self.config.layers, "layer {index} of {}", self.config.layers);
        let tensor = |role| self.checked(&layer_tensor(index, role));
        Layer {
            attn_norm: tensor("attn_norm"),
            q: tensor("attn_q"),
            k: tensor("attn_k"),
            v: tensor("attn_v"),
            o: tensor("attn_output"),
            ffn_norm: tensor("ffn_norm"),
            gate: tensor("ffn_gate"),
            up: tensor("ffn_up"),
            down: tensor("ffn_down"),
        }
    }

    /// The name in the file's metadata, if it has one.
    pub fn name(&self) -> Option<&str> {
        self.gguf.text("general.name").ok().flatten()
    }

    /// The types of the matrices, the type with most bytes first: `Q4_K+Q6_K`.
    pub fn quantization(&self) -> String {
        let mut by_type: BTreeMap<_, u64> = BTreeMap::new();
        for tensor in self.gguf.tensors().iter().filter(|t| t.dims.len() > 1) {
            *by_type.entry(tensor.ty).or_default() += tensor.bytes;
        }
        let mut by_type: Vec<_> = by_type.into_iter().collect();
        by_type.sort_by_key(|&(_, bytes)| std::cmp::Reverse(bytes));
        let types: Vec<&str> = by_type.iter().map(|(ty, _)| ty.name()).collect();
        types.join("+")
    }

    /// Bytes of all tensor data.
    pub fn tensor_bytes(&self) -> u64 {
        self.gguf.tensors().iter().map(|t| t.bytes).sum()
    }

    /// A tensor that [`Model::new`] has checked.
    fn checked(&self, name: &str) -> TensorView<'_> {
        self.tensor(name).unwrap_or_else(|| unreachable!("{name} was checked when the model was loaded"))
    }
}

/// The output matrix; absent if it is tied to the embedding.
const OUTPUT: &str = "output.weight";

fn layer_tensor(layer: usize, role: &str) -> String {
    format!("blk.{layer}.{role}.weight")
}

/// Name and dimensions of every tensor of a model, in the order in which converters write them.
///
/// `output.weight` is listed although a tied model lacks it, `rope_freqs.weight` is not.
pub(crate) fn tensor_shapes(config: &Config) -> Vec<(String, Vec<u64>)> {
    let [hidden, ff, vocab] = [config.hidden, config.ff, config.vocab].map(|n| n as u64);
    let [q, kv] = [config.q_dim(), config.kv_dim()].map(|n| n as u64);
    let mut shapes = vec![("token_embd.weight".to_owned(), vec![hidden, vocab])];
    for i in 0..config.layers {
        let roles: [(&str, Vec<u64>); 9] = [
            ("attn_norm", vec![hidden]),
            ("attn_q", vec![hidden, q]),
            ("attn_k", vec![hidden, kv]),
            ("attn_v", vec![hidden, kv]),
            ("attn_output", vec![q, hidden]),
            ("ffn_norm", vec![hidden]),
            ("ffn_gate", vec![hidden, ff]),
            ("ffn_up", vec![hidden, ff]),
            ("ffn_down", vec![ff, hidden]),
        ];
        shapes.extend(roles.map(|(role, dims)| (layer_tensor(i, role), dims)));
    }
    shapes.push(("output_norm.weight".to_owned(), vec![hidden]));
    shapes.push((OUTPUT.to_owned(), vec![hidden, vocab]));
    shapes
}
