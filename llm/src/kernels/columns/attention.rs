//! Attention of columns over their pages of the cache.
//!
//! A block takes up to four query heads that share a key/value head, and a share of the column's pages: which
//! pages depends on the column's own length alone. Each warp takes 32 positions of a page: for the scores
//! every lane takes one position, for the weighted sums of values every lane takes two neighbouring
//! dimensions. The split-K parts are merged by a second kernel, which writes the result as fragments.

use half::f16;
use ptxgen::{
    Cache, F16x2, Global, Kernel, Multiple, Pointer, Ptr, Reg, Shared, Special, Target, kernel_params,
};

use crate::cache::{BLOCK, CacheType};
use crate::kernels::cache::{PAGE, numbers, scales};
use crate::kernels::columns::fragments::{place, store};
use crate::kernels::columns::state::{column, page};
use crate::kernels::columns::vector::THREADS as MERGE_THREADS;
use crate::kernels::format::TILE_COLS;
use crate::kernels::heads::LOWEST;
use crate::kernels::limits::{Limits, infix};

/// Threads of a block.
pub const THREADS: u32 = 32 * WARPS;
/// A warp for every 32 positions of a page.
const WARPS: u32 = PAGE / 32;
/// Query heads of a block, if more than one share a key/value head.
const TOGETHER: u32 = 4;

/// Words of one share of one head: values, largest score, sum of weights, padding.
pub const fn partial_words(head_dim: u32) -> u32 {
    head_dim + 4
}

/// Query heads of a block where `group` query heads share a key/value head. With limits there is one kernel.
pub const fn together(group: u32, limited: bool) -> u32 {
    if group == 1 && !limited { 1 } else { TOGETHER }
}

/// The numbers of query heads of a block that there are kernels for.
pub const fn all_together(limited: bool) -> &'static [u32] {
    if limited { &[TOGETHER] } else { &[1, TOGETHER] }
}

/// Name of the kernel for heads of up to `dims` values, with limits or without.
pub fn kernel_name(dims: u32, kv: CacheType, together: u32, limited: bool) -> String {
    format!("columns_attention{}_{}{dims}_{together}", kv.suffix(), infix(limited))
}

kernel_params! {
    /// Parameters of the kernel `columns_attention_DIM_N`, for q8_0 with `scales_at`;
    /// `columns_attention_limited_DIM_N` takes `window` and `cap` of [`limits`](crate::kernels::limits) too.
    pub struct Attention(kv: CacheType, limited: bool) {
        state: Ptr<u32, 16>, tables: Ptr<u32, 16>, q: Ptr<f32, 16>, keys: Ptr<u8, 16>,
        values: Ptr<u8, 16>, partials: Ptr<f32, 16>,
        head_dim: Multiple = 8, kv_heads: u32, group: u32, table_pitch: u32, scale: f32,
        scales_at: Option<Multiple> = (kv == CacheType::Q8_0).then_some(BLOCK),
        window: Option<u32> = limited.then_some(()),
        cap: Option<f32> = limited.then_some(()),
    }
}

