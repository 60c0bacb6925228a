//! Division of a chunk's products into launches: quantized weights are expanded to f16 in slices.

use hcq::Buffer;

use crate::engine::layers::{self, LayerMemory, Target};
use crate::engine::matrix::{Matrix, fits};
use crate::engine::memory::DeviceModel;
use crate::error::Result;
use crate::kernels::choices::Choices;
use crate::kernels::format::Format;
use crate::kernels::prompt::gemm::Output;
use crate::kernels::prompt::tile::{Chip, TokensProduct};
use crate::model::architecture::Activation;
use crate::model::config::Config;

/// Chunks are recorded for these numbers of tokens; a smaller one takes the next.
pub const SIZES: [u32; 6] = [64, 128, 256, FULL as u32, 2 * FULL as u32, 4 * FULL as u32];
/// Tokens of a chunk that every model takes, and of the shortest that a longer prompt is cut into before its
/// end.
const FULL: usize = 512;
/// Weights of the layers per byte of activations: more than a chunk of [`FULL`] tokens takes only less.
const WEIGHTS_PER_BYTE: usize = 4;

/// Bytes of the activations of a token.
fn token_bytes(c: &Config) -> usize {
    let qkv = c.padded_q_dim() + 2 * c.padded_kv_dim();
    let floats = c.hidden + qkv + c.hidden;
    let halves = c.hidden + 2 * c.padded_q_dim() + c.ff * c.experts_used.max(1);
    4 * (floats + c.experts_used * c.hidden) + 2 * halves
}

/// Most tokens of a chunk of this model: the more, the less often weights are expanded.
pub fn longest_chunk(c: &Config) -> usize {
    let of_layer = c.hidden * (2 * c.padded_q_dim() + 2 * c.padded_kv_dim() + 3 * c.ff * c.experts.max(1));
    let most = c.layers * of_layer / WEIGHTS_PER_BYTE;
    let fits = |size: &usize| size * token_bytes(c) <= most;
    SIZES.into_iter().rev().map(|size| size as usize).find(fits).unwrap_or(FULL).max(FULL)
}

/// The lengths of the chunks of a prompt of `tokens` tokens, none above `longest`: as long as they can be full,
/// then what is left.
pub fn cut(tokens: usize, longest: usize) -> impl Iterator<Item = usize> {
    let mut left = tokens;
    std::iter::from_fn(move || {
        let full = SIZES.into_iter().rev().map(|size| size as usize).filter(|s| (FULL..=longest).contains(s));
        let len = full.into_iter().find(|size| *size <= left).unwrap_or(left);
        left -= len;
        (len > 0).then_some(len)
    })
}
/// Weights of a slice: 32 MiB in f16, which the level-2 cache of a large GPU holds.
pub const SLICE: u32 = 16 << 20;
/// Slices start at multiples of this many rows.
pub const SLICE_ROWS: u32 = 128;

/// The products of a chunk of up to `tokens` tokens, each of one launch.
pub fn products(m: &DeviceModel, tokens: u32) -> Vec<TokensProduct> {
    let of = |product: &layers::Product| {
        let (parts, output): (Vec<_>, _) = (product.matrices.iter().collect(), output(product));
        let (cols, rows) = (parts[0].cols, rows(&parts, output).1);
        TokensProduct { output, tokens, rows, cols }
    };
    m.layers.iter().flat_map(LayerMemory::products).map(of).collect()
}

/// The output of the kernel that multiplies.
pub fn output(product: &layers::Product) -> Output {
    match product.to {
        Target::Activated(Activation::SiluGate) => Output::Gate,
        _ => Output::Sums,
    }
}

/// A product of all tokens with stacked matrices.
#[derive(Debug)]
pub struct Product<'a> {
    /// Its purpose, in a word or two.
    pub role: &'static str,
    /// The matrices.
    pub parts: Vec<&'a Matrix>,
    /// Output of the sums.
    pub output: Output,
    /// Of [`Output::Gate`].
    pub factor: f32,
    /// The vectors of the tokens.
    pub x: &'a Buffer,
    /// `[share][token][row]`; the reader adds the shares.
    pub out: &'a Buffer,
}

