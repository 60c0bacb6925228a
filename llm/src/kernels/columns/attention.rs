//! Attention of columns over their pages of the cache.
//!
//! A block takes up to [`HEADS`] query heads that share a key/value head, and a share of the column's pages: which
//! pages depends on the column's own length alone. Each warp takes two [tiles](crate::kernels::attention) of a page.
//! The split-K parts are merged by a second kernel, which writes the result as fragments.

use half::f16;
use ptxgen::{
    Bool, Cache, Global, Kernel, Multiple, Pointer, Ptr, Reg, Shared, Special, Target, kernel_params,
};

use crate::cache::{BLOCK, CacheType};
use crate::kernels::attention::{HEADS, PIECE, Piece, Rows, TILE, Warp};
use crate::kernels::cache::{PAGE, scales};
use crate::kernels::columns::fragments::{place, store};
use crate::kernels::columns::state::{Column, page};
use crate::kernels::columns::vector::THREADS as MERGE_THREADS;
use crate::kernels::format::TILE_COLS;
use crate::kernels::heads::LOWEST;
use crate::kernels::limits::{Limits, infix};

/// Threads of a block.
pub const THREADS: u32 = 32 * WARPS;
/// A warp for every two tiles of a page.
const WARPS: u32 = PAGE / (2 * TILE);

/// The caches by their number.
const KEYS: usize = 0;
const VALUES: usize = 1;

/// Whether there are registers for keys and values of two tiles.
const fn loads_together(dims: u32) -> bool {
    dims <= 128
}

/// Words of one share of one head: values, largest score, sum of weights, padding.
pub const fn partial_words(head_dim: u32) -> u32 {
    head_dim + 4
}

/// Query heads of a block: shared memory has room for four of the longest.
pub const fn together(dims: u32) -> u32 {
    if dims > 128 { HEADS / 2 } else { HEADS }
}

/// Name of the kernel for heads of up to `dims` values, with limits or without.
pub fn kernel_name(dims: u32, kv: CacheType, limited: bool) -> String {
    format!("columns_attention{}_{}{dims}", kv.suffix(), infix(limited))
}

kernel_params! {
    /// Parameters of the kernel `columns_attention_DIM`, for q8_0 with `scales_at`; `columns_attention_limited_DIM`
    /// takes `window` and `cap` of [`limits`](crate::kernels::limits) too.
    pub struct Attention(kv: CacheType, limited: bool) {
        state: Ptr<u32, 16>, tables: Ptr<u32, 16>, q: Ptr<f32, 16>, keys: Ptr<u8, 16>,
        values: Ptr<u8, 16>, partials: Ptr<f32, 16>,
        head_dim: Multiple = 8, kv_heads: u32, group: u32, table_pitch: u32, scale: f32,
        scales_at: Option<Multiple> = (kv == CacheType::Q8_0).then_some(BLOCK),
        window: Option<u32> = limited.then_some(()),
        cap: Option<f32> = limited.then_some(()),
    }
}

/// The grid for `columns` columns with up to `shares` shares, whose heads have kernels for `dims` values.
pub fn grid((kv_heads, group): (u32, u32), dims: u32, shares: u32, columns: u32) -> [u32; 3] {
    [kv_heads * group.div_ceil(together(dims)), shares, columns]
}

