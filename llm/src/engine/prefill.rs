//! Takes in prompts in chunks, with the tensor cores.
//!
//! A chunk's launches are recorded once per size and replayed; where the chunk begins and how many tokens it has is in device
//! memory. Quantized weights are expanded to f16 slice by slice, each beside the product of the slice before, so that a slice is
//! read from the second-level cache. The last layer ends with its keys and values: its output only matters for the prompt's last
//! token, which the launches of an ordinary step take from there to the logits.

use std::time::{Duration, Instant};

use hcq::{Args, Buffer, Device, Graph, LaunchConfig, Queue, SyncPoint};

use super::matrix::{Matrix, fits};
use super::plan::{LayerMemory, ModelMemory, Plan, Stage, record, scales_at};
use super::programs::Programs;
use super::trace::{LaunchTime, run_timed};
use super::{Engine, cache_bytes_per_layer};
use crate::error::Result;
use crate::kernels::gemm::{self, Output, Tile};
use crate::kernels::{
    CacheType, Choices, DEQUANTIZE_THREADS, EXPAND_THREADS, Format, HEAD_DIMS, PROMPT_ATTENTION_THREADS,
    PROMPT_ATTENTION_TOKENS, PROMPT_NORM_THREADS, PROMPT_ROPE_THREADS, PROMPT_TOKENS_AT, TokensProduct,
    dequantize_blocks, prompt_attention_shared,
};
use crate::model::Config;

/// Tokens of a chunk at most.
pub const CHUNK: usize = 512;
/// Chunks are recorded for these numbers of tokens; a smaller one takes the next.
pub const SIZES: [u32; 4] = [64, 128, 256, CHUNK as u32];
/// Weights expanded at a time: 32 MiB in f16, which the second-level cache of a large GPU holds.
const SLICE: u32 = 16 << 20;
/// Blocks of the expansion of a cache per SM, at least.
const EXPAND_BLOCKS: u32 = 8;
/// Slices start at multiples of this many rows.
const SLICE_ROWS: u32 = 128;

/// Whether the kernels can do a model of this shape.
pub fn supports(c: &Config) -> bool {
    [c.hidden, c.q_dim(), c.ff].iter().all(|n| n.is_multiple_of(gemm::DEPTH as usize))
}

/// What chunks need: kernels, weights, activations.
#[derive(Debug)]
pub struct Prefill {
    device: Device,
    programs: Programs,
    choices: Choices,
    config: Config,
    context: u32,
    model: ModelMemory,
    memory: Memory,
    /// For each of [`SIZES`], once it was needed.
    graphs: [Option<Graph>; SIZES.len()],
    /// From the chunk's last token before the last layer to its logits.
    finish: Graph,
    /// The first launch of it.
    last: Stage,
}

/// Activations of a chunk, `[token][value]`.
#[derive(Debug)]
struct Memory {
    /// Position, number of tokens, tokens.
    chunk: Buffer,
    /// The residual stream, f32.
    x: Buffer,
    /// Normalized, f16.
    normed: Buffer,
    /// Queries, keys and values, f32, in shares.
    qkv: Buffer,
    /// Queries, f16.
    q: Buffer,
    /// What attention gives, f16.
    attended: Buffer,
    /// Input of the down projection, f16.
    ff: Buffer,
    /// Products that are still to be added to the stream, f32, in shares.
    sums: Buffer,
    /// Two slices of expanded weights.
    slices: [Buffer; 2],
    /// A layer's keys and values in f16, if its cache is of another type.
    expanded: Option<[Buffer; 2]>,
}

/// A product of all tokens with one or more matrices, one below the other.
struct Product<'a> {
    role: &'static str,
    parts: Vec<&'a Matrix>,
    output: Output,
    x: &'a Buffer,
    /// `[share][token][row]`; whoever reads it adds the shares.
    out: &'a Buffer,
}

/// Launches of a chunk in the making.
struct Recording<'a> {
    programs: &'a mut Programs,
    choices: &'a Choices,
    slices: &'a [Buffer; 2],
    tokens: u32,
    sm_count: u32,
    stages: Vec<Stage>,
    /// How many slices have been expanded.
    expanded: usize,
    /// The last product, beside which the next slice is expanded; at first the embedding.
    beside: usize,
}

