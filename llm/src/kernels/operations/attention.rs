//! Attention of one query position over the cache: online softmax, any context, no score buffer.
//!
//! A block serves one query head and one share of the positions. Each warp works through tiles of 32
//! positions: for the scores every lane takes one position, for the weighted sum of values every lane takes
//! two neighbouring dimensions. Warps are merged through shared memory, split-K parts by a second kernel.

use half::f16;
use ptxgen::{
    Cache, F16x2, Global, Kernel, Multiple, Pointer, Pred, Ptr, Reg, Shared, Special, kernel_params,
};

use crate::kernels::heads::LOWEST;
use crate::kernels::limits::{Limits, infix};
use crate::kernels::operations::striped::striped_index;

/// Threads of a block.
pub const THREADS: u32 = 128;
pub(crate) const WARPS: u32 = THREADS / 32;

/// Words of one share of one head in the scratch buffer of `attention_combine`: largest score, sum of
/// weights, values.
pub const fn partial_words(head_dim: u32) -> u32 {
    // Rounded so that every share starts at a multiple of 16 bytes.
    (head_dim + 2).next_multiple_of(4)
}

/// [`partial_words`] in a kernel.
fn partial_pitch(k: &Kernel, head_dim: Reg<u32>) -> Reg<u32> {
    k.and(k.add(head_dim, 5), !3u32)
}

kernel_params! {
    /// `attention_DIM` for heads of up to `dims` dimensions, a multiple of 8. Grid: `[heads, 1]`, `out`
    /// striped; for `attention_split_DIM` `[heads, shares]`, `out` the scratch buffer.
    ///
    /// The cache holds f16 `[kv_head][context][head_dim]`; `group` query heads share a key/value head.
    ///
    /// `attention_limited_DIM` and `attention_limited_split_DIM` take two parameters more, `window` and `cap`
    /// of [`limits`](crate::kernels::limits).
    pub struct Attention(limited: bool) {
        q: Ptr<f32, 16>, keys: Ptr<f16, 16>, values: Ptr<f16, 16>, state: Ptr<u32, 16>,
        out: Ptr<f32, 16>,
        context: u32, head_dim: Multiple = 8, group: u32, scale: f32,
        window: Option<u32> = limited.then_some(()),
        cap: Option<f32> = limited.then_some(()),
    }
}

pub(crate) fn kernel(dims: u32, split: bool, limited: bool) -> Kernel {
    let k = Kernel::new(&format!("attention_{}{}{dims}", infix(limited), if split { "split_" } else { "" }));
    k.max_threads(THREADS);
    let p = Attention::declare(&k, limited);
    let limits = Limits::new(&k, (p.window, p.cap));

    let shared_q = k.shared::<f32>(dims);
    let meeting = Meeting::new(&k, dims);
    let (tid, lane) = (k.special(Special::TidX), k.special(Special::LaneId));
    let warp = k.shr(tid, 5);
    let (head, share) = (k.special(Special::CtaidX), k.special(Special::CtaidY));
    let positions = k.add(k.load(p.state), 1);

    // Scores are in units of log2: exp2 is the softmax's exponential.
    let scale = k.mul(p.scale, std::f32::consts::LOG2_E);
    let query = k.row(p.q, head, p.head_dim);
    k.for_(tid, p.head_dim.reg(), THREADS, |d: Reg<u32>| {
        k.store(k.at(shared_q, d), k.mul(k.load(k.at(query, d)), scale));
    });
    k.sync_threads();

    let first_row = k.mul(k.div(head, p.group), p.context);
    let (key_rows, value_rows) =
        (k.row(p.keys, first_row, p.head_dim), k.row(p.values, first_row, p.head_dim));
    let pairs = dims / 64;
    // The lane's dimensions; past the end of the head they repeat its last ones and are not stored.
    let last = k.sub(p.head_dim.reg(), 2);
    let own: Vec<Reg<u32>> = (0..pairs).map(|i| k.mad(lane, 2u32, 64 * i)).collect();
    let safe: Vec<_> = own.iter().map(|d| k.scale(k.shr(k.min(*d, last), 1), 2)).collect();
    let (max, sum) = (k.var(LOWEST), k.var(0f32));
    let sums: Vec<[Reg<f32>; 2]> = (0..pairs).map(|_| [k.var(0f32), k.var(0f32)]).collect();

    let first = limits.map(|limits| limits.first(&k, positions));
    let first_tile = first_tile(&k, first, (share, warp));
    k.for_(first_tile, positions, k.mul(k.special(Special::NctaidY), 32 * WARPS), |tile: Reg<u32>| {
        // One position per lane.
        let mine = k.add(tile, lane);
        let inside = is_seen(&k, mine, (first, positions));
        let newest = k.sub(positions, 1);
        let row = k.row(key_rows, k.min(mine, newest), p.head_dim);
        let score = Limits::apply(limits, &k, dot_row(&k, row, shared_q, p.head_dim.reg()));
        let weight = weigh(&k, score, inside, (max, sum), sums.iter().flatten());
        // Two dimensions per lane, four positions at a time; weights past the end are 0.
        let count = k.min(k.sub(positions, tile), 32u32);
        k.for_(0u32, count, 4u32, |i: Reg<u32>| {
            let rows: Vec<_> = (0..4u32)
                .map(|n| {
                    let at = k.add(i, n);
                    let row = k.row(value_rows, k.min(k.add(tile, at), newest), p.head_dim);
                    let values: Vec<Reg<F16x2>> =
                        safe.iter().map(|d| k.load(k.at(row, *d).cast::<F16x2>())).collect();
                    (k.broadcast(weight, at), values)
                })
                .collect();
            for (weight, values) in rows {
                for (pair, [a, b]) in values.into_iter().zip(&sums) {
                    let (lo, hi) = k.unpack(pair);
                    k.mad_to(*a, weight, k.convert::<f16, f32>(lo), *a);
                    k.mad_to(*b, weight, k.convert::<f16, f32>(hi), *b);
                }
            }
        });
    });

    let mine = meeting.place(&k, warp);
    for (d, [a, b]) in own.iter().zip(&sums) {
        k.store_n(k.at(mine, k.scale(k.shr(*d, 1), 2)), &[*a, *b]);
    }
    meeting.merge(&k, (max, sum), (head, share), p.head_dim, p.out, split);
    k
}

