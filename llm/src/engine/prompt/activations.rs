//! The activations of a chunk in device memory.

use hcq::Buffer;

use crate::cache::CacheType;
use crate::engine::cache::{PAGE, pages_for};
use crate::engine::matrix::fits;
use crate::engine::memory::DeviceModel;
use crate::engine::prompt::products::{SIZES, SLICE, SLICE_ROWS, expert_slice, longest_chunk, sums};
use crate::error::Result;
use crate::kernels::choices::Choices;
use crate::kernels::prompt::chunk::TOKENS_AT;
use crate::kernels::prompt::shares;
use crate::kernels::prompt::tile::Chip;
use crate::model::architecture::Activation;
use crate::model::config::Config;

/// Parameters of the sizes of activations, beside the model.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// Most tokens of a chunk, one of [`SIZES`].
    pub longest: usize,
    /// Most positions of a sequence.
    pub context: usize,
    /// Whether expanded weights are kept.
    pub keeps: bool,
    /// Type of the cache: attention reads a copy in f16 of a layer's keys and values in another.
    pub kv: CacheType,
}

impl Extent {
    /// With the longest chunks that suit a model.
    pub fn longest(c: &Config, context: usize, kv: CacheType) -> Self {
        Self { longest: longest_chunk(c), context, keeps: false, kv }
    }
}

/// Activations, `[token][value]`.
#[derive(Debug)]
pub struct Activations {
    /// Position, number of tokens, tokens.
    pub chunk: Buffer,
    /// The residual stream, f32.
    pub x: Buffer,
    /// Normalized, f16.
    pub normed: Buffer,
    /// Queries, keys and values, f32, in split-K parts.
    pub qkv: Buffer,
    /// Queries, f16.
    pub q: Buffer,
    /// Result of attention, f16.
    pub attended: Buffer,
    /// Split-K parts of attention.
    pub partials: Buffer,
    /// Input of the down projection, f16: of each token, or of each entry of a mixture of experts.
    pub ff: Buffer,
    /// Products that are not yet added to the stream, f32, in split-K parts.
    pub sums: Buffer,
    /// Two slices of expanded weights.
    pub slices: [Buffer; 2],
    /// A copy of a layer's keys and values in f16, with pages in order, if attention does not read the cache
    /// itself.
    pub expanded: Option<[Buffer; 2]>,
    /// Of mixtures of experts, if the model has them.
    pub experts: Option<ExpertActivations>,
}

/// Activations of a chunk's mixture of experts. A token and a place among its chosen experts is an entry.
#[derive(Debug)]
pub struct ExpertActivations {
    /// `[token][expert]`, f32.
    pub scores: Buffer,
    /// The experts of each entry, `[token][place]`.
    pub chosen: Buffer,
    /// Their shares, f32.
    pub shares: Buffer,
    /// The row of each entry in what follows, where entries are sorted by expert.
    pub rows: Buffer,
    /// The first row of each expert, and the row after the last one's.
    pub starts: Buffer,
    /// The token of each row.
    pub tokens: Buffer,
    /// Results, f32.
    pub parts: Buffer,
}

/// Bytes of the buffers of [`ExpertActivations`], in order; `None` for a model without experts.
fn expert_sizes(c: &Config, tokens: usize) -> Option<[usize; 7]> {
    let entries = tokens * c.experts_used;
    let (scores, words, starts) = (4 * tokens * c.experts, 4 * entries, 4 * (c.experts + 1));
    let of_model = [scores, words, words, words, starts, words, 4 * entries * c.hidden];
    (c.experts > 0).then_some(of_model)
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
    /// Each of the two; 0 if attention reads the cache itself.
    expanded: usize,
    experts: Option<[usize; 7]>,
}

