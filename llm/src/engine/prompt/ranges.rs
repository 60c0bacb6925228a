//! Factors that keep what a chunk stores in f16 below the largest f16, 65504, whatever the tokens are.
//!
//! A vector of n values that RMS norm has divided is at most √n long, so a product with it is at most √n
//! times the length of the matrix's row, whose values take the norm's weights with them (Cauchy and Schwarz).
//! `silu(gate) · up` is at most n times both lengths. Where such a bound exceeds f16, values are stored times
//! a power of two, which the reader undoes in single precision. A power of two rounds nothing; values that
//! become subnormal lose 2^-25, and usual ones stay far above.

use hcq::{Buffer, Queue};

use crate::engine::launch::{Launch, record};
use crate::engine::matrix::fits;
use crate::engine::memory::DeviceModel;
use crate::error::Result;
use crate::model::config::Config;

/// The largest f16, less what rounding the factors of a product may add to it.
const LARGEST: f64 = 65504.0 / 1.02;
/// The smallest factor: below it, a product of two factors would leave the range of `f32`.
const LEAST: f64 = 1.0 / (1u64 << 40) as f64;

/// What a layer's values are multiplied by before they are stored in f16: powers of two, at most 1.
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

/// Rows of a layer that are measured: queries, keys, values, gate and up.
pub fn measured_rows(c: &Config) -> usize {
    c.q_dim() + 2 * c.kv_dim() + 2 * c.ff
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
        let norms = [Some(&layer.attn_norm), (!last).then_some(&layer.ffn_norm)];
        for norm in norms.into_iter().flatten() {
            let largest = floats(norm, 0, c.hidden)?.into_iter().map(f32::abs).fold(0.0, largest);
            if factor((c.hidden as f64).sqrt() * largest) != Some(1.0) {
                return Ok(None);
            }
        }
        if !last {
            let squares = floats(squares, 4 * (i * rows) as u64, rows)?;
            let Some(factors) = of_layer(c, &squares) else { return Ok(None) };
            all.push(factors);
        }
    }
    Ok(Some(all))
}

/// The factors of a layer by its rows' sums of squares.
fn of_layer(c: &Config, squares: &[f32]) -> Option<LayerFactors> {
    let (queries, rest) = squares.split_at(c.q_dim());
    let (keys, rest) = rest.split_at(c.kv_dim());
    let (values, rest) = rest.split_at(c.kv_dim());
    let (gate, up) = rest.split_at(c.ff);
    let len = c.hidden as f64;
    let wide = |v: &f32| f64::from(*v);
    // A rotation moves the length of a pair into one of its values.
    let pairs = |rows: &[f32]| rows.chunks(2).map(|p| p.iter().map(wide).sum::<f64>()).fold(0.0, largest);
    let singles = rows_bound(values.iter().map(wide));
    let products = rows_bound(gate.iter().zip(up).map(|(g, u)| wide(g) * wide(u)));
    Some(LayerFactors {
        queries: factor((len * pairs(queries)).sqrt())? as f32,
        keys: factor((len * pairs(keys)).sqrt())? as f32,
        values: factor((len * singles).sqrt())? as f32,
        ff: factor(len * products.sqrt())? as f32,
    })
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

fn floats(buffer: &Buffer, at: u64, count: usize) -> Result<Vec<f32>> {
    let mut bytes = vec![0; 4 * count];
    buffer.read(at, &mut bytes)?;
    Ok(bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect())
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
