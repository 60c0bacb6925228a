//! Lowers a model to the launches of a chunk.

use hcq::{Args, Buffer, LaunchConfig};
use ptxgen::Params;

use crate::cache::CacheType;
use crate::engine::launch::{Launch, filled};
use crate::engine::layers::{self, Experts, LayerMemory, NormMemory, Source, Step, Target};
use crate::engine::matrix::fits;
use crate::engine::memory::DeviceModel;
use crate::engine::per_token::{PerToken, limits};
use crate::engine::programs::Programs;
use crate::engine::prompt::activations::Activations;
use crate::engine::prompt::experts::Mixture;
use crate::engine::prompt::kept::{Kept, expansion};
use crate::engine::prompt::products::{Product, Rows, as_it_is, output, pieces, rows};
use crate::engine::prompt::ranges::{LayerFactors, measured_rows};
use crate::error::Result;
use crate::kernels::choices::Choices;
use crate::kernels::heads::kernel_dims;
use crate::kernels::layers::{NAME, gelu, layer_norm};
use crate::kernels::limits::infix;
use crate::kernels::prompt::gemm::{self, Output};
use crate::kernels::prompt::tile::{ProductTile, TokensProduct, choose_any_size};
use crate::kernels::prompt::{attention, dequantize, shares, squares, vector};
use crate::model::architecture::Activation;

/// Blocks per SM that expand a cache, at least.
const EXPAND_BLOCKS: u32 = 8;

/// Sums that wait to be added to the residual stream.
#[derive(Clone, Copy)]
struct Waiting<'a> {
    /// Parts of each sum.
    shares: u32,
    /// Their factor.
    factor: f32,
    /// The vector added as well.
    bias: Option<&'a Buffer>,
}

impl Waiting<'_> {
    const NOTHING: Self = Self { shares: 0, factor: 1.0, bias: None };
}

/// Context of a chunk's launches, beside the model.
#[derive(Clone, Copy)]
pub struct Chunk<'a> {
    /// Shapes of products.
    pub choices: &'a Choices,
    /// Their activations.
    pub activations: &'a Activations,
    /// Expanded weights that are kept.
    pub kept: &'a Kept,
    /// The tables of all sequences.
    pub tables: &'a Buffer,
    /// Of every layer but the last.
    pub factors: &'a [LayerFactors],
}

/// Collects the launches of a chunk.
struct Planner<'a> {
    model: &'a DeviceModel,
    programs: &'a mut Programs,
    choices: &'a Choices,
    m: &'a Activations,
    kept: &'a Kept,
    tables: &'a Buffer,
    tokens: u32,
    launches: Vec<Launch>,
    /// Number of slices that have been expanded.
    expanded: usize,
    /// The last product, beside which the next slice is expanded; at first the embedding.
    beside: usize,
}

/// The launches of a chunk of up to `tokens` tokens, to the keys and values of the last layer.
pub fn launches(
    model: &DeviceModel,
    programs: &mut Programs,
    chunk: Chunk<'_>,
    tokens: u32,
) -> Result<Vec<Launch>> {
    let mut p = Planner::new(model, programs, chunk, tokens);
    p.embed()?;
    let mut waiting = Waiting::NOTHING;
    for (i, layer) in model.layers.iter().enumerate() {
        let factors = chunk.factors.get(i).copied().unwrap_or(LayerFactors::ONE);
        let expanded = match model.cache.kv {
            CacheType::Q8_0 => factors,
            // Of the cache in f16 nothing is expanded.
            CacheType::F16 => LayerFactors { queries: factors.queries, ..LayerFactors::ONE },
        };
        for step in &layer.steps {
            match step {
                Step::Attend if i + 1 == model.layers.len() => return Ok(p.launches),
                Step::Attend => p.attend(layer, expanded)?,
                Step::Experts(experts) => {
                    p.experts(experts, factors.ff, waiting)?;
                    waiting = Waiting::NOTHING;
                }
                Step::Product(product) => {
                    waiting = p.product(layer, product, (factors, expanded), waiting)?;
                }
            }
        }
    }
    Ok(p.launches)
}

