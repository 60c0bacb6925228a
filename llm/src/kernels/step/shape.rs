//! The shape of the step kernel, which is part of its code: it can be chosen per device and model.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::kernels::format::Format;
use crate::kernels::step::layout::TILE;

/// How the step kernel divides its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shape {
    /// Warps of a block: 4, 8 or 16.
    pub warps: u32,
    /// Blocks that are resident on an SM.
    pub blocks_per_sm: u32,
    /// Units of a row per lane in a tile of a quantized type, half of those of other types: 1, 2 or 4.
    pub depth: u32,
    /// Tiles of a warp in flight: 2 to 4.
    pub tiles: u32,
}

impl Default for Shape {
    /// The shape of the committed kernels.
    fn default() -> Self {
        Self { warps: 16, blocks_per_sm: 1, depth: 2, tiles: 2 }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shape { warps, blocks_per_sm, depth, tiles } = self;
        write!(f, "{warps} warps, {blocks_per_sm}/SM, depth {depth}, {tiles} tiles")
    }
}

impl Shape {
    /// Whether the kernel can be generated with this shape.
    pub fn is_valid(self) -> bool {
        let Shape { warps, blocks_per_sm, depth, tiles } = self;
        [4, 8, 16].contains(&warps)
            && (1..=8).contains(&blocks_per_sm)
            && [1, 2, 4].contains(&depth)
            && (2..=4).contains(&tiles)
    }

    /// Threads of a block.
    pub const fn threads(self) -> u32 {
        32 * self.warps
    }

    /// Last part of the kernel's name; empty for the committed ones.
    pub(super) fn suffix(self) -> String {
        let Shape { warps, blocks_per_sm, depth, tiles } = self;
        if self == Self::default() {
            String::new()
        } else {
            format!("_{warps}x{blocks_per_sm}_{depth}x{tiles}")
        }
    }

    /// Units per lane of each row of a tile.
    pub(super) const fn units(self, format: Format) -> u32 {
        if format.is_quantized() { self.depth } else { 2 * self.depth }
    }

    /// Values of a row in a tile.
    pub(super) const fn values(self, format: Format) -> u32 {
        32 * self.units(format) * format.unit()
    }

    /// Tiles of the input that the longest tile of a row covers.
    pub(super) const fn span(self) -> u32 {
        if self.depth > 2 { self.depth / 2 } else { 1 }
    }

    /// Passes of all threads, four values each, over a tile of the input, as a power of two.
    pub(super) const fn passes_log2(self) -> u32 {
        (TILE / (4 * self.threads())).trailing_zeros()
    }
}

/// The blocks of a step kernel that run together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Shape of each block.
    pub shape: Shape,
    /// Number of blocks.
    pub blocks: u32,
}
