//! Factors that keep what a chunk stores in f16 below the largest f16, 65504, whatever the tokens are.
//!
//! A vector of n values that RMS norm has divided is at most √n long, so a product with it is at most √n
//! times the length of the matrix's row, whose values take the norm's weights with them (Cauchy and Schwarz).
//! Biases add what they are, norms of heads bound by their weights alone. `silu(gate) · up` and `gelu(gate) ·
//! up` are at most n times both lengths, `gelu(up)` at most `up`. Where such a bound exceeds f16, values are
//! stored times a power of two, which the reader undoes in single precision. A power of two rounds nothing;
//! values that become subnormal lose 2^-25, and usual ones stay far above.

use hcq::{Buffer, Queue};

use crate::engine::launch::{Launch, record};
use crate::engine::layers::{LayerMemory, Target};
use crate::engine::matrix::fits;
use crate::engine::memory::DeviceModel;
use crate::error::Result;
use crate::model::architecture::Activation;
use crate::model::config::Config;

/// The largest f16, less what rounding the factors of a product may add to it.
const LARGEST: f64 = 65504.0 / 1.02;
/// The smallest factor: below it, a product of two factors would leave the range of `f32`.
const LEAST: f64 = 1.0 / (1u64 << 40) as f64;

/// Factors of a layer's values before they are stored in f16: powers of two, at most 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerFactors {
    /// Queries.
    pub queries: f32,
    /// Keys that are expanded from another type.
    pub keys: f32,
    /// Values that are expanded from another type; the result of attention has the same factor.
    pub values: f32,
    /// Input of the down projection.
    pub ff: f32,
}

impl LayerFactors {
    /// Values as they are.
    pub const ONE: Self = Self { queries: 1.0, keys: 1.0, values: 1.0, ff: 1.0 };
}

/// Rows of a layer that are measured: queries, keys, values, gate if there is one, and up, of all
/// experts if there are some.
pub fn measured_rows(c: &Config) -> usize {
    let parts = if c.architecture.activation.is_gated() { 2 } else { 1 };
    c.padded_q_dim() + 2 * c.padded_kv_dim() + parts * c.ff * c.experts.max(1)
}

/// The factors of every layer that the kernels of a chunk compute as a whole, which are all but the last;
/// `None` if a bound is not finite or past any factor.
///
/// `squares` has the sum of squares of each of [`measured_rows`] rows times the norm's weights, layer after
/// layer, written by `launches`.
pub fn factors(
    m: &DeviceModel,
    queue: &mut Queue,
    launches: &[Launch],
    squares: &Buffer,
) -> Result<Option<Vec<LayerFactors>>> {
    let c = &m.config;
    let rows = measured_rows(c);
    if !launches.is_empty() {
        let patience = m.patience * fits(c.layers)?;
        queue.replay(&record(&m.device, launches)?)?.wait(patience)?;
    }
    let mut all = Vec::new();
    for (i, layer) in m.layers.iter().enumerate() {
        let last = i + 1 == m.layers.len();
        // The last layer's keys and values are products of a chunk too.
        for norm in layer.norms().take(if last { 1 } else { usize::MAX }) {
            if factor((c.hidden as f64).sqrt() * magnitude(&norm.reach)?) != Some(1.0) {
                return Ok(None);
            }
        }
        if !last {
            let squares = squares.read_vec::<f32>(4 * (i * rows) as u64, rows)?;
            let Some(factors) = of_layer(c, &squares, &Added::of(layer)?) else { return Ok(None) };
            all.push(factors);
        }
    }
    Ok(Some(all))
}

/// Bounds beside the lengths of rows.
#[derive(Clone, Copy, Debug, Default)]
struct Added {
    /// The largest bias of a query, key or value.
    heads: f64,
    /// The largest bias of the feed-forward block.
    ff: f64,
    /// The length of a normalized query and of a key, if they are.
    normed: Option<[f64; 2]>,
}

