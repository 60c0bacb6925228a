//! How the products of a chunk are cut into launches: quantized weights are expanded to f16 in slices.

use crate::engine::matrix::{Matrix, fits};
use crate::engine::memory::{DeviceModel, LayerMemory};
use crate::error::Result;
use crate::kernels::choices::{Choices, TokensProduct};
use crate::kernels::format::Format;
use crate::kernels::prompt::gemm::Output;

/// Most tokens of a chunk.
pub const CHUNK: usize = 512;
/// Chunks are recorded for these numbers of tokens; a smaller one takes the next.
pub const SIZES: [u32; 4] = [64, 128, 256, CHUNK as u32];
/// Weights of a slice: 32 MiB in f16, which the level-2 cache of a large GPU holds.
pub const SLICE: u32 = 16 << 20;
/// Slices start at multiples of this many rows.
pub const SLICE_ROWS: u32 = 128;

/// The products of a chunk of up to `tokens` tokens, each of one launch.
pub fn products(m: &DeviceModel, tokens: u32) -> Vec<TokensProduct> {
    let of = |parts: &[&Matrix], output| {
        let (cols, rows) = (parts[0].cols, rows(parts, output).1);
        TokensProduct { output, tokens, rows, cols }
    };
    let of_layer = |layer: &LayerMemory| {
        let (qkv, gate_up): (Vec<_>, Vec<_>) = (layer.qkv.iter().collect(), layer.gate_up.iter().collect());
        let (o, down) = (of(&[&layer.o], Output::Sums), of(&[&layer.down], Output::Sums));
        [of(&qkv, Output::Sums), o, of(&gate_up, Output::Gate), down]
    };
    m.layers.iter().flat_map(of_layer).collect()
}

/// Results per token of a product with stacked matrices, and those of one launch.
pub fn rows(parts: &[&Matrix], output: Output) -> (u32, u32) {
    let (cols, all): (u32, u32) = (parts[0].cols, parts.iter().map(|m| m.rows).sum());
    let gated = output == Output::Gate;
    let rows = if gated { all / 2 } else { all };
    match parts {
        [matrix] if matrix.format == Format::F16 => (rows, rows),
        _ => (rows, slice_rows(rows, if gated { 2 * cols } else { cols })),
    }
}

/// Rows of the slices of a matrix of `rows` rows, each of `cols` values.
fn slice_rows(rows: u32, cols: u32) -> u32 {
    let most = (SLICE / cols / SLICE_ROWS * SLICE_ROWS).max(SLICE_ROWS);
    rows.div_ceil(rows.div_ceil(most)).next_multiple_of(SLICE_ROWS)
}

/// Most values that the sums of a product with `rows` rows of `cols` values take, in all shares.
pub fn sums(choices: &Choices, rows: usize, cols: usize, sm_count: u32) -> Result<usize> {
    let (rows, cols) = (fits(rows)?, fits(cols)?);
    let values = |tokens: u32| {
        let shares = [rows, slice_rows(rows, cols)].map(|rows| {
            let product = TokensProduct { output: Output::Sums, tokens, rows, cols };
            choices.gemm(&product, sm_count).1
        });
        shares[0].max(shares[1]) as usize * tokens as usize * rows as usize
    };
    Ok(SIZES.into_iter().map(values).max().unwrap_or_default())
}

/// The pieces of stacked matrices that rows `start` to `start + len` cover: matrix, first row, number of
/// rows.
pub fn pieces<'a>(parts: &[&'a Matrix], start: u32, len: u32) -> Vec<(&'a Matrix, u32, u32)> {
    let mut above = 0;
    let mut all = Vec::new();
    for matrix in parts {
        let (from, to) = (start.max(above), (start + len).min(above + matrix.rows));
        if from < to {
            all.push((*matrix, from - above, to - from));
        }
        above += matrix.rows;
    }
    all
}