/// The kernel, which takes [`Attention`]. Grid: `[kv_heads * ceil(group / together), shares, columns]`; share y takes
/// every page whose number is y modulo the number of shares. `partials` are `[column][head][share]`.
pub(crate) fn kernel(dims: u32, kv: CacheType, together: u32, limited: bool, target: Target) -> Kernel {
    let k = Kernel::new(&kernel_name(dims, kv, together, limited));
    k.max_threads(THREADS);
    let p = Attention::declare(&k, kv, limited);
    let limits = Limits::new(&k, (p.window, p.cap));
    let caches = [p.keys, p.values];

    let shared_q = k.shared::<f32>(together * dims);
    let meeting = Meeting::new(&k, dims, together);
    let tid = k.special(Special::TidX);
    let (lane, warp) = (k.and(tid, 31), k.shr(tid, 5));
    let (share, shares) = (k.special(Special::CtaidY), k.special(Special::NctaidY));
    let own = column(&k, target, p.state, k.special(Special::CtaidZ));
    let positions = k.add(own.position, 1);
    let pages = k.shr(k.add(positions, PAGE - 1), PAGE.trailing_zeros());
    k.exit_if(k.ge(share, pages));
    let parts = k.div(k.add(p.group, together - 1), together);
    let kv_head = k.div(k.special(Special::CtaidX), parts);
    let first = k.mul(k.sub(k.special(Special::CtaidX), k.mul(kv_head, parts)), together);
    let heads = k.mul(p.kv_heads, p.group);
    // Past the end of the group the last head is taken again, and not stored.
    let head = |i: u32| k.mad(kv_head, p.group, k.min(k.add(first, i), k.sub(p.group, 1)));

    // Scores are in units of log2: exp2 is the softmax's exponential.
    let scale = k.mul(p.scale, std::f32::consts::LOG2_E);
    for i in 0..together {
        let query = k.row(p.q, k.mad(own.number, heads, head(i)), p.head_dim);
        k.for_(tid, k.var(dims), THREADS, |d: Reg<u32>| {
            let value = k.var(0f32);
            k.if_(k.lt(d, p.head_dim.reg()), || k.set(value, k.mul(k.load(k.at(query, d)), scale)));
            k.store(k.at(shared_q.plus((i * dims).into()), d), value);
        });
    }
    k.sync_threads();

    let rows = Rows { k: &k, caches, head_dim: p.head_dim, scales_at: p.scales_at };
    let lanes = Lanes::new(&k, dims, together, lane, p.head_dim, limits);
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
        let tile = k.mul(warp, 32u32);
        let begin = seen.map(|seen| k.sub(k.max(seen, start), start));
        let wanted =
            begin.map_or(k.lt(tile, count), |begin| k.both(k.lt(tile, count), k.lt(begin, k.add(tile, 32))));
        k.if_(wanted, || lanes.add_tile(&rows, shared_q, (row, tile, count), begin));
    });
    meeting.put(&k, (lane, warp), &lanes);
    let out = |i: u32| {
        let line = k.mad(k.mad(own.number, heads, head(i)), shares, share);
        k.row(p.partials, line, k.plus(p.head_dim, 4))
    };
    for i in 0..together {
        k.if_(k.lt(k.add(first, i), p.group), || meeting.store(&k, (tid, i), p.head_dim, out(i)));
    }
    k
}

/// Rows of the caches.
struct Rows<'a> {
    k: &'a Kernel,
    caches: [Pointer<Global, u8>; 2],
    head_dim: Multiple,
    scales_at: Option<Multiple>,
}

impl Rows<'_> {
    /// Values `d` to `d + N` of row `row` of cache `which`.
    fn load<const N: usize>(&self, which: usize, row: Reg<u32>, d: Multiple) -> Vec<Reg<f32>> {
        let (k, cache) = (self.k, self.caches[which]);
        let Some(scales_at) = self.scales_at else {
            let at = k.at(k.row(cache.cast::<f16>(), row, self.head_dim), d).cast::<F16x2>();
            let pairs = k.load_with(at, N as u32 / 2, Cache::Default);
            let halves = pairs.into_iter().flat_map(|pair| <[_; 2]>::from(k.unpack(pair)));
            return halves.map(|half| k.convert::<f16, f32>(half)).collect();
        };
        let at = k.at(k.row(cache, row, self.head_dim), d);
        let blocks = k.halve(self.head_dim, BLOCK.trailing_zeros());
        let row_scales = k.row(scales(k, cache, scales_at), row, blocks);
        let scale = k.convert::<f16, f32>(k.load(k.at(row_scales, k.shr(d.reg(), BLOCK.trailing_zeros()))));
        let quants: Vec<Reg<f32>> = match N {
            2 => {
                let both = k.convert::<u16, u32>(k.load(at.cast::<u16>()));
                numbers(k, both)[..2].to_vec()
            }
            _ => {
                let words = k.load_with(at.cast::<u32>(), N as u32 / 4, Cache::Default);
                words.into_iter().flat_map(|word| numbers(k, word)).collect()
            }
        };
        quants.into_iter().map(|quant| k.mul(quant, scale)).collect()
    }
}

/// A lane's part of the heads of its block.
struct Lanes<'a> {
    k: &'a Kernel,
    dims: u32,
    lane: Reg<u32>,
    head_dim: Multiple,
    /// First of each two dimensions; past the end of the head they repeat its last ones and are not stored.
    own: Vec<Reg<u32>>,
    safe: Vec<Multiple>,
    heads: Vec<Head>,
    limits: Option<Limits>,
}

/// Largest score, equal within the warp, sum of the lane's weights, and weighted sums of values.
struct Head {
    max: Reg<f32>,
    total: Reg<f32>,
    sums: Vec<[Reg<f32>; 2]>,
}

