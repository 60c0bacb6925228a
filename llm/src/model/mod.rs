//! A model: its configuration and its tensors, checked when it is loaded.

pub mod architecture;
pub(crate) mod config;
mod keys;
mod pooling;
mod scaling;
pub(crate) mod tensors;
mod values;
pub(crate) mod window;
mod yarn;

use std::collections::{BTreeMap, HashMap};

pub use architecture::Architecture;
pub use config::Config;
pub use pooling::Pooling;
pub use scaling::{LongFactors, llama3_factors};
pub use tensors::{Affine, FeedForward, Layer};
pub use window::Window;

use crate::error::{Error, Result};
use crate::gguf::{Gguf, TensorView};
use crate::model::tensors::{OUTPUT, POSITIONS, POST_NORMS, Parts, of_expert, of_layer, optional, shapes};

/// A model in a GGUF file.
///
/// Loading checks that every tensor exists with the shape that the configuration implies and that no other
/// tensor exists, so the accessors cannot fail. It does not check that kernels exist for the tensors' types.
#[derive(Debug)]
pub struct Model {
    /// Shape and constants.
    pub config: Config,
    /// The file: metadata (the tokenizer reads it) and tensor data.
    pub gguf: Gguf,
    parts: Parts,
}

impl Model {
    /// Maps the GGUF file at `path`, and the others of a split model, and checks it. The files must not change
    /// while the model is in use.
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
        keys::check(&gguf, &config)?;
        let wanted: Vec<_> = shapes(&config).into_iter().flat_map(|shape| in_file(&gguf, shape)).collect();
        let absent = wanted.iter().find(|(name, _)| name != OUTPUT && gguf.tensor(name).is_none());
        if let Some((name, _)) = absent {
            return Err(Error::MissingTensor { name: name.clone() });
        }
        let known: HashMap<String, Vec<u64>> = wanted.into_iter().chain(optional(&config)).collect();
        for tensor in gguf.tensors() {
            let Some(expected) = known.get(&tensor.name) else {
                let architecture = config.architecture.name;
                return Err(Error::UnexpectedTensor { name: tensor.name.clone(), architecture });
            };
            // A vector may be stored with trailing dimensions of one.
            let found = &tensor.dims;
            let trimmed = &found[..expected.len().min(found.len())];
            if trimmed != expected || found[trimmed.len()..].iter().any(|&d| d != 1) {
                let (name, expected, found) = (tensor.name.clone(), expected.clone(), found.clone());
                return Err(Error::TensorShape { name, expected, found });
            }
        }
        if let Some(tensor) =
            gguf.tensors().iter().find(|t| t.name.ends_with(".bias") && t.ty.block_values() > 1)
        {
            return Err(Error::UnsupportedType { name: tensor.name.clone(), ty: tensor.ty });
        }
        let parts = Parts::new(&config);
        Ok(Self { config, gguf, parts })
    }

    /// The way in which the file says that hidden states become the embedding of a text, if it does.
    ///
    /// # Errors
    /// [`Error::KeyValue`] for a key that is no number.
    pub fn pooling(&self) -> Result<Option<Pooling>> {
        Pooling::of(&self.gguf, self.config.architecture)
    }

    /// The tensor called `name`, if the file has it.
    pub fn tensor(&self, name: &str) -> Option<TensorView<'_>> {
        self.gguf.tensor(name)
    }

    /// The token embedding, `[hidden, vocab]`.
    pub fn embedding(&self) -> TensorView<'_> {
        self.checked("token_embd.weight")
    }

    /// The vectors of learned positions, `[hidden, context]`, if the architecture has them.
    pub fn positions(&self) -> Option<TensorView<'_>> {
        self.tensor(POSITIONS)
    }

    /// The norm before the output matrix, `[hidden]`.
    pub fn output_norm(&self) -> Affine<'_> {
        self.affine("output_norm")
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
        let tensor = |role: &str| self.tensor(&of_layer(index, role));
        let affine = |role: &str| self.affine(&of_layer(index, role));
        let norms = [tensor("attn_q_norm.weight"), tensor("attn_k_norm.weight")];
        let a = self.config.architecture;
        let (Parts { q, kv, ff }, qkv) = (&self.parts, a.fused_qkv.then(|| affine("attn_qkv")));
        let [q, k, v] = match qkv {
            None => ["attn_q", "attn_k", "attn_v"].map(affine),
            Some(all) => [all.part(0, q), all.part(q[1], kv), all.part(q[1] + kv[1], kv)],
        };
        let ff = if self.config.experts > 0 {
            let all = |role: &str| self.experts(&of_layer(index, &format!("ffn_{role}_exps.weight")));
            let [gate, up, down] = ["gate", "up", "down"].map(all);
            FeedForward::Experts {
                router: self.checked(&of_layer(index, "ffn_gate_inp.weight")),
                gate,
                up,
                down,
            }
        } else if a.fused_gate_up {
            let both = affine("ffn_up");
            let (gate, up) = (both.part(0, ff), both.part(ff[1], ff));
            FeedForward::Dense { gate: Some(gate.weight), up, down: affine("ffn_down") }
        } else {
            let gate = tensor("ffn_gate.weight");
            FeedForward::Dense { gate, up: affine("ffn_up"), down: affine("ffn_down") }
        };
        Layer {
            attn_norm: affine("attn_norm"),
            q,
            k,
            v,
            head_norms: if let [Some(q), Some(k)] = norms { Some([q, k]) } else { None },
            o: affine("attn_output"),
            ffn_norm: affine("ffn_norm"),
            ff,
            post_norms: a.post_norms.then(|| POST_NORMS.map(|role| self.checked(&of_layer(index, role)))),
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

    /// A matrix or a norm that [`Model::new`] has checked, with its bias if it has one.
    fn affine(&self, name: &str) -> Affine<'_> {
        Affine { weight: self.checked(&format!("{name}.weight")), bias: self.tensor(&format!("{name}.bias")) }
    }

    /// The tensor `name` of all experts, or those of each.
    fn experts(&self, name: &str) -> Vec<TensorView<'_>> {
        let each = |expert| self.tensor(&of_expert(name, expert)?);
        self.tensor(name).map_or_else(|| (0..self.config.experts).filter_map(each).collect(), |all| vec![all])
    }

    /// A tensor that [`Model::new`] has checked.
    fn checked(&self, name: &str) -> TensorView<'_> {
        self.tensor(name).unwrap_or_else(|| unreachable!("{name} was checked when the model was loaded"))
    }
}

/// A tensor as the file has it: files before April 2024 have one for each expert (`blk.0.ffn_up.7.weight`). If one
/// of these is missing, it alone.
fn in_file(gguf: &Gguf, (name, dims): (String, Vec<u64>)) -> Vec<(String, Vec<u64>)> {
    match (&dims[..], of_expert(&name, 0)) {
        (&[cols, rows, experts], Some(first)) if gguf.tensor(&first).is_some() => {
            let of = |expert| (of_expert(&name, expert).unwrap_or_default(), vec![cols, rows]);
            let lacks = |(name, _): &(String, Vec<u64>)| gguf.tensor(name).is_none();
            let all = || (0..experts as usize).map(of);
            all().find(lacks).map_or_else(|| all().collect(), |missing| vec![missing])
        }
        _ => vec![(name, dims)],
    }
}
