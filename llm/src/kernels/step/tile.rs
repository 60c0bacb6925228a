//! Tiles of a matrix in registers: two rows by the values that a warp multiplies at once.
//!
//! Two tiles, or the shape's number, are in flight: while one is multiplied the others are loaded, across the
//! ends of rows. The first ones are loaded before the input has arrived.

use ptxgen::{Cache, Global, Pointer, Reg, Shared, Shuffle};

use crate::kernels::format::{Format, Packed};
use crate::kernels::step::block::Step;
use crate::kernels::step::record::{at, segment};

/// Rows of a tile.
const ROWS: usize = 2;

/// The registers of one tile, for any format, and its place.
pub(super) struct Tile {
    rows: [Vec<Reg<u32>>; ROWS],
    /// The item that the tile is part of.
    pub item: Reg<u32>,
    /// Number of the tile in its row.
    number: Reg<u32>,
}

/// The segment that a warp works on.
pub(super) struct Segment {
    /// Number of the segment, and items of this block before it.
    pub number: Reg<u32>,
    pub before: Reg<u32>,
    /// Items of the block in the segment, and the first row.
    pub items: Reg<u32>,
    first_row: Reg<u32>,
    /// Address of the segment's record in shared memory.
    record: Reg<u32>,
    part_tiles: Reg<u32>,
    /// Units of a tile are 32 apart; unit i, from 1 on, is in the row if the lane's first unit is below
    /// `limits[i - 1]`.
    limits: Vec<Reg<u32>>,
    parts_log2: Reg<u32>,
    /// Parts of a row, less one.
    part_mask: Reg<u32>,
}

/// A place in the warp's sequence of tiles.
pub(super) struct Cursor {
    pub item: Reg<u32>,
    tile: Reg<u32>,
}

