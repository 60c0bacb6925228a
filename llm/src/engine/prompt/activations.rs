//! The activations of a chunk in device memory.

use hcq::Buffer;

use crate::cache::CacheType;
use crate::engine::memory::DeviceModel;
use crate::engine::prompt::products::{CHUNK, SIZES, SLICE, SLICE_ROWS, sums};
use crate::error::Result;
use crate::kernels::choices::Choices;
use crate::kernels::prompt::chunk::TOKENS_AT;

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
    /// Input of the down projection, f16.
    pub ff: Buffer,
    /// Products that are not yet added to the stream, f32, in shares.
    pub sums: Buffer,
    /// Two slices of expanded weights.
    pub slices: [Buffer; 2],
    /// A layer's keys and values in f16, if its cache has another type.
    pub expanded: Option<[Buffer; 2]>,
}

impl Activations {
    /// Reserves the activations of a chunk of the model `m`.
    pub fn new(m: &DeviceModel, choices: &Choices) -> Result<Self> {
        let (c, context) = (&m.config, m.cache.context as usize);
        let tokens = CHUNK.min(context).next_power_of_two().max(SIZES[0] as usize);
        let sums = |rows: usize, cols: usize| sums(choices, rows, cols, m.device.info().sm_count);
        let values = |bytes: usize, count: usize| m.device.alloc((bytes * count) as u64);
        let slice = || {
            let widest = c.hidden.max(c.ff).max(c.q_dim());
            values(2, (SLICE as usize).max(SLICE_ROWS as usize * 2 * widest))
        };
        let cache = || values(2, c.kv_dim() * context);
        // Launches take more tokens than a chunk has. Nothing writes the rows of these tokens in these two, from
        // which the others' come: they are zeros until a longer chunk has written them.
        let zeros = |bytes: usize, count: usize| -> Result<Buffer> {
            let buffer = values(bytes, count)?;
            buffer.write(0, &vec![0; bytes * count])?;
            Ok(buffer)
        };
        Ok(Self {
            chunk: values(4, TOKENS_AT as usize + CHUNK)?,
            x: zeros(4, tokens * c.hidden)?,
            normed: values(2, tokens * c.hidden)?,
            qkv: values(4, sums(c.q_dim() + 2 * c.kv_dim(), c.hidden)?)?,
            q: values(2, tokens * c.q_dim())?,
            attended: zeros(2, tokens * c.q_dim())?,
            ff: values(2, tokens * c.ff)?,
            sums: values(4, sums(c.hidden, c.q_dim())?.max(sums(c.hidden, c.ff)?))?,
            slices: [slice()?, slice()?],
            expanded: match m.cache.kv {
                CacheType::F16 => None,
                CacheType::Q8_0 => Some([cache()?, cache()?]),
            },
        })
    }
}