/// The launches that write the sums of squares of [`measured_rows`] of every layer but the last to `out`.
pub fn measure(
    model: &DeviceModel,
    programs: &mut Programs,
    chunk: Chunk<'_>,
    out: &Buffer,
) -> Result<Vec<Launch>> {
    let mut p = Planner::new(model, programs, chunk, 0);
    let mut at = 0;
    for layer in &model.layers[..model.layers.len().saturating_sub(1)] {
        for step in &layer.steps {
            let (norm, matrices) = match step {
                Step::Product(layers::Product { from: Source::Residual(norm), matrices, .. }) => {
                    (norm, matrices.iter().collect())
                }
                Step::Experts(experts) => (&experts.norm, vec![&experts.gate, &experts.up]),
                Step::Product(_) | Step::Attend => continue,
            };
            at = p.squares(&Product::sums("measure", matrices, &norm.reach, out), at)?;
        }
    }
    debug_assert_eq!(at, model.layers.len().saturating_sub(1) * measured_rows(&model.config));
    Ok(p.launches)
}

impl<'a> Planner<'a> {
    fn new(model: &'a DeviceModel, programs: &'a mut Programs, chunk: Chunk<'a>, tokens: u32) -> Self {
        let Chunk { choices, activations: m, kept, tables, .. } = chunk;
        Self {
            model,
            programs,
            choices,
            m,
            kept,
            tables,
            tokens,
            launches: Vec::new(),
            expanded: 0,
            beside: 0,
        }
    }
}

