//! The tiles of products with many vectors, by warps and by warpgroups, and which a product takes.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::kernels::prompt::gemm::{self, Output};
use crate::kernels::prompt::warpgroups;

/// Criteria of the tile for a matrix times many vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TokensProduct {
    /// The use of the sums.
    pub output: Output,
    /// Tokens.
    pub tokens: u32,
    /// Results per token.
    pub rows: u32,
    /// Values in a row.
    pub cols: u32,
}

/// Facts of a GPU on which shapes depend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chip {
    /// Generation: 87 for sm_87.
    pub sm: u32,
    /// Multiprocessors.
    pub sm_count: u32,
}

/// The units that multiply a tile, and its shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ProductTile {
    /// Warps, on every GPU.
    Warps(gemm::Tile),
    /// Warpgroups, on SM 9.0.
    Warpgroups(warpgroups::Tile),
}

/// The cost of another part of the row length: multiply-adds of the whole GPU in the time that it takes to
/// write and read one byte of a result.
const STORE: u64 = 160;

impl ProductTile {
    /// The tiles of the committed kernels for GPUs of generation `sm`.
    pub fn committed(sm: u32) -> impl Iterator<Item = Self> {
        rated().map(|(tile, _)| tile).filter(move |tile| tile.runs_on(sm))
    }

    /// Whether GPUs of generation `sm` have the instructions.
    pub const fn runs_on(self, sm: u32) -> bool {
        match self {
            Self::Warps(_) => true,
            Self::Warpgroups(_) => sm == warpgroups::TARGET.sm(),
        }
    }

    /// Whether a kernel can be generated with this tile.
    pub fn is_valid(self) -> bool {
        match self {
            Self::Warps(tile) => tile.is_valid(),
            Self::Warpgroups(tile) => tile.is_valid(),
        }
    }

    /// Whether the tile divides `tokens` tokens by `rows` results, where it has to.
    pub fn divides(self, output: Output, tokens: u32, rows: u32) -> bool {
        match self {
            Self::Warps(_) => true,
            Self::Warpgroups(tile) => tile.count(output, tokens, rows).is_some(),
        }
    }

    /// Whether `product` can be multiplied with it on GPUs of generation `sm`.
    pub fn takes(self, product: &TokensProduct, sm: u32) -> bool {
        self.runs_on(sm) && self.divides(product.output, product.tokens, product.rows)
    }

    /// The module of the committed kernels.
    pub const fn module(self) -> &'static str {
        match self {
            Self::Warps(_) => gemm::NAME,
            Self::Warpgroups(_) => warpgroups::NAME,
        }
    }

    /// Name of the kernel.
    pub fn kernel_name(self, output: Output) -> String {
        match self {
            Self::Warps(tile) => tile.kernel_name(output),
            Self::Warpgroups(tile) => tile.kernel_name(output),
        }
    }

    /// Threads of a block.
    pub const fn threads(self) -> u32 {
        match self {
            Self::Warps(tile) => tile.threads(),
            Self::Warpgroups(tile) => tile.threads(),
        }
    }

    /// Shared memory of a block, in bytes, set by the launch.
    pub const fn shared_bytes(self) -> u32 {
        match self {
            Self::Warps(tile) => tile.shared_bytes(),
            Self::Warpgroups(tile) => tile.shared_bytes(),
        }
    }

    /// Blocks for `tokens` tokens by `rows` results, which the tile divides, and `shares` parts of the row
    /// length on `sm_count` multiprocessors.
    pub fn grid(self, output: Output, [tokens, rows, shares]: [u32; 3], sm_count: u32) -> [u32; 3] {
        match self {
            Self::Warps(tile) => tile.grid(output, tokens, rows, shares),
            Self::Warpgroups(tile) => {
                tile.grid(tile.count(output, tokens, rows).unwrap_or_default(), shares, sm_count)
            }
        }
    }

    /// Results of a tile, and the number of tiles.
    fn work(self, output: Output, tokens: u32, rows: u32) -> Option<(u64, u64)> {
        match self {
            Self::Warps(tile) => {
                let [x, y, _] = tile.grid(output, tokens, rows, 1).map(u64::from);
                Some((u64::from(tile.tokens) * u64::from(tile.rows), x * y))
            }
            Self::Warpgroups(tile) => {
                let count = tile.count(output, tokens, rows)?;
                Some((u64::from(tile.tokens()) * u64::from(tile.rows), count.into()))
            }
        }
    }
}

