//! The shapes of kernels that differ from the default, and the cubins that have them.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::kernels::prompt::tile::{self, Chip, ProductTile, TokensProduct};

/// The shapes of the kernels. A kernel that is not listed has the default shape, that of the committed
/// kernels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choices {
    /// Matrix times many vectors: the tile, and the number of split-K parts of the row length.
    pub gemm: BTreeMap<TokensProduct, (ProductTile, u32)>,
}

impl Choices {
    /// The tile for `product` on `chip`, and the number of split-K parts of its row length.
    pub fn gemm(&self, product: &TokensProduct, chip: Chip) -> (ProductTile, u32) {
        let known = self.gemm.get(product).copied().filter(|(tile, _)| tile.takes(product, chip.sm));
        known.unwrap_or_else(|| tile::choose(product, chip))
    }
}

/// Kernels that are not committed, by name, each alone in its cubin.
pub type Kernels = BTreeMap<Arc<str>, Arc<[u8]>>;

/// The shapes that an engine uses, and the kernels that have them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tuning {
    /// The shapes.
    pub choices: Choices,
    /// The kernels that have them, unless they are committed.
    pub kernels: Kernels,
}
