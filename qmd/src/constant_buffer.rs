//! Constant buffers: the banks `c[0]` to `c[7]` of a launch.

use crate::error::Error;
use crate::image::{Qmd, layout};
use crate::table::layout::ConstantBufferFields;
use crate::version::Version;

/// Number of constant-buffer slots; slot `i` is bank `c[i]`.
pub const CONSTANT_BUFFERS: usize = 8;
/// Alignment of a constant buffer, in bytes.
pub const CONSTANT_BUFFER_ALIGN: u64 = 64;
/// Largest constant buffer, in bytes.
pub const CONSTANT_BUFFER_MAX: u32 = 65536;

/// Time at which the constant cache is filled, ahead of its use or on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ConstantPrefetch {
    /// On first use.
    #[default]
    None,
    /// Before the grid starts (v4.0).
    Pre,
    /// After the grid started.
    Post,
}

/// A constant buffer as a launch binds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConstantBuffer {
    /// GPU virtual address, a multiple of 64.
    pub address: u64,
    /// Size in bytes; the hardware counts in units of 16, so it reads back rounded up.
    pub len: u32,
    /// Whether cached copies are invalidated at launch: needed for a bank that the CPU rewrites between
    /// launches.
    pub invalidate: bool,
    /// Time at which the cache is filled.
    pub prefetch: ConstantPrefetch,
}

impl ConstantBuffer {
    /// A bank of `len` bytes at `address`, neither invalidated nor prefetched.
    #[must_use]
    pub const fn new(address: u64, len: u32) -> Self {
        Self { address, len, invalidate: false, prefetch: ConstantPrefetch::None }
    }

    /// Invalidates cached copies of the bank at launch.
    #[must_use]
    pub const fn invalidated(mut self) -> Self {
        self.invalidate = true;
        self
    }

    /// Fills the constant cache ahead of use.
    #[must_use]
    pub const fn prefetched(mut self, when: ConstantPrefetch) -> Self {
        self.prefetch = when;
        self
    }
}

impl Qmd {
    fn constant_buffer_fields(&self, index: usize) -> Result<&'static ConstantBufferFields, Error> {
        let what = "constant buffer";
        layout(self.version()).constant_buffers.get(index).ok_or(Error::Slot {
            what,
            index,
            count: CONSTANT_BUFFERS,
            version: self.version(),
        })
    }

    /// Binds bank `index`.
    ///
    /// # Errors
    /// [`Error::Slot`] for an index of 8 or more; [`Error::Misaligned`] and [`Error::OutOfReach`] for the
    /// address, [`Error::ConstantBufferSize`] for a length of 0 or above 65536, [`Error::PrefetchPre`] for a
    /// prefetch that v3.0 does not have.
    pub fn set_constant_buffer(&mut self, index: usize, buffer: &ConstantBuffer) -> Result<(), Error> {
        let fields = self.constant_buffer_fields(index)?;
        if buffer.len == 0 || buffer.len > CONSTANT_BUFFER_MAX {
            return Err(Error::ConstantBufferSize { index, bytes: buffer.len });
        }
        let version = self.version();
        let prefetch = match (version, buffer.prefetch) {
            (_, ConstantPrefetch::None) => 0,
            (Version::V03, ConstantPrefetch::Pre) => return Err(Error::PrefetchPre { index, version }),
            (Version::V03, ConstantPrefetch::Post) | (Version::V04, ConstantPrefetch::Pre) => 1,
            (Version::V04, ConstantPrefetch::Post) => 2,
        };
        self.place(fields.address, "a constant buffer", buffer.address, CONSTANT_BUFFER_ALIGN)?;
        self.put(fields.valid, 1);
        self.put(fields.size, buffer.len.div_ceil(16));
        self.put(fields.invalidate, buffer.invalidate.into());
        self.put(fields.prefetch, prefetch);
        Ok(())
    }

    /// Bank `index`, if the launch binds it.
    #[must_use]
    pub fn constant_buffer(&self, index: usize) -> Option<ConstantBuffer> {
        let fields = self.constant_buffer_fields(index).ok()?;
        if self.get_own(fields.valid) == 0 {
            return None;
        }
        Some(ConstantBuffer {
            address: self.get_address(fields.address),
            len: self.get_own(fields.size) * 16,
            invalidate: self.get_own(fields.invalidate) != 0,
            prefetch: match (self.version(), self.get_own(fields.prefetch)) {
                (Version::V03, 1) | (Version::V04, 2) => ConstantPrefetch::Post,
                (Version::V04, 1) => ConstantPrefetch::Pre,
                _ => ConstantPrefetch::None,
            },
        })
    }
}