impl Prefill {
    /// Reserves the activations of a chunk.
    ///
    /// # Errors
    /// What the device reports.
    pub fn new(
        device: &Device,
        (mut programs, choices): (Programs, Choices),
        config: &Config,
        (context, kv): (usize, CacheType),
        model: ModelMemory,
        plan: &Plan,
    ) -> Result<Self> {
        let c = config;
        let tokens = CHUNK.min(context).next_power_of_two().max(SIZES[0] as usize);
        let sm_count = device.info().sm_count;
        let sums = |rows: usize, cols: usize| sums(&choices, rows, cols, sm_count);
        let values = |bytes: usize, count: usize| device.alloc((bytes * count) as u64);
        let slice = || {
            let widest = c.hidden.max(c.ff).max(c.q_dim());
            values(2, (SLICE as usize).max(SLICE_ROWS as usize * 2 * widest))
        };
        let memory = Memory {
            chunk: values(4, PROMPT_TOKENS_AT as usize + CHUNK)?,
            x: values(4, tokens * c.hidden)?,
            normed: values(2, tokens * c.hidden)?,
            qkv: values(4, sums(c.q_dim() + 2 * c.kv_dim(), c.hidden)?)?,
            q: values(2, tokens * c.q_dim())?,
            attended: values(2, tokens * c.q_dim())?,
            ff: values(2, tokens * c.ff)?,
            sums: values(4, sums(c.hidden, c.q_dim())?.max(sums(c.hidden, c.ff)?))?,
            slices: [slice()?, slice()?],
            expanded: match kv {
                CacheType::F16 => None,
                CacheType::Q8_0 => {
                    let cache = || values(2, c.kv_dim() * context);
                    Some([cache()?, cache()?])
                }
            },
        };
        let args = Args::new().buffer(&memory.x).buffer(&memory.chunk).buffer(&plan.x).u32(fits(c.hidden)?);
        let blocks = fits(c.hidden)?.div_ceil(PROMPT_NORM_THREADS);
        let last = Stage {
            role: "last token",
            kernel: programs.kernel("prompt", "prompt_last")?,
            config: LaunchConfig::new(blocks, PROMPT_NORM_THREADS),
            args,
            weight_bytes: 0,
            cache_bytes: 0,
            overlaps: false,
        };
        let finish = record(device, [&last].into_iter().chain(&plan.stages[plan.last_layer..]))?;
        let config = config.clone();
        let graphs = [const { None }; SIZES.len()];
        let (device, context) = (device.clone(), fits(context)?);
        Ok(Self { device, programs, choices, config, context, model, memory, graphs, finish, last })
    }

    /// Takes in up to [`CHUNK`] tokens at `position`, for which there is room in the cache.
    ///
    /// # Errors
    /// What the device reports.
    pub fn run(&mut self, queue: &mut Queue, position: usize, tokens: &[u32]) -> Result<SyncPoint> {
        let size = self.prepare(position, tokens)?;
        Ok(queue.replay(self.recorded(size)?)?)
    }

    /// The launches of a chunk of one of [`SIZES`], recorded the first time.
    fn recorded(&mut self, size: usize) -> Result<&Graph> {
        let graph = match self.graphs[size].take() {
            Some(graph) => graph,
            None => {
                let stages = self.stages(SIZES[size])?;
                record(&self.device, stages.iter())?
            }
        };
        Ok(self.graphs[size].insert(graph))
    }

    /// Records what a prompt of `tokens` tokens takes, so that the first one does not wait for it.
    ///
    /// # Errors
    /// What loading the kernels reports.
    pub fn record(&mut self, tokens: usize) -> Result<()> {
        let chunks = [tokens.min(CHUNK), tokens % CHUNK];
        chunks.into_iter().filter(|tokens| *tokens > 0).try_for_each(|tokens| {
            let size = Self::size(tokens);
            self.recorded(size).map(drop)
        })
    }

    /// Which of [`SIZES`] a chunk takes.
    fn size(tokens: usize) -> usize {
        SIZES.iter().position(|s| *s as usize >= tokens).unwrap_or(SIZES.len() - 1)
    }

    /// Computes the logits of the last token of the chunk taken in last; the step's state must say where it is.
    pub fn finish(&self) -> &Graph {
        &self.finish
    }

    /// The first launch of [`Prefill::finish`]; those of a step's last layer and what is behind it follow.
    pub fn last(&self) -> &Stage {
        &self.last
    }

    /// As [`Prefill::run`], but one launch after the other, each with its time.
    ///
    /// # Errors
    /// What the device reports.
    pub fn timed(
        &mut self,
        queue: &mut Queue,
        position: usize,
        tokens: &[u32],
        patience: Duration,
    ) -> Result<Vec<LaunchTime>> {
        let size = self.prepare(position, tokens)?;
        let stages = self.stages(SIZES[size])?;
        run_timed(queue, &stages, (position, tokens.len()), patience)
    }

