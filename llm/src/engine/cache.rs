//! The size of the key/value cache on the device.

use crate::cache::CacheType;
use crate::engine::matrix::fits;
use crate::error::Result;
use crate::kernels::cache;
use crate::model::config::Config;

/// Positions of a page.
pub const PAGE: usize = cache::PAGE as usize;

/// Pages that a number of positions takes.
pub const fn pages_for(positions: usize) -> usize {
    positions.div_ceil(PAGE)
}

/// Type and size of the cache of each layer: one buffer of keys and one of values.
#[derive(Clone, Copy, Debug)]
pub struct CacheShape {
    /// Type of the cached values.
    pub kv: CacheType,
    /// Positions of all pages.
    pub positions: u32,
    /// Byte offset of the scales in a buffer in q8_0; `None` for f16.
    pub scales_at: Option<u32>,
    /// Heads of keys and values.
    kv_heads: usize,
    /// Values of a key, or of a value vector.
    kv_dim: u64,
}

impl CacheShape {
    /// A cache of `pages` pages for a model.
    ///
    /// # Errors
    /// [`Error::KeyValue`](crate::Error::KeyValue) if the heads do not suit the type,
    /// [`Error::TooLarge`](crate::Error::TooLarge).
    pub fn new(c: &Config, kv: CacheType, pages: usize) -> Result<Self> {
        kv.check(c)?;
        let positions = pages.saturating_mul(PAGE);
        let scales_at = match kv {
            CacheType::F16 => None,
            CacheType::Q8_0 => Some(fits(c.padded_kv_dim().saturating_mul(positions))?),
        };
        let (kv_heads, kv_dim) = (c.kv_heads, c.padded_kv_dim() as u64);
        Ok(Self { kv, positions: fits(positions)?, scales_at, kv_heads, kv_dim })
    }

    /// Bytes of a layer's keys, or of its values.
    pub fn bytes(&self) -> u64 {
        self.kv.bytes(self.kv_dim * u64::from(self.positions))
    }

    /// Bytes of keys and values of a layer per position.
    pub fn bytes_per_position(&self) -> u64 {
        self.bytes_per_position_as(self.kv)
    }

    /// The same for a copy of the cache in type `kv`.
    pub fn bytes_per_position_as(&self, kv: CacheType) -> u64 {
        2 * kv.bytes(self.kv_dim)
    }

    /// The rows of head `kv_head` that hold the first `positions` positions of a sequence with these `pages`: the
    /// first row and the number of rows in each page.
    pub fn rows(&self, kv_head: usize, pages: &[u32], positions: usize) -> impl Iterator<Item = (u64, u64)> {
        let kv_heads = self.kv_heads;
        let first = (0..positions).step_by(PAGE);
        pages.iter().zip(first).map(move |(page, first)| {
            let row = (*page as usize * kv_heads + kv_head) * PAGE;
            (row as u64, (positions - first).min(PAGE) as u64)
        })
    }
}
