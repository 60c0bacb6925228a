//! Lowers a model to the launches of a batch step.

use hcq::{Args, Buffer, LaunchConfig};
use ptxgen::Params;

use crate::engine::batch::buffers::{Buffers, ExpertBuffers, attention_shares};
use crate::engine::launch::{Launch, filled};
use crate::engine::layers::{Experts, LayerMemory, NormMemory, Product, Source, Step, Target};
use crate::engine::matrix::{Matrix, fits};
use crate::engine::memory::DeviceModel;
use crate::engine::per_token::{PerToken, limits};
use crate::engine::programs::Programs;
use crate::error::Result;
use crate::kernels::columns;
use crate::kernels::columns::experts::{ColumnScores, ExpertAct, scores_name};
use crate::kernels::columns::{attention, product, vector};
use crate::kernels::heads::kernel_dims;
use crate::kernels::layers::rows;
use crate::kernels::mixture::{self, PromptRoute, combine, scores};
use crate::model::architecture::Activation;

/// The launches of a step.
#[derive(Debug)]
pub struct Launches {
    /// All launches.
    pub all: Vec<Launch>,
    /// The first launch of the head: norm, output matrix, choice of tokens.
    pub head: usize,
    /// The first launch after the norm.
    pub output: usize,
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
    /// Split-K parts of the last product that are not yet added to the residual stream.
    shares: u32,
    /// The vector to add with them.
    bias: Option<&'a Buffer>,
}

/// The launches of a step of up to `columns` columns, one of [`product::SIZES`], of sequences of up to
/// `pages` pages.
pub fn launches(
    model: &DeviceModel,
    programs: &mut Programs,
    b: &Buffers,
    (columns, pages): (u32, usize),
) -> Result<Launches> {
    let mut p = Planner::new(model, programs, b, (columns, fits(pages)?));
    p.embed()?;
    for layer in &model.layers {
        p.layer(layer)?;
    }
    let head = p.launches.len();
    p.norm(&model.output_norm)?;
    let output = p.launches.len();
    p.output()?;
    Ok(Launches { all: p.launches, head, output })
}

/// The launches from a vector before the last layer to its logits: of the one column of a step that is written, of
/// a sequence of up to `pages` pages, after `last`, which writes the vector to [`Buffers::x`].
pub fn end(
    model: &DeviceModel,
    programs: &mut Programs,
    b: &Buffers,
    pages: usize,
    last: Launch,
) -> Result<Vec<Launch>> {
    let mut p = Planner::new(model, programs, b, (product::SIZES[0], fits(pages)?));
    // The first launch also copies what the host has written of the column.
    p.embed()?;
    p.launches.truncate(1);
    p.launches.push(last);
    if let Some(layer) = model.layers.last() {
        p.layer(layer)?;
    }
    p.norm(&model.output_norm)?;
    p.output()?;
    Ok(p.launches)
}

impl<'a> Planner<'a> {
    fn new(
        model: &'a DeviceModel,
        programs: &'a mut Programs,
        b: &'a Buffers,
        (columns, pages): (u32, u32),
    ) -> Self {
        Self { model, programs, b, columns, pages, launches: Vec::new(), shares: 0, bias: None }
    }

    fn push(&mut self, role: &'static str, kernel: &str, config: LaunchConfig, args: Args) -> Result<()> {
        self.push_of(columns::NAME, role, kernel, config, args)
    }

    fn push_of(
        &mut self,
        module: &'static str,
        role: &'static str,
        kernel: &str,
        config: LaunchConfig,
        args: Args,
    ) -> Result<()> {
        let kernel = self.programs.kernel(module, kernel)?;
        let config = filled(&kernel, config);
        self.launches.push(Launch::new(role, kernel, config, args));
        Ok(())
    }