/// The kernel, which takes [`Attention`]. Grid: [`grid`]; share y takes every page whose number is y modulo the number
/// of shares. `partials` are `[column][head][share]`.
pub(crate) fn kernel(dims: u32, kv: CacheType, limited: bool, target: Target) -> Kernel {
    let k = Kernel::new(&kernel_name(dims, kv, limited));
    k.max_threads(THREADS);
    let p = Attention::declare(&k, kv, limited);
    let (limits, together) = (Limits::new(&k, (p.window, p.cap)), together(dims));
    let meeting = Meeting::new(&k, dims);
    let tid = k.special(Special::TidX);
    let (lane, warp) = (k.and(tid, 31), k.shr(tid, 5));
    let (share, shares) = (k.special(Special::CtaidY), k.special(Special::NctaidY));
    let own = Column::request(&k, target, p.state, k.special(Special::CtaidZ));
    let positions = k.add(own.position, 1);
    let pages = k.shr(k.add(positions, PAGE - 1), PAGE.trailing_zeros());
    let parts = k.div(k.add(p.group, together - 1), together);
    let kv_head = k.div(k.special(Special::CtaidX), parts);
    let first = k.mul(k.sub(k.special(Special::CtaidX), k.mul(kv_head, parts)), together);
    let count = k.min(k.sub(p.group, first), together);
    let heads = k.mul(p.kv_heads, p.group);
    let first = k.mad(kv_head, p.group, first);

    // Scores are in units of log2: exp2 is the softmax's exponential.
    let scale = k.mul(p.scale, std::f32::consts::LOG2_E);
    let queries = k.row(p.q, k.mad(own.number, heads, first), p.head_dim);
    let cached = Cached { k: &k, caches: [p.keys, p.values], head_dim: p.head_dim, scales_at: p.scales_at };
    let (head, quarter) = (k.shr(lane, 2), k.and(lane, 3));
    let attend = Warp::new(&k, kv, (dims, false), lane, |i| {
        let piece = k.add(quarter, 4 * i as u32);
        let there = k.both(k.lt(head, count), k.lt(k.mul(piece, PIECE), p.head_dim.reg()));
        let row = k.row(queries, k.min(head, k.sub(count, 1)), p.head_dim);
        let values = k.load_with(k.at(row, cached.dims_of(piece)), PIECE, Cache::Default);
        values.into_iter().map(|v| k.select(there, k.mul(v, scale), 0f32)).collect()
    });

    own.end_if_left_out(&k);
    k.exit_if(k.ge(share, pages));
    // The first position that the column sees, and the share's first page with such positions.
    let seen = limits.map(|limits| limits.first(&k, positions));
    let first_page = seen.map_or(share, |seen| {
        let before = k.shr(seen, PAGE.trailing_zeros());
        let rounds = k.div(k.add(k.sub(k.max(before, share), share), k.sub(shares, 1)), shares);
        k.mad(rounds, shares, share)
    });
    k.for_(first_page, pages, shares, |number: Reg<u32>| {
        let page = page(&k, p.tables, p.table_pitch, own, number);
        let row = k.mul(k.mad(page, p.kv_heads, kv_head), PAGE);
        let start = k.mul(number, PAGE);
        let count = k.min(k.sub(positions, start), PAGE);
        let begin = seen.map(|seen| k.sub(k.max(seen, start), start));
        let own = k.mul(warp, 2 * TILE);
        let wanted = begin
            .map_or(k.lt(own, count), |begin| k.both(k.lt(own, count), k.lt(begin, k.add(own, 2 * TILE))));
        k.if_(wanted, || {
            let scored = |tile: Reg<u32>, keys: &Rows| {
                let scores = attend.scores(keys).map(|score| Limits::apply(limits, &k, score));
                let there = attend.positions().map(|position| {
                    let position = k.add(position, tile);
                    let below = k.lt(position, count);
                    begin.map_or(below, |begin| k.both(below, k.ge(position, begin)))
                });
                attend.hidden(scores, there)
            };
            let tiles = [0, TILE].map(|tile| k.add(own, tile));
            let rows = |cache, tile| cached.rows(cache, &attend, dims, (row, tile, count));
            if loads_together(dims) {
                let [keys, values] = [KEYS, VALUES].map(|cache| tiles.map(|tile| rows(cache, tile)));
                attend.add(&[0, 1].map(|i: usize| scored(tiles[i], &keys[i])), &values);
                return;
            }
            for tile in tiles {
                let scores = scored(tile, &rows(KEYS, tile));
                // Of a tile without a position nothing is left.
                k.if_(k.lt(tile, count), || attend.add(&[scores], &[rows(VALUES, tile)]));
            }
        });
    });
    meeting.put(&k, warp, &attend);
    meeting.store(&k, tid, (count, p.head_dim), |head| {
        let line = k.mad(k.mad(own.number, heads, k.add(first, head)), shares, share);
        k.row(p.partials, line, k.plus(p.head_dim, 4))
    });
    k
}

/// Rows of a column's caches.
struct Cached<'a> {
    k: &'a Kernel,
    caches: [Pointer<Global, u8>; 2],
    head_dim: Multiple,
    scales_at: Option<Multiple>,
}

