//! Lowers a model to the launches of a chunk.

use hcq::{Args, Buffer, LaunchConfig};

use crate::cache::CacheType;
use crate::engine::launch::{Launch, filled};
use crate::engine::matrix::{Matrix, fits};
use crate::engine::memory::{DeviceModel, LayerMemory};
use crate::engine::programs::Programs;
use crate::engine::prompt::activations::Activations;
use crate::engine::prompt::products::{pieces, rows};
use crate::engine::prompt::ranges::{LayerFactors, measured_rows};
use crate::error::Result;
use crate::kernels::choices::{Choices, TokensProduct};
use crate::kernels::format::Format;
use crate::kernels::heads::kernel_dims;
use crate::kernels::prompt::gemm::{Output, Tile};
use crate::kernels::prompt::{attention, dequantize, shares, squares, vector};

/// Blocks per SM that expand a cache, at least.
const EXPAND_BLOCKS: u32 = 8;

/// Sums that wait to be added to the residual stream.
#[derive(Clone, Copy)]
struct Waiting {
    /// Parts of each sum.
    shares: u32,
    /// What they are multiplied by.
    factor: f32,
}

/// A product of all tokens with stacked matrices.
struct Product<'a> {
    role: &'static str,
    parts: Vec<&'a Matrix>,
    output: Output,
    /// Of [`Output::Gate`].
    factor: f32,
    x: &'a Buffer,
    /// `[share][token][row]`; the reader adds the shares.
    out: &'a Buffer,
}

/// Collects the launches of a chunk.
struct Planner<'a> {
    model: &'a DeviceModel,
    programs: &'a mut Programs,
    choices: &'a Choices,
    m: &'a Activations,
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
    choices: &Choices,
    m: &Activations,
    factors: &[LayerFactors],
    tokens: u32,
) -> Result<Vec<Launch>> {
    let launches = Vec::new();
    let mut p = Planner { model, programs, choices, m, tokens, launches, expanded: 0, beside: 0 };
    p.embed()?;
    let mut waiting = Waiting { shares: 0, factor: 1.0 };
    for (i, layer) in model.layers.iter().enumerate() {
        let factors = factors.get(i).copied().unwrap_or(LayerFactors::ONE);
        // Of the cache in f16 nothing is expanded.
        let expanded = if m.expanded.is_some() {
            factors
        } else {
            LayerFactors { queries: factors.queries, ..LayerFactors::ONE }
        };
        p.norm("attention norm", &layer.attn_norm, waiting)?;
        let (role, parts) = ("q k v", layer.qkv.iter().collect());
        let shares = p.multiply(&Product::sums(role, parts, &m.normed, &m.qkv))?;
        p.rope(layer, shares, factors)?;
        if i + 1 == model.layers.len() {
            break;
        }
        p.attend(layer, expanded)?;
        let shares = p.multiply(&Product::sums("attention output", vec![&layer.o], &m.attended, &m.sums))?;
        p.norm("ff norm", &layer.ffn_norm, Waiting { shares, factor: 1.0 / expanded.values })?;
        let (role, parts) = ("gate up", layer.gate_up.iter().collect());
        let product = Product::sums(role, parts, &m.normed, &m.ff);
        p.multiply(&Product { output: Output::Gate, factor: factors.ff, ..product })?;
        let shares = p.multiply(&Product::sums("down", vec![&layer.down], &m.ff, &m.sums))?;
        waiting = Waiting { shares, factor: 1.0 / factors.ff };
    }
    Ok(p.launches)
}

/// The launches that write the sums of squares of [`measured_rows`] of every layer but the last to `out`.
pub fn measure(
    model: &DeviceModel,
    programs: &mut Programs,
    choices: &Choices,
    m: &Activations,
    out: &Buffer,
) -> Result<Vec<Launch>> {
    let launches = Vec::new();
    let mut p = Planner { model, programs, choices, m, tokens: 0, launches, expanded: 0, beside: 0 };
    let mut at = 0;
    for layer in &model.layers[..model.layers.len().saturating_sub(1)] {
        let of = |parts, x| Product::sums("measure", parts, x, out);
        let qkv = of(layer.qkv.iter().collect(), &layer.attn_norm);
        let gate_up = of(layer.gate_up.iter().collect(), &layer.ffn_norm);
        at = p.squares(&qkv, at)?;
        at = p.squares(&gate_up, at)?;
    }
    debug_assert_eq!(at, model.layers.len().saturating_sub(1) * measured_rows(&model.config));
    Ok(p.launches)
}

impl<'a> Product<'a> {
    /// Plain sums.
    fn sums(role: &'static str, parts: Vec<&'a Matrix>, x: &'a Buffer, out: &'a Buffer) -> Self {
        Self { role, parts, output: Output::Sums, factor: 1.0, x, out }
    }
}

