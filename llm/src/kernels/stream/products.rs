//! The products of a matrix phase: a consumer multiplies every eighth column of tiles, two tiles at a time, so
//! that no chain of tensor core operations is waited for alone.

use std::cell::OnceCell;

use ptxgen::{ByteA, ByteB, Cache, IntAccumulator, Kernel, Pointer, Pred, Reg, Shared, Shuffle};

use crate::kernels::format::Format;
use crate::kernels::stream::block::{Place, Share, Stream};
use crate::kernels::stream::layout::{CHUNK, CONSUMERS, GROUP_SLOTS, SLOT_TILES, TILE_SUMS, input};
use crate::kernels::stream::operands::{Column, Operand, Scales};
use crate::kernels::stream::record::{MAX_SEGMENTS, at, segment};

/// Where a consumer is in a phase.
pub(super) struct Cursor {
    /// Group of columns of the next tile.
    group: Reg<u32>,
    /// Tiles completed in the phase.
    tiles: Reg<u32>,
    /// Tiles of the phase in this block.
    all: Reg<u32>,
    /// Whether the input is in shared memory.
    ready: Reg<u32>,
    /// Sums of rows g and g + 8, in the lane's units.
    sums: [Reg<f32>; 2],
    /// The lane's sum of squares of the input.
    squares: Reg<f32>,
}

/// A tile that is being multiplied.
struct Step {
    place: Place,
    group: Reg<u32>,
    operand: Operand,
}