    /// The launches of a full chunk, to look at: there may be no room to run them.
    ///
    /// # Errors
    /// What loading the kernels reports.
    pub fn full_chunk(&mut self) -> Result<Vec<Stage>> {
        self.stages(CHUNK as u32)
    }

    /// Puts a chunk into device memory and returns which of [`SIZES`] it takes.
    pub fn prepare(&self, position: usize, tokens: &[u32]) -> Result<usize> {
        let mut words = vec![fits(position)?, fits(tokens.len())?];
        words.resize(PROMPT_TOKENS_AT as usize, 0);
        words.extend(tokens);
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        self.memory.chunk.write(0, &bytes)?;
        Ok(Self::size(tokens.len()))
    }

    /// The launches of a chunk of up to `tokens` tokens.
    ///
    /// # Errors
    /// What loading the kernels reports.
    pub fn stages(&mut self, tokens: u32) -> Result<Vec<Stage>> {
        let (c, m) = (&self.config, &self.memory);
        let mut r = Recording {
            programs: &mut self.programs,
            choices: &self.choices,
            slices: &m.slices,
            tokens,
            sm_count: self.device.info().sm_count,
            stages: Vec::new(),
            expanded: 0,
            beside: 0,
        };
        let embedding = &self.model.embedding;
        let args = embedding.args().buffer(&m.chunk).buffer(&m.x).u32(embedding.rows).u32(embedding.cols);
        let kernel = format!("embed_prompt_{}", embedding.format.suffix());
        r.push("embedding", "dequantize", &kernel, LaunchConfig::new(tokens, DEQUANTIZE_THREADS), args)?;
        let mut waiting = 0;
        for (i, layer) in self.model.layers.iter().enumerate() {
            r.norm("attention norm", m, &layer.attn_norm, c, waiting)?;
            let (role, parts) = ("q k v", layer.qkv.iter().collect());
            let product = Product { role, parts, output: Output::Sums, x: &m.normed, out: &m.qkv };
            let shares = r.multiply(&product)?;
            r.rope(m, layer, &self.model.turns, c, self.context, shares)?;
            if i + 1 == self.model.layers.len() {
                break;
            }
            r.attend(m, layer, c, self.context)?;
            let (role, parts) = ("attention output", vec![&layer.o]);
            let product = Product { role, parts, output: Output::Sums, x: &m.attended, out: &m.sums };
            waiting = r.multiply(&product)?;
            r.norm("ff norm", m, &layer.ffn_norm, c, waiting)?;
            let (role, parts) = ("gate up", layer.gate_up.iter().collect());
            r.multiply(&Product { role, parts, output: Output::Gate, x: &m.normed, out: &m.ff })?;
            let (role, parts) = ("down", vec![&layer.down]);
            let product = Product { role, parts, output: Output::Sums, x: &m.ff, out: &m.sums };
            waiting = r.multiply(&product)?;
        }
        Ok(r.stages)
    }
}

impl Engine {
    /// Times every launch of a prompt of `tokens` tokens at an empty context, one after the other, after replaying it for
    /// `warm_up`, and forgets it again. Nothing for a model that prompts do not go through chunks for.
    ///
    /// # Errors
    /// As [`Engine::prefill`].
    pub fn profile_prompt(&mut self, tokens: usize, warm_up: Duration) -> Result<Vec<LaunchTime>> {
        self.reset()?;
        self.room(tokens)?;
        let Some(prefill) = &mut self.prefill else { return Ok(Vec::new()) };
        let patience = self.patience * CHUNK as u32;
        let prompt = vec![0; tokens];
        let begin = Instant::now();
        while begin.elapsed() < warm_up {
            for (i, chunk) in prompt.chunks(CHUNK).enumerate() {
                prefill.run(&mut self.queue, i * CHUNK, chunk)?.wait(patience)?;
            }
        }
        let mut times = Vec::new();
        for (i, chunk) in prompt.chunks(CHUNK).enumerate() {
            times.append(&mut prefill.timed(&mut self.queue, i * CHUNK, chunk, patience)?);
        }
        self.reset()?;
        Ok(times)
    }
}