impl Planner<'_> {
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
        let args = embedding.args().buffer(&self.m.chunk).buffer(&self.m.x);
        let args = args.u32(embedding.rows).u32(embedding.cols);
        let kernel = format!("embed_prompt_{}", embedding.format.suffix());
        let config = LaunchConfig::new(self.tokens, dequantize::EMBED_THREADS);
        let launch = self.launch("embedding", ("dequantize", &kernel), config, args)?;
        self.launches.push(launch);
        Ok(())
    }

    /// Adds the waiting sums to the residual stream and normalizes it.
    fn norm(&mut self, role: &'static str, weight: &Buffer, waiting: Waiting) -> Result<()> {
        let (m, c) = (self.m, &self.model.config);
        let args = Args::new().buffer(&m.x).buffer(&m.sums).buffer(weight).buffer(&m.normed);
        let args = args.u32(fits(c.hidden)?).f32(c.rms_eps).u32(waiting.shares).u32(self.tokens);
        let args = args.f32(waiting.factor);
        let config = LaunchConfig::new(self.tokens, vector::NORM_THREADS);
        let launch = self.launch(role, ("prompt", "prompt_norm"), config, args)?;
        self.launches.push(launch);
        Ok(())
    }

    fn rope(&mut self, layer: &LayerMemory, shares: u32, factors: LayerFactors) -> Result<()> {
        let (m, c, cache) = (self.m, &self.model.config, &self.model.cache);
        let pairs = fits((c.heads + 2 * c.kv_heads) * c.head_dim / 2)?;
        let args = Args::new().buffer(&m.qkv).buffer(&self.model.turns).buffer(&m.chunk);
        let args = args.buffer(&m.q).buffer(&layer.keys).buffer(&layer.values);
        let args = args.u32(fits(c.heads)?).u32(fits(c.kv_heads)?).u32(fits(c.head_dim / 2)?);
        let args = args.u32(cache.context).u32(shares).u32(self.tokens).f32(factors.queries);
        let (kernel, args) = match cache.scales_at {
            None => ("prompt_rope", args),
            Some(at) => ("prompt_rope_q8_0", args.u32(at)),
        };
        let grid = (pairs.div_ceil(vector::ROPE_THREADS), self.tokens);
        let config = LaunchConfig::new(grid, vector::ROPE_THREADS);
        let launch = self.launch("rotate, cache", ("prompt", kernel), config, args)?;
        self.launches.push(launch);
        Ok(())
    }

    fn attend(&mut self, layer: &LayerMemory, factors: LayerFactors) -> Result<()> {
        let (m, c, cache) = (self.m, &self.model.config, &self.model.cache);
        let (head_dim, context) = (fits(c.head_dim)?, cache.context);
        let dims = kernel_dims(head_dim);
        let [keys, values] = match &m.expanded {
            None => [&layer.keys, &layer.values],
            Some([keys, values]) => {
                let kv_heads = fits(c.kv_heads)?;
                let args = Args::new().buffer(&layer.keys).buffer(&layer.values).buffer(&m.chunk);
                let args = args.buffer(keys).buffer(values).u32(context).u32(head_dim);
                let args = args.f32(factors.keys).f32(factors.values);
                let args = cache.scales_at.into_iter().fold(args, Args::u32);
                let sm_count = self.model.device.info().sm_count;
                let grid = (EXPAND_BLOCKS.div_ceil(2 * kv_heads) * sm_count, kv_heads, 2);
                let config = LaunchConfig::new(grid, vector::EXPAND_THREADS);
                let launch = self.launch("attention", ("prompt", "prompt_expand"), config, args)?;
                self.launches.push(launch.with_cache(cache.bytes_per_position()));
                [keys, values]
            }
        };
        let args = Args::new().buffer(&m.q).buffer(keys).buffer(values).buffer(&m.chunk);
        let args = args.buffer(&m.attended).u32(context).u32(head_dim).u32(fits(c.heads / c.kv_heads)?);
        let args = args.f32(1.0 / (c.head_dim as f32).sqrt() / (factors.queries * factors.keys));
        let (heads, sm_count) = (fits(c.heads)?, self.model.device.info().sm_count);
        let most = shares::most(self.tokens, heads, sm_count);
        let args = args.buffer(&m.partials);
        let grid = (self.tokens.div_ceil(shares::TOKENS), heads, most);
        let config = LaunchConfig::new(grid, attention::THREADS);
        let config = config.with_dynamic_shared(attention::shared_bytes(dims));
        let launch =
            self.launch("attention", ("prompt", &format!("prompt_attention_{dims}")), config, args)?;
        self.launches.push(launch.with_cache(cache.bytes_per_position_as(CacheType::F16)));
        if most > 1 {
            let args = Args::new().buffer(&m.partials).buffer(&m.chunk).buffer(&m.attended);
            let args = args.u32(heads).u32(head_dim).u32(most);
            let config = LaunchConfig::new((self.tokens, heads.div_ceil(shares::HEADS)), shares::THREADS);
            let launch =
                self.launch("attention", ("prompt", &format!("prompt_merge_{dims}")), config, args)?;
            self.launches.push(launch);
        }
        Ok(())
    }

    /// The tile for `rows` results per token, and the number of shares of the row length.
    fn choose(&self, output: Output, rows: u32, cols: u32) -> (Tile, u32) {
        let product = TokensProduct { output, tokens: self.tokens, rows, cols };
        self.choices.gemm(&product, self.model.device.info().sm_count)
    }

    /// The launches of a product: slices of the matrix are expanded and multiplied in turns. Returns the
    /// number of shares of the row length.
    fn multiply(&mut self, product: &Product<'_>) -> Result<u32> {
        let cols = product.parts[0].cols;
        let (rows, step) = rows(&product.parts, product.output);
        if let [matrix] = product.parts[..]
            && matrix.format == Format::F16
        {
            let (tile, shares) = self.choose(product.output, rows, cols);
            let add = |args: Args| matrix.halves(args);
            self.gemm(product, &add, matrix.bytes(), (0, rows, rows), (tile, shares))?;
            return Ok(shares);
        }
        let (tile, shares) = self.choose(product.output, step, cols);
        for first in (0..rows).step_by(step as usize) {
            let len = step.min(rows - first);
            let slice = &self.m.slices[self.expanded % 2];
            self.expanded += 1;
            self.expand(product, slice, (first, len, rows))?;
            let add = |args: Args| args.buffer(slice);
            self.gemm(product, &add, 0, (first, len, rows), (tile, shares))?;
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
            let args = match product.parts[..] {
                [matrix] if matrix.format == Format::F16 => matrix.halves(Args::new()),
                _ => {
                    let slice = &self.m.slices[self.expanded % 2];
                    self.expanded += 1;
                    self.expand(product, slice, (first, len, rows))?;
                    Args::new().buffer(slice)
                }
            };
            let out_at = 4 * (at as u64 + u64::from(first));
            let args = args.buffer(product.x).buffer_at(product.out, out_at).u32(len).u32(cols);
            let config = LaunchConfig::new(squares::blocks(len), squares::THREADS);
            let launch = self.launch(product.role, ("prompt", "prompt_squares"), config, args)?;
            self.beside = self.launches.len();
            self.launches.push(launch);
        }
        Ok(at + rows as usize)
    }

    /// Expands the rows of `len` results from `first` on, of `rows` in all, beside the last product.
    fn expand(
        &mut self,
        product: &Product<'_>,
        slice: &Buffer,
        (first, len, rows): (u32, u32, u32),
    ) -> Result<()> {
        let starts = match product.output {
            Output::Sums => vec![first],
            Output::Gate => vec![first, rows + first],
        };
        let (mut expansions, mut to) = (Vec::new(), 0);
        for (matrix, row, len) in starts.into_iter().flat_map(|start| pieces(&product.parts, start, len)) {
            let cols = matrix.cols;
            let args = matrix.args_from(row).buffer_at(slice, 2 * u64::from(to) * u64::from(cols));
            let args = args.u32(len).u32(cols);
            let config = LaunchConfig::new(dequantize::grid(matrix.format, len, cols), dequantize::THREADS);
            let kernel = format!("dequantize_{}", matrix.format.suffix());
            let launch = self.launch("expand", ("dequantize", &kernel), config, args)?;
            expansions.push(launch.with_weights(matrix.row_bytes() * u64::from(len)).overlapping());
            to += len;
        }
        let beside = (self.beside + 1).min(self.launches.len());
        self.launches.splice(beside..beside, expansions);
        Ok(())
    }

    /// Multiplies with `len` rows from `first` on, of `rows` in all; `weights` adds the argument with their
    /// address.
    fn gemm(
        &mut self,
        product: &Product<'_>,
        weights: &dyn Fn(Args) -> Args,
        weight_bytes: u64,
        (first, len, rows): (u32, u32, u32),
        (tile, shares): (Tile, u32),
    ) -> Result<()> {
        let cols = product.parts[0].cols;
        let bytes = if product.output == Output::Gate { 2 } else { 4 };
        let args = weights(Args::new().buffer(product.x)).buffer_at(product.out, bytes * u64::from(first));
        let args = args.u32(self.tokens).u32(len).u32(cols).u32(rows).u32(cols / shares).u32(self.tokens);
        let args = if product.output == Output::Gate { args.f32(product.factor) } else { args };
        let grid = tile.grid(product.output, self.tokens, len, shares);
        let config = LaunchConfig::new(grid, tile.threads()).with_dynamic_shared(tile.shared_bytes());
        let kernel = tile.kernel_name(product.output);
        let launch = self.launch(product.role, ("gemm", &kernel), config, args)?;
        self.beside = self.launches.len();
        self.launches.push(launch.with_weights(weight_bytes));
        Ok(())
    }
}
