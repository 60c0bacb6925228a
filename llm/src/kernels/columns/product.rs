//! Matrix times columns on the tensor cores, in single precision: the weights are read once, as they are
//! stored, and unpacked in registers.
//!
//! The warps of a block take every eighth tile of the same rows, and meet in shared memory; then the block
//! takes the next rows, whose first weights are on their way since the last sums. Rows that are long beside
//! their number are cut into split-K parts, each with its own sums.
//!
//! With few columns the weights of the next tile are on their way while a tile is multiplied. With 32, whose
//! sums take the registers for that, a tile takes far longer than its weights: other warps multiply meanwhile.
//!
//! Products with experts multiply each expert that a column has chosen with all columns, and store the sums of
//! those columns: the weights are what takes time, and are read once.

use ptxgen::{
    Accumulator, Cache, F16x2, Global, Kernel, Multiple, Pointer, Pred, Ptr, Reg, Shared, Special, Target,
    TileA, TileB, kernel_params,
};

use crate::kernels::columns::fragments::{self, FACTORS_AT, GROUP, SUMS_AT};
use crate::kernels::columns::state::{NONE, WORDS};
use crate::kernels::columns::unpack::{Raw, eight};
use crate::kernels::format::{Format, TILE_COLS, TILE_ROWS};
use crate::kernels::links::after_previous;

/// Threads of a block.
pub const THREADS: u32 = 32 * WARPS;
/// Warps of a block.
const WARPS: u32 = 8;
/// Blocks of an SM that the registers are allotted for.
pub const BLOCKS: u32 = 2;
/// The numbers of columns that there are kernels for.
pub const SIZES: [u32; 3] = [8, 16, 32];

/// Whether a kernel of `columns` columns has registers for the weights of two tiles.
const fn loads_ahead(columns: u32) -> bool {
    columns < 32
}

/// The kernel's columns for a step of `columns` columns; `None` if they are more than any has.
pub fn size(columns: usize) -> Option<u32> {
    SIZES.into_iter().find(|size| *size as usize >= columns)
}

/// The number of split-K parts of the rows of a product: all multiprocessors have work, and all warps of a
/// block.
pub fn shares(rows: u32, cols: u32, sm_count: u32) -> u32 {
    let most = cols.div_ceil(TILE_COLS).div_ceil(WARPS);
    (2 * sm_count / rows.div_ceil(TILE_ROWS)).clamp(1, most)
}

/// Tiles of a share.
pub fn share_tiles(cols: u32, shares: u32) -> u32 {
    cols.div_ceil(TILE_COLS).div_ceil(shares)
}

/// The grid for `rows` rows in `shares` shares.
pub fn grid(rows: u32, shares: u32, sm_count: u32) -> [u32; 3] {
    [rows.div_ceil(TILE_ROWS).min((BLOCKS * sm_count / shares).max(1)), shares, 1]
}

/// Name of the kernel.
pub fn kernel_name(format: Format, columns: u32) -> String {
    format!("columns_{}_{columns}", format.suffix())
}

kernel_params! {
    /// `columns_SUFFIX_N`: `out[s][c][r]` are the sums of share s, `share` tiles, for N columns in the layout
    /// of [`fragments`]; rows of `out` are `pitch` apart. Grid: [`grid`].
    pub struct ColumnsProduct(format: Format) {
        weights: Ptr<u8, 16>, x: Ptr<u8, 16>, out: Ptr<f32, 4>,
        rows: u32, cols: Multiple = format.block(), pitch: u32, share: u32,
    }
}

pub(crate) fn kernel(format: Format, columns: u32, target: Target) -> Kernel {
    let k = Kernel::new(&kernel_name(format, columns));
    k.max_threads(THREADS);
    k.min_blocks_per_sm(BLOCKS);
    let p = ColumnsProduct::declare(&k, format);
    let share = k.special(Special::CtaidY);
    let product = Product::new(&k, (format, columns), [p.weights, p.x], (p.rows, p.cols));
    let begin = k.mul(share, p.share);
    let end = k.min(k.add(begin, p.share), product.tiles);
    let out = k.row(p.out, k.mul(share, columns), p.pitch);
    product.run(
        (begin, end),
        || after_previous(&k, target),
        |column| (k.lt(column, columns), k.row(out, column, p.pitch)),
    );
    k
}

/// Name of the kernel for experts.
pub fn experts_name(format: Format, columns: u32) -> String {
    format!("columns_experts_{}_{columns}", format.suffix())
}

