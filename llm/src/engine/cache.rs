//! The size of the key/value cache on the device.

use crate::cache::CacheType;
use crate::engine::matrix::fits;
use crate::error::Result;
use crate::model::config::Config;

/// Type and size of the cache of each layer: one buffer of keys and one of values.
#[derive(Clone, Copy, Debug)]
pub struct CacheShape {
    /// Type of the cached values.
    pub kv: CacheType,
    /// Positions.
    pub context: u32,
    /// Byte offset of the scales in a buffer in q8_0; `None` for f16.
    pub scales_at: Option<u32>,
    /// Values of a key, or of a value vector.
    kv_dim: u64,
}

impl CacheShape {
    /// A cache of `context` positions for a model.
    ///
    /// # Errors
    /// [`Error::KeyValue`](crate::Error::KeyValue) if the heads do not suit the type,
    /// [`Error::TooLarge`](crate::Error::TooLarge).
    pub fn new(c: &Config, kv: CacheType, context: usize) -> Result<Self> {
        kv.check(c)?;
        let scales_at = match kv {
            CacheType::F16 => None,
            CacheType::Q8_0 => Some(fits(c.kv_dim() * context)?),
        };
        Ok(Self { kv, context: fits(context)?, scales_at, kv_dim: c.kv_dim() as u64 })
    }

    /// Bytes of a layer's keys, or of its values.
    pub fn bytes(&self) -> u64 {
        self.kv.bytes(self.kv_dim * u64::from(self.context))
    }

    /// Bytes of keys and values of a layer per position.
    pub fn bytes_per_position(&self) -> u64 {
        self.bytes_per_position_as(self.kv)
    }

    /// The same for a copy of the cache in type `kv`.
    pub fn bytes_per_position_as(&self, kv: CacheType) -> u64 {
        2 * kv.bytes(self.kv_dim)
    }
}
