//! The products of a matrix phase: a consumer multiplies every eighth column of tiles, two tiles at a time, so
//! that no chain of tensor core operations is waited for alone.

use ptxgen::{ByteA, ByteB, Cache, IntAccumulator, Kernel, Reg, Shuffle};

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
        k.if_(k.gt(all, 0), || {
            let squares = self.prepare_input();
            let sums = [k.var(0f32), k.var(0f32)];
            let cursor = Cursor { group: k.var(0u32), tiles: k.var(0u32), all, sums, squares };
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
        });
    }

    fn multiply_segment(&self, format: Format, share: Share, place: Place, cursor: &Cursor) {
        let k = self.k;
        let groups = self.word(at::GROUPS);
        let columns = self.word(at::COLUMNS);
        let steps = k.mul(share.count, groups);
        let done = k.var(0u32);
        k.loop_(|l| {
            let first = self.fetch(format, place, cursor);
            self.follow(place, cursor, groups);
            // Of an odd number the last is read again.
            let two = k.lt(k.add(done, 1), steps);
            let again = Place {
                slot: k.select(two, place.slot, first.place.slot),
                parity: k.select(two, place.parity, first.place.parity),
            };
            let second = self.fetch(format, again, cursor);
            k.sync_warp();
            k.if_(k.eq(self.lane, 0), || {
                k.arrive(self.barrier(self.ring.empty, first.place.slot));
                k.if_(two, || k.arrive(self.barrier(self.ring.empty, second.place.slot)));
            });
            let inputs = [&first, &second].map(|step| self.column(format, step.group));
            let products = products(k, [(&first.operand, &inputs[0]), (&second.operand, &inputs[1])]);
            let there = |step: &Step| k.lt(k.mad(step.group, CONSUMERS, self.warp), columns);
            let add = |i: usize, step: &Step| {
                let there = there(step);
                for (h, scales) in step.operand.scales.iter().enumerate() {
                    let of_row = products[i].each_ref().map(|m| [m.0[2 * h], m.0[2 * h + 1]]);
                    let sum = scaled(k, scales, of_row, &inputs[i]);
                    k.set(cursor.sums[h], k.add(cursor.sums[h], k.select(there, sum, 0f32)));
                }
                k.if_(k.eq(k.add(step.group, 1), groups), || self.end_tile(cursor));
            };
            add(0, &first);
            k.if_(two, || {
                add(1, &second);
                self.follow(place, cursor, groups);
            });
            k.add_to(done, 2);
            k.break_if(l, k.ge(done, steps));
        });
    }

    /// Moves to the next tile.
    fn follow(&self, place: Place, cursor: &Cursor, groups: Reg<u32>) {
        let k = self.k;
        self.advance(place, GROUP_SLOTS);
        let next = k.add(cursor.group, 1);
        k.set(cursor.group, k.select(k.eq(next, groups), 0u32, next));
    }

    /// Waits for a tile and loads the lane's part.
    fn fetch(&self, format: Format, place: Place, cursor: &Cursor) -> Step {
        let k = self.k;
        let place = Place { slot: k.var(place.slot), parity: k.var(place.parity) };
        let group = k.var(cursor.group);
        self.wait_phase(self.barrier(self.ring.full, place.slot), place.parity);
        let number = k.and(self.warp, SLOT_TILES - 1);
        let tile = k.at_stride(self.slot(place.slot), number, format.tile_bytes());
        Step { place, group, operand: self.operand(format, tile) }
    }

    /// The lane's part of the input for group `group` of columns.
    fn column(&self, format: Format, group: Reg<u32>) -> Column {
        let k = self.k;
        let place = k.at_stride(self.inputs, k.mad(group, CONSUMERS, self.warp), input::BYTES);
        let (g, t) = (k.shr(self.lane, 2), k.and(self.lane, 3));
        let high = k.eq(k.and(g, 1), 0);
        let byte = k.select(high, input::HIGH, input::LOW);
        let own = k.at_stride(k.at(place, k.scale(k.shr(byte, 4), 16)), t, 32);
        let from = k.select_ptr(k.eq(k.shr(g, 1), t), own, self.zeros).cast::<u32>();
        let words = [0, 128].map(|bytes| {
            let all = k.load_with(from.plus_bytes(bytes), 8, Cache::Default);
            std::array::from_fn(|i| all[i])
        });
        let scale = k.load(place.plus_bytes(input::SCALE.into()).cast::<f32>());
        let sums = [0, 16].map(|bytes| {
            let at = k.at_stride(place, t, 4).plus_bytes(i64::from(input::SUMS) + bytes).cast::<i32>();
            if format.has_minimum() { k.load(at) } else { k.var(0i32) }
        });
        Column { words, scale, sums }
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
        let place = k.mad(tile, TILE_SUMS, k.mad(self.warp, 16u32, k.mad(t, 8u32, k.shr(self.lane, 2))));
        k.if_(k.lt(t, 2), || k.store(k.at(self.sums.values, place), sum));
        cursor.sums.iter().for_each(|sum| k.set(*sum, 0f32));
        k.add_to(cursor.tiles, 1);
        let ends = k.either(k.eq(within, CHUNK - 1), k.eq(cursor.tiles, cursor.all));
        k.if_(ends, || {
            self.arrive_warp(self.barrier(self.sums.full, buffer));
            k.add_to(self.sums.chunk, 1);
        });
    }
}