/// The grid for `rows` rows of each of `experts` experts, of which each column chooses `used`: blocks of experts
/// that none has chosen end at once, so those that one column chooses, or in larger steps more, fill the GPU.
pub fn experts_grid(rows: u32, (experts, used): (u32, u32), columns: u32, sm_count: u32) -> [u32; 3] {
    let chosen = (used * columns / SIZES[0]).clamp(1, experts);
    [rows.div_ceil(TILE_ROWS).min((BLOCKS * sm_count / chosen).max(1)), experts, 1]
}

kernel_params! {
    /// `columns_experts_SUFFIX_N`: `out[c][s][r]` is the product of row r, of `rows`, of the expert that column c
    /// has chosen as number s, with the column. Weights of an expert begin at multiples of `weights_apart`
    /// bytes, its columns at multiples of `x_apart`, or 0; `out[c][s]` are `pitch` values apart. An expert that
    /// no column has chosen is not read. Grid: [`experts_grid`].
    pub struct ExpertsProduct(format: Format) {
        weights: Ptr<u8, 16>, x: Ptr<u8, 16>, state: Ptr<u32, 16>, chosen: Ptr<u32, 4>, out: Ptr<f32, 4>,
        rows: u32, cols: Multiple = format.block(), pitch: u32, used: u32,
        weights_apart: Multiple = 16, x_apart: Multiple = 16,
    }
}

pub(crate) fn experts(format: Format, columns: u32, target: Target) -> Kernel {
    let k = Kernel::new(&experts_name(format, columns));
    k.max_threads(THREADS);
    k.min_blocks_per_sm(BLOCKS);
    let p = ExpertsProduct::declare(&k, format);
    let expert = k.special(Special::CtaidY);
    after_previous(&k, target);
    // A lane looks at a column, in each warp.
    let lane = k.special(Special::LaneId);
    let (entry, column) = (k.var(NONE), k.min(lane, columns - 1));
    let position = k.load(k.at_stride(p.state, column, 4 * WORDS).plus(1));
    k.if_(k.ne(position, NONE), || {
        let first = k.mul(column, p.used);
        k.for_(first, k.add(first, p.used), 1u32, |at: Reg<u32>| {
            let found = k.load_with(k.at(p.chosen, at), 1, Cache::Default)[0];
            k.set(entry, k.select(k.eq(found, expert), at, entry));
        });
    });
    k.exit_if(k.eq(k.ballot(k.ne(entry, NONE)), 0));
    let weights = k.row(p.weights, expert, p.weights_apart);
    let x = k.row(p.x, expert, p.x_apart);
    let product = Product::new(&k, (format, columns), [weights, x], (p.rows, p.cols));
    let tiles = product.tiles;
    product.run(
        (k.var(0u32), tiles),
        || (),
        |column| {
            let entry = k.broadcast(entry, column);
            (k.both(k.lt(column, columns), k.ne(entry, NONE)), k.row(p.out, entry, p.pitch))
        },
    );
    k
}

/// Sums of the warp's rows, by group of columns.
type Sums = Vec<Accumulator>;

struct Product<'a> {
    k: &'a Kernel,
    format: Format,
    columns: u32,
    weights: Pointer<Global, u8>,
    x: Pointer<Global, u8>,
    rows: Reg<u32>,
    cols: Reg<u32>,
    lane: Reg<u32>,
    /// Tiles of a row, and of rows.
    tiles: Reg<u32>,
    all_tiles: Reg<u32>,
}

impl<'a> Product<'a> {
    fn new(
        k: &'a Kernel,
        (format, columns): (Format, u32),
        [weights, x]: [Pointer<Global, u8>; 2],
        (rows, cols): (Reg<u32>, Multiple),
    ) -> Self {
        let tiles = k.shr(k.add(cols.reg(), TILE_COLS - 1), TILE_COLS.trailing_zeros());
        let all_tiles = k.shr(k.add(rows, TILE_ROWS - 1), TILE_ROWS.trailing_zeros());
        let lane = k.and(k.special(Special::TidX), 31);
        Self { k, format, columns, weights, x, rows, cols: cols.reg(), lane, tiles, all_tiles }
    }

