//! What a launch is: its shape and its arguments.

use crate::buffer::Buffer;
use crate::error::Error;
use crate::info::Info;
use crate::program::Kernel;

/// Blocks or threads along x, y and z.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent3(pub [u32; 3]);

impl From<u32> for Extent3 {
    fn from(x: u32) -> Self {
        Self([x, 1, 1])
    }
}

impl From<(u32, u32)> for Extent3 {
    fn from((x, y): (u32, u32)) -> Self {
        Self([x, y, 1])
    }
}

impl From<(u32, u32, u32)> for Extent3 {
    fn from((x, y, z): (u32, u32, u32)) -> Self {
        Self([x, y, z])
    }
}

impl From<[u32; 3]> for Extent3 {
    fn from(extent: [u32; 3]) -> Self {
        Self(extent)
    }
}

/// The shape of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchConfig {
    /// Thread blocks along x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block along x, y and z.
    pub block: [u32; 3],
    /// Bytes of shared memory per block beyond the kernel's static ones.
    pub dynamic_shared: u32,
    /// Blocks for which an SM sets shared memory apart; 0 and 1 for one, which leaves most to the L1 cache.
    pub blocks_per_sm: u32,
}

impl LaunchConfig {
    /// A grid of blocks, without dynamic shared memory. Both are a number, a pair, a triple or an array.
    pub fn new(grid: impl Into<Extent3>, block: impl Into<Extent3>) -> Self {
        Self { grid: grid.into().0, block: block.into().0, dynamic_shared: 0, blocks_per_sm: 0 }
    }

    /// Adds shared memory, in bytes per block.
    #[must_use]
    pub const fn with_dynamic_shared(mut self, bytes: u32) -> Self {
        self.dynamic_shared = bytes;
        self
    }

    /// Sets shared memory apart for this many blocks on an SM, as far as it has so much: what a grid needs whose blocks wait for
    /// each other, with more of them than SMs.
    #[must_use]
    pub const fn with_blocks_per_sm(mut self, blocks: u32) -> Self {
        self.blocks_per_sm = blocks;
        self
    }
}

/// The arguments of a launch, laid out as the compiler lays out parameters: each at its natural alignment.
///
/// Holds the buffers it names, so that they live as long as it does.
#[derive(Clone, Debug, Default)]
pub struct Args {
    bytes: Vec<u8>,
    buffers: Vec<Buffer>,
}

impl Args {
    /// No arguments.
    pub fn new() -> Self {
        Self::default()
    }

    /// The address of a buffer, and the promise to keep it.
    #[must_use]
    pub fn buffer(self, buffer: &Buffer) -> Self {
        self.buffer_at(buffer, 0)
    }

    /// The address `byte_offset` bytes into a buffer, and the promise to keep it.
    ///
    /// An offset past the end is passed as it is: what a kernel may do with its arguments is the launch's promise.
    #[must_use]
    pub fn buffer_at(mut self, buffer: &Buffer, byte_offset: u64) -> Self {
        self.buffers.push(buffer.clone());
        self.u64(buffer.va().raw().wrapping_add(byte_offset))
    }

    /// A 32-bit unsigned integer.
    #[must_use]
    pub fn u32(self, value: u32) -> Self {
        self.bytes(&value.to_le_bytes(), 4)
    }

    /// A 32-bit signed integer.
    #[must_use]
    pub fn i32(self, value: i32) -> Self {
        self.bytes(&value.to_le_bytes(), 4)
    }

    /// A 64-bit unsigned integer.
    #[must_use]
    pub fn u64(self, value: u64) -> Self {
        self.bytes(&value.to_le_bytes(), 8)
    }

    /// A 32-bit float.
    #[must_use]
    pub fn f32(self, value: f32) -> Self {
        self.bytes(&value.to_le_bytes(), 4)
    }

    /// A value of any other type: its bytes, at a multiple of `align`.
    #[must_use]
    pub fn bytes(mut self, value: &[u8], align: usize) -> Self {
        let at = self.bytes.len().next_multiple_of(align.max(1));
        self.bytes.resize(at, 0);
        self.bytes.extend_from_slice(value);
        self
    }

    /// The parameter block so far.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The buffers named so far.
    pub(crate) fn buffers(&self) -> &[Buffer] {
        &self.buffers
    }
}

/// Refuses a launch that the hardware would refuse, or hang on, or with other bytes of arguments than the kernel takes.
pub(crate) fn check(
    info: &Info,
    kernel: &Kernel,
    config: &LaunchConfig,
    arguments: usize,
) -> Result<(), Error> {
    let limit = |what, value: u64, limit: u64| match value <= limit {
        true => Ok(()),
        false => Err(Error::LaunchLimit { kernel: kernel.name().to_owned(), what, value, limit }),
    };
    let threads = config.block.iter().fold(1u64, |a, b| a.saturating_mul((*b).into()));
    limit("threads per block", threads, kernel.max_threads().into())?;
    if let Some(required) = kernel.info().required_block
        && required != config.block
    {
        let required = required.iter().map(|n| u64::from(*n)).product();
        limit("threads per block (exact, from .reqntid)", u64::MAX, required)?;
    }
    let shared = u64::from(kernel.static_shared()) + u64::from(config.dynamic_shared);
    limit("shared memory per block in bytes", shared, info.max_shared_per_block.count())?;
    let (expected, given) = (kernel.param_bytes(), arguments as u32);
    if expected != given {
        return Err(Error::Arguments { kernel: kernel.name().to_owned(), expected, given });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_take_their_natural_alignment() {
        let args = Args::new().u32(1).u64(2).f32(1.0).i32(-1).bytes(&[7; 3], 1).u32(9);
        assert_eq!(args.as_bytes().len(), 32);
        assert_eq!(args.as_bytes()[8], 2);
        assert_eq!(args.as_bytes()[16..20], 1.0f32.to_le_bytes());
        assert_eq!(args.as_bytes()[24..28], [7, 7, 7, 0]);
        assert_eq!(args.as_bytes()[28], 9);
    }

    #[test]
    fn shapes_come_from_numbers_and_tuples() {
        assert_eq!(LaunchConfig::new(3, (4, 5)).grid, [3, 1, 1]);
        assert_eq!(LaunchConfig::new((1, 2, 3), [4, 5, 6]).block, [4, 5, 6]);
    }
}