impl fmt::Display for ProductTile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Warps(gemm::Tile { tokens, rows, depth, stages, .. }) => {
                write!(f, "{tokens} x {rows} x {depth}, {stages} stages")
            }
            Self::Warpgroups(tile) => {
                let (tokens, rows, stages) = (tile.tokens(), tile.rows, tile.stages);
                write!(f, "{tokens} x {rows} x 64 by warpgroups, {stages} stages")
            }
        }
    }
}

/// The committed tiles with their rates.
fn rated() -> impl Iterator<Item = (ProductTile, u64)> {
    let warps = gemm::TILES.into_iter().map(ProductTile::Warps).zip(gemm::RATES);
    warps.chain(warpgroups::TILES.into_iter().map(ProductTile::Warpgroups).zip(warpgroups::RATES))
}

/// The tile for a product, and the number of parts of its row length, so that all multiprocessors have work.
pub fn choose(product: &TokensProduct, chip: Chip) -> (ProductTile, u32) {
    cheapest(product, chip, gemm::splits(product.output, product.cols), |_| true)
}

/// The tile for a product whose row length is not split.
pub fn choose_whole(product: &TokensProduct, chip: Chip) -> ProductTile {
    cheapest(product, chip, [1].into_iter(), |_| true).0
}

/// The tile for a product in `shares` split-K parts of the row length, whatever its sizes.
pub fn choose_any_size(product: &TokensProduct, chip: Chip, shares: u32) -> ProductTile {
    cheapest(product, chip, [shares].into_iter(), |tile| matches!(tile, ProductTile::Warps(_))).0
}

/// The tile of those that `may` be, and the number of parts, of `splits`, that cost least.
fn cheapest(
    &TokensProduct { output, tokens, rows, cols }: &TokensProduct,
    chip: Chip,
    splits: impl Iterator<Item = u32>,
    may: impl Fn(ProductTile) -> bool,
) -> (ProductTile, u32) {
    let tiles: Vec<_> = rated().filter(|(tile, _)| tile.runs_on(chip.sm) && may(*tile)).collect();
    let all = splits.flat_map(|shares| tiles.iter().map(move |(tile, rate)| (*tile, *rate, shares)));
    let cost = |(tile, rate, shares): (ProductTile, u64, u32)| {
        let (results, count) = tile.work(output, tokens, rows)?;
        let turns = (count * u64::from(shares)).div_ceil(chip.sm_count.into());
        let block = results * u64::from(cols / shares) * 100 / rate;
        let stored = 4 * u64::from(tokens) * u64::from(rows) * u64::from(shares);
        Some((turns * block + stored * STORE / u64::from(chip.sm_count), tile, shares))
    };
    let best = all.filter_map(cost).min_by_key(|(cost, ..)| *cost);
    // Tiles of warps take products of any size.
    best.map_or((ProductTile::Warps(gemm::TILES[0]), 1), |(_, tile, shares)| (tile, shares))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(tokens: u32, (output, rows, cols): (Output, u32, u32), sm: u32) -> (ProductTile, u32) {
        let sm_count = if sm == 90 { 132 } else { 16 };
        choose(&TokensProduct { output, tokens, rows, cols }, Chip { sm, sm_count })
    }

    #[test]
    fn warpgroups_multiply_on_hopper_where_they_can() {
        for product in [(Output::Gate, 8192, 2048), (Output::Sums, 2048, 8192), (Output::Sums, 3072, 2048)] {
            for tokens in [512, 2048] {
                let (tile, _) = chosen(tokens, product, 90);
                assert!(matches!(tile, ProductTile::Warpgroups(_)), "{product:?}: {tile:?}");
                assert!(matches!(chosen(tokens, product, 87).0, ProductTile::Warps(_)));
            }
        }
        // No whole tiles.
        assert!(matches!(chosen(512, (Output::Sums, 2049, 2048), 90).0, ProductTile::Warps(_)));
    }

    #[test]
    fn a_tile_divides_what_it_is_chosen_for() {
        for rows in (64..2048).step_by(32) {
            for tokens in [64, 128, 192, 512] {
                for output in Output::ALL {
                    let (tile, _) = chosen(tokens, (output, rows, 512), 90);
                    assert!(tile.divides(output, tokens, rows), "{tile:?}: {tokens} x {rows}");
                }
            }
        }
    }
}