    /// Multiplies tiles `begin` to `end` of the rows of this block with the columns, which are there after
    /// `wait`. `to` is whether a column's sums are stored, and where.
    fn run(
        &self,
        (begin, end): (Reg<u32>, Reg<u32>),
        wait: impl FnOnce(),
        to: impl Fn(Reg<u32>) -> (Pred, Pointer<Global, f32>),
    ) {
        let (k, lane, all_tiles) = (self.k, self.lane, self.all_tiles);
        let tid = k.special(Special::TidX);
        let warp = k.shr(tid, 5);
        let meeting = Meeting::new(k, self.columns);
        let book = self.format.shared_book(k, tid, THREADS);
        if book.is_some() {
            k.sync_threads();
        }
        let raw = self.format.is_quantized().then(|| Raw::new(k, self.format, book));
        let sums = self.sums();
        let (row, tile) = (k.var(k.special(Special::CtaidX)), k.var(k.add(begin, warp)));
        // The first weights are on their way before the columns are there.
        self.load(raw.as_ref(), row, tile, end);
        wait();
        let load_next = || k.if_(k.lt(row, all_tiles), || self.load(raw.as_ref(), row, tile, end));
        k.loop_(|l| {
            k.break_if(l, k.ge(row, all_tiles));
            let ahead = loads_ahead(self.columns);
            let held = raw.as_ref().filter(|_| ahead).map(|raw| raw.copied(k));
            let (row_here, tile_here) = (k.var(row), k.var(tile));
            k.add_to(tile, WARPS);
            // The same for all warps, whose last tile may be past the end.
            let last = k.ge(k.sub(tile, warp), end);
            k.set(tile, k.select(last, k.add(begin, warp), tile));
            k.set(row, k.select(last, k.add(row, k.special(Special::NctaidX)), row));
            if ahead {
                load_next();
            }
            let here = held.as_ref().or(raw.as_ref());
            k.if_(k.lt(tile_here, end), || self.multiply(here, row_here, tile_here, &sums));
            if !ahead {
                load_next();
            }
            k.if_(last, || {
                meeting.put(k, (lane, warp), &sums);
                meeting.store(k, tid, (k.mul(row_here, TILE_ROWS), self.rows), &to);
            });
        });
    }

    const fn groups(&self) -> u32 {
        self.columns / GROUP
    }

    fn sums(&self) -> Sums {
        (0..self.groups()).map(|_| self.k.accumulator()).collect()
    }

    /// Loads tile `tile` of tile of rows `row`, unless it is past `end`.
    fn load(&self, raw: Option<&Raw>, row: Reg<u32>, tile: Reg<u32>, end: Reg<u32>) {
        let (k, bytes) = (self.k, self.format.tile_bytes());
        let Some(raw) = raw else { return };
        k.if_(k.lt(tile, end), || {
            let at = k.row(self.weights, k.min(row, k.sub(self.all_tiles, 1)), k.scale(self.tiles, bytes));
            raw.load(k, self.format, k.at_stride(at, tile, bytes), self.lane);
        });
    }

    /// Adds the products of a tile of tile of rows `row`.
    fn multiply(&self, raw: Option<&Raw>, row: Reg<u32>, tile: Reg<u32>, sums: &Sums) {
        let k = self.k;
        let place = k.at_stride(self.x, tile, self.groups() * fragments::BYTES);
        let group_at = |group: usize| i64::from(fragments::BYTES) * group as i64;
        let own = k.at_stride(place, self.lane, 16);
        let of_tile = self.sums();
        for s in 0..2usize {
            for piece in 0..4usize {
                let factors = match raw {
                    Some(raw) => raw.factors(k, self.format, (s, piece), self.lane),
                    None => self.numbers(row, tile, (s, piece)),
                };
                for (group, sum) in of_tile.iter().enumerate() {
                    let at = own.plus_bytes(group_at(group) + 512 * (4 * s + piece) as i64).cast::<F16x2>();
                    let x = k.load_n::<4, _, _>(at, Cache::Default);
                    k.multiply(*sum, TileA(factors[0]), TileB([x[0], x[1]]));
                    k.multiply(*sum, TileA(factors[1]), TileB([x[2], x[3]]));
                }
            }
        }
        let t = k.and(self.lane, 3);
        let factors_at = k.at_stride(place.plus_bytes(FACTORS_AT.into()), t, 8);
        let sums_at = k.at_stride(place.plus_bytes(SUMS_AT.into()), self.lane, 8);
        let minima = raw.filter(|_| self.format.has_unit_minimum()).map(|raw| raw.minima(k, self.lane));
        for (n, sums) in sums.iter().enumerate() {
            let at = factors_at.plus_bytes(group_at(n)).cast::<f32>();
            let factors = k.load_n::<2, _, _>(at, Cache::Default);
            let minima = minima.map(|minima| {
                let at = sums_at.plus_bytes(group_at(n)).cast::<F16x2>();
                let products = k.accumulator();
                k.multiply(products, TileA(minima), TileB(k.load_n::<2, _, _>(at, Cache::Default)));
                products
            });
            self.add(raw, minima, factors, (of_tile[n], *sums));
        }
    }

