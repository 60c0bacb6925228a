//! Processes prompts in chunks, on the tensor cores.
//!
//! A chunk's launches are recorded once per size and replayed; its position and its tokens are in device
//! memory. Quantized weights are expanded to f16 slice by slice, each beside the product of the previous
//! slice, so that a slice is read from the level-2 cache. The last layer ends with its keys and values: its
//! output only matters for the prompt's last token, for which the launches of an ordinary step continue to
//! the logits.
//!
//! Results of a chunk for a token depend, in every bit, on the tokens of its sequence up to it, on the
//! chunk's first position and on the number of its tokens, and on nothing else: rows of products do not mix,
//! and the split of positions follows from these numbers ([`kernels::prompt`](crate::kernels::prompt)).

use std::ops::Range;
use std::time::Duration;

use hcq::{Buffer, Graph, LaunchConfig, Queue, SyncPoint};
use ptxgen::Params;

use crate::engine::launch::{Launch, record};
use crate::engine::matrix::fits;
use crate::engine::memory::DeviceModel;
use crate::engine::programs::Programs;
use crate::engine::prompt::activations::{Activations, Extent};
use crate::engine::prompt::kept::Kept;
use crate::engine::prompt::lower::{Chunk, launches, measure};
use crate::engine::prompt::products::{SIZES, cut};
use crate::engine::prompt::ranges::{LayerFactors, factors, measured_rows};
use crate::engine::timed::run_timed;
use crate::engine::times::{LaunchTime, Work};
use crate::error::Result;
use crate::kernels::choices::Choices;
use crate::kernels::format::TILE_ROWS;
use crate::kernels::prompt::chunk::TOKENS_AT;
use crate::kernels::prompt::{gemm, vector};
use crate::model::architecture::Norm;
use crate::model::config::Config;

/// The reason the kernels do not take a model; `None` if they do. Slices of stacked matrices begin
/// at whole tiles.
pub fn refuses(c: &Config) -> Option<String> {
    if c.experts > 0 && c.architecture.norm != Norm::Rms {
        return Some("the kernels of prompts have no layer norms before experts".to_owned());
    }
    let (hidden, q_dim, ff) = (c.hidden, c.q_dim(), c.ff);
    let whole = [hidden, q_dim, ff].iter().all(|n| n.is_multiple_of(gemm::DEPTH as usize));
    let stacked = [c.padded_q_dim(), c.padded_kv_dim()];
    let taken = whole && stacked.iter().all(|n| n.is_multiple_of(TILE_ROWS as usize));
    (!taken).then(|| {
        format!(
            "width {hidden}, length of queries {q_dim} and feed-forward {ff} are not all multiples of {}",
            gemm::DEPTH
        )
    })
}

/// Kernels and activations of chunks.
#[derive(Debug)]
pub struct Chunks {
    programs: Programs,
    choices: Choices,
    /// Most tokens of a chunk.
    longest: usize,
    activations: Activations,
    /// Empty unless expanded weights are kept.
    kept: Kept,
    /// The tables of all sequences.
    tables: Buffer,
    /// Of every layer but the last; empty until they are measured.
    factors: Vec<LayerFactors>,
    /// Whether f16 holds the activations, if that is known.
    in_range: Option<bool>,
    /// One per size, recorded on first use.
    graphs: [Option<Graph>; SIZES.len()],
    /// One per size, in slices, recorded on first use.
    slices: [Option<Vec<Graph>>; SIZES.len()],
}

/// The place of a chunk.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Tokens before it.
    pub position: usize,
    /// Start of its sequence's table among the tables.
    pub table: usize,
}

