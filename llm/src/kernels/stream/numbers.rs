//! Products with matrices of numbers that are not quantized, in single precision.
//!
//! A weight takes so many bytes that memory is the limit by far, and ordinary multiplications are exact: lanes
//! have neighbouring columns and multiply all 16 rows of a tile. At the end of a tile the lanes exchange sums,
//! and then hold those of two rows each, as after the products of quantized tiles.

use ptxgen::{Cache, Kernel, Pointer, Reg, Shared, Shuffle};

use crate::kernels::format::{Format, Packed, TILE_COLS, TILE_ROWS};
use crate::kernels::stream::block::Stream;
use crate::kernels::stream::layout::{CONSUMERS, GROUP_SLOTS, QUAD, SLOT_TILES, number_bytes, row_bytes};
use crate::kernels::stream::products::{Cursor, Groups};
use crate::kernels::stream::record::at;

/// The last type that is not quantized: all before it are not either.
const LAST: Format = Format::Bf16;
const _: () = {
    let mut i = 0;
    while i < Format::ALL.len() {
        assert!(Format::ALL[i].is_quantized() == (Format::ALL[i] as u32 > LAST as u32));
        i += 1;
    }
};
/// Values of a lane.
const VALUES: u32 = TILE_COLS / 32;

/// A run of a lane's columns that lies in one piece of 16 bytes of a row.
struct Run {
    /// The first of the columns.
    first: ptxgen::Multiple,
    /// Whether the matrix has them.
    inside: ptxgen::Pred,
    /// The input there.
    x: Vec<Reg<f32>>,
}