impl Sizes {
    fn of(c: &Config, extent: Extent, choices: &Choices, chip: Chip) -> Result<Self> {
        let Extent { longest, context, kv, .. } = extent;
        let expanded = 2 * c.padded_kv_dim() * pages_for(context) * PAGE;
        let tokens = longest.min(context).next_power_of_two().max(SIZES[0] as usize);
        let sums = |rows: usize, cols: usize| sums(choices, tokens, (rows, cols), chip);
        // By GELU, the sums of the feed-forward block are activated by another kernel.
        let up = match c.architecture.activation {
            Activation::SiluGate => 0,
            Activation::GeluGate => sums(2 * c.ff, c.hidden)?,
            Activation::Gelu => sums(c.ff, c.hidden)?,
        };
        let widest = c.hidden.max(c.ff).max(c.padded_q_dim());
        let experts = expert_sizes(c, tokens);
        Ok(Self {
            chunk: 4 * (TOKENS_AT as usize + longest),
            x: 4 * tokens * c.hidden,
            normed: 2 * tokens * c.hidden,
            qkv: 4 * sums(c.padded_q_dim() + 2 * c.padded_kv_dim(), c.hidden)?,
            q: 2 * tokens * c.padded_q_dim(),
            attended: 2 * tokens * c.q_dim(),
            partials: 4 * partials(c, tokens, chip.sm_count)?,
            ff: 2 * tokens * c.experts_used.max(1) * c.ff,
            sums: 4 * sums(c.hidden, c.q_dim())?.max(sums(c.hidden, c.ff)?).max(up),
            slice: 2 * (SLICE as usize).max(SLICE_ROWS as usize * 2 * widest).max(expert_slice(c)),
            expanded: if kv == CacheType::F16 { 0 } else { expanded },
            experts,
        })
    }

    fn total(&self) -> usize {
        let Self { chunk, x, normed, qkv, q, attended, partials, ff, sums, slice, expanded, experts } = self;
        let experts: usize = experts.iter().flatten().sum();
        chunk + x + normed + qkv + q + attended + partials + ff + sums + 2 * slice + 2 * expanded + experts
    }
}

/// Most words of the split-K parts of attention of up to `tokens` tokens; at least a few, a launch takes
/// them.
fn partials(c: &Config, tokens: usize, sm_count: u32) -> Result<usize> {
    let (heads, words) = (fits(c.heads)?, shares::partial_words(fits(c.padded_head())?) as usize);
    let of = |tokens: u32| match shares::most(tokens, heads, sm_count) {
        1 => words,
        most => most as usize * tokens as usize * c.heads * words,
    };
    Ok(SIZES.into_iter().filter(|size| *size as usize <= tokens).map(of).max().unwrap_or(words))
}

impl Activations {
    /// Bytes of the activations of a model.
    pub fn bytes(c: &Config, extent: Extent, choices: &Choices, chip: Chip) -> Result<u64> {
        Ok(Sizes::of(c, extent, choices, chip)?.total() as u64)
    }

    /// Reserves the activations of a chunk of the model `m`.
    pub fn new(m: &DeviceModel, extent: Extent, choices: &Choices) -> Result<Self> {
        let sizes = Sizes::of(&m.config, extent, choices, m.chip())?;
        let bytes = |bytes: usize| m.device.alloc(bytes as u64);
        // Launches take more tokens than a chunk has. Nothing writes the rows of these tokens in these two,
        // from which the others' come: they are zeros until a longer chunk has written them.
        let zeros = |len: usize| -> Result<Buffer> {
            let buffer = bytes(len)?;
            buffer.write(0, &vec![0; len])?;
            Ok(buffer)
        };
        let experts = sizes.experts.map(|sizes| -> Result<ExpertActivations> {
            let [scores, chosen, shares, rows, starts, tokens, parts] = sizes.map(bytes);
            Ok(ExpertActivations {
                scores: scores?,
                chosen: chosen?,
                shares: shares?,
                rows: rows?,
                starts: starts?,
                tokens: tokens?,
                parts: parts?,
            })
        });
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
            experts: experts.transpose()?,
        })
    }
}
