//! The reference's own reading of a file: keys and tensors. It shares no table with the engine: what both
//! read in common is not verified.

use crate::error::Result;
use crate::gguf::{Gguf, TensorView};

/// A file of one of the known architectures.
#[derive(Clone, Copy, Debug)]
pub(super) struct File<'m> {
    gguf: &'m Gguf,
    /// `general.architecture`, the prefix of the keys.
    name: &'m str,
}

impl<'m> File<'m> {
    pub fn new(gguf: &'m Gguf) -> Result<Self> {
        Ok(Self { gguf, name: gguf.text("general.architecture")?.unwrap_or_default() })
    }

    /// The tensor `role` of layer `layer`.
    pub fn of_layer(&self, layer: usize, role: &str) -> Option<TensorView<'m>> {
        self.gguf.tensor(&format!("blk.{layer}.{role}"))
    }

    /// The tensor `name`.
    pub fn tensor(&self, name: &str) -> Option<TensorView<'m>> {
        self.gguf.tensor(name)
    }

    /// Whether a head rotates its values j and j + half, instead of 2j and 2j + 1.
    pub fn rotates_halves(&self) -> bool {
        matches!(self.name, "qwen2" | "qwen3" | "qwen3moe" | "olmoe" | "phi3" | "gemma" | "gemma2" | "gemma3")
    }

    /// Whether layer `layer` leaves queries and keys as they are: each fourth of SmolLM3, from the third on.
    pub fn is_without_positions(&self, layer: usize) -> bool {
        self.name == "smollm3" && layer % 4 == 3
    }

    /// Whether the gate's activation is GELU, not SiLU.
    pub fn gates_by_gelu(&self) -> bool {
        self.name.starts_with("gemma")
    }

    /// The factor of embeddings of `width` values; a number in single precision.
    pub fn embedding_factor(&self, width: usize) -> f32 {
        if self.name.starts_with("gemma") { (width as f32).sqrt() } else { 1.0 }
    }

    /// The number by whose root scores are divided: the length of a head, but for the models of 27 billion
    /// weights.
    pub fn score_length(&self, head_dim: usize) -> Result<usize> {
        let of = |key: &str| self.gguf.uint(&format!("{}.{key}", self.name));
        let layers = of("block_count")?.unwrap_or_default();
        let width = of("embedding_length")?.unwrap_or_default() as usize;
        let heads = of("attention.head_count")?.unwrap_or(1) as usize;
        Ok(match (self.name, layers) {
            ("gemma2", 46) | ("gemma3", 62) => width / heads,
            _ => head_dim,
        })
    }

    /// Positions that layer `layer` sees, if it does not see all.
    pub fn window(&self, layer: usize) -> Result<Option<usize>> {
        let given = self.gguf.uint(&format!("{}.attention.sliding_window", self.name))?;
        let window = match self.name {
            "gemma2" if layer.is_multiple_of(2) => Some(given.unwrap_or(4096)),
            "gemma2" => None,
            "gemma3" if layer % 6 == 5 => None,
            _ => given,
        };
        Ok(window.filter(|window| *window > 0).map(|window| window as usize))
    }

    /// The caps of scores and of logits.
    pub fn caps(&self) -> Result<[Option<f64>; 2]> {
        let of = |key: &str| self.gguf.real(&format!("{}.{key}", self.name));
        let (scores, logits) = (of("attn_logit_softcapping")?, of("final_logit_softcapping")?);
        Ok(match self.name {
            "gemma2" => [Some(scores.unwrap_or(50.0)), Some(logits.unwrap_or(30.0))],
            _ => [None, logits.filter(|cap| *cap != 0.0)],
        })
    }

    /// Radians per position of each pair in layers with a window, where they are others than in the rest.
    pub fn window_frequencies(&self, head_dim: usize) -> Result<Option<Vec<f64>>> {
        if self.name != "gemma3" {
            return Ok(None);
        }
        let base = self.gguf.real("gemma3.rope.freq_base_swa")?.unwrap_or(10000.0);
        let dims = self.gguf.uint("gemma3.rope.dimension_count")?.unwrap_or(head_dim as u64);
        Ok(Some((0..dims / 2).map(|pair| base.powf(-(2.0 * pair as f64) / dims as f64)).collect()))
    }

    /// Experts that a token is sent to.
    pub fn experts_used(&self) -> Result<usize> {
        Ok(self.gguf.uint(&format!("{}.expert_used_count", self.name))?.unwrap_or_default() as usize)
    }

    /// Whether the shares of a token's experts are divided by their sum.
    pub fn normalizes_shares(&self) -> bool {
        matches!(self.name, "llama" | "qwen3moe")
    }

    /// Added to mean squares and variances.
    pub fn epsilon(&self) -> Result<f64> {
        let of = |key: &str| self.gguf.real(&format!("{}.attention.{key}", self.name));
        Ok(of("layer_norm_rms_epsilon")?.or(of("layer_norm_epsilon")?).unwrap_or_default())
    }

    /// The factor of rotated queries and keys.
    pub fn rotated_length(&self) -> Result<f64> {
        let key = |key: &str| format!("{}.rope.scaling.{key}", self.name);
        let yarn = self.gguf.text(&key("type"))? == Some("yarn");
        let factor = self.gguf.real(&key("factor"))?.filter(|_| yarn).unwrap_or(1.0);
        Ok((1.0 + 0.1 * factor.ln()) * self.gguf.real(&key("attn_factor"))?.unwrap_or(1.0))
    }

    /// The tensor of divisors of angles in texts of at most `context` positions.
    fn divisors(&self, context: usize) -> Result<Option<TensorView<'m>>> {
        if let Some(tensor) = self.tensor("rope_freqs.weight") {
            return Ok(Some(tensor));
        }
        let uint = |key: &str| self.gguf.uint(&format!("{}.{key}", self.name));
        let trained = uint("rope.scaling.original_context_length")?.or(uint("context_length")?);
        let long = trained.is_some_and(|trained| context as u64 > trained);
        Ok(self.tensor(if long { "rope_factors_long.weight" } else { "rope_factors_short.weight" }))
    }

    /// Radians per position of each rotating pair in texts of at most `context` positions.
    pub fn frequencies(&self, head_dim: usize, context: usize) -> Result<Vec<f64>> {
        let gguf = self.gguf;
        let key = |key: &str| format!("{}.rope.{key}", self.name);
        let real = |name: &str| gguf.real(&key(name));
        let base = real("freq_base")?.unwrap_or(10000.0);
        let dims = match self.tensor("position_embd.weight") {
            // Positions are learned.
            Some(_) => 0,
            None => gguf.uint(&key("dimension_count"))?.unwrap_or(head_dim as u64),
        };
        let tensor = self.divisors(context)?.map(|t| t.to_f32()).transpose()?;
        let kind = gguf.text(&key("scaling.type"))?;
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
                    let trained = gguf.uint(&key("scaling.original_context_length"))?.unwrap_or(0) as f64;
                    // Share of the unscaled frequency, by the turns within the trained context.
                    let turns = trained * plain / std::f64::consts::TAU;
                    let share = ((turns - low) / (high - low)).clamp(0.0, 1.0);
                    share * plain + (1.0 - share) * plain / factor.unwrap_or(1.0)
                }
                Some("yarn") => {
                    let long = gguf.uint(&format!("{}.context_length", self.name))?.unwrap_or(0);
                    let trained = gguf.uint(&key("scaling.original_context_length"))?.unwrap_or(long) as f64;
                    // The pairs, as real numbers, that turn 32 times and once within the trained context.
                    let [often, once] = [32.0, 1.0].map(|turns| {
                        dims as f64 / 2.0 * (trained / (std::f64::consts::TAU * turns)).ln() / base.ln()
                    });
                    let [often, once] = [often.floor().max(0.0), once.ceil().min(dims as f64 - 1.0)];
                    let kept = 1.0 - ((pair as f64 - often) / (once - often).max(0.001)).clamp(0.0, 1.0);
                    kept * plain + (1.0 - kept) * plain / factor.unwrap_or(1.0)
                }
                _ => plain / factor.or(real("scale_linear")?.filter(|f| *f != 0.0)).unwrap_or(1.0),
            })
        };
        (0..dims / 2).map(scaled).collect()
    }
}
