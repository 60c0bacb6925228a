//! The tensors of an architecture: their names and shapes, and those of a layer.

use crate::gguf::TensorView;
use crate::model::architecture::{Biases, HeadNorms, Norm};
use crate::model::config::{Config, OUTPUT_BIAS};
use crate::model::scaling::{LONG_FACTORS, ROPE_FACTORS};

/// The output matrix; absent if it is tied to the embedding.
pub const OUTPUT: &str = "output.weight";
/// The vectors of learned positions.
pub const POSITIONS: &str = "position_embd.weight";
/// The norms of the results of attention and of the feed-forward block.
pub const POST_NORMS: [&str; 2] = ["post_attention_norm.weight", "post_ffw_norm.weight"];

/// A matrix or the weights of a norm, and what is added to its results.
#[derive(Clone, Copy, Debug)]
pub struct Affine<'a> {
    /// The matrix.
    pub weight: TensorView<'a>,
    /// The vector added, if the architecture has it: one number per result.
    pub bias: Option<TensorView<'a>>,
}

/// The tensors of one layer; matrices are `[row length, rows]`.
#[derive(Clone, Debug)]
pub struct Layer<'a> {
    /// Norm before attention, `[hidden]`.
    pub attn_norm: Affine<'a>,
    /// Query projection, `[hidden, heads * head_dim]`.
    pub q: Affine<'a>,
    /// Key projection, `[hidden, kv_heads * head_dim]`.
    pub k: Affine<'a>,
    /// Value projection, `[hidden, kv_heads * head_dim]`.
    pub v: Affine<'a>,
    /// Norms of queries and of keys, `[head_dim]`, or of all heads together.
    pub head_norms: Option<[TensorView<'a>; 2]>,
    /// Attention output projection, `[heads * head_dim, hidden]`.
    pub o: Affine<'a>,
    /// Norm before the feed-forward block, `[hidden]`.
    pub ffn_norm: Affine<'a>,
    /// The feed-forward block.
    pub ff: FeedForward<'a>,
    /// Norms of the results of attention and of the feed-forward block, `[hidden]`.
    pub post_norms: Option<[TensorView<'a>; 2]>,
}

/// The feed-forward block of a layer.
#[derive(Clone, Debug)]
pub enum FeedForward<'a> {
    /// One for all tokens.
    Dense {
        /// Gate projection, `[hidden, ff]`; none if the activation has no gate.
        gate: Option<TensorView<'a>>,
        /// Up projection, `[hidden, ff]`.
        up: Affine<'a>,
        /// Down projection, `[ff, hidden]`.
        down: Affine<'a>,
    },
    /// A mixture of experts.
    Experts {
        /// Scores of the experts, `[hidden, experts]`.
        router: TensorView<'a>,
        /// Gate projections, `[hidden, ff, experts]`; or one of each expert, `[hidden, ff]`.
        gate: Vec<TensorView<'a>>,
        /// Up projections, likewise.
        up: Vec<TensorView<'a>>,
        /// Down projections, `[ff, hidden, experts]`, likewise.
        down: Vec<TensorView<'a>>,
    },
}

/// Dimensions of the parts of fused tensors: row length and rows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts {
    pub q: [u64; 2],
    pub kv: [u64; 2],
    pub ff: [u64; 2],
}

impl Parts {
    pub fn new(c: &Config) -> Self {
        let of = |rows: usize| [c.hidden as u64, rows as u64];
        Self { q: of(c.q_dim()), kv: of(c.kv_dim()), ff: of(c.ff) }
    }
}

impl<'a> Affine<'a> {
    /// The rows from `first` on that `part` has, with their biases.
    pub(super) fn part(self, first: u64, part: &'a [u64; 2]) -> Self {
        let cut = |t: TensorView<'a>, dims: &'a [u64], values: u64| {
            // Rows are whole blocks, and biases are no blocks: both are checked with the model.
            let bytes = |values: u64| t.ty.bytes_for(values).unwrap_or_default() as usize;
            TensorView { dims, data: &t.data[bytes(first * values)..][..bytes(part[1] * values)], ..t }
        };
        let bias = self.bias.map(|bias| cut(bias, &part[1..], 1));
        Self { weight: cut(self.weight, part, part[0]), bias }
    }
}

/// The name of a tensor of layer `layer`.
pub fn of_layer(layer: usize, role: &str) -> String {
    format!("blk.{layer}.{role}")
}

