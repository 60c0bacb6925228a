//! Launches of a mixture of experts for the tokens of a chunk.

use std::ops::Range;

use hcq::{Args, Buffer, LaunchConfig};
use ptxgen::Params;

use crate::engine::launch::{Launch, filled};
use crate::engine::layers::Experts;
use crate::engine::matrix::{Matrix, fits};
use crate::engine::memory::DeviceModel;
use crate::engine::programs::Programs;
use crate::engine::prompt::activations::{Activations, ExpertActivations};
use crate::engine::prompt::products::experts_together;
use crate::error::Result;
use crate::kernels::mixture::{NAME, PromptRoute, combine, gather, product, scores};
use crate::kernels::prompt::gemm::{Output, Tile};
use crate::model::config::Config;

/// A mixture of experts of a layer, for a chunk of up to `tokens` tokens.
pub struct Mixture<'a> {
    config: &'a Config,
    m: &'a Activations,
    own: &'a ExpertActivations,
    tokens: u32,
    experts: &'a Experts,
    /// The factor of activated vectors.
    factor: f32,
    tile: Tile,
}

/// The product of all entries with one matrix per expert.
pub struct ExpertProduct<'a> {
    pub role: &'static str,
    /// Gate and up, or down: the rows of all experts.
    pub matrices: Vec<&'a Matrix>,
    pub output: Output,
    /// Results of an expert, and values of a row.
    pub rows: u32,
    pub cols: u32,
    /// Experts whose matrices are expanded together.
    pub together: u32,
    /// Rows of a token or of an entry, and results of an entry.
    pub x: &'a Buffer,
    pub out: &'a Buffer,
}

impl<'a> Mixture<'a> {
    /// `None` for a model without experts.
    pub fn new(
        model: &'a DeviceModel,
        m: &'a Activations,
        tokens: u32,
        experts: &'a Experts,
        factor: f32,
    ) -> Result<Option<Self>> {
        let Some(own) = &m.experts else { return Ok(None) };
        let config = &model.config;
        let tile = product::choose(tokens * fits(config.experts_used)?, fits(config.experts)?);
        Ok(Some(Self { config, m, own, tokens, experts, factor, tile }))
    }

    /// From the residual stream to each expert's list of entries.
    pub fn route(&self, programs: &mut Programs) -> Result<Vec<Launch>> {
        let Self { config: c, m, own, tokens, experts: e, .. } = self;
        let (experts, used) = (fits(c.experts)?, fits(c.experts_used)?);
        let (weights, cols, norm) = (e.router.buffer(), e.router.cols, &e.norm.weight);
        let (prompt, scores, eps) = (&m.chunk, &own.scores, c.norm_eps);
        let args = scores::Scores { weights, x: &m.x, norm, prompt, out: scores, experts, cols, eps }.args();
        let config = LaunchConfig::new(scores::grid(*tokens, experts), scores::THREADS);
        let scored = launch(programs, "route", &scores::name(e.router.format), config, args)?;
        let (chosen, shares) = (&own.chosen, &own.shares);
        let normalized = u32::from(c.normalizes_shares());
        let args = PromptRoute { scores, prompt, chosen, shares, experts, used, normalized }.args();
        let routed = launch(programs, "route", "prompt_route", LaunchConfig::new(*tokens, 32), args)?;
        let (starts, tokens, rows) = (&own.starts, &own.tokens, &own.rows);
        let args = gather::Gather { chosen, prompt, starts, tokens, rows, experts, used }.args();
        let config = LaunchConfig::new(experts, gather::THREADS);
        let gathered = launch(programs, "route", "prompt_gather", config, args)?;
        Ok(vec![scored.with_weights(e.router.bytes()), routed, gathered])
    }

    /// The products, in order.
    pub fn products(&self) -> Result<[ExpertProduct<'a>; 2]> {
        let Self { config: c, m, own, experts: e, .. } = self;
        let together = |rows, cols| -> Result<u32> { fits(experts_together(c, rows, cols)) };
        Ok([
            ExpertProduct {
                role: "gate up",
                matrices: vec![&e.gate, &e.up],
                output: Output::Gate,
                rows: fits(c.ff)?,
                cols: e.gate.cols,
                together: together(2 * c.ff, c.hidden)?,
                x: &m.normed,
                out: &m.ff,
            },
            ExpertProduct {
                role: "down",
                matrices: vec![&e.down],
                output: Output::Sums,
                rows: fits(c.hidden)?,
                cols: e.down.cols,
                together: together(c.hidden, c.ff)?,
                x: &m.ff,
                out: &own.parts,
            },
        ])
    }

    /// The product `p` of some experts, whose rows `weights` has in f16.
    pub fn product(
        &self,
        programs: &mut Programs,
        p: &ExpertProduct<'_>,
        experts: Range<u32>,
        weights: &Buffer,
    ) -> Result<Launch> {
        let Self { own, tokens, tile, factor, .. } = self;
        let (gated, count) = (p.output == Output::Gate, experts.end - experts.start);
        let args = product::ExpertsProduct {
            x: p.x,
            w: weights,
            out: p.out,
            starts: &own.starts,
            rows: p.rows,
            cols: p.cols,
            first: experts.start,
            tiles: tokens.div_ceil(tile.tokens),
            apart: if gated { count * p.rows } else { 0 },
            tokens: gated.then_some(&own.tokens),
            factor: gated.then_some(*factor),
        }
        .args();
        let grid = product::grid(*tile, p.output, *tokens, p.rows, count);
        let config = LaunchConfig::new(grid, tile.threads()).with_dynamic_shared(tile.shared_bytes());
        launch(programs, p.role, &product::name(*tile, p.output), config, args)
    }

    /// The weighted sum of each token's experts, added to the residual stream.
    pub fn combine(&self, programs: &mut Programs) -> Result<Launch> {
        let Self { config: c, m, own, tokens, .. } = self;
        let (parts, rows, shares, prompt, x) = (&own.parts, &own.rows, &own.shares, &m.chunk, &m.x);
        let (len, used, factor) = (fits(c.hidden)?, fits(c.experts_used)?, 1.0 / self.factor);
        let args = combine::Combine { parts, rows, shares, prompt, x, len, used, factor }.args();
        let config = LaunchConfig::new(combine::grid(*tokens, len), combine::THREADS);
        launch(programs, "down", "prompt_combine", config, args)
    }
}

fn launch(
    programs: &mut Programs,
    role: &'static str,
    kernel: &str,
    config: LaunchConfig,
    args: Args,
) -> Result<Launch> {
    let kernel = programs.kernel(NAME, kernel)?;
    let config = filled(&kernel, config);
    Ok(Launch::new(role, kernel, config, args))
}
