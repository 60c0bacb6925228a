//! The activations of a chunk in device memory.

use hcq::Buffer;

use crate::cache::CacheType;
use crate::engine::matrix::fits;
use crate::engine::memory::DeviceModel;
use crate::engine::prompt::products::{SIZES, SLICE, SLICE_ROWS, longest_chunk, sums};
use crate::error::Result;
use crate::kernels::choices::Choices;
use crate::kernels::prompt::chunk::TOKENS_AT;
use crate::kernels::prompt::shares;
use crate::model::config::Config;

/// Activations, `[token][value]`.
#[derive(Debug)]
pub struct Activations {
    /// Position, number of tokens, tokens.
    pub chunk: Buffer,
    /// The residual stream, f32.
    pub x: Buffer,
    /// Normalized, f16.
    pub normed: Buffer,
    /// Queries, keys and values, f32, in shares.
    pub qkv: Buffer,
    /// Queries, f16.
    pub q: Buffer,
    /// Result of attention, f16.
    pub attended: Buffer,
    /// Shares of attention.
    pub partials: Buffer,
    /// Input of the down projection, f16.
    pub ff: Buffer,
    /// Products that are not yet added to the stream, f32, in shares.
    pub sums: Buffer,
    /// Two slices of expanded weights.
    pub slices: [Buffer; 2],
    /// A layer's keys and values in f16, if its cache has another type.
    pub expanded: Option<[Buffer; 2]>,
}

/// Bytes of each buffer.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    chunk: usize,
    x: usize,
    normed: usize,
    qkv: usize,
    q: usize,
    attended: usize,
    partials: usize,
    ff: usize,
    sums: usize,
    slice: usize,
    /// Each of the two; 0 if the cache is in f16.
    expanded: usize,
}

impl Sizes {
    fn of(c: &Config, (context, kv): (usize, CacheType), choices: &Choices, sm_count: u32) -> Result<Self> {
        let longest = longest_chunk(c);
        let tokens = longest.min(context).next_power_of_two().max(SIZES[0] as usize);
        let sums = |rows: usize, cols: usize| sums(choices, tokens, (rows, cols), sm_count);
        let widest = c.hidden.max(c.ff).max(c.q_dim());
        Ok(Self {
            chunk: 4 * (TOKENS_AT as usize + longest),
            x: 4 * tokens * c.hidden,
            normed: 2 * tokens * c.hidden,
            qkv: 4 * sums(c.q_dim() + 2 * c.kv_dim(), c.hidden)?,
            q: 2 * tokens * c.q_dim(),
            attended: 2 * tokens * c.q_dim(),
            partials: 4 * partials(c, tokens, sm_count)?,
            ff: 2 * tokens * c.ff,
            sums: 4 * sums(c.hidden, c.q_dim())?.max(sums(c.hidden, c.ff)?),
            slice: 2 * (SLICE as usize).max(SLICE_ROWS as usize * 2 * widest),
            expanded: match kv {
                CacheType::F16 => 0,
                CacheType::Q8_0 => 2 * c.kv_dim() * context,
            },
        })
    }

    fn total(&self) -> usize {
        let Self { chunk, x, normed, qkv, q, attended, partials, ff, sums, slice, expanded } = self;
        chunk + x + normed + qkv + q + attended + partials + ff + sums + 2 * slice + 2 * expanded
    }
}

/// Most words of the shares of attention of up to `tokens` tokens; at least a few, a launch takes them.
fn partials(c: &Config, tokens: usize, sm_count: u32) -> Result<usize> {
    let (heads, words) = (fits(c.heads)?, shares::partial_words(fits(c.head_dim)?) as usize);
    let of = |tokens: u32| match shares::most(tokens, heads, sm_count) {
        1 => words,
        most => most as usize * tokens as usize * c.heads * words,
    };
    Ok(SIZES.into_iter().filter(|size| *size as usize <= tokens).map(of).max().unwrap_or(words))
}

impl Activations {
    /// Bytes of the activations of a model with a cache of `context` positions in type `kv`.
    pub fn bytes(c: &Config, cache: (usize, CacheType), choices: &Choices, sm_count: u32) -> Result<u64> {
        Ok(Sizes::of(c, cache, choices, sm_count)?.total() as u64)
    }

    /// Reserves the activations of a chunk of the model `m`.
    pub fn new(m: &DeviceModel, choices: &Choices) -> Result<Self> {
        let cache = (m.cache.context as usize, m.cache.kv);
        let sizes = Sizes::of(&m.config, cache, choices, m.device.info().sm_count)?;
        let bytes = |bytes: usize| m.device.alloc(bytes as u64);
        // Launches take more tokens than a chunk has. Nothing writes the rows of these tokens in these two, from
        // which the others' come: they are zeros until a longer chunk has written them.
        let zeros = |len: usize| -> Result<Buffer> {
            let buffer = bytes(len)?;
            buffer.write(0, &vec![0; len])?;
            Ok(buffer)
        };
        Ok(Self {
            chunk: bytes(sizes.chunk)?,
            x: zeros(sizes.x)?,
            normed: bytes(sizes.normed)?,
            qkv: bytes(sizes.qkv)?,
            q: bytes(sizes.q)?,
            attended: zeros(sizes.attended)?,
            partials: bytes(sizes.partials)?,
            ff: bytes(sizes.ff)?,
            sums: bytes(sizes.sums)?,
            slices: [bytes(sizes.slice)?, bytes(sizes.slice)?],
            expanded: match sizes.expanded {
                0 => None,
                len => Some([bytes(len)?, bytes(len)?]),
            },
        })
    }
}
