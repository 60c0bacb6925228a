//! Launches of a mixture of experts for the tokens of a chunk.

use hcq::{Args, Buffer, LaunchConfig};

use crate::engine::launch::{Launch, filled};
use crate::engine::layers::Experts;
use crate::engine::matrix::{Matrix, fits};
use crate::engine::memory::DeviceModel;
use crate::engine::programs::Programs;
use crate::engine::prompt::activations::{Activations, ExpertActivations};
use crate::engine::prompt::products::experts_together;
use crate::error::Result;
use crate::kernels::mixture::{NAME, combine, gather, product, scores};
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
        let args = e.router.args().buffer(&m.x).buffer(&e.norm.weight).buffer(&m.chunk).buffer(&own.scores);
        let args = args.u32(experts).u32(e.router.cols).f32(c.norm_eps);
        let config = LaunchConfig::new(scores::grid(*tokens, experts), scores::THREADS);
        let scored = launch(programs, "route", &scores::name(e.router.format), config, args)?;
        let args = Args::new().buffer(&own.scores).buffer(&m.chunk).buffer(&own.chosen).buffer(&own.shares);
        let args = args.u32(experts).u32(used);
        let chosen = launch(programs, "route", "prompt_route", LaunchConfig::new(*tokens, 32), args)?;
        let args = Args::new().buffer(&own.chosen).buffer(&m.chunk).buffer(&own.starts);
        let args = args.buffer(&own.tokens).buffer(&own.rows).u32(experts).u32(used);
        let config = LaunchConfig::new(experts, gather::THREADS);
        let gathered = launch(programs, "route", "prompt_gather", config, args)?;
        Ok(vec![scored.with_weights(e.router.bytes()), chosen, gathered])
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

    /// The product `p` of `count` experts from expert `first` on; `weights` adds the argument with the
    /// address of their rows in f16.
    pub fn product(
        &self,
        programs: &mut Programs,
        p: &ExpertProduct<'_>,
        (first, count): (u32, u32),
        weights: &dyn Fn(Args) -> Args,
    ) -> Result<Launch> {
        let Self { own, tokens, tile, factor, .. } = self;
        let args = weights(Args::new().buffer(p.x)).buffer(p.out).buffer(&own.starts);
        let args = args.u32(p.rows).u32(p.cols).u32(first).u32(tokens.div_ceil(tile.tokens));
        let args = match p.output {
            Output::Gate => args.u32(count * p.rows).buffer(&own.tokens).f32(*factor),
            Output::Sums => args.u32(0),
        };
        let grid = product::grid(*tile, p.output, *tokens, p.rows, count);
        let config = LaunchConfig::new(grid, tile.threads()).with_dynamic_shared(tile.shared_bytes());
        launch(programs, p.role, &product::name(*tile, p.output), config, args)
    }

    /// The weighted sum of each token's experts, added to the residual stream.
    pub fn combine(&self, programs: &mut Programs) -> Result<Launch> {
        let Self { config: c, m, own, tokens, .. } = self;
        let hidden = fits(c.hidden)?;
        let args = Args::new().buffer(&own.parts).buffer(&own.rows).buffer(&own.shares).buffer(&m.chunk);
        let args = args.buffer(&m.x).u32(hidden).u32(fits(c.experts_used)?).f32(1.0 / self.factor);
        let config = LaunchConfig::new(combine::grid(*tokens, hidden), combine::THREADS);
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
