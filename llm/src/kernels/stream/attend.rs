//! Attention of one position over the cache, in shares of the positions, by the consumers.
//!
//! A block takes up to four query heads that share keys and values, a warp one of them: the block reads the
//! cache once for all of them. Near the start of a context it takes one head, so that more blocks work. A few
//! lanes hold one cached row, so a warp works on several positions at once, each with a maximum and a sum of
//! its own. These are merged at the end, first in the warp, then in the block, then (where positions are split)
//! by the block that completes last. The newest position is not read from the cache but received with the
//! query.

use ptxgen::{Atomic, Multiple, Pointer, Pred, Reg};

use crate::cache::CacheType;
use crate::kernels::heads::LOWEST;
use crate::kernels::stream::block::Stream;
use crate::kernels::stream::cached::{Query, Row};
use crate::kernels::stream::layout::CONSUMERS;
use crate::kernels::stream::record::{QUANTIZED, at};
use crate::kernels::stream::task::HEADS_TOGETHER;

/// Positions of a share, as a power of two.
const SHARE_LOG2: u32 = 7;
/// Up to this many positions a block takes one head, and positions are not split.
const NEAR: u32 = 256;
/// Positions that a lane loads together.
const TOGETHER: usize = 2;
/// Results that are merged together.
const MERGED: u32 = 8;

/// A running softmax: largest score, sum of weights, weighted sum of some dimensions.
struct Sum {
    max: Reg<f32>,
    weight: Reg<f32>,
    values: Vec<Reg<f32>>,
}

/// How a step's attention is divided.
struct Division {
    /// Query heads of a block, as a power of two.
    together_log2: Reg<u32>,
    /// Groups of heads of a key and value head.
    subgroups: Reg<u32>,
    units: Reg<u32>,
}

/// The work of a block: a share of the positions of some heads.
struct Share {
    unit: Reg<u32>,
    share: Reg<u32>,
    shares: Reg<u32>,
    begin: Reg<u32>,
    end: Reg<u32>,
}

/// The work of a warp.
struct Warp {
    kv_head: Reg<u32>,
    head: Reg<u32>,
    /// Number of the warp among the warps of that head, and their count.
    own: Reg<u32>,
    warps: Reg<u32>,
    /// Whether the warp attends to the newest position, and whether it also caches it.
    newest: ptxgen::Pred,
    caches: ptxgen::Pred,
}

