//! Attention of a chunk of prompt tokens over the cache, on the tensor cores: causal, online softmax, no
//! score buffer.
//!
//! A block serves 64 tokens of one query head and one share of the positions, a warp 16 of the tokens. Keys
//! and values pass through shared memory in tiles of positions; the next tile is copied while this one is
//! multiplied. The weights of a tile stay in registers: the lane that has a sum of the first product is the
//! one that needs it as left factor of the second. Split-K parts are merged by a [second kernel](super::shares).

use half::f16;
use ptxgen::{
    Accumulator, F16x2, Global, Kernel, Multiple, Pointer, Pred, Ptr, Reg, Shared, Shuffle, Special, TileA,
    TileB, Transpose, kernel_params,
};

use crate::kernels::cache::{PAGE, row};
use crate::kernels::heads::{HEAD_DIMS, LOWEST};
use crate::kernels::limits::{Limits, infix};
use crate::kernels::prompt::chunk::{COUNT_AT, page};
use crate::kernels::prompt::shares::{Partials, Range, TOKENS, positions};

/// Threads of a block.
pub const THREADS: u32 = 128;

/// Shared memory of a block, in bytes, set by the launch: the queries, and two tiles each of keys and values.
pub const fn shared_bytes(dims: u32) -> u32 {
    2 * dims * (TOKENS + 4 * positions(dims))
}

kernel_params! {
    /// `prompt_attention_DIM` for heads of up to `dims` dimensions, a multiple of 8. `q` is f16
    /// `[token][head][head_dim]`, of whose values the first `head_values` are not zero, and `out`
    /// `[token][head][head_values]`; the caches are in f16, with pages by `tables`, or in order if `in_order` is not
    /// 0; `group` query heads share a key/value head; `scale` is positive. Grid: `[tokens / TOKENS, heads, most
    /// shares]`. Blocks whose positions are in several shares write to `partials` instead of `out`.
    ///
    /// `prompt_attention_limited_DIM` takes two parameters more, `window` and `cap` of
    /// [`limits`](crate::kernels::limits).
    pub struct PromptAttention(limited: bool) {
        q: Ptr<f16, 16>, keys: Ptr<f16, 16>, values: Ptr<f16, 16>, prompt: Ptr<u32, 16>,
        out: Ptr<f16, 16>,
        tables: Ptr<u32, 16>, in_order: u32,
        kv_heads: u32, head_dim: Multiple = 8, head_values: Multiple = 4, group: u32, scale: f32,
        partials: Ptr<f32, 16>,
        window: Option<u32> = limited.then_some(()),
        cap: Option<f32> = limited.then_some(()),
    }
}