impl Stream<'_> {
    /// A matrix phase of a consumer.
    pub(super) fn multiply_matrices(&self, place: Place) {
        let k = self.k;
        let (_, all) = self.shares();
        let sums = [k.var(0f32), k.var(0f32)];
        let squares = k.var(0f32);
        let (group, tiles, ready) = (k.var(0u32), k.var(0u32), k.var(0u32));
        let cursor = Cursor { group, tiles, all, ready, sums, squares };
        k.if_(k.eq(all, 0), || {
            self.stamp(1);
            self.stamp(2);
        });
        k.for_(0u32, MAX_SEGMENTS as u32, 1u32, |number: Reg<u32>| {
            let record = self.segment(number);
            let share = self.share(record);
            k.if_(k.gt(share.count, 0), || {
                let format = k.load(record.plus(segment::FORMAT));
                for f in Format::ALL.into_iter().filter(|f| f.is_quantized()) {
                    k.if_(k.eq(format, f as u32), || self.multiply_segment(f, share, place, &cursor));
                }
            });
        });
        self.stamp(3);
    }

    fn multiply_segment(&self, format: Format, share: Share, place: Place, cursor: &Cursor) {
        let k = self.k;
        let groups = self.word(at::GROUPS);
        let left = k.var(k.mul(share.count, groups));
        let columns = [(); 2].map(|()| Column::new(k));
        // With one group of columns the input is the same for all tiles.
        let reload = k.var(1u32);
        k.loop_(|l| {
            let first = self.fetch(format, place, cursor, groups);
            // The first tile of a phase is unpacked before the input arrives.
            k.if_(k.eq(cursor.ready, 0), || {
                self.prepare_input(cursor.squares);
                k.set(cursor.ready, 1u32);
            });
            let two = k.gt(left, 1);
            let fetched = OnceCell::new();
            let second = || fetched.get_or_init(|| self.fetch(format, place, cursor, groups));
            k.if_else(two, || _ = second(), || second().clear(k));
            let second = second();
            k.sync_warp();
            k.if_(k.eq(self.lane, 0), || {
                k.arrive(self.barrier(self.ring.empty, first.place.slot));
                k.if_(two, || k.arrive(self.barrier(self.ring.empty, second.place.slot)));
            });
            let load = k.ne(reload, 0);
            for (step, column) in [&first, second].into_iter().zip(&columns) {
                self.column(format, step.group, load, column);
            }
            k.set(reload, k.select(k.gt(groups, 1), 1u32, 0u32));
            let one = || {
                self.finish_step(&first, products(k, [(&first.operand, &columns[0])])[0], &columns[0], cursor)
            };
            k.if_else(
                two,
                || {
                    let both = [(&first.operand, &columns[0]), (&second.operand, &columns[1])];
                    let [a, b] = products(k, both);
                    self.finish_step(&first, a, &columns[0], cursor);
                    self.finish_step(second, b, &columns[1], cursor);
                },
                one,
            );
            k.set(left, k.sub(left, k.select(two, 2u32, 1u32)));
            k.break_if(l, k.eq(left, 0));
        });
    }

    /// Adds the products of a tile to the sums of its rows.
    fn finish_step(&self, step: &Step, products: [IntAccumulator; 4], column: &Column, cursor: &Cursor) {
        let k = self.k;
        let there = k.lt(k.mad(step.group, CONSUMERS, self.warp), self.word(at::COLUMNS));
        for (h, scales) in step.operand.scales.iter().enumerate() {
            let of_row = products.each_ref().map(|m| [m.0[2 * h], m.0[2 * h + 1]]);
            let sum = scaled(k, scales, of_row, column);
            k.set(cursor.sums[h], k.add(cursor.sums[h], k.select(there, sum, 0f32)));
        }
        k.if_(k.eq(k.add(step.group, 1), self.word(at::GROUPS)), || self.end_tile(cursor));
    }

    /// Waits for the next tile, loads the lane's part and moves on.
    fn fetch(&self, format: Format, place: Place, cursor: &Cursor, groups: Reg<u32>) -> Step {
        let k = self.k;
        let step_place = Place { slot: k.var(place.slot), parity: k.var(place.parity) };
        let group = k.var(cursor.group);
        self.wait_phase(self.barrier(self.ring.full, step_place.slot), step_place.parity);
        let number = k.and(self.warp, SLOT_TILES - 1);
        let tile = k.at_stride(self.slot(step_place.slot), number, format.tile_bytes());
        let operand = self.operand(format, tile);
        self.advance(place, GROUP_SLOTS);
        let next = k.add(cursor.group, 1);
        k.set(cursor.group, k.select(k.eq(next, groups), 0u32, next));
        Step { place: step_place, group, operand }
    }

    /// Loads the lane's part of the input for group `group` of columns, where `load` holds.
    fn column(&self, format: Format, group: Reg<u32>, load: Pred, to: &Column) {
        let k = self.k;
        let place = k.at_stride(self.inputs, k.mad(group, CONSUMERS, self.warp), input::BYTES);
        let (g, t) = (k.shr(self.lane, 2), k.and(self.lane, 3));
        let high = k.eq(k.and(g, 1), 0);
        let byte = k.select(high, input::HIGH, input::LOW);
        let own = k.at_stride(k.at(place, k.scale(k.shr(byte, 4), 16)), t, 32);
        let from = k.select_ptr(k.eq(k.shr(g, 1), t), own, self.zeros).cast::<u32>();
        let load_words = |from: Pointer<Shared, u32>, to: &[Reg<u32>]| {
            k.load_words_where(Some(load), from, to, Cache::Default);
        };
        for (bytes, words) in [0, 128].into_iter().zip(&to.words) {
            load_words(from.plus_bytes(bytes), &words[..4]);
            load_words(from.plus_bytes(bytes + 16), &words[4..]);
        }
        load_words(place.plus_bytes(input::SCALE.into()).cast(), &[to.scale]);
        if format.has_minimum() {
            let sums = k.at_stride(place, t, 4).plus_bytes(input::SUMS.into()).cast::<u32>();
            to.sums.iter().zip([0, 4]).for_each(|(to, word)| load_words(sums.plus(word), &[*to]));
        }
    }

    /// Stores the sums of a tile.
    fn end_tile(&self, cursor: &Cursor) {
        let k = self.k;
        let within = k.and(cursor.tiles, CHUNK - 1);
        let (buffer, lap) = self.buffer();
        k.if_(k.eq(within, 0), || {
            self.wait_phase(self.barrier(self.sums.empty, buffer), k.xor(lap, 1u32));
            k.if_(k.eq(cursor.tiles, 0), || {
                let squares = k.warp_sum(cursor.squares);
                let to = k.at(self.sums.squares, k.mad(buffer, CONSUMERS, self.warp));
                k.if_(k.eq(self.lane, 0), || k.store(to, squares));
            });
        });
        // Lanes with an even t end with the sum of row g, those with an odd one with that of row g + 8.
        let [low, high] = cursor.sums;
        let t = k.and(self.lane, 3);
        let odd = k.ne(k.and(t, 1), 0);
        let (keep, give) = (k.select(odd, high, low), k.select(odd, low, high));
        let sum = k.add(keep, k.shuffle(give, Shuffle::Xor(1)));
        let sum = k.add(sum, k.shuffle(sum, Shuffle::Xor(2)));
        let tile = k.mad(buffer, CHUNK, within);
        let own = k.mad(self.warp, 16u32, k.mad(t, 8u32, k.shr(self.lane, 2)));
        let to = k.at_stride(k.at(self.sums.values, own), tile, 4 * TILE_SUMS);
        k.if_(k.lt(t, 2), || k.store(to, sum));
        cursor.sums.iter().for_each(|sum| k.set(*sum, 0f32));
        k.add_to(cursor.tiles, 1);
        let ends = k.either(k.eq(within, CHUNK - 1), k.eq(cursor.tiles, cursor.all));
        k.if_(ends, || {
            self.arrive_warp(self.barrier(self.sums.full, buffer));
            k.add_to(self.sums.chunk, 1);
        });
    }
}

