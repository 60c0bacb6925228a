//! The key/value cache: its type.

use crate::error::{Error, Result};
use crate::model::config::Config;

/// Values that share a scale in q8_0.
pub const BLOCK: u32 = 32;

/// The type of cached keys and values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CacheType {
    /// 16 bits per value.
    #[default]
    F16,
    /// 8 bits per value and a 16-bit scale per [`BLOCK`]; heads must be whole blocks.
    Q8_0,
}

impl CacheType {
    /// All types.
    pub const ALL: [CacheType; 2] = [CacheType::F16, CacheType::Q8_0];

    /// The name on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            CacheType::F16 => "f16",
            CacheType::Q8_0 => "q8_0",
        }
    }

    /// Bytes of `values` values, which are whole blocks.
    pub const fn bytes(self, values: u64) -> u64 {
        match self {
            CacheType::F16 => 2 * values,
            CacheType::Q8_0 => values + values / BLOCK as u64 * 2,
        }
    }

    /// Refuses a model whose heads cannot be cached in this type.
    ///
    /// # Errors
    /// [`Error::KeyValue`] if heads are not whole blocks.
    pub fn check(self, c: &Config) -> Result<()> {
        if self == CacheType::Q8_0 && !c.head_dim.is_multiple_of(BLOCK as usize) {
            return Err(Error::KeyValue {
                key: c.architecture.key("attention.key_length"),
                value: c.head_dim.to_string(),
                rule: "a cache in q8_0 takes heads of a multiple of 32 values; use one in f16",
            });
        }
        Ok(())
    }

    /// Last part of the names of kernels that exist for one type only.
    pub(crate) const fn suffix(self) -> &'static str {
        match self {
            CacheType::F16 => "",
            CacheType::Q8_0 => "_q8_0",
        }
    }

    /// Values that a lane reads at a time, 16 bytes.
    pub(crate) const fn piece(self) -> u32 {
        match self {
            CacheType::F16 => 8,
            CacheType::Q8_0 => 16,
        }
    }
}
