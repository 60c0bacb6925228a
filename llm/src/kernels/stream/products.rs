//! The products of a matrix phase: a consumer multiplies every eighth column of tiles, two tiles at a time, so
//! that no chain of tensor core operations is waited for alone.

use ptxgen::{ByteA, ByteB, Cache, IntAccumulator, Kernel, Reg, Shuffle};

use crate::kernels::format::Format;
use crate::kernels::stream::block::{Packet, Place, Stream};
use crate::kernels::stream::input::PACKETS;
use crate::kernels::stream::layout::{CHUNK, CONSUMERS, GROUP_SLOTS, SLOT_TILES, TILE_SUMS, input};
use crate::kernels::stream::operands::{Column, RAW, Scales, WORDS};
use crate::kernels::stream::record::{MAX_SEGMENTS, MIXED, at, segment};

/// The place of a consumer in a phase.
pub(super) struct Cursor {
    /// The place in the ring of the tile that is loaded next.
    pub place: Place,
    /// The block's tiles of the phase, and how many of them are complete.
    all: Reg<u32>,
    tiles: Reg<u32>,
}

/// The lane's part of a tile as it is stored.
type Raw = [Reg<u32>; RAW];

/// The words of units t and t + 4 of rows g and g + 8.
type Words = [[[Reg<u32>; WORDS]; 2]; 2];

/// A tile in registers, unpacked, and the scales that [`Stream::packed_scales`] gives.
struct Tile {
    words: Words,
    scales: [[Reg<u32>; 2]; 2],
}

impl Tile {
    fn new(k: &Kernel) -> Self {
        let zero = || k.var(0u32);
        Self {
            words: [(); 2].map(|()| [(); 2].map(|()| [(); WORDS].map(|()| zero()))),
            scales: [(); 2].map(|()| [(); 2].map(|()| zero())),
        }
    }
}

/// State of a run of tiles of which a consumer has several per row.
pub(super) struct Groups {
    /// The next tile's group of columns.
    pub group: Reg<u32>,
    /// Sums of rows g and g + 8, in the lane's units.
    pub sums: [Reg<f32>; 2],
}

impl Groups {
    pub fn new(k: &Kernel) -> Self {
        Self { group: k.var(0u32), sums: [k.var(0f32), k.var(0f32)] }
    }
}