impl Chunks {
    /// Reserves the activations of a chunk of the model `m`; `tables` are those of all sequences.
    pub fn new(
        m: &DeviceModel,
        mut programs: Programs,
        choices: Choices,
        extent: Extent,
        tables: Buffer,
    ) -> Result<Self> {
        let activations = Activations::new(m, extent, &choices)?;
        let kept = if extent.keeps { Kept::new(m, &mut programs)? } else { Kept::default() };
        Ok(Self {
            programs,
            choices,
            longest: extent.longest,
            activations,
            kept,
            tables,
            factors: Vec::new(),
            in_range: None,
            graphs: [const { None }; SIZES.len()],
            slices: [const { None }; SIZES.len()],
        })
    }

    /// Whether f16 holds the activations of every prompt. The first call measures the rows of the weights, and
    /// must precede the first chunk.
    pub fn in_range(&mut self, m: &DeviceModel, queue: &mut Queue) -> Result<bool> {
        if let Some(known) = self.in_range {
            return Ok(known);
        }
        let rows = m.layers.len().saturating_sub(1) * measured_rows(&m.config);
        let squares = m.device.alloc(4 * rows.max(1) as u64)?;
        let (programs, chunk) = self.lowered();
        let launches = measure(m, programs, chunk, &squares)?;
        let found = factors(m, queue, &launches, &squares)?;
        let known = found.is_some();
        if !known {
            tracing::warn!(
                "prompts are not processed in chunks: weights are so large, or no numbers, that activations may \
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

    /// Deadline of a chunk: at most as long as its tokens one by one.
    pub fn patience(&self, m: &DeviceModel) -> Duration {
        m.patience * self.longest as u32
    }

    /// Submits a chunk, which fits the cache.
    pub fn run(
        &mut self,
        m: &DeviceModel,
        queue: &mut Queue,
        place: Place,
        tokens: &[u32],
    ) -> Result<SyncPoint> {
        let size = self.prepare(place, tokens)?;
        Ok(queue.replay(self.recorded(m, size)?)?)
    }

    /// Writes a chunk, which fits the cache, to device memory. Returns its slices: none of its launches is
    /// submitted yet, and no other chunk may be before its last slice.
    pub fn begin(&mut self, m: &DeviceModel, place: Place, tokens: &[u32]) -> Result<Slices> {
        let size = self.prepare(place, tokens)?;
        Ok(Slices { size, left: 0..self.sliced(m, size)?.len() })
    }

    /// Processes the next slice of a chunk, if one is left.
    pub fn run_slice(&self, queue: &mut Queue, slices: &mut Slices, patience: Duration) -> Result<()> {
        let graphs = self.slices[slices.size].as_deref().unwrap_or_default();
        match slices.left.next().and_then(|slice| graphs.get(slice)) {
            Some(graph) => Ok(queue.replay(graph)?.wait(patience)?),
            None => Ok(()),
        }
    }

    /// [`Chunks::run`] with one launch after the other, each with its time.
    pub fn timed(
        &mut self,
        m: &DeviceModel,
        queue: &mut Queue,
        place: Place,
        tokens: &[u32],
        patience: Duration,
    ) -> Result<Vec<LaunchTime>> {
        let size = self.prepare(place, tokens)?;
        let launches = self.launches(m, SIZES[size])?;
        run_timed(queue, &launches, Work::Prompt, (place.position, tokens.len()), patience)
    }

    /// Records the launches of a prompt of `tokens` tokens, unless they are recorded.
    pub fn record(&mut self, m: &DeviceModel, tokens: usize) -> Result<()> {
        cut(tokens, self.longest).try_for_each(|tokens| self.recorded(m, size(tokens)).map(drop))
    }

    /// Records the launches of chunks of all sizes, unless they are recorded.
    pub fn record_all(&mut self, m: &DeviceModel) -> Result<()> {
        (0..=size(self.longest)).try_for_each(|size| self.recorded(m, size).map(drop))
    }

    /// Records the slices of chunks of all sizes, unless they are recorded.
    pub fn record_slices(&mut self, m: &DeviceModel) -> Result<()> {
        (0..=size(self.longest)).try_for_each(|size| self.sliced(m, size).map(drop))
    }

    /// The launches of a full chunk, to inspect: the cache may be too short to run them.
    pub fn full_chunk(&mut self, m: &DeviceModel) -> Result<Vec<Launch>> {
        self.launches(m, self.longest as u32)
    }

    /// The launch that copies the vector of a chunk's last token, before the last layer, to `x`.
    pub fn last(&mut self, m: &DeviceModel, x: &Buffer) -> Result<Launch> {
        let kernel = self.programs.kernel("prompt", "prompt_last")?;
        let len = fits(m.config.hidden)?;
        let Activations { x: from, chunk, .. } = &self.activations;
        let args = vector::Last { x: from, prompt: chunk, out: x, len }.args();
        let config = LaunchConfig::new(len.div_ceil(vector::NORM_THREADS), vector::NORM_THREADS);
        Ok(Launch::new("last token", kernel, config, args))
    }

    fn lowered(&mut self) -> (&mut Programs, Chunk<'_>) {
        let Self { programs, choices, activations, kept, tables, factors, .. } = self;
        (programs, Chunk { choices, activations, kept, tables, factors })
    }

    fn launches(&mut self, m: &DeviceModel, tokens: u32) -> Result<Vec<Launch>> {
        let (programs, chunk) = self.lowered();
        launches(m, programs, chunk, tokens)
    }

    /// The graph of one of [`SIZES`], recorded on first use.
    fn recorded(&mut self, m: &DeviceModel, size: usize) -> Result<&Graph> {
        let graph = match self.graphs[size].take() {
            Some(graph) => graph,
            None => record(&m.device, &self.launches(m, SIZES[size])?)?,
        };
        Ok(self.graphs[size].insert(graph))
    }

    /// The graphs of the slices of one of [`SIZES`], about one per layer, recorded on first use.
    fn sliced(&mut self, m: &DeviceModel, size: usize) -> Result<&[Graph]> {
        let graphs = match self.slices[size].take() {
            Some(graphs) => graphs,
            None => {
                let launches = self.launches(m, SIZES[size])?;
                let ranges = slices(&launches, m.layers.len());
                ranges.map(|range| record(&m.device, &launches[range])).collect::<Result<_>>()?
            }
        };
        Ok(self.slices[size].insert(graphs))
    }

    /// Writes a chunk to device memory. Returns which of [`SIZES`] it takes.
    fn prepare(&self, place: Place, tokens: &[u32]) -> Result<usize> {
        let mut words = vec![fits(place.position)?, fits(tokens.len())?, fits(place.table)?];
        words.resize(TOKENS_AT as usize, 0);
        words.extend(tokens);
        self.activations.chunk.write_slice(0, &words)?;
        Ok(size(tokens.len()))
    }
}

/// The slices of a chunk that are not submitted yet.
#[derive(Clone, Debug)]
pub struct Slices {
    /// Which of [`SIZES`] the chunk takes.
    size: usize,
    left: Range<usize>,
}

impl Slices {
    /// Whether all are submitted.
    pub fn are_done(&self) -> bool {
        self.left.is_empty()
    }
}

/// Divides launches into up to `count` slices of about as many launches. None begins with a launch that runs
/// beside the one before it.
fn slices(launches: &[Launch], count: usize) -> impl Iterator<Item = Range<usize>> {
    let count = count.clamp(1, launches.len().max(1));
    let begin = move |slice: usize| {
        let begin = slice * launches.len() / count;
        begin + launches[begin..].iter().take_while(|launch| launch.overlaps).count()
    };
    (0..count).map(move |slice| begin(slice)..begin(slice + 1)).filter(|range| !range.is_empty())
}

/// The index in [`SIZES`] of a chunk's size.
fn size(tokens: usize) -> usize {
    SIZES.iter().position(|s| *s as usize >= tokens).unwrap_or(SIZES.len() - 1)
}
