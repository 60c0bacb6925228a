//! Lowers a model to the launches of a batch step.

use hcq::{Args, Buffer, LaunchConfig};
use ptxgen::Params;

use crate::engine::columns::buffers::{Buffers, attention_shares};
use crate::engine::launch::{Launch, filled};
use crate::engine::layers::{HeadNormMemory, LayerMemory, NormMemory, Product, Source, Step, Target};
use crate::engine::matrix::{Matrix, fits};
use crate::engine::memory::DeviceModel;
use crate::engine::operations::{Parts, heads_args};
use crate::engine::programs::Programs;
use crate::engine::stream::{lacks, style};
use crate::error::{Error, Result};
use crate::kernels::columns::{attention, product, vector};
use crate::kernels::heads::kernel_dims;
use crate::kernels::layers::{self, heads};
use crate::kernels::stream::variant::Style;
use crate::model::config::Config;

/// The launches of a step.
#[derive(Debug)]
pub struct Launches {
    /// All launches.
    pub all: Vec<Launch>,
    /// The first launch of the head: norm, output matrix, choice of tokens.
    pub head: usize,
}

/// Collects the launches of a step.
struct Planner<'a> {
    model: &'a DeviceModel,
    programs: &'a mut Programs,
    b: &'a Buffers,
    /// Columns of the step.
    columns: u32,
    /// Most pages of a sequence.
    pages: u32,
    launches: Vec<Launch>,
    /// Split-K parts of the last product.
    shares: u32,
}

/// The launches of a step of up to `columns` columns, one of [`product::SIZES`], of sequences of up to
/// `pages` pages.
pub fn launches(
    model: &DeviceModel,
    programs: &mut Programs,
    b: &Buffers,
    (columns, pages): (u32, usize),
) -> Result<Launches> {
    let pages = fits(pages)?;
    let mut p = Planner { model, programs, b, columns, pages, launches: Vec::new(), shares: 0 };
    p.embed()?;
    for layer in &model.layers {
        p.layer(layer)?;
    }
    let head = p.launches.len();
    p.norm(&model.output_norm)?;
    p.output()?;
    Ok(Launches { all: p.launches, head })
}

/// Refuses what has no kernel here, in `context` positions.
pub fn check(c: &Config, context: usize) -> Result<()> {
    // Features that the persistent step lacks are absent here too.
    let plain = (style(c.architecture) == Style::Plain).then_some("layer norms");
    lacks(c, context).or(plain).map_or(Ok(()), |what| lacking(c, what))
}

fn lacking(c: &Config, what: &'static str) -> Result<()> {
    Err(Error::ColumnsLack { what, architecture: c.architecture.name })
}

