//! The shape of a launch: blocks, threads, and the shared memory of a block.

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
    /// Blocks for which an SM sets shared memory apart, as far as it has so much. 0 for as many as fit on an SM
    /// at once by their registers and threads, of a grid that has so many for each SM; 1 leaves most to the L1
    /// cache.
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

    /// Sets shared memory apart for this many blocks on an SM: more than the grid has there where it runs
    /// beside others, or fewer where its loads need the L1 cache more.
    #[must_use]
    pub const fn with_blocks_per_sm(mut self, blocks: u32) -> Self {
        self.blocks_per_sm = blocks;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_come_from_numbers_and_tuples() {
        assert_eq!(LaunchConfig::new(3, (4, 5)).grid, [3, 1, 1]);
        assert_eq!(LaunchConfig::new((1, 2, 3), [4, 5, 6]).block, [4, 5, 6]);
    }
}