impl Step {
    /// Clears all registers: on a way on which they are not set they would be live in the whole loop.
    fn clear(&self, k: &Kernel) {
        self.operand.clear(k);
        [self.place.slot, self.place.parity, self.group].into_iter().for_each(|r| k.set(r, 0u32));
    }
}

/// The products of tiles with their inputs: of units t and t + 4 the first and the second 16 values.
fn products<const N: usize>(k: &Kernel, all: [(&Operand, &Column); N]) -> [[IntAccumulator; 4]; N] {
    let sums: [[IntAccumulator; 4]; N] = [(); N].map(|()| [(); 4].map(|()| k.int_accumulator()));
    for pair in 0..2 {
        for m in 0..4 {
            for (sums, (operand, column)) in sums.iter().zip(all) {
                let (s, word) = (m / 2, 4 * (m % 2) + 2 * pair);
                let [low, high] = operand.quads.each_ref().map(|row| &row[s]);
                let left = [low[word], high[word], low[word + 1], high[word + 1]];
                let right = [column.words[s][word], column.words[s][word + 1]];
                k.multiply_bytes(sums[m], ByteA(left), ByteB(right));
            }
        }
    }
    sums
}

/// The sum of a row's units: `products` are those of the high and of the low bytes.
fn scaled(k: &Kernel, scales: &Scales, products: [[Reg<i32>; 2]; 4], column: &Column) -> Reg<f32> {
    let float = |n: Reg<i32>| k.convert::<i32, f32>(n);
    let scale = k.bits::<u32, f32>(column.scale);
    // Integers times their scales stay below 2^31 separately for high and low bytes.
    let weighted = |integers: [Reg<i32>; 4]| {
        let [high, low] = [0, 1].map(|byte| {
            let first = k.mul(products[0][byte], integers[0]);
            (1..4).fold(first, |sum, m| k.mad(products[m][byte], integers[m], sum))
        });
        k.mad(float(high), 256f32, float(low))
    };
    match scales {
        Scales::Sixteenths { integers, all } => k.mul(weighted(*integers), k.mul(*all, scale)),
        Scales::Minima { integers: [a, b], minima, all, least } => {
            let sums = k.mad(
                minima[1],
                k.bits(column.sums[1]),
                k.mul(minima[0], k.bits::<u32, i32>(column.sums[0])),
            );
            let below = k.mul(float(sums), *least);
            k.mul(k.mad(weighted([*a, *a, *b, *b]), *all, k.neg(below)), scale)
        }
        Scales::Units(scales) => {
            let of_unit = |s: usize| {
                let [high, low] = [0, 1].map(|byte| k.add(products[2 * s][byte], products[2 * s + 1][byte]));
                float(k.mad(high, 256i32, low))
            };
            let sum = k.mad(of_unit(1), scales[1], k.mul(of_unit(0), scales[0]));
            k.mul(sum, scale)
        }
    }
}