impl Planner<'_> {
    fn push(&mut self, role: &'static str, kernel: &str, config: LaunchConfig, args: Args) -> Result<()> {
        let kernel = self.programs.kernel("columns", kernel)?;
        let config = filled(&kernel, config);
        self.launches.push(Launch::new(role, kernel, config, args));
        Ok(())
    }

    fn embed(&mut self) -> Result<()> {
        let (b, embedding) = (self.b, &self.model.embedding);
        let (weights, rows, cols) = (embedding.buffer(), embedding.rows, embedding.cols);
        let args =
            vector::Embed { weights, from: &b.from_host, state: &b.state, out: &b.x, rows, cols }.args();
        let kernel = format!("columns_embed_{}", embedding.format.suffix());
        let config = LaunchConfig::new(self.columns, vector::THREADS);
        self.push("embedding", &kernel, config, args)
    }

    /// Adds the last product to the residual stream and normalizes it.
    fn norm(&mut self, norm: &NormMemory) -> Result<()> {
        let (b, c) = (self.b, &self.model.config);
        let (state, x, sums, weight, out) = (&b.state, &b.x, &b.sums, &norm.weight, &b.normed);
        let (len, eps, shares, columns) = (fits(c.hidden)?, c.norm_eps, self.shares, self.columns);
        let args = vector::Norm { state, x, sums, weight, out, len, eps, shares, columns }.args();
        self.push(norm.role, "columns_norm", LaunchConfig::new(self.columns, vector::NORM_THREADS), args)
    }

    /// Multiplies stacked matrices with `x`; `out` is `[share][column][row]`.
    fn multiply(
        &mut self,
        role: &'static str,
        parts: &[Matrix],
        (x, out): (&Buffer, &Buffer),
        shares: Option<u32>,
    ) -> Result<()> {
        let sm_count = self.model.device.info().sm_count;
        let (cols, pitch) = (parts[0].cols, parts.iter().map(|part| part.rows).sum());
        self.shares = shares.unwrap_or_else(|| product::shares(pitch, cols, sm_count));
        let mut at = 0;
        for (i, part) in parts.iter().enumerate() {
            let (weights, x, out) = (part.at_row(0), x.at(0), out.at(4 * u64::from(at)));
            let (rows, share) = (part.rows, product::share_tiles(cols, self.shares));
            let args = product::ColumnsProduct { weights, x, out, rows, cols, pitch, share }.args();
            let name = product::kernel_name(part.format, self.columns);
            let kernel = self.programs.kernel("columns_product", &name)?;
            let grid = product::grid(part.rows, self.shares, sm_count);
            let config = filled(&kernel, LaunchConfig::new(grid, product::THREADS));
            let launch = Launch::new(role, kernel, config, args).with_weights(part.bytes());
            self.launches.push(if i > 0 { launch.overlapping() } else { launch });
            at += part.rows;
        }
        Ok(())
    }

    fn layer(&mut self, layer: &LayerMemory) -> Result<()> {
        for step in &layer.steps {
            match step {
                Step::Product(product) => self.product(product)?,
                Step::Attend => {
                    self.rope(layer)?;
                    self.attend(layer)?;
                }
                Step::Experts(_) => return lacking(&self.model.config, "mixtures of experts"),
            }
        }
        Ok(())
    }

    /// The sums of a product that adds to the residual stream are added by the norm after it.
    fn product(&mut self, p: &Product) -> Result<()> {
        if let Source::Residual(norm) = &p.from {
            self.norm(norm)?;
        }
        let b = self.b;
        let from = match &p.from {
            Source::Residual(_) => &b.normed,
            Source::Attended => &b.attended,
            Source::Activated => &b.ff,
        };
        self.multiply(p.role, &p.matrices, (from, &b.sums), None)?;
        match &p.to {
            Target::Heads(norms) => self.prepare_heads(p, norms.as_ref()),
            Target::Activated(_) => self.activate(p.role),
            Target::Residual(_) => Ok(()),
        }
    }

    /// Adds biases to queries, keys and values, and normalizes queries and keys, where the model does.
    fn prepare_heads(&mut self, p: &Product, norms: Option<&HeadNormMemory>) -> Result<()> {
        let parts = Parts { shares: self.shares, pitch: self.columns };
        let Some((args, pieces)) = heads_args(&self.model.config, p, norms, &self.b.sums, parts)? else {
            return Ok(());
        };
        let kernel = self.programs.kernel(layers::NAME, "prepare_heads")?;
        let config = filled(&kernel, LaunchConfig::new((pieces, self.columns), heads::THREADS));
        self.launches.push(Launch::new(p.role, kernel, config, args));
        self.shares = 1;
        Ok(())
    }

    fn activate(&mut self, role: &'static str) -> Result<()> {
        let (b, len, shares, columns) = (self.b, fits(self.model.config.ff)?, self.shares, self.columns);
        let args = vector::Act { state: &b.state, sums: &b.sums, out: &b.ff, len, shares, columns }.args();
        let config = LaunchConfig::new((vector::tile_blocks(len), columns), vector::THREADS);
        self.push(role, "columns_act", config, args)
    }

    fn rope(&mut self, layer: &LayerMemory) -> Result<()> {
        let (b, c, cache) = (self.b, &self.model.config, &self.model.cache);
        let pairs = fits((c.heads + 2 * c.kv_heads) * c.head_dim / 2)?;
        let args = vector::Rope {
            state: &b.state,
            tables: &b.tables,
            sums: &b.sums,
            turns: &self.model.turns,
            q: &b.q,
            keys: &layer.keys,
            values: &layer.values,
            heads: fits(c.heads)?,
            kv_heads: fits(c.kv_heads)?,
            half_dim: fits(c.head_dim / 2)?,
            table_pitch: self.pages,
            shares: self.shares,
            columns: self.columns,
            scales_at: cache.scales_at,
        }
        .args();
        let kernel = format!("columns_rope{}", cache.kv.suffix());
        let config = LaunchConfig::new((pairs.div_ceil(vector::THREADS), self.columns), vector::THREADS);
        self.push("rotate, cache", &kernel, config, args)
    }

    fn attend(&mut self, layer: &LayerMemory) -> Result<()> {
        let (b, c, cache) = (self.b, &self.model.config, &self.model.cache);
        let (head_dim, kv_heads, group) = (fits(c.head_dim)?, fits(c.kv_heads)?, fits(c.heads / c.kv_heads)?);
        let (shares, together) = (fits(attention_shares(self.pages as usize))?, attention::together(group));
        let (state, partials) = (&b.state, &b.partials);
        let args = attention::Attention {
            state,
            tables: &b.tables,
            q: &b.q,
            keys: &layer.keys,
            values: &layer.values,
            partials,
            head_dim,
            kv_heads,
            group,
            table_pitch: self.pages,
            scale: c.score_scale(),
            scales_at: cache.scales_at,
        }
        .args();
        let kernel = attention::kernel_name(kernel_dims(head_dim), cache.kv, together);
        let grid = (kv_heads * group.div_ceil(together), shares, self.columns);
        self.push("attention", &kernel, LaunchConfig::new(grid, attention::THREADS), args)?;
        let (out, heads) = (&b.attended, fits(c.heads)?);
        let args = attention::Merge { state, partials, out, head_dim, heads, shares }.args();
        let grid = (vector::tile_blocks(fits(c.q_dim())?), self.columns);
        self.push("attention", "columns_merge", LaunchConfig::new(grid, vector::THREADS), args)
    }

    fn output(&mut self) -> Result<()> {
        let (b, vocab) = (self.b, fits(self.model.config.vocab)?);
        let output = std::slice::from_ref(&self.model.output);
        self.multiply("output", output, (&b.normed, &b.logits), Some(1))?;
        let (state, [best_values, best_indices]) = (&b.state, &b.best);
        let (logits, count) = (&b.logits, vocab);
        let args = vector::Argmax { state, logits, best_values, best_indices, count }.args();
        let config = LaunchConfig::new((vector::ARGMAX_BLOCKS, self.columns), vector::THREADS);
        self.push("argmax", "columns_argmax", config, args)?;
        let (tokens, candidates) = (&b.tokens, vector::ARGMAX_BLOCKS);
        let args = vector::Choose { state, best_values, best_indices, tokens, candidates }.args();
        self.push("argmax", "columns_choose", LaunchConfig::new(self.columns, 32), args)
    }
}