impl<'a> Product<'a> {
    /// Plain sums.
    pub fn sums(role: &'static str, parts: Vec<&'a Matrix>, x: &'a Buffer, out: &'a Buffer) -> Self {
        Self { role, parts, output: Output::Sums, factor: 1.0, x, out }
    }
}

/// Rows of a product's results: `len` from `first` on, of `all`.
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    /// The first.
    pub first: u32,
    /// How many.
    pub len: u32,
    /// Of how many.
    pub all: u32,
}

/// Results per token of a product with stacked matrices, and those of one launch.
pub fn rows(parts: &[&Matrix], output: Output) -> (u32, u32) {
    let (cols, all): (u32, u32) = (parts[0].cols, parts.iter().map(|m| m.rows).sum());
    let gated = output == Output::Gate;
    let rows = if gated { all / 2 } else { all };
    match as_it_is(parts) {
        Some(_) => (rows, rows),
        None => (rows, slice_rows(rows, if gated { 2 * cols } else { cols })),
    }
}

/// The matrix that chunks multiply without a copy, if it is one.
pub fn as_it_is<'a>(parts: &[&'a Matrix]) -> Option<&'a Matrix> {
    match parts {
        [matrix] if matrix.format == Format::F16 => Some(matrix),
        _ => None,
    }
}

/// Rows of the slices of a matrix of `rows` rows, each of `cols` values.
fn slice_rows(rows: u32, cols: u32) -> u32 {
    let most = (SLICE / cols / SLICE_ROWS * SLICE_ROWS).max(SLICE_ROWS);
    rows.div_ceil(rows.div_ceil(most)).next_multiple_of(SLICE_ROWS)
}

/// Values of a slice that holds one expert of a model.
pub fn expert_slice(c: &Config) -> usize {
    if c.experts > 0 { 2 * c.ff * c.hidden } else { 0 }
}

/// The number of experts, with matrices of `rows` rows of `cols` values, that are expanded together: as many
/// as fit a slice, in groups as equal as they can be.
pub fn experts_together(c: &Config, rows: usize, cols: usize) -> usize {
    let most = (SLICE as usize / (rows * cols)).max(1);
    c.experts.div_ceil(c.experts.div_ceil(most).max(1))
}

/// Most values that the sums of a product of up to `tokens` tokens with `rows` rows of `cols` values take, in
/// all split-K parts.
pub fn sums(choices: &Choices, tokens: usize, (rows, cols): (usize, usize), chip: Chip) -> Result<usize> {
    let (rows, cols) = (fits(rows)?, fits(cols)?);
    let sizes = SIZES.into_iter().filter(|size| *size as usize <= tokens);
    let values = |tokens: u32| {
        let shares = [rows, slice_rows(rows, cols)].map(|rows| {
            let product = TokensProduct { output: Output::Sums, tokens, rows, cols };
            choices.gemm(&product, chip).1
        });
        shares[0].max(shares[1]) as usize * tokens as usize * rows as usize
    };
    Ok(sizes.map(values).max().unwrap_or_default())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_is_cut_into_full_chunks_and_a_rest() {
        let cut = |tokens, longest| cut(tokens, longest).collect::<Vec<_>>();
        assert_eq!(cut(9, 512), [9]);
        assert_eq!(cut(512, 2048), [512]);
        assert_eq!(cut(600, 2048), [512, 88]);
        assert_eq!(cut(1100, 512), [512, 512, 76]);
        assert_eq!(cut(8192, 2048), [2048; 4]);
        assert_eq!(cut(4000, 2048), [2048, 1024, 512, 416]);
        assert!(cut(0, 2048).is_empty());
    }

    proptest::proptest! {
        /// No token is lost, and no chunk has room for more than the next size below it.
        #[test]
        fn chunks_cover_a_prompt(tokens in 0usize..20_000, longest in 3usize..6) {
            let longest = SIZES[longest] as usize;
            let all: Vec<_> = cut(tokens, longest).collect();
            proptest::prop_assert_eq!(all.iter().sum::<usize>(), tokens);
            proptest::prop_assert!(all.iter().all(|len| *len <= longest));
            let rest = all.iter().filter(|len| !SIZES.contains(&(**len as u32))).count();
            proptest::prop_assert!(rest <= 1, "{:?}", all);
        }
    }
}