/// Columns of the input.
enum Columns {
    /// The consumer's only one.
    Only(Column),
    Several(Groups),
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
            let cursor = Cursor { place, all, tiles: k.var(0u32) };
            let segment = k.var(0u32);
            k.loop_(|l| {
                let (format, count) = self.next_run(segment, all);
                let left = k.mul(count, self.word(at::GROUPS));
                let by_format = |code: &dyn Fn(Format)| {
                    for f in self.variant.quantized() {
                        k.if_(k.eq(format, f as u32), || code(f));
                    }
                };
                by_format(&|format| {
                    let tiles = [Tile::new(k), Tile::new(k)];
                    // The first tiles are unpacked before the input arrives, or while it does.
                    let early = self.request_input(&cursor);
                    k.if_else(
                        k.gt(left, 1),
                        || self.take_tiles(format, [&tiles[0], &tiles[1]], place),
                        || self.take_tiles(format, [&tiles[0]], place),
                    );
                    k.if_(k.eq(cursor.tiles, 0), || self.prepare_input(early));
                    k.if_else(
                        k.eq(self.word(at::GROUPS), 1),
                        || {
                            let column = self.column(format, k.var(0u32));
                            self.multiply_run(format, &tiles, left, &Columns::Only(column), &cursor);
                        },
                        || {
                            let groups = Groups::new(k);
                            self.multiply_run(format, &tiles, left, &Columns::Several(groups), &cursor);
                        },
                    );
                });
                self.multiply_run_of_numbers(format, left, &cursor);
                k.break_if(l, k.ge(cursor.tiles, all));
            });
        });
        self.stamp(3);
    }

    /// Prepares the input for the first run of a phase.
    pub(super) fn prepare_first_input(&self, cursor: &Cursor) {
        let early = self.request_input(cursor);
        self.k.if_(self.k.eq(cursor.tiles, 0), || self.prepare_input(early));
    }

    /// Requests the input if the run is the first of a phase and the consumer has a single column.
    fn request_input(&self, cursor: &Cursor) -> [Packet; PACKETS] {
        let k = self.k;
        let words = [(); PACKETS].map(|()| [(); 4].map(|()| k.var(0u32)));
        let single = k.both(k.eq(self.word(at::GROUPS), 1), k.lt(self.warp, self.word(at::COLUMNS)));
        k.if_(k.both(single, k.eq(cursor.tiles, 0)), || self.request(self.places(self.warp), words));
        words
    }

    /// Format and number of the block's tiles in segment `next` and those after it, as far as they have the
    /// same format; the block has `all`. Where segments differ, `next` then is the segment after these.
    fn next_run(&self, next: Reg<u32>, all: Reg<u32>) -> (Reg<u32>, Reg<u32>) {
        let k = self.k;
        if let [only] = self.variant.formats {
            return (k.var(*only as u32), all);
        }
        let (format, count) = (k.var(self.word(at::FORMAT)), k.var(all));
        k.if_(k.eq(format, MIXED), || {
            k.set(count, 0u32);
            k.loop_(|l| {
                let record = self.segment(next);
                let own = self.share(record).count;
                let of_segment = k.load(record.plus(segment::FORMAT));
                k.if_(k.gt(own, 0), || {
                    k.break_if(l, k.both(k.gt(count, 0), k.ne(of_segment, format)));
                    k.set(format, of_segment);
                    k.add_to(count, own);
                });
                k.add_to(next, 1);
                k.break_if(l, k.ge(next, MAX_SEGMENTS as u32));
            });
        });
        (format, count)
    }

    /// The consumer's place after `place`.
    fn next(&self, place: Place) -> Place {
        let k = self.k;
        let next = Place { slot: k.var(place.slot), parity: k.var(place.parity) };
        self.advance(next, GROUP_SLOTS);
        next
    }

    /// Loads the tile at `place`.
    fn load(&self, format: Format, place: Place) -> Raw {
        let k = self.k;
        let raw = [(); RAW].map(|()| k.reg());
        self.wait_phase(self.barrier(self.ring.full, place.slot), place.parity);
        let number = k.and(self.warp, SLOT_TILES - 1);
        let tile = k.at_stride(self.slot(place.slot), number, format.tile_bytes());
        format.load_lane(k, tile, self.lane, &raw, Cache::Default);
        raw
    }

    /// Unpacks tiles and releases their slots, the first of which is at `place`.
    fn unpack_tiles<const N: usize>(&self, format: Format, raw: [Raw; N], tiles: [&Tile; N], place: Place) {
        let k = self.k;
        for (raw, tile) in raw.iter().zip(tiles) {
            for (words, to) in self.quads(format, raw).iter().flatten().zip(tile.words.as_flattened()) {
                words.iter().zip(to).for_each(|(word, to)| k.set(*to, *word));
            }
            for (scales, to) in self.packed_scales(format, raw).iter().zip(&tile.scales) {
                scales.iter().zip(to).for_each(|(word, to)| k.set(*to, *word));
            }
        }
        // All lanes have read the tiles.
        k.sync_warp();
        for _ in 0..N {
            k.if_(k.eq(self.lane, 0), || k.arrive(self.barrier(self.ring.empty, place.slot)));
            self.advance(place, GROUP_SLOTS);
        }
    }

    /// Loads and unpacks the next tiles.
    fn take_tiles<const N: usize>(&self, format: Format, tiles: [&Tile; N], place: Place) {
        let raw = std::array::from_fn(|i| match i {
            0 => self.load(format, place),
            _ => self.load(format, self.next(place)),
        });
        self.unpack_tiles(format, raw, tiles, place);
    }

    /// Multiplies the `left` tiles of a run, of which the first two are loaded if there are so many: two at a
    /// time, then one.
    fn multiply_run(
        &self,
        format: Format,
        tiles: &[Tile; 2],
        left: Reg<u32>,
        columns: &Columns,
        cursor: &Cursor,
    ) {
        let k = self.k;
        let [first, second] = tiles;
        k.if_(k.gt(left, 1), || {
            let mut last = None;
            k.loop_(|l| {
                let products = last.insert(self.multiply_tiles(format, [first, second], columns));
                k.set(left, k.sub(left, 2));
                k.break_if(l, k.lt(left, 2));
                // The next are on their way while these are scaled and added.
                let raw = [self.load(format, cursor.place), self.load(format, self.next(cursor.place))];
                self.use_products(format, products, columns, cursor);
                self.unpack_tiles(format, raw, [first, second], cursor.place);
            });
            if let Some(products) = &last {
                self.use_products(format, products, columns, cursor);
            }
            k.if_(k.ne(left, 0), || self.take_tiles(format, [first], cursor.place));
        });
        k.if_(k.ne(left, 0), || {
            let products = self.multiply_tiles(format, [first], columns);
            self.use_products(format, &products, columns, cursor);
        });
    }

    /// Multiplies tiles.
    fn multiply_tiles<const N: usize>(
        &self,
        format: Format,
        tiles: [&Tile; N],
        columns: &Columns,
    ) -> Products<N> {
        let k = self.k;
        let scales = tiles.map(|tile| tile.scales.map(|row| row.map(|word| k.var(word))));
        let sums = [(); N].map(|()| [(); 4].map(|()| k.int_accumulator()));
        let (columns, groups): ([Column; N], _) = match columns {
            Columns::Only(column) => {
                products(k, &sums, tiles.map(|tile| (&tile.words, column)));
                ([(); N].map(|()| column.clone()), None)
            }
            // One column after the other, for both take too many registers.
            Columns::Several(groups) => {
                let numbers: [Reg<u32>; N] = std::array::from_fn(|_| {
                    let number = k.var(groups.group);
                    let next = k.add(number, 1);
                    k.set(groups.group, k.select(k.eq(next, self.word(at::GROUPS)), 0u32, next));
                    number
                });
                let columns = std::array::from_fn(|i| {
                    let column = self.column(format, numbers[i]);
                    products(k, &[sums[i]], [(&tiles[i].words, &column)]);
                    column
                });
                (columns, Some(numbers))
            }
        };
        Products { scales, columns, groups, sums }
    }

    /// Scales products and adds them to the sums of their rows.
    fn use_products<const N: usize>(
        &self,
        format: Format,
        products: &Products<N>,
        columns: &Columns,
        cursor: &Cursor,
    ) {
        let k = self.k;
        let count = self.word(at::COLUMNS);
        // Not kept beside the column: registers are scarce.
        let mut halves = Vec::new();
        let sums: [[Reg<f32>; 2]; N] = std::array::from_fn(|i| {
            let number = products.groups.map_or(self.warp, |groups| k.mad(groups[i], CONSUMERS, self.warp));
            let there = k.lt(number, count);
            if format == Format::Q2K && (i == 0 || products.groups.is_some()) {
                halves = self.half_sums(&products.columns[i].words);
            }
            std::array::from_fn(|h| {
                let of_row = products.sums[i].each_ref().map(|m| [m.0[2 * h], m.0[2 * h + 1]]);
                let scales = self.scales(format, &products.scales[i][h]);
                k.select(there, scaled(k, &scales, of_row, (&products.columns[i], &halves)), 0f32)
            })
        });
        match (columns, products.groups) {
            (Columns::Several(own), Some(groups)) => self.add_tiles(sums, groups, own.sums, cursor),
            _ => self.finish_rows(sums, cursor),
        }
    }

    /// Adds the sums of one or two tiles to those of their rows. Where these are complete they are stored.
    pub(super) fn add_tiles<const N: usize>(
        &self,
        tiles: [[Reg<f32>; 2]; N],
        groups: [Reg<u32>; N],
        sums: [Reg<f32>; 2],
        cursor: &Cursor,
    ) {
        let k = self.k;
        let all = self.word(at::GROUPS);
        for (tile, group) in tiles.into_iter().zip(groups) {
            (0..2).for_each(|h| k.add_to(sums[h], tile[h]));
            k.if_(k.eq(k.add(group, 1), all), || {
                self.finish_rows([sums], cursor);
                (0..2).for_each(|h| k.set(sums[h], 0f32));
            });
        }
    }

    /// Stores the sums of the rows of one or two complete tiles.
    fn finish_rows<const N: usize>(&self, tiles: [[Reg<f32>; 2]; N], cursor: &Cursor) {
        let k = self.k;
        let count = N as u32;
        let in_chunk = |number: Reg<u32>| k.and(number, CHUNK - 1);
        let number = in_chunk(cursor.tiles);
        k.if_(k.lt(in_chunk(k.add(number, count - 1)), count), || {
            for i in 0..count {
                // The buffer of the first chunk is free.
                let starts = k.both(k.eq(in_chunk(k.add(number, i)), 0), k.ne(k.add(cursor.tiles, i), 0));
                k.if_(starts, || self.wait_buffer(k.add(self.sums.chunk, i)));
            }
        });
        let (odd, upper) = (k.ne(k.and(self.lane, 1), 0), k.ne(k.and(self.lane, 2), 0));
        let [low, high]: [Reg<f32>; 2] = std::array::from_fn(|h| {
            let a = tiles[0][h];
            let Some(b) = tiles.get(1).map(|b| b[h]) else {
                return k.add(a, k.shuffle(a, Shuffle::Xor(1)));
            };
            // The lane's bit 0 says which tile it ends with, bit 1 which row.
            let (keep, give) = (k.select(odd, b, a), k.select(odd, a, b));
            k.add(keep, k.shuffle(give, Shuffle::Xor(1)))
        });
        let (keep, give) = (k.select(upper, high, low), k.select(upper, low, high));
        let sum = k.add(keep, k.shuffle(give, Shuffle::Xor(2)));
        // Two buffers of a chunk follow each other.
        let own = if N > 1 { k.add(number, k.and(self.lane, 1)) } else { number };
        let tile = k.and(k.mad(self.sums.chunk, CHUNK, own), 2 * CHUNK - 1);
        let row = k.mad(k.bfe(self.lane, 1, 1), 8u32, k.shr(self.lane, 2));
        let place = k.at(self.sums.values, k.mad(self.warp, 16u32, row));
        k.store(k.at_stride(place, tile, 4 * TILE_SUMS), sum);
        let before = k.var(cursor.tiles);
        k.add_to(cursor.tiles, count);
        let near = k.lt(in_chunk(cursor.tiles), count);
        k.if_(k.either(near, k.eq(cursor.tiles, cursor.all)), || {
            for i in 1..=count {
                let number = k.add(before, i);
                k.if_(k.either(k.eq(in_chunk(number), 0), k.eq(number, cursor.all)), || {
                    self.arrive_warp(self.barrier(self.sums.full, self.buffer().0));
                    k.add_to(self.sums.chunk, 1);
                });
            }
        });
    }

    /// Waits until the buffer of chunk `chunk` is free.
    pub(super) fn wait_buffer(&self, chunk: Reg<u32>) {
        let k = self.k;
        let (buffer, lap) = (k.and(chunk, 1), k.bfe(chunk, 1, 1));
        self.wait_phase(self.barrier(self.sums.empty, buffer), k.xor(lap, 1u32));
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
            [0, 4].map(|unit| if format.has_unit_minimum() { k.load(sums.plus(unit)) } else { k.var(0i32) });
        Column { words, scale, sums }
    }

    /// Sums of the halves of units t and t + 4, as products with ones.
    fn half_sums(&self, words: &[[Reg<u32>; WORDS]; 2]) -> Vec<Reg<i32>> {
        let (k, one) = (self.k, self.k.var(0x0101_0101u32));
        let of_half = |m: usize| {
            let sum = k.int_accumulator();
            for pair in 0..2 {
                let word = 4 * (m % 2) + 2 * pair;
                k.multiply_bytes(sum, ByteA([one; 4]), ByteB([words[m / 2][word], words[m / 2][word + 1]]));
            }
            k.mad(sum.0[0], 256i32, sum.0[1])
        };
        (0..4).map(of_half).collect()
    }
}

/// The integer products of tiles, and what they are scaled with.
struct Products<const N: usize> {
    scales: [[[Reg<u32>; 2]; 2]; N],
    columns: [Column; N],
    /// The groups of columns, where there are several.
    groups: Option<[Reg<u32>; N]>,
    sums: [[IntAccumulator; 4]; N],
}

/// Adds the products of tiles with their inputs: of units t and t + 4 the first and the second 16 values.
fn products<const N: usize>(k: &Kernel, sums: &[[IntAccumulator; 4]; N], all: [(&Words, &Column); N]) {
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
}

/// The sum of a row's units: `products` are those of the high and of the low bytes.
fn scaled(
    k: &Kernel,
    scales: &Scales,
    products: [[Reg<i32>; 2]; 4],
    (column, halves): (&Column, &[Reg<i32>]),
) -> Reg<f32> {
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
        Scales::SixteenthMinima { integers, minima, all, least } => {
            let first = k.mul(minima[0], halves[0]);
            let sums = (1..4).fold(first, |sum, m| k.mad(minima[m], halves[m], sum));
            let below = k.mul(float(sums), *least);
            k.mul(k.mad(weighted(*integers), *all, k.neg(below)), scale)
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
