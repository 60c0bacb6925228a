//! Activations of a batch step, in device memory.

use hcq::{Buffer, Device};

use crate::engine::matrix::fits;
use crate::error::Result;
use crate::kernels::columns::attention::partial_words;
use crate::kernels::columns::fragments;
use crate::kernels::columns::product::{SIZES, shares};
use crate::kernels::columns::state::WORDS;
use crate::kernels::columns::vector::ARGMAX_BLOCKS;
use crate::kernels::prompt::chunk::{COUNT_AT, TOKENS_AT};
use crate::model::config::Config;

/// Most split-K parts that attention cuts the pages of a column into.
const MOST_SHARES: usize = 32;

/// Split-K parts of attention for columns of up to `pages` pages.
pub fn attention_shares(pages: usize) -> usize {
    pages.clamp(1, MOST_SHARES)
}

/// Most columns of a step.
const MOST: u32 = SIZES[SIZES.len() - 1];

/// Vectors of all columns of a step, and what the host exchanges with it.
#[derive(Debug)]
pub struct Buffers {
    /// The columns of the next step, in the host's memory.
    pub from_host: Buffer,
    /// The same for the kernels, in the device's.
    pub state: Buffer,
    /// The pages of every sequence.
    pub tables: Buffer,
    /// The most likely tokens, in the host's memory.
    pub tokens: Buffer,
    /// The residual stream, f32.
    pub x: Buffer,
    /// The input of a product, as fragments: of the model's width, of the queries', of the feed-forward
    /// block's.
    pub normed: Buffer,
    /// See [`Buffers::normed`].
    pub attended: Buffer,
    /// See [`Buffers::normed`].
    pub ff: Buffer,
    /// Products in split-K parts, f32.
    pub sums: Buffer,
    /// Queries, f32.
    pub q: Buffer,
    /// Split-K parts of attention.
    pub partials: Buffer,
    /// Logits, f32.
    pub logits: Buffer,
    /// Candidates for the most likely token.
    pub best: [Buffer; 2],
    /// Vectors of mixtures of experts, in a model that has them.
    pub experts: Option<ExpertBuffers>,
}

/// Vectors of mixtures of experts. A column and a place among its chosen experts is an *entry*.
#[derive(Debug)]
pub struct ExpertBuffers {
    /// All columns as a chunk of a prompt, whose kernels route and add.
    pub chunk: Buffer,
    /// The number of each entry.
    pub entries: Buffer,
    /// Scores `[column][expert]`, f32.
    pub scores: Buffer,
    /// Chosen experts and their shares, of every entry.
    pub chosen: Buffer,
    /// See [`ExpertBuffers::chosen`].
    pub shares: Buffer,
    /// Gates and up, f32, of every entry.
    pub gate_up: Buffer,
    /// The columns of each expert as fragments, activated.
    pub ff: Buffer,
    /// Results that are added to the residual stream, f32, of every entry.
    pub parts: Buffer,
}

impl ExpertBuffers {
    /// Bytes of the columns of an expert in [`ExpertBuffers::ff`].
    pub fn ff_bytes(c: &Config, columns: u32) -> Result<u64> {
        Ok(fragments::bytes(columns, fits(c.ff)?))
    }

    /// Bytes of scores, of entries' words, of gates and up, of the activated columns, of the parts.
    fn sizes(c: &Config) -> Result<[u64; 5]> {
        let most = MOST as usize;
        let entries = most * c.experts_used;
        let floats = |count: usize| 4 * count as u64;
        let ff = Self::ff_bytes(c, MOST)? * c.experts as u64;
        Ok([
            floats(most * c.experts),
            floats(entries),
            floats(entries * 2 * c.ff),
            ff,
            floats(entries * c.hidden),
        ])
    }

    /// Bytes of device memory; 0 for a model without experts.
    fn bytes(c: &Config) -> Result<u64> {
        let [scores, words, gate_up, ff, parts] = Self::sizes(c)?;
        let chunk = 4 * TOKENS_AT as u64;
        Ok(if c.experts == 0 { 0 } else { chunk + scores + 3 * words + gate_up + ff + parts })
    }

    fn new(device: &Device, c: &Config) -> Result<Option<Self>> {
        if c.experts == 0 {
            return Ok(None);
        }
        let [scores, words, gate_up, ff, parts] = Self::sizes(c)?;
        let chunk = device.alloc(4 * TOKENS_AT as u64)?;
        let mut header = [0; TOKENS_AT as usize];
        header[COUNT_AT as usize] = MOST;
        chunk.write_slice(0, &header)?;
        let entries = device.alloc(words)?;
        entries.write_slice(0, &(0..fits(MOST as usize * c.experts_used)?).collect::<Vec<u32>>())?;
        Ok(Some(Self {
            chunk,
            entries,
            scores: zeros(device, scores)?,
            chosen: zeros(device, words)?,
            shares: device.alloc(words)?,
            gate_up: device.alloc(gate_up)?,
            ff: zeros(device, ff)?,
            parts: zeros(device, parts)?,
        }))
    }
}