impl Step<'_> {
    pub(super) fn tile(&self) -> Tile {
        let most =
            self.formats.iter().map(|f| self.shape.units(*f) as usize * f.registers()).max().unwrap_or(0);
        let rows = [(); ROWS].map(|()| (0..most).map(|_| self.k.reg()).collect());
        Tile { rows, item: self.k.var(0u32), number: self.k.var(0u32) }
    }

    /// Clears tiles: parts of them may never be loaded, and must hold numbers. Registers that are only set
    /// under a condition would also be live everywhere else in the kernel.
    pub(super) fn clear(&self, tiles: &[Tile]) {
        tiles.iter().flat_map(|t| t.rows.iter().flatten()).for_each(|r| self.k.set(*r, 0u32));
    }

    pub(super) fn cursor(&self) -> Cursor {
        Cursor { item: self.k.var(0u32), tile: self.k.var(0u32) }
    }

    pub(super) fn segment(&self) -> Segment {
        let k = self.k;
        let word = || k.var::<u32>(0u32);
        let parts_log2 = self.word(at::PARTS_LOG2);
        let most = self.formats.iter().map(|f| self.shape.units(*f)).max().unwrap_or(0);
        Segment {
            parts_log2,
            part_mask: k.sub(k.shl(k.var(1u32), parts_log2), 1),
            number: word(),
            before: word(),
            items: word(),
            first_row: word(),
            record: word(),
            part_tiles: word(),
            limits: (1..most).map(|_| word()).collect(),
        }
    }

    /// The record of the current segment.
    fn record(&self, s: &Segment) -> Pointer<Shared, u32> {
        self.k.shared_pointer(s.record, 16)
    }

    /// A word of the segment's record.
    pub(super) fn segment_word(&self, s: &Segment, at: i64) -> Reg<u32> {
        self.k.load(self.record(s).plus(at))
    }

    /// Runs the code for the format of the segment.
    pub(super) fn by_format(&self, s: &Segment, code: impl Fn(Format)) {
        let k = self.k;
        match self.formats {
            [only] => code(*only),
            formats => {
                let format = self.segment_word(s, segment::FORMAT);
                formats.iter().for_each(|f| k.if_(k.eq(format, *f as u32), || code(*f)));
            }
        }
    }

    /// Address of the segment's weights.
    pub(super) fn weights(&self, s: &Segment) -> Pointer<Global, u8> {
        let k = self.k;
        k.pointer(k.load(self.record(s).plus(segment::WEIGHTS).cast::<u64>()), 16)
    }

    /// Reads the record of segment `s.number` and moves the cursor to the warp's first item in it.
    pub(super) fn enter(&self, s: &Segment, cursor: &Cursor) {
        let k = self.k;
        let record = k.at(self.task.plus(at::SEGMENT), k.scale(s.number, at::SEGMENT_WORDS as u32));
        k.set(s.record, k.address(record));
        let [pairs, rest] = k.load_n(record.plus(segment::PAIRS), Cache::Default);
        let (first, pairs) = self.share(pairs, rest);
        k.set(s.first_row, k.mul(first, k.load(record.plus(segment::STEP))));
        k.set(s.items, k.shl(pairs, s.parts_log2));
        k.set(s.part_tiles, k.load(record.plus(segment::PART_TILES)));
        let units = k.load(record.plus(segment::UNITS));
        for (behind, limit) in (32..).step_by(32).zip(&s.limits) {
            k.set(*limit, k.sub(k.max(units, behind), behind));
        }
        k.set(cursor.item, k.and(k.sub(self.warp, s.before), self.shape.warps - 1));
        k.set(cursor.tile, 0u32);
    }

    /// The block's share of `pairs` pairs per block and `rest` more: its first pair and their number.
    pub(super) fn share(&self, pairs: Reg<u32>, rest: Reg<u32>) -> (Reg<u32>, Reg<u32>) {
        let k = self.k;
        let first = k.mad(pairs, self.block, k.min(self.block, rest));
        (first, k.add(pairs, k.select(k.lt(self.block, rest), 1u32, 0u32)))
    }

    /// The registers of one unit. A unit's place in its block follows from the lane: units of a tile are 32
    /// apart.
    fn packed(&self, tile: &Tile, format: Format, row: usize, unit: u32) -> Packed {
        let n = format.registers();
        let first = unit as usize * n;
        Packed { words: tile.rows[row][first..first + n].to_vec(), unit: self.lane }
    }

    /// Starts to load the tile at the cursor, if there is one, and advances the cursor.
    pub(super) fn load(&self, format: Format, s: &Segment, cursor: &Cursor, tile: &Tile) {
        let k = self.k;
        k.set(tile.item, cursor.item);
        k.if_(k.lt(cursor.item, s.items), || self.load_tile(format, s, cursor, tile));
        self.advance(s, cursor);
    }

    fn load_tile(&self, format: Format, s: &Segment, cursor: &Cursor, tile: &Tile) {
        let k = self.k;
        let (part, pair) = (k.and(cursor.item, s.part_mask), k.shr(cursor.item, s.parts_log2));
        // Read again for each tile, like the address: kept values would take registers.
        let [step, delta, last_row, units_of_row] =
            k.load_n(self.record(s).plus(segment::STEP), Cache::Default);
        let first = k.mad(pair, step, s.first_row);
        let rows = [first, k.min(k.add(first, delta), last_row)];
        k.set(tile.number, k.mad(part, s.part_tiles, cursor.tile));
        let units = self.shape.units(format);
        let unit = k.mad(tile.number, 32 * units, self.lane);
        let weights = [self.weights(s)];
        let limits = [units_of_row].into_iter().chain(s.limits.iter().copied());
        let guards: Vec<_> = limits.take(units as usize).map(|limit| k.lt(unit, limit)).collect();
        for (r, row) in rows.into_iter().enumerate() {
            let unit = k.mad(row, units_of_row, unit);
            for (u, guard) in (0..).zip(&guards) {
                format.load(k, &weights, unit, 32 * u, Some(*guard), &self.packed(tile, format, r, u));
            }
        }
    }

    fn advance(&self, s: &Segment, cursor: &Cursor) {
        let k = self.k;
        let next = k.add(cursor.tile, 1);
        let ends = k.ge(next, s.part_tiles);
        k.set(cursor.tile, k.select(ends, 0u32, next));
        k.set(cursor.item, k.add(cursor.item, k.select(ends, self.shape.warps, 0u32)));
    }

    /// Multiplies a tile with its part of the input; stores the sums if the tile `after` belongs to another
    /// item.
    pub(super) fn multiply(
        &self,
        format: Format,
        s: &Segment,
        tile: &Tile,
        after: &Tile,
        sums: [Reg<f32>; ROWS],
    ) {
        let k = self.k;
        self.multiply_floats(format, tile, sums);
        k.if_(k.ne(tile.item, after.item), || {
            // Each half of the warp reduces one row.
            let low = k.lt(self.lane, 16);
            let (keep, give) = (k.select(low, sums[0], sums[1]), k.select(low, sums[1], sums[0]));
            let sum = k.add(keep, k.shuffle(give, Shuffle::Xor(16)));
            let total = [8, 4, 2, 1].into_iter().fold(sum, |v, n| k.add(v, k.shuffle(v, Shuffle::Xor(n))));
            k.if_(k.eq(k.and(self.lane, 15), 0), || {
                let place = k.mad(k.add(s.before, tile.item), 2u32, k.shr(self.lane, 4));
                k.store(k.at(self.results, place), total);
            });
            sums.iter().for_each(|sum| k.set(*sum, 0f32));
        });
    }

    fn multiply_floats(&self, format: Format, tile: &Tile, sums: [Reg<f32>; ROWS]) {
        let k = self.k;
        let floats = self.floats();
        let depth = self.shape.depth;
        for u in 0..self.shape.units(format) {
            let x = if format == Format::F32 {
                // Units of four values: neighbours are in different halves of 1024 values, of which a tile
                // covers a quarter, half or all.
                let place = k.mad(k.and(self.lane, 1), 512u32, k.mul(k.shr(self.lane, 1), 4u32));
                let tiles = 4 / depth;
                let block = if tiles == 1 { tile.number } else { k.shr(tile.number, tiles.trailing_zeros()) };
                let first = k.mul(k.and(tile.number, tiles - 1), 128 * depth);
                let place = k.add(place, k.mad(block, 1024u32, first));
                let at = k.at(floats, k.scale(k.shr(place, 2), 4)).plus(i64::from(64 * u));
                k.load_with(at, 4, Cache::Default)
            } else {
                // A tile covers half of 1024 values, all of them, or 2048.
                let place = match depth {
                    1 => {
                        let half = k.mad(k.and(tile.number, 1), 64u32, self.lane);
                        k.mad(k.shr(tile.number, 1), 256u32, half)
                    }
                    depth => k.mad(tile.number, 128 * depth, self.lane),
                };
                let at = k.at(floats, k.scale(place, 4)).plus(i64::from(u / 4 * 1024 + 128 * (u % 4)));
                let mut x = k.load_with(at, 4, Cache::Default);
                x.extend(k.load_with(at.plus(512), 4, Cache::Default));
                x
            };
            for (r, sum) in sums.into_iter().enumerate() {
                let packed = self.packed(tile, format, r, u);
                let weights = format.weights(k, &packed);
                for (w, x) in weights.iter().flatten().zip(&x) {
                    k.mad_to(sum, *w, *x, sum);
                }
            }
        }
    }
}