pub(crate) fn kernel(dims: u32, limited: bool) -> Kernel {
    let k = Kernel::new(&format!("prompt_attention_{}{dims}", infix(limited)));
    k.max_threads(THREADS);
    if dims == HEAD_DIMS[0] && !limited {
        k.min_blocks_per_sm(4);
    }
    let p = PromptAttention::declare(&k, limited);
    let limits = Limits::new(&k, (p.window, p.cap));
    let lines = Lines { dims };
    let per_tile = positions(dims);

    let (tid, head) = (k.special(Special::TidX), k.special(Special::CtaidY));
    let (lane, warp) = (k.and(tid, 31), k.shr(tid, 5));
    // The blocks with most positions first.
    let block = k.sub(k.sub(k.special(Special::NctaidX), 1), k.special(Special::CtaidX));
    let first = k.mul(block, TOKENS);
    let (start, count) = (k.load(p.prompt), k.load(p.prompt.plus(COUNT_AT)));
    k.exit_if(k.ge(first, count));
    let range = Range::new(&k, dims, first, (start, count), k.special(Special::NctaidZ));
    let share = k.special(Special::CtaidZ);
    k.exit_if(k.ge(share, range.shares));
    let (begin, end) = range.of_share(&k, share);
    let begin = first_seen(&k, limits, begin, (start, first), per_tile);

    let shared = k.dynamic_shared::<f16>();
    let tile_bytes = per_tile * lines.bytes();
    let tiles = shared.plus_bytes(i64::from(TOKENS * lines.bytes()));
    let values_at = i64::from(2 * tile_bytes);
    lines.clear(&k, tid, shared, p.head_dim);

    let token_pitch = times(&k, p.head_dim, k.special(Special::NctaidY));
    let own_q = k.row(p.q, head, p.head_dim);
    lines.copy(&k, shared, TOKENS, p.head_dim, |line| {
        k.at(own_q, times(&k, token_pitch, k.min(k.add(first, line), k.sub(count, 1))))
    });
    let kv_head = k.div(head, p.group);
    let newest = k.sub(end, 1);
    // All positions of a tile are of one page, whose number is loaded a tile ahead.
    let page_of = |position: Reg<u32>| {
        let number = k.var(k.shr(position, PAGE.trailing_zeros()));
        k.if_(k.eq(p.in_order, 0), || k.set(number, page(&k, p.tables, p.prompt, position)));
        number
    };
    let ahead = k.var(page_of(begin));
    let fetch = |slot: Reg<u32>, position: Reg<u32>| {
        let to = k.at_stride(tiles, slot, tile_bytes);
        let first = row(&k, ahead, (kv_head, p.kv_heads), position);
        let last = k.sub(newest, position);
        for (to, cache) in [(to, p.keys), (to.plus_bytes(values_at), p.values)] {
            let rows = k.row(cache, first, p.head_dim);
            lines.copy(&k, to, per_tile, p.head_dim, |line| {
                k.at(rows, times(&k, p.head_dim, k.min(line, last)))
            });
        }
        k.set(ahead, page_of(k.min(k.add(position, per_tile), newest)));
    };
    let slot = k.var(0u32);
    fetch(slot, begin);
    k.commit_copies();

    let warp = Warp::new(&k, lines, (lane, warp), (p.scale, limits), (start, first));
    k.wait_copies(0);
    k.sync_threads();
    warp.load_queries(shared);
    k.for_(begin, end, per_tile, |position: Reg<u32>| {
        k.wait_copies(0);
        k.sync_threads();
        let here = k.at_stride(tiles, slot, tile_bytes);
        k.set(slot, k.xor(slot, 1));
        let next = k.add(position, per_tile);
        k.if_(k.lt(next, end), || fetch(slot, next));
        k.commit_copies();

        let scores = warp.scores(here);
        warp.cap(&scores);
        k.if_(is_cut(&k, limits, (position, next), (start, first)), || warp.hide(&scores, position));
        let weights = [0, 1].map(|half| warp.weights(half, &scores));
        warp.add_values(here.plus_bytes(values_at), &weights);
    });
    let whole = k.eq(range.shares, 1);
    k.if_else(
        whole,
        || warp.store(k.row(p.out, head, p.head_values), p.head_values, count),
        || warp.store_partials(&Partials::new(&k, p.partials, p.head_dim), (share, head), count),
    );
    k
}

/// The first position that a block computes with, of a share from `begin` on: the tile of the earliest one that its
/// first token sees, number `first` of a chunk at `start`.
fn first_seen(
    k: &Kernel,
    limits: Option<Limits>,
    begin: Reg<u32>,
    (start, first): (Reg<u32>, Reg<u32>),
    per_tile: u32,
) -> Reg<u32> {
    limits.map_or(begin, |limits| {
        let earliest = limits.first(k, k.add(k.add(start, first), 1));
        k.max(begin, k.and(earliest, !(per_tile - 1)))
    })
}

/// Whether a token of a block does not see all of the tile from `position` to `next`. The first token sees the fewest
/// of the last positions, the last token of the first ones.
fn is_cut(
    k: &Kernel,
    limits: Option<Limits>,
    (position, next): (Reg<u32>, Reg<u32>),
    (start, first): (Reg<u32>, Reg<u32>),
) -> Pred {
    let after_first = k.gt(next, k.add(k.add(start, first), 1));
    limits.map_or(after_first, |limits| {
        let latest = limits.first(k, k.add(k.add(start, first), TOKENS));
        k.either(after_first, k.lt(position, latest))
    })
}