impl Added {
    fn of(layer: &LayerMemory) -> Result<Self> {
        let mut added = Self::default();
        for product in layer.products() {
            let bias = product.bias.as_ref().map_or(Ok(0.0), magnitude)?;
            match &product.to {
                Target::Heads(norms) => {
                    added.heads = bias;
                    if let Some(norms) = norms {
                        let [q, k] = &norms.weights;
                        let lengths = norms.lengths.map(|len| f64::from(len).sqrt());
                        added.normed = Some([lengths[0] * magnitude(q)?, lengths[1] * magnitude(k)?]);
                    }
                }
                Target::Activated(_) => added.ff = bias,
                Target::Residual(_) => {}
            }
        }
        Ok(added)
    }
}

/// The factors of a layer by its rows' sums of squares.
fn of_layer(c: &Config, squares: &[f32], added: &Added) -> Option<LayerFactors> {
    let (queries, rest) = squares.split_at(c.padded_q_dim());
    let (keys, rest) = rest.split_at(c.padded_kv_dim());
    let (values, rest) = rest.split_at(c.padded_kv_dim());
    let len = c.hidden as f64;
    let wide = |v: &f32| f64::from(*v);
    // A rotation moves the length of a pair into one of its values.
    let pairs = |rows: &[f32]| rows.chunks(2).map(|p| p.iter().map(wide).sum::<f64>()).fold(0.0, largest);
    let longest = |rows: &[f32]| (len * pairs(rows)).sqrt() + added.heads * std::f64::consts::SQRT_2;
    let [query, key] = added.normed.unwrap_or_else(|| [longest(queries), longest(keys)]);
    let single = |rows: &[f32]| (len * rows_bound(rows.iter().map(wide))).sqrt();
    let ff = match c.architecture.activation {
        Activation::SiluGate | Activation::GeluGate => {
            let (gate, up) = rest.split_at(rest.len() / 2);
            len * rows_bound(gate.iter().zip(up).map(|(g, u)| wide(g) * wide(u))).sqrt()
        }
        Activation::Gelu => single(rest) + added.ff,
    };
    Some(LayerFactors {
        queries: factor(query)? as f32,
        keys: factor(key)? as f32,
        values: factor(single(values) + added.heads)? as f32,
        ff: factor(ff)? as f32,
    })
}

/// The largest magnitude in a buffer of numbers in single precision.
fn magnitude(buffer: &Buffer) -> Result<f64> {
    let values = buffer.read_vec::<f32>(0, buffer.len() as usize / 4)?;
    Ok(values.into_iter().map(f32::abs).fold(0.0, largest))
}

fn rows_bound(rows: impl Iterator<Item = f64>) -> f64 {
    rows.fold(0.0, largest)
}

/// The larger one; NaN if either is, unlike `max`.
fn largest<T: Into<f64>>(most: f64, value: T) -> f64 {
    let value = value.into();
    if value > most || value.is_nan() { value } else { most }
}

/// The largest power of two up to 1 that keeps values of at most `bound` in f16.
fn factor(bound: f64) -> Option<f64> {
    let mut factor = 1.0;
    while factor >= LEAST {
        if bound * factor <= LARGEST {
            return Some(factor);
        }
        factor /= 2.0;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_factor_is_the_largest_power_of_two_that_fits() {
        assert_eq!(factor(0.0), Some(1.0));
        assert_eq!(factor(64_000.0), Some(1.0));
        assert_eq!(factor(65_504.0), Some(0.5), "no room for rounding");
        assert_eq!(factor(1e6), Some(1.0 / 16.0));
        for bound in [f64::NAN, f64::INFINITY, 1e30] {
            assert_eq!(factor(bound), None, "{bound}");
        }
    }

    #[test]
    fn a_row_that_is_not_a_number_is_not_lost_among_others() {
        let bound = rows_bound([1.0, f64::NAN, 2.0].into_iter());
        assert!(bound.is_nan() && factor(bound).is_none());
    }
}
