//! The products of a batch against a simple calculation on the CPU, on random shapes, and bit by bit against
//! each other.
//!
//! Runs on the device that `HCQ_DEVICE` names, else on the software one.

use ga10b_llm::kernels::columns::fragments;
use ga10b_llm::kernels::columns::product::{self, SIZES};
use ga10b_llm::kernels::columns::vector;
use ga10b_llm::kernels::format::Format;
use hcq::{Buffer, LaunchConfig};
use proptest::prelude::*;

use crate::device::{Random, config, dequantized, dot, floats, formats, launch, matrix, read, upload};

/// Columns as fragments, made by the kernel that applies `silu(gate) · up`; their values in `f64`.
fn columns(values: &[Vec<f32>], size: usize) -> Buffer {
    let len = values[0].len();
    // silu(40) is 40 in single precision.
    let mut sums = vec![0.0; size * 2 * len];
    for (sums, values) in sums.chunks_exact_mut(2 * len).zip(values) {
        sums[..len].fill(40.0);
        sums[len..].iter_mut().zip(values).for_each(|(sum, value)| *sum = value / 40.0);
    }
    let out = upload(&vec![0; fragments::bytes(size as u32, len as u32) as usize]);
    let (len, columns, sums) = (len as u32, size as u32, &floats(&sums));
    let args = vector::Act { sums, out: &out, len, shares: 1, columns, bias: None };
    let grid = (vector::tile_blocks(len), columns);
    launch("columns", "columns_act", LaunchConfig::new(grid, vector::THREADS), args);
    out
}

struct Matrix<'a> {
    format: Format,
    rows: usize,
    cols: usize,
    blocks: &'a [u8],
}

/// The product of `m` with `values`, by the kernel of `size` columns: `[share][column][row]`.
fn multiply(m: &Matrix<'_>, values: &[Vec<f32>], size: u32, shares: u32, sm_count: u32) -> Vec<f32> {
    let (rows, cols) = (m.rows as u32, m.cols as u32);
    let count = (shares * size * rows) as usize;
    let out = floats(&vec![7.5; count + 3]);
    let (weights, x) = (&matrix(m.format, m.cols, m.blocks), &columns(values, size as usize));
    let share = product::share_tiles(cols, shares);
    let args = product::ColumnsProduct { weights, x, out: &out, rows, cols, pitch: rows, share };
    let config = LaunchConfig::new(product::grid(rows, shares, sm_count), product::THREADS);
    launch(m.format.module("columns_product"), &product::kernel_name(m.format, size), config, args);
    let found = read(&out, count + 3);
    assert_eq!(found[count..], [7.5; 3], "written past the end");
    found[..count].to_vec()
}

fn random_columns(random: &mut Random, count: usize, cols: usize) -> Vec<Vec<f32>> {
    // Ranges that f16 does not have, in both directions.
    (0..count)
        .map(|c| random.values(cols).iter().map(|v| v * 10f32.powi(7 * (c as i32 % 3 - 1))).collect())
        .collect()
}

proptest! {
    #![proptest_config(config(24))]

    #[test]
    fn products_of_any_shape(
        format in formats(),
        size in 0..SIZES.len(),
        rows in 1usize..70,
        blocks in 1usize..8,
        shares in 1u32..3,
        sm_count in 1u32..5,
        seed: u64,
    ) {
        let random = &mut Random(seed);
        let (size, cols) = (SIZES[size], blocks * format.block() as usize);
        let data = random.blocks(format, rows * cols, false);
        let count = 1 + seed as usize % size as usize;
        let values = random_columns(random, count, cols);
        let found = multiply(&Matrix { format, rows, cols, blocks: &data }, &values, size, shares, sm_count);
        let weights = dequantized(format.ty(), &data, rows, cols);
        for (c, values) in values.iter().enumerate() {
            let sum = |r: usize| (0..shares as usize).map(|s| found[(s * size as usize + c) * rows + r]).sum();
            let got: Vec<f32> = (0..rows).map(sum).collect();
            let wanted: Vec<f64> = weights.chunks_exact(cols).map(|row| dot(row, values)).collect();
            // Beside the squares of the terms: few rows may have sums near zero.
            let terms = |row: &[f32]| -> f64 { row.iter().zip(values).map(|(w, v)| f64::from(w * v).powi(2)).sum() };
            let squares: f64 = weights.chunks_exact(cols).map(terms).sum();
            let off: f64 = got.iter().zip(&wanted).map(|(g, w)| (f64::from(*g) - w).powi(2)).sum();
            let error = off / squares.max(1e-30);
            // Weights and columns are rounded to f16 by themselves, which is 9e-8 per product. A mean over few rows
            // is further from that by chance.
            let most = 5e-7 * f64::max(1.0, 8.0 / rows as f64);
            prop_assert!(error < most, "{:?} {}: column {} of {}x{}: {:e}", format, size, c, rows, cols, error);
        }
    }

    /// Neither the number of columns, nor the place of one among them, nor the number of multiprocessors
    /// changes a bit of it.
    #[test]
    fn a_column_is_the_same_beside_any_others(
        format in formats(),
        rows in 1usize..50,
        blocks in 1usize..12,
        at in 0usize..8,
        seed: u64,
    ) {
        let random = &mut Random(seed);
        let cols = blocks * format.block() as usize;
        let data = random.blocks(format, rows * cols, false);
        let m = Matrix { format, rows, cols, blocks: &data };
        let own = random.values(cols);
        let alone = multiply(&m, std::slice::from_ref(&own), 8, 1, 2);
        let alone: Vec<u32> = alone[..rows].iter().map(|v| v.to_bits()).collect();
        for (size, sm_count) in [(8u32, 1), (16, 1), (32, 3)] {
            let place = at * size as usize / 8;
            let mut others = random_columns(random, size as usize, cols);
            others[place].clone_from(&own);
            // NaN stays where it is.
            let other = (place + 1) % size as usize;
            others[other][0] = f32::NAN;
            let found = multiply(&m, &others, size, 1, sm_count);
            let found: Vec<u32> = found[place * rows..][..rows].iter().map(|v| v.to_bits()).collect();
            prop_assert_eq!(&found, &alone, "{:?}: column {} of {}", format, place, size);
        }
    }
}