/// The state of a warp: 16 tokens of one query head.
struct Warp<'a> {
    k: &'a Kernel,
    lines: Lines,
    lane: Reg<u32>,
    /// From scores to exponents of two: from sums of products, or from what [`Warp::cap`] makes of them.
    scale: Reg<f32>,
    /// The limits, and the scale of sums of products then.
    limits: Option<(Limits, Reg<f32>)>,
    queries: Vec<[Reg<F16x2>; 4]>,
    out_sums: Vec<Accumulator>,
    /// Largest sum of products and sum of weights of the two tokens of which this lane has sums.
    max: [Reg<f32>; 2],
    total: [Reg<f32>; 2],
    /// The first of the two tokens; the other is 8 further on.
    token: Reg<u32>,
    /// The last position that each of the two sees.
    visible: [Reg<u32>; 2],
    query_line: Reg<u32>,
    key_line: Reg<u32>,
    value_line: Reg<u32>,
}

impl<'a> Warp<'a> {
    fn new(
        k: &'a Kernel,
        lines: Lines,
        (lane, warp): (Reg<u32>, Reg<u32>),
        (scale, limits): (Reg<f32>, Option<Limits>),
        (start, first): (Reg<u32>, Reg<u32>),
    ) -> Self {
        // exp2 is the softmax's exponential.
        let scale = k.mul(scale, std::f32::consts::LOG2_E);
        let limits = limits.map(|limits| (limits, scale));
        let scale = if limits.is_some() { k.var(1f32) } else { scale };
        let queries = (0..lines.dims / 16).map(|_| k.matrices()).collect();
        let out_sums = (0..lines.dims / 8).map(|_| k.accumulator()).collect();
        let (max, total) = ([k.var(LOWEST), k.var(LOWEST)], [k.var(0f32), k.var(0f32)]);
        let token = k.add(first, k.mad(warp, 16u32, k.shr(lane, 2)));
        let visible = [k.add(start, token), k.add(start, k.add(token, 8))];
        let query_line = k.mad(warp, 16u32, k.and(lane, 15));
        let key_line = k.bfi(k.shr(lane, 4), k.and(lane, 7), 3, 1);
        let value_line = k.and(lane, 15);
        Self {
            k,
            lines,
            lane,
            scale,
            limits,
            queries,
            out_sums,
            max,
            total,
            token,
            visible,
            query_line,
            key_line,
            value_line,
        }
    }

    fn load_queries(&self, shared: Pointer<Shared, f16>) {
        let k = self.k;
        for (s, to) in (0u32..).zip(&self.queries) {
            let piece = k.add(k.shr(self.lane, 4), 2 * s);
            k.load_matrices(*to, self.lines.piece(k, shared, self.query_line, piece), Transpose::No);
        }
    }

    /// The products of the queries with the tile of keys at `keys`.
    fn scores(&self, keys: Pointer<Shared, f16>) -> Vec<Accumulator> {
        let (k, lines) = (self.k, self.lines);
        let scores: Vec<Accumulator> = (0..positions(lines.dims) / 8).map(|_| k.accumulator()).collect();
        for (s, query) in (0u32..).zip(&self.queries) {
            let piece = k.add(k.bfe(self.lane, 3, 1), 2 * s);
            let corner = lines.piece(k, keys, self.key_line, piece);
            for (i, pair) in (0i64..).zip(scores.chunks_exact(2)) {
                let key = k.matrices();
                k.load_matrices(key, corner.plus_bytes(16 * i * i64::from(lines.bytes())), Transpose::No);
                k.multiply(pair[0], TileA(*query), TileB([key[0], key[1]]));
                k.multiply(pair[1], TileA(*query), TileB([key[2], key[3]]));
            }
        }
        scores
    }

    /// Scales sums of products and caps them, where there are limits.
    fn cap(&self, scores: &[Accumulator]) {
        let k = self.k;
        let Some((limits, scale)) = self.limits else { return };
        for score in scores.iter().flat_map(|score| score.0) {
            k.set(score, limits.capped(k, k.mul(score, scale)));
        }
    }