impl Cached<'_> {
    /// The first value of a piece; past the end of the head the last one has its place.
    fn dims_of(&self, piece: Reg<u32>) -> Multiple {
        let k = self.k;
        k.scale(k.min(piece, k.sub(k.shr(self.head_dim.reg(), 3), 1)), PIECE)
    }

    /// The lane's rows, of keys or of values, of tile `tile` of the page whose rows begin at `first`. What is not below
    /// `count` has the newest one's place.
    fn rows(
        &self,
        cache: usize,
        warp: &Warp<'_>,
        dims: u32,
        (first, tile, count): (Reg<u32>, Reg<u32>, Reg<u32>),
    ) -> Rows {
        let (k, (keys, values)) = (self.k, warp.rows());
        let (rows, own, step, pieces) = match cache {
            KEYS => (keys.to_vec(), warp.t, 4, Warp::key_pieces(dims)),
            _ => (values.to_vec(), warp.g, 8, Warp::value_pieces(dims)),
        };
        let of = |at: Reg<u32>| {
            let row = k.add(first, k.min(k.add(tile, at), k.sub(count, 1)));
            (0..pieces).map(|i| self.piece(cache, row, k.add(own, step * i))).collect()
        };
        Rows { rows: rows.into_iter().map(of).collect() }
    }

    /// A piece of a row of keys or of values.
    fn piece(&self, which: usize, row: Reg<u32>, piece: Reg<u32>) -> Piece {
        let (k, cache) = (self.k, self.caches[which]);
        let dims = self.dims_of(piece);
        let Some(scales_at) = self.scales_at else {
            let at = k.at(k.row(cache.cast::<f16>(), row, self.head_dim), dims);
            return k.load_n::<4, _, _>(at.cast::<u32>(), Cache::Default);
        };
        let at = k.at(k.row(cache, row, self.head_dim), dims);
        let words = k.load_n::<2, _, _>(at.cast::<u32>(), Cache::Default);
        let blocks = k.halve(self.head_dim, BLOCK.trailing_zeros());
        let scales = k.row(scales(k, cache, scales_at), row, blocks);
        let scale = k.load(k.at(scales, k.shr(dims.reg(), BLOCK.trailing_zeros())));
        [words[0], words[1], k.bits(k.pack(scale, scale)), k.var(0u32)]
    }
}

/// Shared memory in which the warps of a block merge their results.
struct Meeting {
    dims: u32,
    values: Pointer<Shared, f32>,
    max: Pointer<Shared, f32>,
    total: Pointer<Shared, f32>,
}

impl Meeting {
    fn new(k: &Kernel, dims: u32) -> Self {
        let together = together(dims);
        let values = k.shared::<f32>(WARPS * together * dims);
        let [max, total] = [(); 2].map(|()| k.shared::<f32>(WARPS * together));
        Self { dims, values, max, total }
    }

    /// Takes what the warp has, and waits for the others.
    fn put(&self, k: &Kernel, warp: Reg<u32>, attend: &Warp<'_>) {
        let together = together(self.dims);
        for own in attend.results() {
            k.if_(k.lt(own.head, together), || {
                let place = k.mad(warp, together, own.head);
                k.if_(k.eq(attend.g, 0), || {
                    k.store(k.at(self.max, place), own.max);
                    k.store(k.at(self.total, place), own.total);
                });
                let line = k.at(self.values, k.scale(place, self.dims));
                for (i, values) in (0u32..).zip(&own.values) {
                    let at = k.at(line, k.scale(k.add(attend.g, 8 * i), PIECE));
                    values.chunks_exact(4).zip([0, 4]).for_each(|(four, i)| k.store_n(at.plus(i), four));
                }
            });
        }
        k.sync_threads();
    }

    /// Stores the merged heads, of `count`, where `out` says; a thread has four values of one.
    fn store(
        &self,
        k: &Kernel,
        tid: Reg<u32>,
        (count, head_dim): (Reg<u32>, Multiple),
        out: impl Fn(Reg<u32>) -> Pointer<Global, f32>,
    ) {
        let together = together(self.dims);
        let quads = self.dims / 4;
        k.for_(tid, k.mul(count, quads), THREADS, |item: Reg<u32>| {
            let (head, quad) = (k.shr(item, quads.trailing_zeros()), k.and(item, quads - 1));
            let of = |from: Pointer<Shared, f32>, warp: u32| {
                k.load(k.at(from.plus((warp * together).into()), head))
            };
            let maxima: Vec<Reg<f32>> = (0..WARPS).map(|warp| of(self.max, warp)).collect();
            let top = maxima.iter().copied().reduce(|a, b| k.max(a, b)).unwrap_or_else(|| k.var(LOWEST));
            let total = k.var(0f32);
            let values = [(); 4].map(|()| k.var(0f32));
            for (warp, max) in (0u32..).zip(maxima) {
                let factor = k.exp2_flushed(k.sub(max, top));
                k.mad_to(total, of(self.total, warp), factor, total);
                let line = k.at(self.values, k.scale(k.add(head, warp * together), self.dims));
                let part = k.load_n::<4, _, _>(k.at(line, k.scale(quad, 4)), Cache::Default);
                values.iter().zip(part).for_each(|(value, part)| k.mad_to(*value, part, factor, *value));
            }
            let (to, dims) = (out(head), k.scale(quad, 4));
            k.if_(k.lt(dims.reg(), head_dim.reg()), || k.store_n(k.at(to, dims), &values));
            k.if_(k.eq(quad, 0), || k.store_n(k.at(to, head_dim), &[top, total]));
        });
    }
}