/// A buffer of zeros: values that no column wrote are read and multiplied all the same, and not used.
fn zeros(device: &Device, len: u64) -> Result<Buffer> {
    let buffer = device.alloc(len)?;
    buffer.write(0, &vec![0; len as usize])?;
    Ok(buffer)
}

/// Bytes of each buffer in the device's memory.
struct Sizes {
    tables: u64,
    x: u64,
    normed: u64,
    attended: u64,
    ff: u64,
    sums: u64,
    q: u64,
    partials: u64,
    logits: u64,
    experts: u64,
}

impl Sizes {
    /// For `sequences` sequences of up to `pages` pages each.
    fn of(c: &Config, (sequences, pages): (usize, usize), sm_count: u32) -> Result<Self> {
        let columns = u64::from(MOST);
        let floats = |count: usize| 4 * columns * count as u64;
        let sums = |rows: usize, cols: usize| -> Result<u64> {
            Ok(floats(rows) * u64::from(shares(fits(rows)?, fits(cols)?, sm_count)))
        };
        let qkv = sums(c.padded_q_dim() + 2 * c.padded_kv_dim(), c.hidden)?;
        let gate_up = sums(2 * c.ff, c.hidden)?.max(sums(c.ff, c.hidden)?);
        let down = sums(c.hidden, c.ff)?.max(sums(c.hidden, c.q_dim())?);
        let partials = c.heads * attention_shares(pages) * partial_words(fits(c.padded_head())?) as usize;
        Ok(Self {
            tables: 4 * (sequences * pages) as u64,
            x: floats(c.hidden),
            normed: fragments::bytes(MOST, fits(c.hidden)?),
            attended: fragments::bytes(MOST, fits(c.q_dim())?),
            ff: fragments::bytes(MOST, fits(c.ff)?),
            sums: qkv.max(gate_up).max(down),
            q: floats(c.padded_q_dim()),
            partials: floats(partials),
            logits: floats(c.vocab),
            experts: ExpertBuffers::bytes(c)?,
        })
    }

    fn total(&self) -> u64 {
        let Self { tables, x, normed, attended, ff, sums, q, partials, logits, experts } = self;
        tables + x + normed + attended + ff + sums + q + partials + logits + experts
    }
}

impl Buffers {
    /// The vectors of a step of one column: those of numbers in single precision, each with the number of its
    /// values, and those that are fragments.
    pub fn vectors(&self, c: &Config) -> (Vec<(&Buffer, usize)>, Vec<&Buffer>) {
        let all = |buffer: &Buffer| buffer.len() as usize / 4;
        let mut numbers = vec![(&self.x, c.hidden), (&self.q, c.padded_q_dim()), (&self.logits, c.vocab)];
        numbers.push((&self.sums, all(&self.sums)));
        let mut fragments = vec![&self.normed, &self.attended, &self.ff];
        if let Some(own) = &self.experts {
            numbers.extend([(&own.scores, c.experts), (&own.shares, c.experts_used)]);
            numbers.extend([&own.gate_up, &own.parts].map(|buffer| (buffer, all(buffer))));
            fragments.push(&own.ff);
        }
        (numbers, fragments)
    }

    /// Bytes of device memory of all buffers.
    pub fn bytes(c: &Config, tables: (usize, usize), sm_count: u32) -> Result<u64> {
        Ok(Sizes::of(c, tables, sm_count)?.total())
    }

    /// Reserves the buffers for `sequences` sequences of up to `pages` pages each.
    pub fn new(device: &Device, c: &Config, tables: (usize, usize)) -> Result<Self> {
        let sizes = Sizes::of(c, tables, device.info().sm_count)?;
        let zeros = |len| zeros(device, len);
        let state = 4 * u64::from(WORDS * MOST);
        let candidates = || device.alloc(4 * u64::from(MOST * ARGMAX_BLOCKS));
        Ok(Self {
            from_host: device.alloc_host(state)?,
            state: device.alloc(state)?,
            tables: zeros(sizes.tables)?,
            tokens: device.alloc_host(4 * u64::from(MOST))?,
            x: device.alloc(sizes.x)?,
            normed: zeros(sizes.normed)?,
            attended: zeros(sizes.attended)?,
            ff: zeros(sizes.ff)?,
            sums: device.alloc(sizes.sums)?,
            q: zeros(sizes.q)?,
            partials: zeros(sizes.partials)?,
            logits: device.alloc(sizes.logits)?,
            best: [candidates()?, candidates()?],
            experts: ExpertBuffers::new(device, c)?,
        })
    }
}