impl<'a> Lanes<'a> {
    fn new(
        k: &'a Kernel,
        dims: u32,
        together: u32,
        lane: Reg<u32>,
        head_dim: Multiple,
        limits: Option<Limits>,
    ) -> Self {
        let own: Vec<Reg<u32>> = (0..dims).step_by(64).map(|d| k.mad(lane, 2u32, d)).collect();
        let last = k.sub(head_dim.reg(), 2);
        let safe = own.iter().map(|d| k.scale(k.shr(k.min(*d, last), 1), 2)).collect();
        let sums = || own.iter().map(|_| [k.var(0f32), k.var(0f32)]).collect();
        let head = |_| Head { max: k.var(LOWEST), total: k.var(0f32), sums: sums() };
        let heads = (0..together).map(head).collect();
        Self { k, dims, lane, head_dim, own, safe, heads, limits }
    }

    /// Adds positions `tile` to `tile + 32`, as far as they are below `count` and not before `begin`, of the
    /// page whose rows start at `first`.
    fn add_tile(
        &self,
        rows: &Rows<'_>,
        q: Pointer<Shared, f32>,
        (first, tile, count): (Reg<u32>, Reg<u32>, Reg<u32>),
        begin: Option<Reg<u32>>,
    ) {
        let k = self.k;
        let mine = k.add(tile, self.lane);
        let (below, newest) = (k.lt(mine, count), k.sub(count, 1));
        let inside = begin.map_or(below, |begin| k.both(below, k.ge(mine, begin)));
        let row = k.add(first, k.min(mine, newest));
        let scores: Vec<Reg<f32>> = self.heads.iter().map(|_| k.var(0f32)).collect();
        let last = k.sub(k.shr(self.head_dim.reg(), 3), 1);
        for some in (0..self.dims).step_by(64) {
            // Loads that are on their way together. Past the end of the head the query is zero.
            let pieces: Vec<(u32, Vec<Reg<f32>>)> = (some..some + 64)
                .step_by(8)
                .map(|d| (d, rows.load::<8>(0, row, k.scale(k.min(k.var(d / 8), last), 8))))
                .collect();
            for (n, score) in (0u32..).zip(&scores) {
                for (d, key) in &pieces {
                    let q = k.load_with(q.plus((n * self.dims + d).into()), 8, Cache::Default);
                    key.iter().zip(q).for_each(|(key, q)| k.mad_to(*score, *key, q, *score));
                }
            }
        }
        let weights: Vec<Reg<f32>> = self
            .heads
            .iter()
            .zip(scores)
            .map(|(head, score)| {
                let score = k.select(inside, Limits::apply(self.limits, k, score), LOWEST);
                let higher = k.max(head.max, k.warp_max(score));
                let weight = k.select(inside, k.exp2(k.sub(score, higher)), 0f32);
                let shrink = k.exp2(k.sub(head.max, higher));
                k.set(head.max, higher);
                k.set(head.total, k.mad(head.total, shrink, weight));
                head.sums.iter().flatten().for_each(|sum| k.set(*sum, k.mul(*sum, shrink)));
                weight
            })
            .collect();
        // Some positions at a time, whose loads are on their way together; weights past the end are 0.
        let together = 1024 / self.dims;
        k.for_(0u32, k.min(k.sub(count, tile), 32u32), together, |i: Reg<u32>| {
            let positions: Vec<_> = (0..together)
                .map(|n| {
                    let at = k.add(i, n);
                    let row = k.add(first, k.min(k.add(tile, at), newest));
                    (at, self.safe.iter().map(|d| rows.load::<2>(1, row, *d)).collect::<Vec<_>>())
                })
                .collect();
            for (at, values) in positions {
                for (head, weight) in self.heads.iter().zip(&weights) {
                    let weight = k.broadcast(*weight, at);
                    for (sums, values) in head.sums.iter().zip(&values) {
                        sums.iter().zip(values).for_each(|(sum, v)| k.mad_to(*sum, weight, *v, *sum));
                    }
                }
            }
        });
    }
}

/// Shared memory in which the warps of a block merge their results.
struct Meeting {
    dims: u32,
    together: u32,
    values: Pointer<Shared, f32>,
    max: Pointer<Shared, f32>,
    total: Pointer<Shared, f32>,
}

impl Meeting {
    fn new(k: &Kernel, dims: u32, together: u32) -> Self {
        let values = k.shared::<f32>(WARPS * together * dims);
        let [max, total] = [(); 2].map(|()| k.shared::<f32>(WARPS * together));
        Self { dims, together, values, max, total }
    }

    /// Takes what the warp has, and waits for the others.
    fn put(&self, k: &Kernel, (lane, warp): (Reg<u32>, Reg<u32>), lanes: &Lanes<'_>) {
        for (i, head) in (0u32..).zip(&lanes.heads) {
            let place = k.add(k.mul(warp, self.together), i);
            let total = k.warp_sum(head.total);
            k.if_(k.eq(lane, 0), || {
                k.store(k.at(self.max, place), head.max);
                k.store(k.at(self.total, place), total);
            });
            let values = k.at(self.values, k.scale(place, self.dims));
            for (d, sums) in lanes.own.iter().zip(&head.sums) {
                k.store_n(k.at(values, k.scale(k.shr(*d, 1), 2)), sums);
            }
        }
        k.sync_threads();
    }