    /// Takes the scores of positions that a token does not see out of the tile that begins at `position`.
    fn hide(&self, scores: &[Accumulator], position: Reg<u32>) {
        let k = self.k;
        let first = |visible: Reg<u32>| self.limits.map(|(limits, _)| limits.first(k, k.add(visible, 1)));
        let earliest = self.visible.map(first);
        // Two scores of each of two tokens per fragment.
        let column = k.mad(k.and(self.lane, 3), 2u32, position);
        for (i, score) in (0u32..).zip(scores) {
            for (n, score) in (0u32..).zip(score.0) {
                let (place, token) = (k.add(column, 8 * i + n % 2), n as usize / 2);
                let hidden = k.gt(place, self.visible[token]);
                let hidden = earliest[token].map_or(hidden, |first| k.either(hidden, k.lt(place, first)));
                k.set(score, k.select(hidden, f32::NEG_INFINITY, score));
            }
        }
    }

    /// The weights of the tile's positions for one of the lane's two tokens.
    fn weights(&self, half: usize, scores: &[Accumulator]) -> Vec<Reg<F16x2>> {
        let k = self.k;
        let (max, total) = (self.max[half], self.total[half]);
        let pairs = || scores.iter().map(|score| [score.0[2 * half], score.0[2 * half + 1]]);
        // At least a finite number, so that a token that sees nothing of the tile has weights of zero.
        let top = pairs().flatten().fold(max, |a, b| k.max(a, b));
        let top = k.max(top, k.shuffle(top, Shuffle::Xor(1)));
        let top = k.max(top, k.shuffle(top, Shuffle::Xor(2)));
        let shrink = k.exp2_flushed(k.mul(k.sub(max, top), self.scale));
        let offset = k.min(k.neg(k.mul(top, self.scale)), f32::MAX);
        k.set(max, top);
        k.set(total, k.mul(total, shrink));
        for sum in &self.out_sums {
            for n in 0..2 {
                k.set(sum.0[2 * half + n], k.mul(sum.0[2 * half + n], shrink));
            }
        }
        let weight = |pair: [Reg<f32>; 2]| {
            let [a, b] = pair.map(|score| k.exp2_flushed(k.mad(score, self.scale, offset)));
            k.add_to(total, k.add(a, b));
            k.pack_f32(a, b)
        };
        pairs().map(weight).collect()
    }

    /// Adds the tile of values at `values`, weighted.
    fn add_values(&self, values: Pointer<Shared, f16>, weights: &[Vec<Reg<F16x2>>; 2]) {
        let k = self.k;
        for s in 0..positions(self.lines.dims) / 16 {
            let [a, b] = [2 * s as usize, 2 * s as usize + 1];
            let weight = TileA([weights[0][a], weights[1][a], weights[0][b], weights[1][b]]);
            for (i, sums) in (0u32..).zip(self.out_sums.chunks_exact(2)) {
                let line = k.add(self.value_line, 16 * s);
                let piece = k.add(k.shr(self.lane, 4), 2 * i);
                let value = k.matrices();
                k.load_matrices(value, self.lines.piece(k, values, line, piece), Transpose::Yes);
                k.multiply(sums[0], weight, TileB([value[0], value[1]]));
                k.multiply(sums[1], weight, TileB([value[2], value[3]]));
            }
        }
    }

    /// The sum of weights of one of the lane's two tokens over the lanes that share it.
    fn whole_total(&self, half: u32) -> Reg<f32> {
        let k = self.k;
        let total = self.total[half as usize];
        let total = k.add(total, k.shuffle(total, Shuffle::Xor(1)));
        k.add(total, k.shuffle(total, Shuffle::Xor(2)))
    }

    /// Stores the sums of one share of the positions, of tokens below `count`.
    fn store_partials(&self, partials: &Partials, (share, head): (Reg<u32>, Reg<u32>), count: Reg<u32>) {
        let k = self.k;
        let quarter = k.and(self.lane, 3);
        for half in 0..2u32 {
            let (max, total) = (k.mul(self.max[half as usize], self.scale), self.whole_total(half));
            let token = k.add(self.token, 8 * half);
            k.if_(k.lt(token, count), || {
                let heads = k.special(Special::NctaidY);
                let to = partials.of(k, (share, count), token, (head, heads));
                k.if_(k.eq(quarter, 0), || k.store_n(to, &[max, total]));
                let to = k.at(to.plus(2), k.scale(quarter, 2));
                for (i, sum) in (0u32..).zip(&self.out_sums) {
                    let pair = [sum.0[2 * half as usize], sum.0[2 * half as usize + 1]];
                    let inside = k.gt(partials.head_dim.reg(), 8 * i);
                    k.if_(inside, || k.store_n(to.plus(8 * i64::from(i)), &pair));
                }
            });
        }
    }

