//! Which shape each kernel has for a matrix, where it is not the usual one.

use std::collections::BTreeMap;

use super::format::Format;
use super::gemm::{self, Output, Tile};
use super::matvec::{self, Epilogue};
use super::step;

/// A matrix times a vector, as far as the choice of a shape depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Product {
    /// How the matrix is stored.
    pub format: Format,
    /// What happens to the products.
    pub epilogue: Epilogue,
    /// Results.
    pub rows: u32,
    /// Values in a row.
    pub cols: u32,
}

/// A matrix times many vectors, as far as the choice of a tile depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TokensProduct {
    /// What happens to the sums.
    pub output: Output,
    /// Tokens.
    pub tokens: u32,
    /// Results per token.
    pub rows: u32,
    /// Values in a row.
    pub cols: u32,
}

/// The shapes of the kernels. What is not here has the usual one, that of the committed kernels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choices {
    /// The step kernel.
    pub step: Option<step::Shape>,
    /// Matrix times vector, one launch per operation.
    pub matvec: BTreeMap<Product, matvec::Shape>,
    /// Matrix times many vectors: the tile, and into how many shares the row length is split.
    pub gemm: BTreeMap<TokensProduct, (Tile, u32)>,
}

impl Choices {
    /// The shape for `product`.
    pub fn matvec(&self, product: &Product) -> matvec::Shape {
        self.matvec.get(product).copied().unwrap_or_default()
    }

    /// The tile for `product` on `sm_count` multiprocessors, and into how many shares to split its row length.
    pub fn gemm(&self, product: &TokensProduct, sm_count: u32) -> (Tile, u32) {
        let TokensProduct { output, tokens, rows, cols } = *product;
        let known = self.gemm.get(product).copied();
        known.unwrap_or_else(|| gemm::choose(output, tokens, rows, cols, sm_count))
    }
}