/// Name and dimensions of every tensor of a model, in the order in which converters write them.
///
/// [`OUTPUT`] is listed although a tied model lacks it; what is [`optional`] is not.
pub fn shapes(c: &Config) -> Vec<(String, Vec<u64>)> {
    let [hidden, vocab] = [c.hidden, c.vocab].map(|n| n as u64);
    let mut shapes = vec![("token_embd.weight".to_owned(), vec![hidden, vocab])];
    if c.architecture.learned_positions {
        shapes.push((POSITIONS.to_owned(), vec![hidden, c.context as u64]));
    }
    for i in 0..c.layers {
        shapes.extend(layer_shapes(c).into_iter().map(|(role, dims)| (of_layer(i, &role), dims)));
    }
    shapes.extend(norm_shapes(c, "output_norm"));
    shapes.push((OUTPUT.to_owned(), vec![hidden, vocab]));
    shapes
}

/// Name and dimensions of every tensor that a file may have or lack.
pub fn optional(c: &Config) -> Vec<(String, Vec<u64>)> {
    let pairs = vec![c.rope_dim as u64 / 2];
    let factors = if c.rope_long.is_some() { &LONG_FACTORS[..] } else { &[ROPE_FACTORS][..] };
    let mut all: Vec<_> = factors.iter().map(|name| ((*name).to_owned(), pairs.clone())).collect();
    if c.architecture.biases == Biases::OfFile {
        let [hidden, q, kv] = [c.hidden, c.q_dim(), c.kv_dim()].map(|n| vec![n as u64]);
        let biases =
            [("attn_q.bias", q), ("attn_k.bias", kv.clone()), ("attn_v.bias", kv), (OUTPUT_BIAS, hidden)];
        let of = |layer| biases.clone().map(|(role, dims)| (of_layer(layer, role), dims));
        all.extend((0..c.layers).flat_map(of));
    }
    all
}

/// The name of the tensor of one expert, where tensor `name` is of all; `None` if it is another tensor.
pub fn of_expert(name: &str, expert: usize) -> Option<String> {
    name.strip_suffix("_exps.weight").map(|role| format!("{role}.{expert}.weight"))
}

fn norm_shapes(c: &Config, role: &str) -> Vec<(String, Vec<u64>)> {
    let dims = vec![c.hidden as u64];
    let mut shapes = vec![(format!("{role}.weight"), dims.clone())];
    if c.architecture.norm == Norm::Layer {
        shapes.push((format!("{role}.bias"), dims));
    }
    shapes
}

/// The tensors of a layer.
fn layer_shapes(c: &Config) -> Vec<(String, Vec<u64>)> {
    let a = c.architecture;
    let [hidden, ff, q, kv] = [c.hidden, c.ff, c.q_dim(), c.kv_dim()].map(|n| n as u64);
    let mut shapes = norm_shapes(c, "attn_norm");
    let matrix = |role: &str, cols: u64, rows: u64, biased: bool, into: &mut Vec<_>| {
        into.push((format!("{role}.weight"), vec![cols, rows]));
        if biased {
            into.push((format!("{role}.bias"), vec![rows]));
        }
    };
    let all = a.biases == Biases::All;
    let separate = [("attn_q", q), ("attn_k", kv), ("attn_v", kv)];
    let fused = [("attn_qkv", q + 2 * kv)];
    for (role, rows) in if a.fused_qkv { &fused[..] } else { &separate[..] } {
        matrix(role, hidden, *rows, all || a.biases == Biases::Heads, &mut shapes);
    }
    let [of_q, of_k] = match a.head_norms {
        HeadNorms::None => [0, 0],
        HeadNorms::Each => [c.head_dim as u64; 2],
        HeadNorms::All => [q, kv],
    };
    if a.head_norms != HeadNorms::None {
        shapes.push(("attn_q_norm.weight".into(), vec![of_q]));
        shapes.push(("attn_k_norm.weight".into(), vec![of_k]));
    }
    matrix("attn_output", q, hidden, all, &mut shapes);
    if a.post_norms {
        let [of_attention, of_ff] = POST_NORMS;
        shapes.extend([(of_attention.into(), vec![hidden]), (of_ff.into(), vec![hidden])]);
    }
    shapes.extend(norm_shapes(c, "ffn_norm"));
    if c.experts > 0 {
        let experts = c.experts as u64;
        matrix("ffn_gate_inp", hidden, experts, false, &mut shapes);
        for (role, cols, rows) in [("gate", hidden, ff), ("up", hidden, ff), ("down", ff, hidden)] {
            shapes.push((format!("ffn_{role}_exps.weight"), vec![cols, rows, experts]));
        }
        return shapes;
    }
    if a.activation.is_gated() && !a.fused_gate_up {
        matrix("ffn_gate", hidden, ff, false, &mut shapes);
    }
    matrix("ffn_up", hidden, if a.fused_gate_up { 2 * ff } else { ff }, all, &mut shapes);
    matrix("ffn_down", ff, hidden, all, &mut shapes);
    shapes
}
