//! Products of a matrix with the tokens of a chunk on the tensor cores: by warps, and on SM 9.0 by warpgroups.

use std::ops::Range;

use ga10b_llm::kernels::prompt::gemm::{self, DEPTH, Output, Tile};
use ga10b_llm::kernels::prompt::warpgroups;
use half::f16;
use hcq::LaunchConfig;

use crate::drive::OfModel;
use ga10b_tests::conformance::Case;
use ga10b_tests::conformance::Noise;
use ga10b_tests::conformance::Tolerance;
use ga10b_tests::conformance::drive::{Drive, NEXT};

/// All of them.
pub(super) fn cases() -> Vec<Case> {
    let by_warps = gemm::TILES.into_iter().flat_map(|tile| Output::ALL.map(|output| by_warps(tile, output)));
    let by_groups =
        warpgroups::TILES.into_iter().flat_map(|tile| Output::ALL.map(|output| by_warpgroups(tile, output)));
    by_warps.chain(by_groups).collect()
}

/// Of no whole tiles, with sums in two parts.
fn by_warps(tile: Tile, output: Output) -> Case {
    // Each of two parts has four slices, the fewest that an engine gives one.
    let (given, results, cols, pitch) = (70, 72, 512, 80);
    let gated = output == Output::Gate;
    let parts = if gated { 1 } else { 2 };
    let config = LaunchConfig::new(tile.grid(output, given, results, parts), tile.threads())
        .with_dynamic_shared(tile.shared_bytes());
    Drive::of(gemm::NAME, &tile.kernel_name(output), config).on_tensor_cores().done(|d| gemm::Gemm {
        x: d.halves((given * cols) as usize, 1.0),
        w: d.halves((if gated { 2 } else { 1 } * results * cols) as usize, 1.0),
        out: match gated {
            true => {
                d.within(Tolerance::Halves { ulps: 2, absolute: 1e-3 }).room((pitch * results / 2) as usize)
            }
            false => d.room((2 * pitch * results) as usize),
        },
        tokens: given,
        rows: results,
        cols,
        pitch: results,
        share: cols / parts,
        share_pitch: pitch,
        factor: gated.then_some(0.5),
    })
}

/// A factor of whole numbers, whose products and sums are exact in any order; `divisor` is a power of two.
struct Factor {
    numbers: Vec<i32>,
    divisor: f32,
}

impl Factor {
    fn new(noise: &mut Noise, count: u32, divisor: f32) -> Self {
        Self { numbers: (0..count).map(|_| noise.below(9) as i32 - 4).collect(), divisor }
    }

    /// Some of the values of the row that begins at `row`.
    fn of(&self, row: u32, values: Range<u32>) -> &[i32] {
        &self.numbers[(row + values.start) as usize..(row + values.end) as usize]
    }

    /// As pairs of f16.
    fn words(&self) -> Vec<u32> {
        let half = |number: i32| u32::from(f16::from_f32(number as f32 / self.divisor).to_bits());
        self.numbers.as_chunks().0.iter().map(|[a, b]| half(*a) | half(*b) << 16).collect()
    }
}

/// Whole tiles, two along the rows, which one block computes one after the other, over more slices than the ring has.
/// Architectures without warpgroups multiply the same by warps, so results are right or wrong on both.
fn by_warpgroups(tile: warpgroups::Tile, output: Output) -> Case {
    let gated = output == Output::Gate;
    // The second of two parts is shorter. Gates are of usual size.
    let (parts, divisor) = if gated { (1, 16.0) } else { (2, 1.0) };
    let rows = if gated { tile.rows } else { 2 * tile.rows };
    let (tokens, share) = (tile.tokens(), DEPTH * (tile.stages + 2));
    let cols = parts * share - (parts - 1) * DEPTH;
    let (pitch, share_pitch) = (rows + 8, tokens + 3);
    let warps = gemm::TILES[2];
    let config = LaunchConfig::new(warps.grid(output, tokens, rows, parts), warps.threads())
        .with_dynamic_shared(warps.shared_bytes());
    let on_hopper = LaunchConfig::new((1, 1, parts), tile.threads()).with_dynamic_shared(tile.shared_bytes());
    let mut d = Drive::of(gemm::NAME, &warps.kernel_name(output), config).on_hopper_of(
        warpgroups::NAME,
        tile.kernel_name(output),
        on_hopper,
    );
    let x = Factor::new(&mut d.noise, tokens * cols, divisor);
    let w = Factor::new(&mut d.noise, if gated { 2 } else { 1 } * rows * cols, divisor);
    let factors = [d.words(x.words()), d.words(w.words())];
    let results = (parts * share_pitch * pitch) as usize;
    let out = if gated {
        d.within(NEXT).room(results / 2)
    } else {
        let mut sums = vec![Some(Drive::UNTOUCHED); results];
        for (at, sum) in (0..).zip(&mut sums) {
            let (line, row) = (at / pitch, at % pitch);
            let (part, token) = (line / share_pitch, line % share_pitch);
            if token < tokens && row < rows {
                let values = part * share..cols.min((part + 1) * share);
                let (a, b) = (x.of(token * cols, values.clone()), w.of(row * cols, values));
                let products = a.iter().zip(b).map(|(a, b)| a * b);
                *sum = Some((products.sum::<i32>() as f32).to_bits());
            }
        }
        let out = d.room(results);
        d.expected(sums);
        out
    };
    let ([x, w], factor) = (factors, gated.then_some(0.25));
    d.done(|_| gemm::Gemm { x, w, out, tokens, rows, cols, pitch, share, share_pitch, factor })
}