    /// Stores the merged head `i`.
    fn store(&self, k: &Kernel, (tid, i): (Reg<u32>, u32), head_dim: Multiple, out: Pointer<Global, f32>) {
        let of = |from: Pointer<Shared, f32>, warp: u32| k.load(from.plus((warp * self.together + i).into()));
        let maxima: Vec<Reg<f32>> = (0..WARPS).map(|warp| of(self.max, warp)).collect();
        let top = maxima.iter().copied().reduce(|a, b| k.max(a, b)).unwrap_or_else(|| k.var(LOWEST));
        let factors: Vec<Reg<f32>> = maxima.into_iter().map(|max| k.exp2(k.sub(max, top))).collect();
        let total = k.var(0f32);
        for (warp, factor) in (0u32..).zip(&factors) {
            k.mad_to(total, of(self.total, warp), *factor, total);
        }
        k.for_(tid, head_dim.reg(), THREADS, |d: Reg<u32>| {
            let value = k.var(0f32);
            for (warp, factor) in (0u32..).zip(&factors) {
                let from = self.values.plus(((warp * self.together + i) * self.dims).into());
                k.mad_to(value, k.load(k.at(from, d)), *factor, value);
            }
            k.store(k.at(out, d), value);
        });
        k.if_(k.eq(tid, 0), || k.store_n(k.at(out, head_dim), &[top, total]));
    }
}

kernel_params! {
    /// `columns_merge`: merges the shares of each head and writes the result, `heads * head_dim` values, as
    /// fragments. Grid: `[tile_blocks(heads * head_dim), columns]`.
    pub struct Merge {
        state: Ptr<u32, 16>, partials: Ptr<f32, 16>, out: Ptr<u8, 16>,
        head_dim: Multiple = 8, heads: u32, shares: u32,
    }
}

pub(crate) fn merge(target: Target) -> Kernel {
    let k = Kernel::new("columns_merge");
    k.max_threads(MERGE_THREADS);
    let p = Merge::declare(&k);
    let (tid, own) = (k.special(Special::TidX), column(&k, target, p.state, k.special(Special::CtaidY)));
    let (lane, warp) = (k.and(tid, 31), k.shr(tid, 5));
    let len = k.mul(p.heads, p.head_dim.reg());
    let tiles = k.shr(k.add(len, TILE_COLS - 1), TILE_COLS.trailing_zeros());
    let tile = k.mad(k.special(Special::CtaidX), MERGE_THREADS / 32, warp);
    k.exit_if(k.ge(tile, tiles));
    let eighths = k.halve(p.head_dim, 3).reg();
    // Eight values are of one head.
    let piece = k.mad(tile, TILE_COLS / 8, lane);
    let head = k.div(piece, eighths);
    let d = k.scale(k.sub(piece, k.mul(head, eighths)), 8);
    let pages = k.add(k.shr(own.position, PAGE.trailing_zeros()), 1);
    let count = k.min(pages, p.shares);
    let values: Vec<Reg<f32>> = (0..8).map(|_| k.var(0f32)).collect();
    k.if_(k.lt(head, p.heads), || {
        let line = k.mul(k.mad(own.number, p.heads, head), p.shares);
        let partial = |share: Reg<u32>| k.row(p.partials, k.add(line, share), k.plus(p.head_dim, 4));
        let (top, total) = (k.var(LOWEST), k.var(0f32));
        k.for_(0u32, count, 1u32, |share: Reg<u32>| {
            k.set(top, k.max(top, k.load(k.at(partial(share), p.head_dim))));
        });
        k.for_(0u32, count, 1u32, |share: Reg<u32>| {
            let from = partial(share);
            let [max, sum] = k.load_n::<2, _, _>(k.at(from, p.head_dim), Cache::Default);
            let factor = k.exp2(k.sub(max, top));
            k.mad_to(total, sum, factor, total);
            let part = k.load_with(k.at(from, d), 8, Cache::Default);
            values.iter().zip(part).for_each(|(value, part)| k.mad_to(*value, part, factor, *value));
        });
        values.iter().for_each(|value| k.set(*value, k.div(*value, total)));
    });
    let columns = k.special(Special::NctaidY);
    store(&k, place(&k, p.out, own.number, (tile, columns)), own.number, lane, &values);
    k
}