impl<'a> Planner<'a> {
    fn per_token(&self) -> PerToken<'a> {
        PerToken { model: self.model, tokens: self.tokens }
    }

    fn launch(
        &mut self,
        role: &'static str,
        (module, kernel): (&'static str, &str),
        config: LaunchConfig,
        args: Args,
    ) -> Result<Launch> {
        let kernel = self.programs.kernel(module, kernel)?;
        let config = filled(&kernel, config);
        Ok(Launch::new(role, kernel, config, args))
    }

    fn embed(&mut self) -> Result<()> {
        let embedding = &self.model.embedding;
        let (prompt, x) = (&self.m.chunk, &self.m.x);
        let (weights, rows, cols) = (embedding.buffer(), embedding.rows, embedding.cols);
        let args = dequantize::EmbedPrompt { weights, prompt, out: x, rows, cols }.args();
        let kernel = format!("embed_prompt_{}", embedding.format.suffix());
        let config = LaunchConfig::new(self.tokens, dequantize::EMBED_THREADS);
        let launch =
            self.launch("embedding", (embedding.format.module("dequantize"), &kernel), config, args)?;
        self.launches.push(launch);
        self.launches.extend(self.per_token().scale(self.programs, x)?);
        self.launches.extend(self.per_token().positions(self.programs, x, prompt)?);
        Ok(())
    }

    /// A product of a layer, and what its results become. Returns what then waits to be added to the residual
    /// stream.
    fn product<'w>(
        &mut self,
        layer: &LayerMemory,
        p: &'w layers::Product,
        (factors, expanded): (LayerFactors, LayerFactors),
        waiting: Waiting<'w>,
    ) -> Result<Waiting<'w>> {
        let m = self.m;
        let mut left = waiting;
        let (x, factor) = match &p.from {
            Source::Residual(norm) => {
                self.norm(norm, waiting)?;
                left = Waiting::NOTHING;
                (&m.normed, 1.0)
            }
            Source::Attended => (&m.attended, 1.0 / expanded.values),
            Source::Activated => (&m.ff, 1.0 / factors.ff),
        };
        let to = match &p.to {
            Target::Heads(_) => &m.qkv,
            Target::Activated(Activation::SiluGate) => &m.ff,
            Target::Activated(_) | Target::Residual(_) => &m.sums,
        };
        let product = Product::sums(p.role, p.matrices.iter().collect(), x, to);
        let shares = self.multiply(&Product { output: output(p), factor: factors.ff, ..product })?;
        match &p.to {
            Target::Heads(norms) => {
                let heads = self.per_token().heads(self.programs, p, norms.as_ref(), (&m.qkv, shares))?;
                let shares = if heads.is_some() { 1 } else { shares };
                self.launches.extend(heads);
                self.rope(layer, shares, factors)?;
            }
            Target::Activated(Activation::SiluGate) => {}
            Target::Activated(activation) => self.gelu(p, *activation, shares, factors.ff)?,
            Target::Residual(None) => left = Waiting { shares, factor, bias: p.bias.as_ref() },
            Target::Residual(Some(norm)) => {
                let launch =
                    self.per_token().post_norm(self.programs, norm, (&m.x, &m.sums), (shares, factor))?;
                self.launches.push(launch);
            }
        }
        Ok(left)
    }

    /// A mixture of experts. Its matrices are expanded some experts at a time; those in f16 are used as they
    /// are where they are one matrix.
    fn experts(&mut self, e: &Experts, factor: f32, waiting: Waiting<'_>) -> Result<()> {
        self.norm(&e.norm, waiting)?;
        let Some(mixture) = Mixture::new(self.model, self.m, self.tokens, e, factor)? else { return Ok(()) };
        self.launches.extend(mixture.route(self.programs)?);
        let all = fits(self.model.config.experts)?;
        for p in mixture.products()? {
            if let Some(matrix) = as_it_is(&p.matrices) {
                let launch = mixture.product(self.programs, &p, 0..all, matrix.buffer())?;
                self.beside = self.launches.len();
                self.launches.push(launch.with_weights(matrix.bytes()));
                continue;
            }
            let stacked =
                Product { output: p.output, ..Product::sums(p.role, p.matrices.clone(), p.x, p.out) };
            for first in (0..all).step_by(p.together as usize) {
                let count = p.together.min(all - first);
                let slice = &self.m.slices[self.expanded % 2];
                self.expanded += 1;
                let rows = Rows { first: first * p.rows, len: count * p.rows, all: all * p.rows };
                self.expand(&stacked, slice, rows)?;
                let launch = mixture.product(self.programs, &p, first..first + count, slice)?;
                self.beside = self.launches.len();
                self.launches.push(launch);
            }
        }
        self.launches.push(mixture.combine(self.programs)?);
        Ok(())
    }

    /// Adds what is waiting to the residual stream and normalizes it.
    fn norm(&mut self, norm: &NormMemory, waiting: Waiting<'_>) -> Result<()> {
        let (m, c) = (self.m, &self.model.config);
        let (x, len) = (&m.x, fits(c.hidden)?);
        if let Some(bias) = waiting.bias {
            self.launches.push(self.per_token().add_bias(self.programs, norm.role, x, bias)?);
        }
        let (sums, weight, out, eps) = (&m.sums, &norm.weight, &m.normed, c.norm_eps);
        let (shares, share_pitch, factor) = (waiting.shares, self.tokens, waiting.factor);
        let (args, kernel, threads) = match &norm.bias {
            None => (
                vector::PromptNorm { x, sums, weight, out, len, eps, shares, share_pitch, factor }.args(),
                ("prompt", "prompt_norm"),
                vector::NORM_THREADS,
            ),
            Some(bias) => (
                layer_norm::PromptLayerNorm {
                    x,
                    sums,
                    weight,
                    bias,
                    out,
                    len,
                    eps,
                    shares,
                    share_pitch,
                    factor,
                }
                .args(),
                (NAME, "prompt_layer_norm"),
                layer_norm::THREADS,
            ),
        };
        let launch = self.launch(norm.role, kernel, LaunchConfig::new(self.tokens, threads), args)?;
        self.launches.push(launch);
        Ok(())
    }

    /// Activates sums in `shares` parts by GELU.
    fn gelu(&mut self, p: &layers::Product, activation: Activation, shares: u32, factor: f32) -> Result<()> {
        let (m, len, share_pitch) = (self.m, fits(self.model.config.ff)?, self.tokens);
        let (sums, out) = (&m.sums, &m.ff);
        let (kernel, args) = if activation.is_gated() {
            let args = gelu::PromptGeluGate { sums, out, len, shares, share_pitch, factor }.args();
            ("prompt_gelu_gate", args)
        } else {
            let (up, bias) = (sums, p.gelu_bias()?);
            ("prompt_gelu", gelu::PromptGelu { up, bias, out, len, shares, share_pitch, factor }.args())
        };
        let config = LaunchConfig::new((len.div_ceil(gelu::THREADS), self.tokens), gelu::THREADS);
        let launch = self.launch(p.role, (NAME, kernel), config, args)?;
        self.launches.push(launch);
        Ok(())
    }

    fn rope(&mut self, layer: &LayerMemory, shares: u32, factors: LayerFactors) -> Result<()> {
        let (m, c, cache) = (self.m, &self.model.config, &self.model.cache);
        let pairs = fits((c.heads + 2 * c.kv_heads) * c.padded_head() / 2)?;
        let args = vector::PromptRope {
            qkv: &m.qkv,
            turns: &layer.turns,
            prompt: &m.chunk,
            q: &m.q,
            keys: &layer.keys,
            values: &layer.values,
            heads: fits(c.heads)?,
            kv_heads: fits(c.kv_heads)?,
            half_dim: fits(c.padded_head() / 2)?,
            tables: self.tables,
            shares,
            share_pitch: self.tokens,
            factor: factors.queries,
            scales_at: cache.scales_at,
        }
        .args();
        let kernel = format!("prompt_rope{}", cache.kv.suffix());
        let grid = (pairs.div_ceil(vector::ROPE_THREADS), self.tokens);
        let config = LaunchConfig::new(grid, vector::ROPE_THREADS);
        let launch = self.launch("rotate, cache", ("prompt", &kernel), config, args)?;
        self.launches.push(launch);
        Ok(())
    }

    fn attend(&mut self, layer: &LayerMemory, factors: LayerFactors) -> Result<()> {
        let (m, c, cache) = (self.m, &self.model.config, &self.model.cache);
        let (head_dim, head_values, kv_heads) =
            (fits(c.padded_head())?, fits(c.head_dim)?, fits(c.kv_heads)?);
        let dims = kernel_dims(head_dim);
        let [keys, values] = match &m.expanded {
            None => [&layer.keys, &layer.values],
            Some(copy) => {
                self.expand_cache(layer, copy, factors)?;
                let [keys, values] = copy;
                [keys, values]
            }
        };
        let (heads, sm_count) = (fits(c.heads)?, self.model.device.info().sm_count);
        let most = shares::most(self.tokens, heads, sm_count);
        let (window, cap) = limits(c, layer);
        let kernel = format!("prompt_attention_{}{dims}", infix(window.is_some()));
        let (prompt, out, partials) = (&m.chunk, &m.attended, &m.partials);
        let args = attention::PromptAttention {
            q: &m.q,
            keys,
            values,
            prompt,
            out,
            tables: self.tables,
            in_order: m.expanded.is_some().into(),
            kv_heads,
            head_dim,
            head_values,
            group: fits(c.heads / c.kv_heads)?,
            scale: c.score_scale() / (factors.queries * factors.keys),
            partials,
            window,
            cap,
        }
        .args();
        let grid = (self.tokens.div_ceil(shares::TOKENS), heads, most);
        let config = LaunchConfig::new(grid, attention::THREADS);
        let config = config.with_dynamic_shared(attention::shared_bytes(dims));
        let launch = self.launch("attention", ("prompt", &kernel), config, args)?;
        self.launches.push(launch.with_cache(cache.bytes_per_position_as(CacheType::F16)));
        if most > 1 {
            let args = shares::Merge { partials, prompt, out, heads, head_dim, head_values, most }.args();
            let config = LaunchConfig::new((self.tokens, heads.div_ceil(shares::HEADS)), shares::THREADS);
            let launch =
                self.launch("attention", ("prompt", &format!("prompt_merge_{dims}")), config, args)?;
            self.launches.push(launch);
        }
        Ok(())
    }

    /// Converts the keys and values of a layer up to the chunk's end to f16.
    fn expand_cache(
        &mut self,
        layer: &LayerMemory,
        [out_keys, out_values]: &[Buffer; 2],
        factors: LayerFactors,
    ) -> Result<()> {
        let (m, c, cache) = (self.m, &self.model.config, &self.model.cache);
        let kv_heads = fits(c.kv_heads)?;
        let args = vector::Expand {
            keys: &layer.keys,
            values: &layer.values,
            prompt: &m.chunk,
            tables: self.tables,
            expanded_keys: out_keys,
            expanded_values: out_values,
            kv_heads,
            head_dim: fits(c.padded_head())?,
            key_factor: factors.keys,
            value_factor: factors.values,
            // Only caches in q8_0 are expanded.
            scales_at: cache.scales_at.unwrap_or_default(),
        };
        let sm_count = self.model.device.info().sm_count;
        let grid = (EXPAND_BLOCKS.div_ceil(2 * kv_heads) * sm_count, kv_heads, 2);
        let config = LaunchConfig::new(grid, vector::EXPAND_THREADS);
        let launch = self.launch("attention", ("prompt", "prompt_expand"), config, args.args())?;
        self.launches.push(launch.with_cache(cache.bytes_per_position()));
        Ok(())
    }

    /// The tile for `rows` results per token, `step` at a time, and the number of split-K parts of the row
    /// length.
    fn choose(&self, output: Output, (rows, step): (u32, u32), cols: u32) -> (ProductTile, u32) {
        let (product, chip) =
            (TokensProduct { output, tokens: self.tokens, rows: step, cols }, self.model.chip());
        let (tile, shares) = self.choices.gemm(&product, chip);
        // The last of them may be fewer.
        match tile.divides(output, self.tokens, rows % step) {
            true => (tile, shares),
            false => (choose_any_size(&product, chip, shares), shares),
        }
    }

    /// The launches of a product: slices of the matrix are expanded and multiplied alternately. Returns the
    /// number of split-K parts of the row length.
    fn multiply(&mut self, product: &Product<'_>) -> Result<u32> {
        let cols = product.parts[0].cols;
        let (rows, step) = rows(&product.parts, product.output);
        let whole = match as_it_is(&product.parts) {
            Some(matrix) => Some((matrix.buffer(), matrix.bytes())),
            None => self.kept.of(&product.parts).map(|copy| (copy, copy.len())),
        };
        if let Some((weights, bytes)) = whole {
            let (tile, shares) = self.choose(product.output, (rows, rows), cols);
            let all = Rows { first: 0, len: rows, all: rows };
            self.gemm(product, weights, bytes, all, (tile, shares))?;
            return Ok(shares);
        }
        let (tile, shares) = self.choose(product.output, (rows, step), cols);
        for first in (0..rows).step_by(step as usize) {
            let part = Rows { first, len: step.min(rows - first), all: rows };
            let slice = &self.m.slices[self.expanded % 2];
            self.expanded += 1;
            self.expand(product, slice, part)?;
            self.gemm(product, slice, 0, part, (tile, shares))?;
        }
        Ok(shares)
    }

    /// The sums of squares of a product's rows times the weights `x` of a norm, to element `at` of its result
    /// on. Returns the element after them.
    fn squares(&mut self, product: &Product<'_>, at: usize) -> Result<usize> {
        let cols = product.parts[0].cols;
        let (rows, step) = rows(&product.parts, Output::Sums);
        for first in (0..rows).step_by(step as usize) {
            let len = step.min(rows - first);
            let w = match as_it_is(&product.parts) {
                Some(matrix) => matrix.buffer(),
                None => {
                    let slice = &self.m.slices[self.expanded % 2];
                    self.expanded += 1;
                    self.expand(product, slice, Rows { first, len, all: rows })?;
                    slice
                }
            };
            let out = product.out.at(4 * (at as u64 + u64::from(first)));
            let args = squares::Squares { w: w.at(0), norm: product.x.at(0), out, rows: len, cols }.args();
            let config = LaunchConfig::new(squares::blocks(len), squares::THREADS);
            let launch = self.launch(product.role, ("prompt", "prompt_squares"), config, args)?;
            self.beside = self.launches.len();
            self.launches.push(launch);
        }
        Ok(at + rows as usize)
    }

    /// Expands the rows of some results beside the last product.
    fn expand(&mut self, product: &Product<'_>, slice: &Buffer, rows: Rows) -> Result<()> {
        let Rows { first, len, all } = rows;
        let starts = match product.output {
            Output::Sums => vec![first],
            Output::Gate => vec![first, all + first],
        };
        let (mut expansions, mut to) = (Vec::new(), 0);
        for (matrix, row, len) in starts.into_iter().flat_map(|start| pieces(&product.parts, start, len)) {
            let out = slice.at(2 * u64::from(to) * u64::from(matrix.cols));
            expansions.push(expansion(self.programs, matrix, (row, len), out)?.overlapping());
            to += len;
        }
        let beside = (self.beside + 1).min(self.launches.len());
        self.launches.splice(beside..beside, expansions);
        Ok(())
    }

    /// Multiplies with some rows, which `weights` has in f16.
    fn gemm(
        &mut self,
        product: &Product<'_>,
        weights: &Buffer,
        weight_bytes: u64,
        Rows { first, len, all }: Rows,
        (tile, shares): (ProductTile, u32),
    ) -> Result<()> {
        let cols = product.parts[0].cols;
        let gated = product.output == Output::Gate;
        let args = gemm::Gemm {
            x: product.x.at(0),
            w: weights.at(0),
            out: product.out.at(u64::from(first) * if gated { 2 } else { 4 }),
            tokens: self.tokens,
            rows: len,
            cols,
            pitch: all,
            share: cols / shares,
            share_pitch: self.tokens,
            factor: gated.then_some(product.factor),
        }
        .args();
        let sm_count = self.model.device.info().sm_count;
        let grid = tile.grid(product.output, [self.tokens, len, shares], sm_count);
        let config = LaunchConfig::new(grid, tile.threads()).with_dynamic_shared(tile.shared_bytes());
        let kernel = tile.kernel_name(product.output);
        let launch = self.launch(product.role, (tile.module(), &kernel), config, args)?;
        self.beside = self.launches.len();
        self.launches.push(launch.with_weights(weight_bytes));
        Ok(())
    }
}