impl Stream<'_> {
    /// An attention phase.
    pub(super) fn attend(&self) {
        let k = self.k;
        let positions = k.add(self.position(), 1);
        let near = k.le(positions, NEAR);
        let (group, kv_heads) = (self.word(at::GROUP), self.word(at::KV_HEADS));
        let together_log2 = k.select(near, 0u32, self.word(at::TOGETHER_LOG2));
        let together = k.shl(k.var(1u32), together_log2);
        let subgroups = k.shr(k.sub(k.add(group, together), 1), together_log2);
        let shares = k.shr(k.add(positions, (1u32 << SHARE_LOG2) - 1), SHARE_LOG2);
        let shares = k.select(near, 1u32, k.min(shares, self.word(at::MOST_SHARES)));
        let d = Division { together_log2, subgroups, units: k.mul(kv_heads, subgroups) };
        let split = k.gt(shares, 1);
        let per_share = k.var(positions);
        k.if_(split, || k.set(per_share, k.div(k.add(positions, k.sub(shares, 1)), shares)));
        k.for_(self.block(), k.mul(d.units, shares), self.blocks(), |item: Reg<u32>| {
            let share = k.var(0u32);
            k.if_(split, || k.set(share, k.div(item, d.units)));
            let unit = k.sub(item, k.mul(share, d.units));
            let begin = k.mul(share, per_share);
            let end = k.min(positions, k.add(begin, per_share));
            self.attend_share(&d, &Share { unit, share, shares, begin, end });
        });
        self.stamp(3);
    }

    fn attend_share(&self, d: &Division, s: &Share) {
        let k = self.k;
        let head_dim = self.word(at::HEAD_DIM);
        let one = k.var(1u32);
        let kv_head = k.div(s.unit, d.subgroups);
        let subgroup = k.sub(s.unit, k.mul(kv_head, d.subgroups));
        let first = k.shl(subgroup, d.together_log2);
        let together = k.shl(one, d.together_log2);
        let heads = k.min(k.sub(self.word(at::GROUP), first), together);
        let first_head = k.mad(kv_head, self.word(at::GROUP), first);
        let own_head = k.and(self.warp, k.sub(together, 1));
        let (own, warps) = (k.shr(self.warp, d.together_log2), k.shr(k.var(CONSUMERS), d.together_log2));
        let head = k.add(first_head, k.min(own_head, k.sub(heads, 1)));
        let newest = k.both(k.le(s.begin, self.position()), k.gt(s.end, self.position()));
        let newest = k.both(newest, k.eq(own, 0));
        let caches = k.both(newest, k.eq(k.add(own_head, subgroup), 0));
        let warp = Warp { kv_head, head, own, warps, newest, caches };
        k.if_else(
            self.is_set(QUANTIZED),
            || self.gather(CacheType::Q8_0, s, &warp),
            || self.gather(CacheType::F16, s, &warp),
        );
        self.sync_consumers();

        // A lane merges the results of its head's warps for four dimensions.
        let pitch = self.pitch();
        let share_words = k.mul(pitch.reg(), HEADS_TOGETHER);
        let unit_rows = k.mul(s.unit, self.word(at::MOST_SHARES));
        let partials = k.row(self.address::<f32>(at::PARTIALS), unit_rows, k.scale(k.shr(share_words, 2), 4));
        let split = k.gt(s.shares, 1);
        let valid = k.lt(own_head, heads);
        let end = k.select(valid, k.shr(head_dim, 2), 0u32);
        let (first_quad, step) = (k.mad(own, 32u32, self.lane), k.mul(warps, 32u32));
        let out = |quad: Reg<u32>, sum: &Sum| {
            let inverse = k.rcp(sum.weight);
            let values = std::array::from_fn(|i| k.mul(sum.values[i], inverse));
            let index = k.mad(head, k.shr(head_dim, 2), quad);
            self.send(self.packet(self.address(at::OUT), index), values, self.phase(at::OUTPUT));
        };
        k.for_(first_quad, end, step, |quad: Reg<u32>| {
            let between = k.scale(k.shr(k.shl(pitch.reg(), d.together_log2), 2), 4);
            let first = k.row(self.scratch, own_head, pitch);
            let sum = self.merge(warps, |w| k.row(first, w, between), quad);
            k.if_else(
                split,
                || {
                    let to = k.row(partials, s.share, k.scale(k.shr(share_words, 2), 4));
                    let to = k.row(to, own_head, pitch);
                    k.if_(k.eq(quad, 0), || k.store_n(to, &[sum.max, sum.weight]));
                    k.store_n(k.at(to.plus(4), k.scale(quad, 4)), &sum.values);
                },
                || out(quad, &sum),
            );
        });
        k.if_(split, || {
            let counter = k.at(self.address::<u32>(at::COUNTERS), s.unit);
            let first_thread = k.eq(k.add(self.warp, self.lane), 0);
            self.sync_consumers();
            k.if_(first_thread, || {
                k.fence();
                let others = k.atomic(counter, Atomic::Add, 1u32);
                k.fence();
                k.store(self.last, others);
            });
            self.sync_consumers();
            k.if_(k.eq(k.add(k.load(self.last), 1), s.shares), || {
                k.for_(first_quad, end, step, |quad: Reg<u32>| {
                    let own = k.row(partials, own_head, pitch);
                    let between = k.scale(k.shr(share_words, 2), 4);
                    out(quad, &self.merge(s.shares, |share| k.row(own, share, between), quad));
                });
                k.if_(first_thread, || k.store(counter, 0u32));
            });
        });
        self.sync_consumers();
    }

    /// Attention over the warp's positions; the result goes to its place in shared memory.
    fn gather(&self, kv: CacheType, s: &Share, w: &Warp) {
        let k = self.k;
        let head_dim = self.word(at::HEAD_DIM);
        let lanes_log2 = self.word(at::LANES_LOG2);
        let lanes = k.shl(k.var(1u32), lanes_log2);
        let slots_log2 = k.sub(5u32, lanes_log2);
        let slot = k.shr(self.lane, lanes_log2);
        // The lane's piece of a row; past the end of the head the first piece, with a scale of 0.
        let pieces = k.shr(head_dim, kv.piece().trailing_zeros());
        let piece = k.and(self.lane, k.sub(lanes, 1));
        let inside = k.lt(piece, pieces);
        let piece = k.select(inside, piece, 0u32);
        let dims = k.scale(piece, kv.piece());
        // Scores are in units of log2: exp2 is the softmax's exponential.
        let scale = k.select(inside, self.number(at::SCALE), 0f32);

        let first_piece = k.mad(k.mul(w.kv_head, self.word(at::CONTEXT)), pieces, piece);
        let caches = self.caches(kv);
        let two = || -> [Row; TOGETHER] { std::array::from_fn(|_| Row::empty(k)) };
        let (now, next) = (two(), two());
        let stride = k.shl(w.warps, slots_log2);
        let start = k.add(s.begin, k.shl(w.own, slots_log2));
        let end = k.min(s.end, self.position());
        let fetch_all = |tile: Reg<u32>, to: &[Row; TOGETHER]| {
            let mut position = k.add(tile, slot);
            for row in to {
                let there = k.lt(position, end);
                self.fetch_row(&caches, there, k.mad(position, pieces, first_piece), row);
                position = k.add(position, stride);
            }
        };
        let stride_all = k.mul(stride, TOGETHER as u32);
        fetch_all(start, &now);
        fetch_all(k.add(start, stride_all), &next);
        let place = |first_row: Reg<u32>, head: Reg<u32>| {
            let value = k.add(k.mad(head, head_dim, first_row), dims.reg());
            self.packet(self.address(at::X), k.shr(value, 2))
        };
        let from = [
            place(k.var(0u32), w.head),
            place(self.word(at::Q_ROWS), w.kv_head),
            place(self.word(at::K_ROWS), w.kv_head),
        ];
        let (query, newest) = self.receive_pieces(kv, w.newest, from);
        self.stamp(1);
        self.stamp(2);
        let query = self.query(kv, query, scale);
        let values = (0..kv.piece()).map(|_| k.var(0f32)).collect();
        let sum = Sum { max: k.var(LOWEST), weight: k.var(0f32), values };
        k.if_(w.newest, || {
            let row = self.newest(kv, newest, [from[1], from[2]]);
            let mine = k.eq(slot, 0);
            k.set(sum.max, k.select(mine, self.scored(&query, &row, lanes_log2), LOWEST));
            k.set(sum.weight, k.select(mine, 1f32, 0f32));
            let (weight, numbers) = self.weighted(kv, sum.weight, &row.values);
            sum.values.iter().zip(numbers).for_each(|(v, x)| k.set(*v, k.mul(weight, x)));
            let piece = k.mad(self.position(), pieces, first_piece);
            k.if_(k.both(w.caches, k.both(mine, inside)), || self.cache(&caches, piece, &row));
        });
        k.for_(start, end, stride_all, |tile: Reg<u32>| {
            let scores: [Reg<f32>; TOGETHER] = now.each_ref().map(|row| k.var(self.score(&query, &row.keys)));
            k.for_(0u32, lanes_log2, 1u32, |log2: Reg<u32>| {
                let other = self.partner(log2);
                scores.iter().for_each(|score| k.set(*score, k.add(*score, k.broadcast(*score, other))));
            });
            let first = k.add(tile, slot);
            let there = [k.lt(first, end), k.lt(k.add(first, stride), end)];
            let scores: [Reg<f32>; TOGETHER] = std::array::from_fn(|i| k.select(there[i], scores[i], LOWEST));
            self.add_rows(kv, &sum, &now, scores, there);
            for (to, from) in now.iter().zip(&next) {
                let words = to.keys.iter().chain(&to.values).zip(from.keys.iter().chain(&from.values));
                words.for_each(|(to, from)| k.set(*to, *from));
            }
            fetch_all(k.mad(stride_all, 2u32, tile), &next);
        });
        self.merge_lanes(&sum, lanes_log2);
        let place = k.row(self.scratch, self.warp, self.pitch());
        k.if_(k.both(k.eq(slot, 0), inside), || {
            k.if_(k.eq(piece, 0), || k.store_n(place, &[sum.max, sum.weight]));
            k.store_n(k.at(place.plus(4), dims), &sum.values);
        });
    }

    /// The score of a row, in all lanes that hold it.
    fn scored(&self, query: &Query, row: &Row, lanes_log2: Reg<u32>) -> Reg<f32> {
        let k = self.k;
        let score = k.var(self.score(query, &row.keys));
        k.for_(0u32, lanes_log2, 1u32, |log2: Reg<u32>| {
            k.set(score, k.add(score, k.broadcast(score, self.partner(log2))));
        });
        score
    }

    /// Adds rows of the cache with their scores, where there are any.
    fn add_rows(
        &self,
        kv: CacheType,
        sum: &Sum,
        rows: &[Row; TOGETHER],
        scores: [Reg<f32>; TOGETHER],
        there: [Pred; TOGETHER],
    ) {
        let k = self.k;
        let higher = scores.iter().fold(sum.max, |top, score| k.max(top, *score));
        let shrink = k.exp2(k.sub(sum.max, higher));
        k.set(sum.max, higher);
        k.set(sum.weight, k.mul(sum.weight, shrink));
        sum.values.iter().for_each(|v| k.set(*v, k.mul(*v, shrink)));
        for ((row, score), there) in rows.iter().zip(scores).zip(there) {
            let weight = k.select(there, k.exp2(k.sub(score, higher)), 0f32);
            k.set(sum.weight, k.add(sum.weight, weight));
            let (weight, numbers) = self.weighted(kv, weight, &row.values);
            for (v, x) in sum.values.iter().zip(numbers) {
                k.mad_to(*v, weight, x, *v);
            }
        }
    }

    /// Merges the positions that the lanes of the warp worked on.
    fn merge_lanes(&self, sum: &Sum, lanes_log2: Reg<u32>) {
        let k = self.k;
        k.for_(lanes_log2, 5u32, 1u32, |log2: Reg<u32>| {
            let partner = self.partner(log2);
            let top = k.max(sum.max, k.broadcast(sum.max, partner));
            let shrink = k.exp2(k.sub(sum.max, top));
            k.set(sum.max, top);
            for v in sum.values.iter().chain([&sum.weight]) {
                let own = k.mul(*v, shrink);
                k.set(*v, k.add(own, k.broadcast(own, partner)));
            }
        });
    }

    /// Words between the results of two warps.
    fn pitch(&self) -> Multiple {
        let k = self.k;
        k.plus(k.scale(k.shr(self.word(at::HEAD_DIM), 3), 8), 4)
    }

    /// The lane whose number differs in bit `log2`.
    fn partner(&self, log2: Reg<u32>) -> Reg<u32> {
        let k = self.k;
        k.xor(self.lane, k.shl(k.var(1u32), log2))
    }

    /// Merges `count` results for the four dimensions of `quad`, in order.
    fn merge<S: ptxgen::Space>(
        &self,
        count: Reg<u32>,
        place: impl Fn(Reg<u32>) -> Pointer<S, f32>,
        quad: Reg<u32>,
    ) -> Sum {
        let k = self.k;
        let values = (0..4).map(|_| k.var(0f32)).collect();
        let all = Sum { max: k.var(LOWEST), weight: k.var(0f32), values };
        let last = k.sub(count, 1);
        k.for_(0u32, count, MERGED, |first: Reg<u32>| {
            let parts: Vec<_> = (0..MERGED)
                .map(|i| {
                    let number = k.add(first, i);
                    let from = place(k.min(number, last));
                    let values =
                        k.load_n::<4, _, _>(k.at(from.plus(4), k.scale(quad, 4)), ptxgen::Cache::Default);
                    let max = k.select(k.le(number, last), k.load(from), f32::NEG_INFINITY);
                    (max, k.load(from.plus(1)), values)
                })
                .collect();
            let higher = parts.iter().fold(all.max, |top, part| k.max(top, part.0));
            let shrink = k.exp2(k.sub(all.max, higher));
            k.set(all.max, higher);
            k.set(all.weight, k.mul(all.weight, shrink));
            all.values.iter().for_each(|sum| k.set(*sum, k.mul(*sum, shrink)));
            for (max, weight, values) in parts {
                let factor = k.exp2(k.sub(max, higher));
                k.mad_to(all.weight, weight, factor, all.weight);
                all.values.iter().zip(values).for_each(|(sum, v)| k.mad_to(*sum, v, factor, *sum));
            }
        });
        all
    }
}

/// The scratch memory holds a row per consumer.
const _: () = assert!(CONSUMERS >= HEADS_TOGETHER);