kernel_params! {
    /// `columns_merge`: merges the shares of each head and writes the result, `heads * head_values` values, as
    /// fragments. Grid: `[tile_blocks(heads * head_values), columns]`.
    pub struct Merge {
        state: Ptr<u32, 16>, partials: Ptr<f32, 16>, out: Ptr<u8, 16>,
        head_dim: Multiple = 8, head_values: Multiple = 4, heads: u32, shares: u32,
    }
}

/// Four values of a head.
struct Quad {
    /// The first share of the head.
    line: Reg<u32>,
    dims: Multiple,
    /// Whether there is such a head.
    inside: Reg<Bool>,
}

/// The weighted sums of four values over shares, and that of the weights.
struct Sums {
    total: Reg<f32>,
    values: [Reg<f32>; 4],
}

pub(crate) fn merge(target: Target) -> Kernel {
    let k = Kernel::new("columns_merge");
    k.max_threads(MERGE_THREADS);
    let p = Merge::declare(&k);
    let tid = k.special(Special::TidX);
    let own = Column::request(&k, target, p.state, k.special(Special::CtaidY));
    let (lane, warp) = (k.and(tid, 31), k.shr(tid, 5));
    let len = k.mul(p.heads, p.head_values.reg());
    let tiles = k.shr(k.add(len, TILE_COLS - 1), TILE_COLS.trailing_zeros());
    let tile = k.mad(k.special(Special::CtaidX), MERGE_THREADS / 32, warp);
    k.exit_if(k.ge(tile, tiles));
    // Of a lane's eight values the first four are of one head, and the others.
    let quads: [Quad; 2] = std::array::from_fn(|half| {
        let per_head = k.halve(p.head_values, 2).reg();
        let number = k.add(k.mad(tile, TILE_COLS / 4, k.mul(lane, 2)), half as u32);
        let head = k.div(number, per_head);
        let dims = k.scale(k.sub(number, k.mul(head, per_head)), 4);
        let line = k.mul(k.mad(own.number, p.heads, k.min(head, k.sub(p.heads, 1))), p.shares);
        Quad { line, dims, inside: k.lt(head, p.heads) }
    });
    let partial = |q: &Quad, share: Reg<u32>| k.row(p.partials, k.add(q.line, share), k.plus(p.head_dim, 4));
    let part = |q: &Quad, share: Reg<u32>| {
        let from = partial(q, share);
        let [max, sum] = k.load_n::<2, _, _>(k.at(from, p.head_dim), Cache::Default);
        (max, sum, k.load_n::<4, _, _>(k.at(from, q.dims), Cache::Default))
    };
    // Every column has a first part.
    let first = quads.each_ref().map(|q| part(q, k.var(0u32)));
    own.end_if_left_out(&k);
    let pages = k.add(k.shr(own.position, PAGE.trailing_zeros()), 1);
    let count = k.min(pages, p.shares);
    let top = first.map(|(max, ..)| k.var(max));
    k.for_(1u32, count, 1u32, |share: Reg<u32>| {
        for (top, q) in top.iter().zip(&quads) {
            k.set(*top, k.max(*top, k.load(k.at(partial(q, share), p.head_dim))));
        }
    });
    let sums: [Sums; 2] = std::array::from_fn(|half| {
        let (max, sum, values) = first[half];
        let factor = k.exp2_flushed(k.sub(max, top[half]));
        Sums { total: k.var(k.mul(sum, factor)), values: values.map(|v| k.var(k.mul(v, factor))) }
    });
    k.for_(1u32, count, 1u32, |share: Reg<u32>| {
        let parts = quads.each_ref().map(|q| part(q, share));
        for ((sums, top), (max, sum, part)) in sums.iter().zip(top).zip(parts) {
            let factor = k.exp2_flushed(k.sub(max, top));
            k.mad_to(sums.total, sum, factor, sums.total);
            sums.values.iter().zip(part).for_each(|(value, part)| k.mad_to(*value, part, factor, *value));
        }
    });
    let of_quad = |(sums, q): (&Sums, &Quad)| {
        sums.values.map(|value| k.select(q.inside, k.div(value, sums.total), 0f32))
    };
    let values: Vec<Reg<f32>> = sums.iter().zip(&quads).flat_map(of_quad).collect();
    let columns = k.special(Special::NctaidY);
    store(&k, place(&k, p.out, own.number, (tile, columns)), own.number, lane, &values);
    k
}
