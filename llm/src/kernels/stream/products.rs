//! The products of a matrix phase: a consumer multiplies every eighth column of tiles, two tiles at a time, so
//! that no chain of tensor core operations is waited for alone.

use ptxgen::{ByteA, ByteB, Cache, IntAccumulator, Kernel, Pred, Reg, Shuffle};

use crate::kernels::format::Format;
use crate::kernels::stream::block::{Place, Stream};
use crate::kernels::stream::layout::{CHUNK, CONSUMERS, GROUP_SLOTS, SLOT_TILES, TILE_SUMS, input};
use crate::kernels::stream::operands::{Column, Quads, RAW, Scales};
use crate::kernels::stream::record::{MAX_SEGMENTS, at, segment};

/// Where a consumer is in a phase.
pub(super) struct Cursor {
    /// The next tile's place in the ring, and its group of columns.
    pub place: Place,
    pub group: Reg<u32>,
    /// Tiles completed in the phase.
    tiles: Reg<u32>,
    /// Sums of rows g and g + 8, in the lane's units.
    sums: [Reg<f32>; 2],
    /// The lane's sum of squares of the input.
    squares: Reg<f32>,
}

/// A tile in registers: which one, and the lane's part as it is stored.
struct Loaded {
    /// Whether there is one.
    there: Reg<u32>,
    slot: Reg<u32>,
    group: Reg<u32>,
    raw: [Reg<u32>; RAW],
}

impl Loaded {
    fn new(k: &Kernel) -> Self {
        let zero = || k.var(0u32);
        Self { there: zero(), slot: zero(), group: zero(), raw: [(); RAW].map(|()| zero()) }
    }
}