    /// Stores the results of tokens below `count`.
    fn store(&self, own_out: Pointer<Global, f16>, head_values: Multiple, count: Reg<u32>) {
        let k = self.k;
        let dim = k.scale(k.and(self.lane, 3), 2);
        let token_pitch = k.scale(k.mul(k.halve(head_values, 2).reg(), k.special(Special::NctaidY)), 4);
        for half in 0..2u32 {
            let share = k.div(1f32, self.whole_total(half));
            let token = k.add(self.token, 8 * half);
            k.if_(k.lt(token, count), || {
                let to = k.at(k.row(own_out, token, token_pitch), dim).cast::<F16x2>();
                for (i, sum) in (0u32..).zip(&self.out_sums) {
                    let [a, b] = [0, 1].map(|n| k.mul(sum.0[2 * half as usize + n], share));
                    let inside = k.gt(head_values.reg(), k.add(dim.reg(), 8 * i));
                    k.if_(inside, || k.store(to.plus(4 * i64::from(i)), k.pack_f32(a, b)));
                }
            });
        }
    }
}

/// `value × factor`, a multiple of what divides `value`.
fn times(k: &Kernel, value: Multiple, factor: Reg<u32>) -> Multiple {
    let eighth = k.halve(value, 3).reg();
    k.scale(k.mul(eighth, factor), 8)
}

/// Lines of f16 values in shared memory, in pieces of 16 bytes: eight neighbouring lines have the same piece
/// in eight different sixteenths of 128 bytes.
#[derive(Clone, Copy)]
struct Lines {
    /// Values of a line, at least 64.
    dims: u32,
}

impl Lines {
    const fn bytes(self) -> u32 {
        2 * self.dims
    }

    fn piece(
        self,
        k: &Kernel,
        lines: Pointer<Shared, f16>,
        line: Reg<u32>,
        piece: Reg<u32>,
    ) -> Pointer<Shared, f16> {
        k.at_stride(lines, k.mad(line, self.dims / 8, k.xor(piece, k.and(line, 7))), 16)
    }

    /// Zeroes all shared memory of the block where heads are shorter than the lines: the rest of each line
    /// stays zero.
    fn clear(self, k: &Kernel, tid: Reg<u32>, shared: Pointer<Shared, f16>, head_dim: Multiple) {
        k.if_(k.lt(head_dim.reg(), self.dims), || {
            let zero = k.reg::<u32>();
            k.set(zero, 0u32);
            k.for_(k.mul(tid, 4u32), shared_bytes(self.dims) / 4, 4 * THREADS, |word: Reg<u32>| {
                let at = k.at(shared.cast::<u32>(), k.scale(k.shr(word, 2), 4));
                k.store_n(at, &[zero; 4]);
            });
            k.sync_threads();
        });
    }

    /// Starts to copy `count` lines of `head_dim` values; `source` gives the address of each.
    fn copy(
        self,
        k: &Kernel,
        to: Pointer<Shared, f16>,
        count: u32,
        head_dim: Multiple,
        source: impl Fn(Reg<u32>) -> Pointer<Global, f16>,
    ) {
        let pieces = self.dims / 8;
        let tid = k.special(Special::TidX);
        let (line, piece) = (k.shr(tid, pieces.trailing_zeros()), k.and(tid, pieces - 1));
        let column = k.scale(piece, 8);
        k.if_(k.gt(head_dim.reg(), column.reg()), || {
            let landing = self.piece(k, to, line, piece);
            for first in (0..count).step_by((THREADS / pieces) as usize) {
                let below = k.add(line, first);
                // Eight lines further a piece is in the same place of its line.
                let to = match first % 8 {
                    0 => landing.plus_bytes(i64::from(first * self.bytes())),
                    _ => self.piece(k, to, below, piece),
                };
                k.copy_async(to, k.at(source(below), column), 8);
            }
        });
    }
}