    /// Adds the products of a tile, scaled, to the sums of a group of columns.
    fn add(
        &self,
        raw: Option<&Raw>,
        minima: Option<Accumulator>,
        factors: [Reg<f32>; 2],
        (of_tile, sums): (Accumulator, Accumulator),
    ) {
        let k = self.k;
        for h in 0..2 {
            let supers = raw.map(|raw| raw.supers(k, self.format, h));
            for (c, factor) in factors.into_iter().enumerate() {
                let mut value = of_tile.0[2 * h + c];
                if let Some(all) = supers.as_ref().and_then(|supers| supers.all) {
                    value = k.mul(value, all);
                }
                if let (Some(minima), Some(least)) =
                    (&minima, supers.as_ref().and_then(|supers| supers.least))
                {
                    value = k.mad(k.neg(minima.0[2 * h + c]), least, value);
                }
                k.mad_to(sums.0[2 * h + c], value, factor, sums.0[2 * h + c]);
            }
        }
    }

    /// The left factors of a quarter of units `t + 4s` of a type that is not quantized.
    fn numbers(&self, row: Reg<u32>, tile: Reg<u32>, (s, piece): (usize, usize)) -> [[Reg<F16x2>; 4]; 2] {
        let k = self.k;
        let (g, t) = (k.shr(self.lane, 2), k.and(self.lane, 3));
        let row_bytes = k.scale(k.scale(k.shr(self.cols, 4), 16), self.format.value_bytes());
        let rows = [0u32, 8].map(|h| {
            let row = k.add(k.mad(row, TILE_ROWS, g), h);
            k.row(self.weights, k.min(row, k.sub(self.rows, 1)), row_bytes)
        });
        let first = k.mad(tile, TILE_COLS, k.mad(t, 32u32, (128 * s + 8 * piece) as u32));
        let inside: Pred = k.lt(first, self.cols);
        let [a, b] = rows.map(|row| eight(k, self.format, row, first, inside));
        [[a[0], b[0], a[1], b[1]], [a[2], b[2], a[3], b[3]]]
    }
}

/// Memory in which the warps of a block add their sums: `[warp][column][row]`, columns [`Meeting::PITCH`]
/// apart, so that neither side has bank conflicts.
struct Meeting {
    values: Pointer<Shared, f32>,
    columns: u32,
}

impl Meeting {
    const PITCH: u32 = TILE_ROWS + 4;

    fn new(k: &Kernel, columns: u32) -> Self {
        Self { values: k.shared::<f32>(WARPS * columns * Self::PITCH), columns }
    }

    /// Takes the warp's sums, which then are zeros.
    fn put(&self, k: &Kernel, (lane, warp): (Reg<u32>, Reg<u32>), sums: &Sums) {
        let (g, t) = (k.shr(lane, 2), k.and(lane, 3));
        let own = k.at_stride(self.values, k.mad(warp, self.columns, k.mul(t, 2u32)), 4 * Self::PITCH);
        let own = k.at(own, g);
        for (n, sums) in (0u32..).zip(sums) {
            for (index, sum) in (0u32..).zip(sums.0) {
                let (h, c) = (index / 2, index % 2);
                k.store(own.plus(((GROUP * n + c) * Self::PITCH + 8 * h).into()), sum);
                k.set(sum, 0f32);
            }
        }
    }

    /// Adds the sums of all warps in their order, and stores those of rows from `first` on, below `rows`, where
    /// `to` says.
    fn store(
        &self,
        k: &Kernel,
        tid: Reg<u32>,
        (first, rows): (Reg<u32>, Reg<u32>),
        to: impl Fn(Reg<u32>) -> (Pred, Pointer<Global, f32>),
    ) {
        k.sync_threads();
        for round in 0..(self.columns * TILE_ROWS).div_ceil(THREADS) {
            let index = k.add(tid, THREADS * round);
            let (own, column) = (k.and(index, TILE_ROWS - 1), k.shr(index, TILE_ROWS.trailing_zeros()));
            let row = k.add(first, own);
            let (wanted, out) = to(column);
            k.if_(k.both(k.lt(row, rows), wanted), || {
                let from = k.at(k.at_stride(self.values, column, 4 * Self::PITCH), own);
                let of_warp = |warp: u32| k.load(from.plus((warp * self.columns * Self::PITCH).into()));
                let sum = (1..WARPS).fold(of_warp(0), |sum, warp| k.add(sum, of_warp(warp)));
                k.store(k.at(out, row), sum);
            });
        }
        k.sync_threads();
    }
}