impl Stream<'_> {
    /// A matrix phase of a consumer.
    pub(super) fn multiply_matrices(&self, place: Place) {
        let k = self.k;
        let (_, all) = self.shares();
        k.if_(k.eq(all, 0), || {
            self.stamp(1);
            self.stamp(2);
        });
        k.if_(k.gt(all, 0), || {
            k.store(self.task.plus(at::ALL), all);
            k.store(self.task.plus(at::FIRST_CHUNK), self.sums.chunk);
            let cursor = Cursor {
                place,
                group: k.var(0u32),
                tiles: k.var(0u32),
                sums: [k.var(0f32), k.var(0f32)],
                squares: k.var(0f32),
            };
            let ready = k.var(0u32);
            k.for_(0u32, MAX_SEGMENTS as u32, 1u32, |number: Reg<u32>| {
                let record = self.segment(number);
                let share = self.share(record);
                k.if_(k.gt(share.count, 0), || {
                    let left = k.var(k.mul(share.count, self.word(at::GROUPS)));
                    let first = Loaded::new(k);
                    let format = k.load(record.plus(segment::FORMAT));
                    let by_format = |code: &dyn Fn(Format)| {
                        for f in Format::ALL.into_iter().filter(|f| f.is_quantized()) {
                            k.if_(k.eq(format, f as u32), || code(f));
                        }
                    };
                    // The first tile is loaded before the input arrives.
                    by_format(&|format| self.load(format, &first, left, &cursor));
                    k.if_(k.eq(ready, 0), || {
                        self.prepare_input(cursor.squares);
                        k.set(ready, 1u32);
                    });
                    by_format(&|format| self.multiply_segment(format, &first, left, &cursor));
                    self.multiply_segment_of_numbers(format, left, &cursor);
                });
            });
        });
        self.stamp(3);
    }

    /// Loads the next tile if the segment has one: `left`.
    fn load(&self, format: Format, loaded: &Loaded, left: Reg<u32>, cursor: &Cursor) {
        let k = self.k;
        {
            let there = k.gt(left, 0);
            k.set(loaded.there, k.select(there, 1u32, 0u32));
            k.set(loaded.slot, cursor.place.slot);
            k.set(loaded.group, cursor.group);
            k.if_(there, || {
                self.wait_phase(self.barrier(self.ring.full, cursor.place.slot), cursor.place.parity);
                let number = k.and(self.warp, SLOT_TILES - 1);
                let tile = k.at_stride(self.slot(cursor.place.slot), number, format.tile_bytes());
                self.load_raw(format, tile, &loaded.raw);
                self.advance(cursor.place, GROUP_SLOTS);
                let next = k.add(cursor.group, 1);
                k.set(cursor.group, k.select(k.eq(next, self.word(at::GROUPS)), 0u32, next));
                k.set(left, k.sub(left, 1));
            });
        }
    }

    /// Multiplies the rest of a segment, whose first tile is loaded: two tiles at a time, then one.
    fn multiply_segment(&self, format: Format, first: &Loaded, left: Reg<u32>, cursor: &Cursor) {
        let k = self.k;
        k.loop_(|l| {
            k.break_if(l, k.eq(left, 0));
            let second = Loaded::new(k);
            self.load(format, &second, left, cursor);
            self.multiply_tiles(format, [first, &second], left, cursor);
        });
        k.if_(k.ne(first.there, 0), || self.multiply_tiles(format, [first], left, cursor));
    }

    /// Multiplies loaded tiles. Then the first has the next one, if there is any.
    fn multiply_tiles<const N: usize>(
        &self,
        format: Format,
        tiles: [&Loaded; N],
        left: Reg<u32>,
        cursor: &Cursor,
    ) {
        let k = self.k;
        let quads = tiles.map(|loaded| self.quads(format, &loaded.raw));
        let scales = tiles.map(|loaded| self.packed_scales(format, &loaded.raw));
        // All lanes have read the tiles.
        k.sync_warp();
        k.if_(k.eq(self.lane, 0), || {
            tiles.iter().for_each(|loaded| k.arrive(self.barrier(self.ring.empty, loaded.slot)));
        });
        let columns = tiles.map(|loaded| self.column(format, loaded.group));
        let products = products::<N>(k, std::array::from_fn(|i| (&quads[i], &columns[i])));
        let groups = tiles.map(|loaded| k.var(loaded.group));
        // The next is on its way while these are scaled and added. One tile alone is the last.
        if N > 1 {
            self.load(format, tiles[0], left, cursor);
        }
        let sums: [[Reg<f32>; 2]; N] = std::array::from_fn(|i| {
            let there = k.lt(k.mad(groups[i], CONSUMERS, self.warp), self.word(at::COLUMNS));
            std::array::from_fn(|h| {
                let of_row = products[i].each_ref().map(|m| [m.0[2 * h], m.0[2 * h + 1]]);
                let scales = self.scales(format, &scales[i][h]);
                k.select(there, scaled(k, &scales, of_row, &columns[i]), 0f32)
            })
        });
        self.finish_tiles(sums, groups, cursor);
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
        let words = [0, 128].map(|bytes| k.load_n(from.plus_bytes(bytes), Cache::Default));
        let scale = k.load(place.plus_bytes(input::SCALE.into()).cast::<f32>());
        let sums = k.at_stride(place, t, 4).plus_bytes(input::SUMS.into()).cast::<i32>();
        let sums =
            [0, 4].map(|unit| if format.has_minimum() { k.load(sums.plus(unit)) } else { k.var(0i32) });
        Column { words, scale, sums }
    }

    /// Adds the sums of one or two tiles to those of their rows, and stores these where they are complete.
    pub(super) fn finish_tiles<const N: usize>(
        &self,
        tiles: [[Reg<f32>; 2]; N],
        groups: [Reg<u32>; N],
        cursor: &Cursor,
    ) {
        let k = self.k;
        let ends = |i: usize| k.eq(k.add(groups[i], 1), self.word(at::GROUPS));
        let ends = [ends(0), if N > 1 { ends(1) } else { k.ne(k.var(0u32), 0) }];
        let a: [Reg<f32>; 2] = std::array::from_fn(|h| k.add(cursor.sums[h], tiles[0][h]));
        let b: [Reg<f32>; 2] = std::array::from_fn(|h| {
            let before = k.select(ends[0], 0f32, a[h]);
            tiles.get(1).map_or(before, |second| k.add(before, second[h]))
        });
        (0..2).for_each(|h| k.set(cursor.sums[h], k.select(ends[1], 0f32, b[h])));
        k.if_(k.either(ends[0], ends[1]), || {
            let count = |end: Pred| k.select(end, 1u32, 0u32);
            let numbers = [k.var(cursor.tiles), k.add(cursor.tiles, count(ends[0]))];
            for (number, end) in numbers.into_iter().zip(ends) {
                let starts = k.eq(k.and(number, CHUNK - 1), 0);
                k.if_(k.both(end, starts), || self.start_chunk(number, cursor));
            }
            // The lane's bit 0 says which tile it ends with, bit 1 which row.
            let (odd, upper) = (k.ne(k.and(self.lane, 1), 0), k.ne(k.and(self.lane, 2), 0));
            let [low, high]: [Reg<f32>; 2] = std::array::from_fn(|h| {
                let (keep, give) = (k.select(odd, b[h], a[h]), k.select(odd, a[h], b[h]));
                k.add(keep, k.shuffle(give, Shuffle::Xor(1)))
            });
            let (keep, give) = (k.select(upper, high, low), k.select(upper, low, high));
            let sum = k.add(keep, k.shuffle(give, Shuffle::Xor(2)));
            let number = k.select(odd, numbers[1], numbers[0]);
            let stores = k.ne(k.select(odd, count(ends[1]), count(ends[0])), 0);
            // Two buffers of a chunk follow each other.
            let tile = k.and(k.mad(self.word(at::FIRST_CHUNK), CHUNK, number), 2 * CHUNK - 1);
            let row = k.mad(k.bfe(self.lane, 1, 1), 8u32, k.shr(self.lane, 2));
            let own = k.at(self.sums.values, k.mad(self.warp, 16u32, row));
            k.if_(stores, || k.store(k.at_stride(own, tile, 4 * TILE_SUMS), sum));
            k.set(cursor.tiles, k.add(numbers[1], count(ends[1])));
            for (number, end) in numbers.into_iter().zip(ends) {
                let last = k.either(
                    k.eq(k.and(number, CHUNK - 1), CHUNK - 1),
                    k.eq(k.add(number, 1), self.word(at::ALL)),
                );
                k.if_(k.both(end, last), || {
                    self.arrive_warp(self.barrier(self.sums.full, self.buffer().0));
                    k.add_to(self.sums.chunk, 1);
                });
            }
        });
    }

    /// Waits until the buffer of the chunk that tile `number` starts is free.
    fn start_chunk(&self, number: Reg<u32>, cursor: &Cursor) {
        let k = self.k;
        let chunk = k.add(self.word(at::FIRST_CHUNK), k.shr(number, CHUNK.trailing_zeros()));
        let (buffer, lap) = (k.and(chunk, 1), k.bfe(chunk, 1, 1));
        self.wait_phase(self.barrier(self.sums.empty, buffer), k.xor(lap, 1u32));
        k.if_(k.eq(number, 0), || {
            let squares = k.warp_sum(cursor.squares);
            let to = k.at(self.sums.squares, k.mad(buffer, CONSUMERS, self.warp));
            k.if_(k.eq(self.lane, 0), || k.store(to, squares));
        });
    }
}

/// The products of tiles with their inputs: of units t and t + 4 the first and the second 16 values.
fn products<const N: usize>(k: &Kernel, all: [(&Quads, &Column); N]) -> [[IntAccumulator; 4]; N] {
    let sums: [[IntAccumulator; 4]; N] = [(); N].map(|()| [(); 4].map(|()| k.int_accumulator()));
    for pair in 0..2 {
        for m in 0..4 {
            for (sums, (quads, column)) in sums.iter().zip(all) {
                let (s, word) = (m / 2, 4 * (m % 2) + 2 * pair);
                let [low, high] = quads.each_ref().map(|row| &row[s]);
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
    let scale = column.scale;
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
            let sums = k.mad(minima[1], column.sums[1], k.mul(minima[0], column.sums[0]));
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