    fn per_token(&self) -> PerToken<'a> {
        PerToken { model: self.model, tokens: self.columns }
    }

    /// The grid of kernels with a thread for each of `len` values of a column, and their threads.
    fn values(&self, len: u32) -> LaunchConfig {
        LaunchConfig::new((len.div_ceil(rows::THREADS), self.columns), rows::THREADS)
    }

    fn embed(&mut self) -> Result<()> {
        let (b, embedding) = (self.b, &self.model.embedding);
        let (weights, rows, cols) = (embedding.buffer(), embedding.rows, embedding.cols);
        let (state, x) = (&b.state, &b.x);
        let args = vector::Embed { weights, from: &b.from_host, state, out: x, rows, cols }.args();
        let kernel = format!("columns_embed_{}", embedding.format.suffix());
        let config = LaunchConfig::new(self.columns, vector::THREADS);
        self.push_of(embedding.format.module(columns::NAME), "embedding", &kernel, config, args)?;
        self.launches.extend(self.per_token().scale(self.programs, x)?);
        let Some(positions) = &self.model.positions else { return Ok(()) };
        let rows = fits(self.model.config.context)?;
        let args = vector::AddPosition { state, positions, x, len: cols, rows }.args();
        self.push("embedding", "columns_position", self.values(cols), args)
    }

    /// Adds the last product to the residual stream and normalizes it.
    fn norm(&mut self, norm: &NormMemory) -> Result<()> {
        let (b, c) = (self.b, &self.model.config);
        let (x, sums, weight, out) = (&b.x, &b.sums, &norm.weight, &b.normed);
        let (len, eps, shares, columns) = (fits(c.hidden)?, c.norm_eps, self.shares, self.columns);
        if let Some(bias) = self.bias.take() {
            self.launches.push(self.per_token().add_bias(self.programs, norm.role, x, bias)?);
        }
        let bias = norm.bias.as_ref();
        let args = vector::Norm { x, sums, weight, out, len, eps, shares, columns, bias }.args();
        self.shares = 0;
        let config = LaunchConfig::new(self.columns, vector::NORM_THREADS);
        self.push(norm.role, vector::norm_name(bias.is_some()), config, args)
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
            let kernel = self.programs.kernel(part.format.module("columns_product"), &name)?;
            let grid = product::grid(part.rows, self.shares, sm_count);
            let config = filled(&kernel, LaunchConfig::new(grid, product::THREADS));
            let launch = Launch::new(role, kernel, config, args).with_weights(part.bytes());
            self.launches.push(if i > 0 { launch.overlapping() } else { launch });
            at += part.rows;
        }
        Ok(())
    }

    fn layer(&mut self, layer: &'a LayerMemory) -> Result<()> {
        for step in &layer.steps {
            match step {
                Step::Product(product) => self.product(product)?,
                Step::Attend => {
                    self.rope(layer)?;
                    self.attend(layer)?;
                }
                Step::Experts(experts) => self.experts(experts)?,
            }
        }
        Ok(())
    }

    /// The sums of a product that adds to the residual stream are added by the norm after it.
    fn product(&mut self, p: &'a Product) -> Result<()> {
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
            Target::Heads(norms) => {
                let heads =
                    self.per_token().heads(self.programs, p, norms.as_ref(), (&b.sums, self.shares))?;
                if heads.is_some() {
                    self.shares = 1;
                }
                self.launches.extend(heads);
                Ok(())
            }
            Target::Activated(activation) => self.activate(p, *activation),
            Target::Residual(None) => {
                self.bias = p.bias.as_ref();
                Ok(())
            }
            Target::Residual(Some(norm)) => {
                let shares = std::mem::take(&mut self.shares);
                let launch =
                    self.per_token().post_norm(self.programs, norm, (&b.x, &b.sums), (shares, 1.0))?;
                self.launches.push(launch);
                Ok(())
            }
        }
    }

    /// A mixture of experts: the chosen experts' products, added to the residual stream.
    fn experts(&mut self, e: &Experts) -> Result<()> {
        self.norm(&e.norm)?;
        let (b, c) = (self.b, &self.model.config);
        let Some(own) = &b.experts else { return Ok(()) };
        let (experts, used, columns) = (fits(c.experts)?, fits(c.experts_used)?, self.columns);
        let ExpertBuffers { chunk: prompt, entries, scores, chosen, shares, .. } = own;
        let (weights, state, x, norm, cols, eps) =
            (e.router.buffer(), &b.state, &b.x, &e.norm.weight, e.router.cols, c.norm_eps);
        let args = ColumnScores { weights, x, norm, state, out: scores, experts, cols, eps }.args();
        let grid = (experts.div_ceil(scores::THREADS / 32), columns);
        let name = scores_name(e.router.format);
        self.push("route", &name, LaunchConfig::new(grid, scores::THREADS), args)?;
        let normalized = u32::from(c.normalizes_shares());
        let args = PromptRoute { scores, prompt, chosen, shares, experts, used, normalized }.args();
        self.push_of(mixture::NAME, "route", "prompt_route", LaunchConfig::new(columns, 32), args)?;

        let (ff, hidden) = (fits(c.ff)?, fits(c.hidden)?);
        self.expert_product("gate up", &e.gate, chosen, (&b.normed, 0), (&own.gate_up, 0, 2 * ff))?;
        self.expert_product("gate up", &e.up, chosen, (&b.normed, 0), (&own.gate_up, ff, 2 * ff))?;
        if let Some(up) = self.launches.last_mut() {
            up.overlaps = true;
        }
        let apart = fits(ExpertBuffers::ff_bytes(c, columns)? as usize)?;
        let (state, products, out) = (&b.state, &own.gate_up, &own.ff);
        let args = ExpertAct { state, products, chosen, out, len: ff, apart }.args();
        let config = LaunchConfig::new((vector::tile_blocks(ff), columns, used), vector::THREADS);
        self.push("gate up", "columns_expert_act", config, args)?;
        self.expert_product("down", &e.down, chosen, (&own.ff, apart), (&own.parts, 0, hidden))?;
        let (parts, len, factor) = (&own.parts, hidden, 1.0);
        let args = combine::Combine { parts, rows: entries, shares, prompt, x, len, used, factor }.args();
        let config = LaunchConfig::new(combine::grid(columns, len), combine::THREADS);
        self.push_of(mixture::NAME, "down", "prompt_combine", config, args)
    }

    /// Multiplies the matrices of all experts, one after the other in `matrix`, with their columns, those of an
    /// expert `x_apart` bytes after those of the one before. Results of an entry begin at value `at`, `pitch`
    /// values apart.
    fn expert_product(
        &mut self,
        role: &'static str,
        matrix: &Matrix,
        chosen: &Buffer,
        (x, x_apart): (&Buffer, u32),
        (out, at, pitch): (&Buffer, u32, u32),
    ) -> Result<()> {
        let c = &self.model.config;
        let (experts, used, cols) = (fits(c.experts)?, fits(c.experts_used)?, matrix.cols);
        let rows = matrix.rows / experts;
        let weights_apart = fits(matrix.offset_of(rows) as usize)?;
        let (weights, x, state, chosen, out) =
            (matrix.at_row(0), x.at(0), self.b.state.at(0), chosen.at(0), out.at(4 * u64::from(at)));
        let args = product::ExpertsProduct {
            weights,
            x,
            state,
            chosen,
            out,
            rows,
            cols,
            pitch,
            used,
            weights_apart,
            x_apart,
        }
        .args();
        let name = product::experts_name(matrix.format, self.columns);
        let kernel = self.programs.kernel(matrix.format.module("columns_experts"), &name)?;
        let sm_count = self.model.device.info().sm_count;
        let grid = product::experts_grid(rows, (experts, used), self.columns, sm_count);
        let config = filled(&kernel, LaunchConfig::new(grid, product::THREADS));
        // Of as many experts as a column chooses.
        let bytes = matrix.bytes() / u64::from(experts) * u64::from(used);
        self.launches.push(Launch::new(role, kernel, config, args).with_weights(bytes));
        Ok(())
    }

    fn activate(&mut self, p: &Product, activation: Activation) -> Result<()> {
        let (b, len, shares, columns) = (self.b, fits(self.model.config.ff)?, self.shares, self.columns);
        let bias = if activation.is_gated() { None } else { Some(p.gelu_bias()?) };
        let args = vector::Act { sums: &b.sums, out: &b.ff, len, shares, columns, bias }.args();
        let config = LaunchConfig::new((vector::tile_blocks(len), columns), vector::THREADS);
        self.push(p.role, vector::act_name(activation), config, args)
    }

    fn rope(&mut self, layer: &LayerMemory) -> Result<()> {
        let (b, c, cache) = (self.b, &self.model.config, &self.model.cache);
        let pairs = fits((c.heads + 2 * c.kv_heads) * c.padded_head() / 2)?;
        let args = vector::Rope {
            state: &b.state,
            tables: &b.tables,
            sums: &b.sums,
            turns: &layer.turns,
            q: &b.q,
            keys: &layer.keys,
            values: &layer.values,
            heads: fits(c.heads)?,
            kv_heads: fits(c.kv_heads)?,
            half_dim: fits(c.padded_head() / 2)?,
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
        let (head_dim, kv_heads, group) =
            (fits(c.padded_head())?, fits(c.kv_heads)?, fits(c.heads / c.kv_heads)?);
        let shares = fits(attention_shares(self.pages as usize))?;
        let (state, partials) = (&b.state, &b.partials);
        let (window, cap) = limits(c, layer);
        let dims = kernel_dims(head_dim);
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
            window,
            cap,
        }
        .args();
        let kernel = attention::kernel_name(dims, cache.kv, window.is_some());
        let grid = attention::grid((kv_heads, group), dims, shares, self.columns);
        self.push("attention", &kernel, LaunchConfig::new(grid, attention::THREADS), args)?;
        if let Some(launch) = self.launches.last_mut() {
            launch.cache_bytes = cache.bytes_per_position();
        }
        let (out, heads, head_values) = (&b.attended, fits(c.heads)?, fits(c.head_dim)?);
        let args = attention::Merge { state, partials, out, head_dim, head_values, heads, shares }.args();
        let grid = (vector::tile_blocks(fits(c.q_dim())?), self.columns);
        self.push("attention", "columns_merge", LaunchConfig::new(grid, vector::THREADS), args)
    }

    fn output(&mut self) -> Result<()> {
        let (b, vocab) = (self.b, fits(self.model.config.vocab)?);
        let output = std::slice::from_ref(&self.model.output);
        self.multiply("output", output, (&b.normed, &b.logits), Some(1))?;
        self.launches.extend(self.per_token().cap(self.programs, &b.logits)?);
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