impl Recording<'_> {
    fn stage(
        &mut self,
        role: &'static str,
        module: &'static str,
        kernel: &str,
        config: LaunchConfig,
        args: Args,
    ) -> Result<Stage> {
        let kernel = self.programs.kernel(module, kernel)?;
        Ok(Stage { role, kernel, config, args, weight_bytes: 0, cache_bytes: 0, overlaps: false })
    }

    fn push(
        &mut self,
        role: &'static str,
        module: &'static str,
        kernel: &str,
        config: LaunchConfig,
        args: Args,
    ) -> Result<()> {
        let stage = self.stage(role, module, kernel, config, args)?;
        self.stages.push(stage);
        Ok(())
    }

    /// Adds the `shares` sums that wait to the residual stream and normalizes it.
    fn norm(
        &mut self,
        role: &'static str,
        m: &Memory,
        weight: &Buffer,
        c: &Config,
        shares: u32,
    ) -> Result<()> {
        let args = Args::new().buffer(&m.x).buffer(&m.sums).buffer(weight).buffer(&m.normed);
        let args = args.u32(fits(c.hidden)?).f32(c.rms_eps).u32(shares).u32(self.tokens);
        self.push(role, "prompt", "prompt_norm", LaunchConfig::new(self.tokens, PROMPT_NORM_THREADS), args)
    }

    fn rope(
        &mut self,
        m: &Memory,
        layer: &LayerMemory,
        turns: &Buffer,
        c: &Config,
        context: u32,
        shares: u32,
    ) -> Result<()> {
        let pairs = fits((c.heads + 2 * c.kv_heads) * c.head_dim / 2)?;
        let args = Args::new().buffer(&m.qkv).buffer(turns).buffer(&m.chunk);
        let args = args.buffer(&m.q).buffer(&layer.keys).buffer(&layer.values);
        let args = args.u32(fits(c.heads)?).u32(fits(c.kv_heads)?).u32(fits(c.head_dim / 2)?).u32(context);
        let args = args.u32(shares).u32(self.tokens);
        let (kernel, args) = match m.expanded {
            None => ("prompt_rope", args),
            Some(_) => ("prompt_rope_q8_0", args.u32(scales_at(c, context)?)),
        };
        let grid = (pairs.div_ceil(PROMPT_ROPE_THREADS), self.tokens);
        let config = LaunchConfig::new(grid, PROMPT_ROPE_THREADS);
        self.push("rotate, cache", "prompt", kernel, config, args)
    }

    fn attend(&mut self, m: &Memory, layer: &LayerMemory, c: &Config, context: u32) -> Result<()> {
        let head_dim = fits(c.head_dim)?;
        let longest = *HEAD_DIMS.last().unwrap_or(&0);
        let dims = HEAD_DIMS.into_iter().find(|d| *d >= head_dim).unwrap_or(longest);
        let [keys, values] = match &m.expanded {
            None => [&layer.keys, &layer.values],
            Some([keys, values]) => {
                let kv_heads = fits(c.kv_heads)?;
                let args = Args::new().buffer(&layer.keys).buffer(&layer.values).buffer(&m.chunk);
                let args = args.buffer(keys).buffer(values).u32(context).u32(head_dim);
                let args = args.u32(scales_at(c, context)?);
                let grid = (EXPAND_BLOCKS.div_ceil(2 * kv_heads) * self.sm_count, kv_heads, 2);
                let config = LaunchConfig::new(grid, EXPAND_THREADS);
                let mut stage = self.stage("attention", "prompt", "prompt_expand", config, args)?;
                stage.cache_bytes = cache_bytes_per_layer(c, CacheType::Q8_0);
                self.stages.push(stage);
                [keys, values]
            }
        };
        let args = Args::new().buffer(&m.q).buffer(keys).buffer(values).buffer(&m.chunk);
        let args = args.buffer(&m.attended).u32(context).u32(head_dim).u32(fits(c.heads / c.kv_heads)?);
        let args = args.f32(1.0 / (c.head_dim as f32).sqrt());
        let grid = (self.tokens.div_ceil(PROMPT_ATTENTION_TOKENS), fits(c.heads)?);
        let config = LaunchConfig::new(grid, PROMPT_ATTENTION_THREADS);
        let config = config.with_dynamic_shared(prompt_attention_shared(dims));
        let mut stage =
            self.stage("attention", "prompt", &format!("prompt_attention_{dims}"), config, args)?;
        stage.cache_bytes = cache_bytes_per_layer(c, CacheType::F16);
        self.stages.push(stage);
        Ok(())
    }

    /// The tile for `rows` results per token, and into how many shares to split the row length.
    fn choose(&self, output: Output, rows: u32, cols: u32) -> (Tile, u32) {
        self.choices.gemm(&TokensProduct { output, tokens: self.tokens, rows, cols }, self.sm_count)
    }

    /// The launches of a product: slices of the matrix are expanded and multiplied in turns. Returns into how many shares the row
    /// length is split.
    fn multiply(&mut self, product: &Product<'_>) -> Result<u32> {
        let cols = product.parts[0].cols;
        let gated = product.output == Output::Gate;
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
            let slices = self.slices;
            let slice = &slices[self.expanded % 2];
            self.expanded += 1;
            let mut expansions = Vec::new();
            let mut to = 0;
            for start in [first, rows + first].into_iter().take(if gated { 2 } else { 1 }) {
                for (matrix, row, len) in pieces(&product.parts, start, len) {
                    let args = matrix.args_from(row).buffer_at(slice, 2 * u64::from(to) * u64::from(cols));
                    let args = args.u32(len).u32(cols);
                    let config = LaunchConfig::new(dequantize_blocks(len), DEQUANTIZE_THREADS);
                    let kernel = format!("dequantize_{}", matrix.format.suffix());
                    let mut stage = self.stage("expand", "dequantize", &kernel, config, args)?;
                    stage.weight_bytes = matrix.row_bytes() * u64::from(len);
                    stage.overlaps = true;
                    expansions.push(stage);
                    to += len;
                }
            }
            let beside = self.beside + 1;
            self.stages.splice(beside..beside, expansions);
            let add = |args: Args| args.buffer(slice);
            self.gemm(product, &add, 0, (first, len, rows), (tile, shares))?;
        }
        Ok(shares)
    }

    /// Multiplies with `len` rows from `first` on, of `rows` in all; `weights` adds the argument that says where they are.
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
        let grid = tile.grid(product.output, self.tokens, len, shares);
        let config = LaunchConfig::new(grid, tile.threads()).with_dynamic_shared(tile.shared_bytes());
        let mut stage = self.stage(product.role, "gemm", &tile.kernel_name(product.output), config, args)?;
        stage.weight_bytes = weight_bytes;
        self.beside = self.stages.len();
        self.stages.push(stage);
        Ok(())
    }
}