/// The products of two tiles with their inputs: of units t and t + 4 the first and the second 16 values.
fn products(k: &Kernel, both: [(&Operand, &Column); 2]) -> [[IntAccumulator; 4]; 2] {
    let sums: [[IntAccumulator; 4]; 2] = [(); 2].map(|()| [(); 4].map(|()| k.int_accumulator()));
    for pair in 0..2 {
        for (m, (sums, (operand, column))) in
            (0..4).flat_map(|m| sums.iter().zip(both).map(move |both| (m, both)))
        {
            let (s, word) = (m / 2, 4 * (m % 2) + 2 * pair);
            let [low, high] = operand.quads.each_ref().map(|row| &row[s]);
            let left = [low[word], high[word], low[word + 1], high[word + 1]];
            let right = [column.words[s][word], column.words[s][word + 1]];
            k.multiply_bytes(sums[m], ByteA(left), ByteB(right));
        }
    }
    sums
}

/// The sum of a row's units: `products` are those of the high and of the low bytes.
fn scaled(k: &Kernel, scales: &Scales, products: [[Reg<i32>; 2]; 4], column: &Column) -> Reg<f32> {
    let float = |n: Reg<i32>| k.convert::<i32, f32>(n);
    // Integers times their scales stay below 2^31 separately for high and low bytes.
    let weighted = |integers: [Reg<i32>; 4]| {
        let [high, low] = [0, 1].map(|byte| {
            let first = k.mul(products[0][byte], integers[0]);
            (1..4).fold(first, |sum, m| k.mad(products[m][byte], integers[m], sum))
        });
        k.mad(float(high), 256f32, float(low))
    };
    match scales {
        Scales::Sixteenths { integers, all } => k.mul(weighted(*integers), k.mul(*all, column.scale)),
        Scales::Minima { integers: [a, b], minima, all, least } => {
            let sums = k.mad(minima[1], column.sums[1], k.mul(minima[0], column.sums[0]));
            let below = k.mul(float(sums), *least);
            k.mul(k.mad(weighted([*a, *a, *b, *b]), *all, k.neg(below)), column.scale)
        }
        Scales::Units(scales) => {
            let of_unit = |s: usize| {
                let [high, low] = [0, 1].map(|byte| k.add(products[2 * s][byte], products[2 * s + 1][byte]));
                float(k.mad(high, 256i32, low))
            };
            let sum = k.mad(of_unit(1), scales[1], k.mul(of_unit(0), scales[0]));
            k.mul(sum, column.scale)
        }
    }
}