impl Stream<'_> {
    /// Stores a column of the input as numbers.
    pub(super) fn store_numbers(&self, column: Reg<u32>, values: &[[Reg<f32>; 4]]) {
        let k = self.k;
        let to = k.at(self.numbers(column), k.scale(self.lane, 4));
        (0..).step_by(128).zip(values).for_each(|(i, values)| k.store_n(to.plus(i), values));
    }

    /// The input as numbers from column `column` on.
    fn numbers(&self, column: Reg<u32>) -> Pointer<Shared, f32> {
        let k = self.k;
        let column = k.at_stride(self.inputs, column, number_bytes(TILE_COLS));
        k.at(column, k.scale(k.shr(self.word(at::NUMBERS_AT), 4), 16)).cast()
    }

    /// Multiplies a run of `left` tiles, if the type with number `code` is not quantized.
    pub(super) fn multiply_run_of_numbers(&self, code: Reg<u32>, left: Reg<u32>, cursor: &Cursor) {
        let k = self.k;
        if self.variant.numbers().next().is_none() {
            return;
        }
        // The common case leaves by one branch.
        k.if_(k.le(code, LAST as u32), || {
            self.prepare_first_input(cursor);
            for format in self.variant.numbers() {
                k.if_(k.eq(code, format as u32), || self.multiply_numbers(format, left, cursor));
            }
        });
    }

    /// Multiplies a run of `left` tiles.
    fn multiply_numbers(&self, format: Format, left: Reg<u32>, cursor: &Cursor) {
        let k = self.k;
        let rows = self.slot_rows(format);
        let runs = VALUES / format.unit();
        let groups = Groups::new(k);
        // A lane past the end of the matrix keeps zeros.
        let weights: Vec<Vec<[Reg<u32>; 4]>> =
            (0..QUAD).map(|_| (0..runs).map(|_| std::array::from_fn(|_| k.var(0u32))).collect()).collect();
        k.loop_(|l| {
            k.break_if(l, k.eq(left, 0));
            let runs: Vec<Run> = (0..runs).map(|run| self.run_of(format, run, groups.group)).collect();
            let mut sums: Vec<Reg<f32>> = Vec::new();
            for quad in (0..TILE_ROWS).step_by(QUAD as usize) {
                let in_slot = k.and(k.var(quad), k.sub(rows, 1));
                k.if_(k.eq(in_slot, 0), || {
                    self.wait_phase(self.barrier(self.ring.full, cursor.place.slot), cursor.place.parity);
                });
                let slot = k.at_stride(self.slot(cursor.place.slot), in_slot, row_bytes(format));
                self.load_quad(format, slot, &runs, &weights);
                let next = k.add(in_slot, QUAD);
                k.if_(k.eq(next, rows), || {
                    self.arrive_warp(self.barrier(self.ring.empty, cursor.place.slot));
                    self.advance(cursor.place, GROUP_SLOTS);
                });
                sums.extend(weights.iter().map(|row| dot(k, format, row, &runs)));
            }
            let group = k.var(groups.group);
            let next = k.add(group, 1);
            k.set(groups.group, k.select(k.eq(next, self.word(at::GROUPS)), 0u32, next));
            k.set(left, k.sub(left, 1));
            self.add_tiles([self.of_two_rows(sums)], [group], groups.sums, cursor);
        });
    }

    /// Run `run` of the lane in group `group` of columns.
    fn run_of(&self, format: Format, run: u32, group: Reg<u32>) -> Run {
        let k = self.k;
        let column = k.mad(group, CONSUMERS, self.warp);
        let first = k.scale(k.add(self.lane, 32 * run), format.unit());
        let value = k.mad(column, TILE_COLS, first.reg());
        let inside = k.lt(value, k.shl(self.word(at::PACKETS), 2));
        let at = k.at(self.numbers(column), first);
        let words: Vec<Reg<u32>> = (0..format.unit()).map(|_| k.var(0u32)).collect();
        for (i, four) in (0..).step_by(4).zip(words.chunks(4)) {
            k.load_words_where(Some(inside), at.plus(i).cast::<u32>(), four, Cache::Default);
        }
        Run { first, inside, x: words.into_iter().map(|w| k.bits(w)).collect() }
    }

    /// Loads the lane's values of four rows at `rows`.
    fn load_quad(&self, format: Format, rows: Pointer<Shared, u8>, runs: &[Run], to: &[Vec<[Reg<u32>; 4]>]) {
        let k = self.k;
        let own = k.at_stride(rows, k.and(self.warp, SLOT_TILES - 1), row_bytes(format) / SLOT_TILES);
        for (row, to) in (0..).zip(to) {
            for (run, to) in runs.iter().zip(to) {
                let from = k.at_stride(own, run.first, format.value_bytes());
                let from = from.plus_bytes(i64::from(row * row_bytes(format)));
                k.load_words_where(Some(run.inside), from.cast::<u32>(), to, Cache::Default);
            }
        }
    }

    /// From the lanes' sums of 16 rows those of rows g and g + 8, with g = lane / 4, which the lanes of equal
    /// lane % 4 have added.
    fn of_two_rows(&self, mut sums: Vec<Reg<f32>>) -> [Reg<f32>; 2] {
        let k = self.k;
        // Rows `row` and `row + distance` meet in lanes that differ in bit 4 · distance.
        for distance in [4, 2, 1] {
            let upper = k.ne(k.and(self.lane, 4 * distance as u32), 0);
            sums = (0..sums.len())
                .filter(|i| i & distance == 0)
                .map(|i| {
                    let (low, high) = (sums[i], sums[i + distance]);
                    let (keep, give) = (k.select(upper, high, low), k.select(upper, low, high));
                    k.add(keep, k.shuffle(give, Shuffle::Xor(4 * distance as u32)))
                })
                .collect();
        }
        [sums[0], sums[1]]
    }
}

/// The product of a lane's values of a row with the input.
fn dot(k: &Kernel, format: Format, row: &[[Reg<u32>; 4]], runs: &[Run]) -> Reg<f32> {
    let values =
        row.iter().map(|words| Packed { words: words.to_vec(), unit: runs[0].first.reg(), book: None });
    let values = values.flat_map(|packed| format.weights(k, &packed).concat());
    let pairs = values.zip(runs.iter().flat_map(|run| run.x.iter().copied()));
    let mut sum = None;
    for (w, x) in pairs {
        sum = Some(match sum {
            None => k.mul(w, x),
            Some(sum) => k.mad(w, x, sum),
        });
    }
    sum.unwrap_or_else(|| k.var(0f32))
}
