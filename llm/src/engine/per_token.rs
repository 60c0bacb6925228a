//! Launches that every lowering has: a row of values per token.

use hcq::{Args, Buffer, LaunchConfig};
use ptxgen::Params;

use crate::engine::launch::{Launch, filled};
use crate::engine::layers::{HeadNormMemory, LayerMemory, NormMemory, Product};
use crate::engine::matrix::fits;
use crate::engine::memory::DeviceModel;
use crate::engine::programs::Programs;
use crate::error::Result;
use crate::kernels::layers::{NAME, cap, heads, post_norm, rows};
use crate::kernels::limits::NO_WINDOW;
use crate::model::config::Config;

/// Launches for `tokens` tokens. Sums in parts are `[share][token][value]`.
#[derive(Clone, Copy, Debug)]
pub struct PerToken<'a> {
    /// The model.
    pub model: &'a DeviceModel,
    /// How many.
    pub tokens: u32,
}

impl PerToken<'_> {
    fn launch(
        self,
        programs: &mut Programs,
        (role, kernel): (&'static str, &str),
        (grid, threads): ((u32, u32), u32),
        args: Args,
    ) -> Result<Launch> {
        let kernel = programs.kernel(NAME, kernel)?;
        let config = filled(&kernel, LaunchConfig::new(grid, threads));
        Ok(Launch::new(role, kernel, config, args))
    }

    /// Multiplies embeddings by the model's factor, if it has one.
    pub fn scale(self, programs: &mut Programs, x: &Buffer) -> Result<Option<Launch>> {
        let Some(factor) = self.model.config.embedding_scale() else { return Ok(None) };
        let len = fits(self.model.config.hidden)?;
        let (blocks, args) = (len.div_ceil(rows::THREADS), rows::Scale { x, len, factor }.args());
        self.launch(programs, ("embedding", "scale"), ((blocks, self.tokens), rows::THREADS), args).map(Some)
    }

    /// Adds the vectors of learned positions, if the model has some; `state` begins with the first position.
    pub fn positions(self, programs: &mut Programs, x: &Buffer, state: &Buffer) -> Result<Option<Launch>> {
        let Some(positions) = &self.model.positions else { return Ok(None) };
        let (len, rows) = (fits(self.model.config.hidden)?, fits(self.model.config.context)?);
        let args = rows::AddPosition { x, positions, state, len, rows }.args();
        let blocks = len.div_ceil(rows::THREADS);
        self.launch(programs, ("embedding", "add_position"), ((blocks, self.tokens), rows::THREADS), args)
            .map(Some)
    }

    /// Adds a vector to the residual stream.
    pub fn add_bias(
        self,
        programs: &mut Programs,
        role: &'static str,
        x: &Buffer,
        bias: &Buffer,
    ) -> Result<Launch> {
        let len = fits(self.model.config.hidden)?;
        let (blocks, args) = (len.div_ceil(rows::THREADS), rows::AddBias { x, bias, len }.args());
        self.launch(programs, (role, "add_bias"), ((blocks, self.tokens), rows::THREADS), args)
    }

    /// Adds the norm of sums in `shares` parts, times `factor`, to the residual stream.
    pub fn post_norm(
        self,
        programs: &mut Programs,
        norm: &NormMemory,
        (x, sums): (&Buffer, &Buffer),
        (shares, factor): (u32, f32),
    ) -> Result<Launch> {
        let (len, eps) = (fits(self.model.config.hidden)?, self.model.config.norm_eps);
        let (weight, share_pitch) = (&norm.weight, self.tokens);
        let args = post_norm::PostNorm { sums, weight, x, len, eps, shares, share_pitch, factor }.args();
        self.launch(programs, (norm.role, "post_norm"), ((self.tokens, 1), post_norm::THREADS), args)
    }

    /// Adds biases to queries, keys and values in `shares` parts, and normalizes queries and keys, where the
    /// model does: the first part then has the sums. `None` if there is nothing to do.
    pub fn heads(
        self,
        programs: &mut Programs,
        p: &Product,
        norms: Option<&HeadNormMemory>,
        (qkv, shares): (&Buffer, u32),
    ) -> Result<Option<Launch>> {
        if p.bias.is_none() && norms.is_none() {
            return Ok(None);
        }
        let c = &self.model.config;
        let biased = p.bias.as_ref().map_or(0, |_| heads::BIASED);
        let normed = norms.map_or(0, |_| heads::NORMED);
        let (q_dim, kv_dim) = (fits(c.padded_q_dim())?, fits(c.padded_kv_dim())?);
        let [q_length, k_length] = norms.map_or([q_dim, kv_dim], |norms| norms.lengths);
        // Inputs that a flag leaves out are not read.
        let [q_norm, k_norm] = norms.map_or([qkv, qkv], |norms| norms.weights.each_ref());
        let bias = p.bias.as_ref().unwrap_or(qkv);
        let (eps, flags, share_pitch) = (c.norm_eps, biased | normed, self.tokens);
        let args = heads::PrepareHeads {
            qkv,
            bias,
            q_norm,
            k_norm,
            q_dim,
            kv_dim,
            q_length,
            k_length,
            shares,
            share_pitch,
            eps,
            flags,
        };
        let pieces = q_dim / q_length + kv_dim / k_length + 1;
        self.launch(programs, (p.role, "prepare_heads"), ((pieces, self.tokens), heads::THREADS), args.args())
            .map(Some)
    }

    /// Caps the logits of all tokens, where the model does.
    pub fn cap(self, programs: &mut Programs, logits: &Buffer) -> Result<Option<Launch>> {
        let Some(cap) = self.model.config.logit_cap else { return Ok(None) };
        let count = self.tokens * fits(self.model.config.vocab)?;
        let (blocks, args) = (count.div_ceil(cap::THREADS), cap::Cap { logits, count, cap }.args());
        self.launch(programs, ("output", "cap"), ((blocks, 1), cap::THREADS), args).map(Some)
    }
}

/// The window and the cap of the scores of a layer, as kernels with limits take them; both are `None` for one
/// without.
pub fn limits(c: &Config, layer: &LayerMemory) -> (Option<u32>, Option<f32>) {
    let limited = layer.window.is_some() || c.score_cap.is_some();
    limited.then(|| (layer.window.unwrap_or(NO_WINDOW), c.score_cap.unwrap_or(0.0))).unzip()
}
