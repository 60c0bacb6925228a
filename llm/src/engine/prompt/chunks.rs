//! Processes prompts in chunks, on the tensor cores.
//!
//! A chunk's launches are recorded once per size and replayed; its position and its tokens are in device
//! memory. Quantized weights are expanded to f16 slice by slice, each beside the product of the previous
//! slice, so that a slice is read from the level-2 cache. The last layer ends with its keys and values: its
//! output only matters for the prompt's last token, for which the launches of an ordinary step continue to
//! the logits.

use std::time::Duration;

use hcq::{Args, Graph, LaunchConfig, Queue, SyncPoint};

use crate::engine::launch::{Launch, record};
use crate::engine::matrix::fits;
use crate::engine::memory::DeviceModel;
use crate::engine::operations::Operations;
use crate::engine::programs::Programs;
use crate::engine::prompt::activations::Activations;
use crate::engine::prompt::lower::{launches, measure};
use crate::engine::prompt::products::{SIZES, cut, longest_chunk};
use crate::engine::prompt::ranges::{LayerFactors, factors, measured_rows};
use crate::engine::timed::run_timed;
use crate::engine::times::{LaunchTime, Work};
use crate::error::Result;
use crate::kernels::choices::Choices;
use crate::kernels::format::TILE_ROWS;
use crate::kernels::prompt::chunk::TOKENS_AT;
use crate::kernels::prompt::{gemm, vector};
use crate::model::config::Config;

/// Whether the kernels take a model of this shape. Slices of stacked matrices begin at whole tiles.
pub fn supports(c: &Config) -> bool {
    [c.hidden, c.q_dim(), c.ff].iter().all(|n| n.is_multiple_of(gemm::DEPTH as usize))
        && c.kv_dim().is_multiple_of(TILE_ROWS as usize)
}

/// Kernels and activations of chunks.
#[derive(Debug)]
pub struct Prompt {
    programs: Programs,
    choices: Choices,
    /// Most tokens of a chunk.
    longest: usize,
    activations: Activations,
    /// Of every layer but the last; empty until they are measured.
    factors: Vec<LayerFactors>,
    /// Whether f16 holds the activations, if that is known.
    in_range: Option<bool>,
    /// One per size, recorded on first use.
    graphs: [Option<Graph>; SIZES.len()],
    /// From the chunk's last token before the last layer to its logits. The step's state has the token's
    /// position.
    pub finish: Graph,
    /// The first launch of `finish`; those of a step's last layer and head follow.
    pub last: Launch,
}

impl Prompt {
    /// Reserves the activations of a chunk of the model `m`.
    pub fn new(
        m: &DeviceModel,
        mut programs: Programs,
        choices: Choices,
        operations: &Operations,
    ) -> Result<Self> {
        let activations = Activations::new(m, &choices)?;
        let hidden = fits(m.config.hidden)?;
        let args = Args::new().buffer(&activations.x).buffer(&activations.chunk).buffer(&operations.x);
        let config = LaunchConfig::new(hidden.div_ceil(vector::NORM_THREADS), vector::NORM_THREADS);
        let kernel = programs.kernel("prompt", "prompt_last")?;
        let last = Launch::new("last token", kernel, config, args.u32(hidden));
        let finish = record(&m.device, [&last].into_iter().chain(operations.last_layer_on()))?;
        let graphs = [const { None }; SIZES.len()];
        let factors = Vec::new();
        let longest = longest_chunk(&m.config);
        Ok(Self { programs, choices, longest, activations, factors, in_range: None, graphs, finish, last })
    }

    /// Whether f16 holds the activations of every prompt. The first call measures the rows of the weights, and
    /// must precede the first chunk.
    pub fn in_range(&mut self, m: &DeviceModel, queue: &mut Queue) -> Result<bool> {
        if let Some(known) = self.in_range {
            return Ok(known);
        }
        let rows = m.layers.len().saturating_sub(1) * measured_rows(&m.config);
        let squares = m.device.alloc(4 * rows.max(1) as u64)?;
        let launches = measure(m, &mut self.programs, &self.choices, &self.activations, &squares)?;
        let found = factors(m, queue, &launches, &squares)?;
        let known = found.is_some();
        if !known {
            tracing::warn!(
                "prompts are processed token by token: weights are so large, or no numbers, that activations may \
                 leave the range of f16"
            );
        }
        self.factors = found.unwrap_or_default();
        self.in_range = Some(known);
        Ok(known)
    }

    /// The chunks of a prompt, each with the number of tokens before it.
    pub fn cut<'a>(&self, tokens: &'a [u32]) -> impl Iterator<Item = (usize, &'a [u32])> + use<'a> {
        cut(tokens.len(), self.longest).scan(0, |at, len| {
            let begin = *at;
            *at += len;
            Some((begin, &tokens[begin..*at]))
        })
    }

    /// How long a chunk may take: at most as long as its tokens one by one.
    pub fn patience(&self, m: &DeviceModel) -> Duration {
        m.patience * self.longest as u32
    }

    /// Submits a chunk at `position`, which fits the cache.
    pub fn run(
        &mut self,
        m: &DeviceModel,
        queue: &mut Queue,
        position: usize,
        tokens: &[u32],
    ) -> Result<SyncPoint> {
        let size = self.prepare(position, tokens)?;
        Ok(queue.replay(self.recorded(m, size)?)?)
    }

    /// [`Prompt::run`] with one launch after the other, each with its time.
    pub fn timed(
        &mut self,
        m: &DeviceModel,
        queue: &mut Queue,
        position: usize,
        tokens: &[u32],
        patience: Duration,
    ) -> Result<Vec<LaunchTime>> {
        let size = self.prepare(position, tokens)?;
        let launches = self.launches(m, SIZES[size])?;
        run_timed(queue, &launches, Work::Prompt, (position, tokens.len()), patience)
    }

    /// Records the launches of a prompt of `tokens` tokens, unless they are recorded.
    pub fn record(&mut self, m: &DeviceModel, tokens: usize) -> Result<()> {
        cut(tokens, self.longest).try_for_each(|tokens| self.recorded(m, size(tokens)).map(drop))
    }

    /// The launches of a full chunk, to inspect: the cache may be too short to run them.
    pub fn full_chunk(&mut self, m: &DeviceModel) -> Result<Vec<Launch>> {
        self.launches(m, self.longest as u32)
    }

    fn launches(&mut self, m: &DeviceModel, tokens: u32) -> Result<Vec<Launch>> {
        launches(m, &mut self.programs, &self.choices, &self.activations, &self.factors, tokens)
    }

    /// The graph of one of [`SIZES`], recorded on first use.
    fn recorded(&mut self, m: &DeviceModel, size: usize) -> Result<&Graph> {
        let graph = match self.graphs[size].take() {
            Some(graph) => graph,
            None => record(&m.device, &self.launches(m, SIZES[size])?)?,
        };
        Ok(self.graphs[size].insert(graph))
    }

    /// Writes a chunk to device memory. Returns which of [`SIZES`] it takes.
    fn prepare(&self, position: usize, tokens: &[u32]) -> Result<usize> {
        let mut words = vec![fits(position)?, fits(tokens.len())?];
        words.resize(TOKENS_AT as usize, 0);
        words.extend(tokens);
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        self.activations.chunk.write(0, &bytes)?;
        Ok(size(tokens.len()))
    }
}

/// Which of [`SIZES`] a chunk takes.
fn size(tokens: usize) -> usize {
    SIZES.iter().position(|s| *s as usize >= tokens).unwrap_or(SIZES.len() - 1)
}