/// The first position of a warp: a tile of 32, from the `first` one that is seen on.
pub(crate) fn first_tile(
    k: &Kernel,
    first: Option<Reg<u32>>,
    (share, warp): (Reg<u32>, Reg<u32>),
) -> Reg<u32> {
    let tile = k.mul(k.mad(share, WARPS, warp), 32u32);
    first.map_or(tile, |first| k.add(tile, k.and(first, !31u32)))
}

/// Whether position `mine` is seen: from `first` on, and below `positions`.
pub(crate) fn is_seen(k: &Kernel, mine: Reg<u32>, (first, positions): (Option<Reg<u32>>, Reg<u32>)) -> Pred {
    let inside = k.lt(mine, positions);
    first.map_or(inside, |first| k.both(inside, k.ge(mine, first)))
}

/// The weight of this lane's `score`, 0 if it is not `inside`. Updates the warp's largest score `max`, and
/// rescales the lane's sum of weights `sum` and its weighted `sums` to it.
pub(crate) fn weigh<'a>(
    k: &Kernel,
    score: Reg<f32>,
    inside: Pred,
    (max, sum): (Reg<f32>, Reg<f32>),
    sums: impl Iterator<Item = &'a Reg<f32>>,
) -> Reg<f32> {
    let score = k.select(inside, score, LOWEST);
    let higher = k.max(max, k.warp_max(score));
    let weight = k.select(inside, k.exp2(k.sub(score, higher)), 0f32);
    let shrink = k.exp2(k.sub(max, higher));
    k.set(max, higher);
    k.set(sum, k.mad(sum, shrink, weight));
    for s in sums {
        k.set(*s, k.mul(*s, shrink));
    }
    weight
}

/// Shared memory in which the warps of a block merge their results.
pub(crate) struct Meeting {
    dims: u32,
    values: Pointer<Shared, f32>,
    max: Pointer<Shared, f32>,
    sum: Pointer<Shared, f32>,
}

impl Meeting {
    pub(crate) fn new(k: &Kernel, dims: u32) -> Self {
        let values = k.shared::<f32>(WARPS * dims);
        let (max, sum) = (k.shared::<f32>(WARPS), k.shared::<f32>(WARPS));
        Self { dims, values, max, sum }
    }

    /// The place for the weighted sums of values of warp `warp`.
    pub(crate) fn place(&self, k: &Kernel, warp: Reg<u32>) -> Pointer<Shared, f32> {
        k.at(self.values, k.scale(warp, self.dims))
    }