/// The products of a chunk of up to `tokens` tokens, each of one launch.
pub fn products(model: &ModelMemory, tokens: u32) -> Vec<TokensProduct> {
    let of = |parts: &[&Matrix], output| {
        let (cols, rows) = (parts[0].cols, rows(parts, output).1);
        TokensProduct { output, tokens, rows, cols }
    };
    let of_layer = |layer: &LayerMemory| {
        let (qkv, gate_up): (Vec<_>, Vec<_>) = (layer.qkv.iter().collect(), layer.gate_up.iter().collect());
        let (o, down) = (of(&[&layer.o], Output::Sums), of(&[&layer.down], Output::Sums));
        [of(&qkv, Output::Sums), o, of(&gate_up, Output::Gate), down]
    };
    model.layers.iter().flat_map(of_layer).collect()
}

/// Results per token of a product with matrices one below the other, and those of one launch.
fn rows(parts: &[&Matrix], output: Output) -> (u32, u32) {
    let (cols, all): (u32, u32) = (parts[0].cols, parts.iter().map(|m| m.rows).sum());
    let gated = output == Output::Gate;
    let rows = if gated { all / 2 } else { all };
    match parts {
        [matrix] if matrix.format == Format::F16 => (rows, rows),
        _ => (rows, slice_rows(rows, if gated { 2 * cols } else { cols })),
    }
}

/// Into slices of how many rows to cut a matrix of `rows` rows, each of `cols` values.
fn slice_rows(rows: u32, cols: u32) -> u32 {
    let most = (SLICE / cols / SLICE_ROWS * SLICE_ROWS).max(SLICE_ROWS);
    rows.div_ceil(rows.div_ceil(most)).next_multiple_of(SLICE_ROWS)
}

/// Values that the sums of a product with `rows` rows of `cols` values take at most, in all their shares.
fn sums(choices: &Choices, rows: usize, cols: usize, sm_count: u32) -> Result<usize> {
    let (rows, cols) = (fits(rows)?, fits(cols)?);
    let values = |tokens: u32| {
        let shares = [rows, slice_rows(rows, cols)].map(|rows| {
            let product = TokensProduct { output: Output::Sums, tokens, rows, cols };
            choices.gemm(&product, sm_count).1
        });
        shares[0].max(shares[1]) as usize * tokens as usize * rows as usize
    };
    Ok(SIZES.into_iter().map(values).max().unwrap_or_default())
}

/// The pieces of matrices, one below the other, that rows `start` to `start + len` cover: each with its first row and their number.
fn pieces<'a>(parts: &[&'a Matrix], start: u32, len: u32) -> Vec<(&'a Matrix, u32, u32)> {
    let mut above = 0;
    let mut all = Vec::new();
    for matrix in parts {
        let (from, to) = (start.max(above), (start + len).min(above + matrix.rows));
        if from < to {
            all.push((*matrix, from - above, to - from));
        }
        above += matrix.rows;
    }
    all
}