    /// Merges what the warps have stored in their places, with each lane's largest score `max` (equal within
    /// a warp) and sum of weights `sum`, and writes it: the result of the head, or of one share of it.
    pub(crate) fn merge(
        &self,
        k: &Kernel,
        (max, sum): (Reg<f32>, Reg<f32>),
        (head, share): (Reg<u32>, Reg<u32>),
        head_dim: Multiple,
        out: Pointer<Global, f32>,
        split: bool,
    ) {
        let tid = k.special(Special::TidX);
        let warp = k.shr(tid, 5);
        let total = k.warp_sum(sum);
        k.if_(k.eq(k.and(tid, 31), 0), || {
            k.store(k.at(self.max, warp), max);
            k.store(k.at(self.sum, warp), total);
        });
        k.sync_threads();
        let maxima = k.load_with(self.max, WARPS, Cache::Default);
        let top = maxima.iter().copied().reduce(|a, b| k.max(a, b)).unwrap_or(max);
        let factors: Vec<_> = maxima.into_iter().map(|m| k.exp2(k.sub(m, top))).collect();
        let totals = k.load_with(self.sum, WARPS, Cache::Default);
        let total = k.var(0f32);
        for (t, f) in totals.into_iter().zip(&factors) {
            k.mad_to(total, t, *f, total);
        }
        let partial =
            k.row(out, k.mad(head, k.special(Special::NctaidY), share), partial_pitch(k, head_dim.reg()));
        k.for_(tid, head_dim.reg(), THREADS, |d: Reg<u32>| {
            let value = k.var(0f32);
            for (w, f) in (0i64..).zip(&factors) {
                k.mad_to(value, k.load(k.at(self.values.plus(w * i64::from(self.dims)), d)), *f, value);
            }
            if split {
                k.store(k.at(partial.plus(2), d), value);
            } else {
                let len = k.mul(k.special(Special::NctaidX), head_dim.reg());
                let index = k.mad(head, head_dim.reg(), d);
                k.store(k.at(out, striped_index(k, index, k.shr(len, 2))), k.div(value, total));
            }
        });
        if split {
            k.if_(k.eq(tid, 0), || {
                k.store(partial, top);
                k.store(partial.plus(1), total);
            });
        }
    }
}

/// The dot product of a cached row with the query in shared memory, eight dimensions at a time.
fn dot_row(
    k: &Kernel,
    row: Pointer<Global, f16>,
    query: Pointer<Shared, f32>,
    head_dim: Reg<u32>,
) -> Reg<f32> {
    let score = k.var(0f32);
    k.for_(0u32, k.shr(head_dim, 3), 1u32, |i: Reg<u32>| {
        let d = k.scale(i, 8);
        let key = k.load_with(k.at(row, d).cast::<F16x2>(), 4, Cache::Default);
        let q = k.load_with(k.at(query, d), 8, Cache::Default);
        for (pair, q) in key.into_iter().zip(q.chunks(2)) {
            let (lo, hi) = k.unpack(pair);
            k.mad_to(score, k.convert::<f16, f32>(lo), q[0], score);
            k.mad_to(score, k.convert::<f16, f32>(hi), q[1], score);
        }
    });
    score
}

kernel_params! {
    /// `attention_combine`: one block per head merges the shares; `out` is striped.
    pub struct Combine { partials: Ptr<f32, 16>, out: Ptr<f32, 16>, head_dim: Multiple = 8, shares: u32 }
}

pub(crate) fn combine() -> Kernel {
    let k = Kernel::new("attention_combine");
    k.max_threads(THREADS);
    let p = Combine::declare(&k);
    let (tid, head) = (k.special(Special::TidX), k.special(Special::CtaidX));
    let words = partial_pitch(&k, p.head_dim.reg());
    let first = k.row(p.partials, k.mul(head, p.shares), words);
    let top = k.var(LOWEST);
    k.for_(0u32, p.shares, 1u32, |s: Reg<u32>| {
        k.set(top, k.max(top, k.load(k.row(first, s, words))));
    });
    let len = k.mul(k.special(Special::NctaidX), p.head_dim.reg());
    k.for_(tid, p.head_dim.reg(), THREADS, |d: Reg<u32>| {
        let (value, total) = (k.var(0f32), k.var(0f32));
        k.for_(0u32, p.shares, 1u32, |s: Reg<u32>| {
            let partial = k.row(first, s, words);
            let factor = k.exp2(k.sub(k.load(partial), top));
            k.mad_to(total, k.load(partial.plus(1)), factor, total);
            k.mad_to(value, k.load(k.at(partial.plus(2), d)), factor, value);
        });
        let index = k.mad(head, p.head_dim.reg(), d);
        k.store(k.at(p.out, striped_index(&k, index, k.shr(len, 2))), k.div(value, total));
    });
    k
}
