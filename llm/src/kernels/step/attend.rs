//! Attention of one position over the cache, in shares of the positions.
//!
//! A block takes up to four query heads that share keys and values, a warp one of them: the block reads the
//! cache once for all of them. A few lanes hold one cached row, so a warp works on several positions at once,
//! each with a maximum and a sum of its own. These are merged at the end, first in the warp, then in the
//! block, then (where positions are split) by the block that completes last.

use ptxgen::{Atomic, Cache, Multiple, Pointer, Reg, Shared};

use crate::cache::CacheType;
use crate::kernels::heads::LOWEST;
use crate::kernels::step::block::Step;
use crate::kernels::step::cached::Row;
use crate::kernels::step::record::{QUANTIZED, at};
use crate::kernels::step::task::HEADS_TOGETHER;

/// Positions of a share, as a power of two.
const SHARE_LOG2: u32 = 8;
/// Positions that a lane loads together.
const TOGETHER: usize = 2;

/// A running softmax: largest score, sum of weights, weighted sum of some dimensions.
struct Sum {
    max: Reg<f32>,
    weight: Reg<f32>,
    values: Vec<Reg<f32>>,
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
}

impl Step<'_> {
    /// An attention phase.
    pub(super) fn attend(&self) {
        let k = self.k;
        let (positions, units) = (k.add(self.position(), 1), self.word(at::UNITS));
        let shares = k.shr(k.add(positions, (1u32 << SHARE_LOG2) - 1), SHARE_LOG2);
        let shares = k.min(shares, self.word(at::MOST_SHARES));
        let split = k.gt(shares, 1);
        let per_share = k.var(positions);
        k.if_(split, || k.set(per_share, k.div(k.add(positions, k.sub(shares, 1)), shares)));
        let items = k.mul(units, shares);
        // A block without work does not wait.
        k.if_(k.lt(self.block, items), || self.wait());
        self.stamp(1);
        self.stamp(2);
        k.for_(self.block, items, self.blocks, |item: Reg<u32>| {
            let share = k.var(0u32);
            k.if_(split, || k.set(share, k.div(item, units)));
            let unit = k.sub(item, k.mul(share, units));
            let begin = k.mul(share, per_share);
            let end = k.min(positions, k.add(begin, per_share));
            self.attend_share(&Share { unit, share, shares, begin, end });
        });
        self.stamp(3);
    }

    fn attend_share(&self, s: &Share) {
        let k = self.k;
        let head_dim = self.word(at::HEAD_DIM);
        let (group, subgroups) = (self.word(at::GROUP), self.word(at::SUBGROUPS));
        let kv_head = k.var(s.unit);
        k.if_(k.gt(subgroups, 1), || k.set(kv_head, k.div(s.unit, subgroups)));
        let first = k.mul(k.sub(s.unit, k.mul(kv_head, subgroups)), HEADS_TOGETHER);
        let heads = k.min(k.sub(group, first), HEADS_TOGETHER);
        let first_head = k.mad(kv_head, group, first);
        let heads_log2 = self.word(at::HEADS_LOG2);
        let one = k.var(1u32);
        let own_head = k.and(self.warp, k.sub(k.shl(one, heads_log2), 1));
        let (own, warps) = (k.shr(self.warp, heads_log2), k.shr(k.var(self.shape.warps), heads_log2));
        let head = k.add(first_head, k.min(own_head, k.sub(heads, 1)));

        let warp = Warp { kv_head, head, own, warps };
        k.if_else(
            self.is_set(QUANTIZED),
            || self.gather(CacheType::Q8_0, s, &warp),
            || self.gather(CacheType::F16, s, &warp),
        );
        k.sync_threads();

        // A lane merges the results of its head's warps for some dimensions.
        let pitch = self.pitch();
        let share_words = k.mul(pitch.reg(), HEADS_TOGETHER);
        let unit_rows = k.mul(s.unit, self.word(at::MOST_SHARES));
        let partials = k.row(self.address::<f32>(at::PARTIALS), unit_rows, share_words);
        let split = k.gt(s.shares, 1);
        let valid = k.lt(own_head, heads);
        let end = k.select(valid, head_dim, 0u32);
        let (first_dim, dim_step) = (k.mad(own, 32u32, self.lane), k.mul(warps, 32u32));
        k.for_(first_dim, end, dim_step, |d: Reg<u32>| {
            let step = k.mul(pitch.reg(), k.shl(one, heads_log2));
            let first = k.row(self.scratch(), own_head, pitch.reg());
            // At least this many warps have one head.
            let together = self.shape.warps / HEADS_TOGETHER;
            let sum = self.merge(warps, together, |w| k.row(first, w, step), d);
            k.if_else(
                split,
                || {
                    let to = k.row(k.row(partials, s.share, share_words), own_head, pitch.reg());
                    k.if_(k.eq(d, 0), || {
                        k.store(to, sum.max);
                        k.store(to.plus(1), sum.weight);
                    });
                    k.store(k.at(to.plus(4), d), sum.values[0]);
                },
                || self.store_attended(k.mad(head, head_dim, d), &sum),
            );
        });
        k.if_(split, || {
            let counter = k.at(self.address::<u32>(at::COUNTERS), s.unit);
            let last: Pointer<Shared, u32> = self.squares.cast();
            k.sync_threads();
            k.if_(k.eq(self.tid, 0), || {
                k.fence();
                let others = k.atomic(counter, Atomic::Add, 1u32);
                k.fence();
                k.store(last, others);
            });
            k.sync_threads();
            k.if_(k.eq(k.add(k.load(last), 1), s.shares), || {
                k.for_(first_dim, end, dim_step, |d: Reg<u32>| {
                    let own = k.row(partials, own_head, pitch.reg());
                    let sum = self.merge(s.shares, 1, |share| k.row(own, share, share_words), d);
                    self.store_attended(k.mad(head, head_dim, d), &sum);
                });
                k.if_(k.eq(self.tid, 0), || k.store(counter, 0u32));
            });
        });
        k.sync_threads();
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
        let scale = k.select(inside, k.bits::<u32, f32>(self.word(at::SCALE)), 0f32);

        if kv == CacheType::Q8_0 {
            k.if_(k.gt(s.end, self.position()), || self.cache_newest(w.kv_head));
        }
        let first_piece = k.mad(k.mul(w.kv_head, self.word(at::CONTEXT)), pieces, piece);
        let caches = self.caches(kv);
        let two = || -> [Row; TOGETHER] { std::array::from_fn(|_| Row::empty(k)) };
        let (now, next) = (two(), two());
        let stride = k.shl(w.warps, slots_log2);
        let start = k.add(s.begin, k.shl(w.own, slots_log2));
        let fetch_all = |tile: Reg<u32>, to: &[Row; TOGETHER]| {
            let mut position = k.add(tile, slot);
            for row in to {
                let there = k.lt(position, s.end);
                self.fetch(&caches, there, k.mad(position, pieces, first_piece), row);
                position = k.add(position, stride);
            }
        };
        fetch_all(start, &now);
        let query = k.row(self.address::<f32>(at::X), w.head, k.scale(pieces, kv.piece()));
        let query = k.load_with(k.at(query, dims), kv.piece(), Cache::Default);
        let query = self.query(kv, query, scale);

        let values = (0..kv.piece()).map(|_| k.var(0f32)).collect();
        let sum = Sum { max: k.var(LOWEST), weight: k.var(0f32), values };
        let stride_all = k.mul(stride, TOGETHER as u32);
        k.for_(start, s.end, stride_all, |tile: Reg<u32>| {
            fetch_all(k.add(tile, stride_all), &next);
            let scores: [Reg<f32>; TOGETHER] = now.each_ref().map(|row| self.score(&query, &row.keys));
            k.for_(0u32, lanes_log2, 1u32, |log2: Reg<u32>| {
                let other = self.partner(log2);
                scores.iter().for_each(|score| k.set(*score, k.add(*score, k.broadcast(*score, other))));
            });
            let first = k.add(tile, slot);
            let there = [k.lt(first, s.end), k.lt(k.add(first, stride), s.end)];
            let scores: [Reg<f32>; TOGETHER] = std::array::from_fn(|i| k.select(there[i], scores[i], LOWEST));
            let higher = scores.iter().fold(sum.max, |top, score| k.max(top, *score));
            let shrink = k.exp2(k.sub(sum.max, higher));
            k.set(sum.max, higher);
            k.set(sum.weight, k.mul(sum.weight, shrink));
            sum.values.iter().for_each(|v| k.set(*v, k.mul(*v, shrink)));
            for ((row, score), there) in now.iter().zip(scores).zip(there) {
                let weight = k.select(there, k.exp2(k.sub(score, higher)), 0f32);
                k.set(sum.weight, k.add(sum.weight, weight));
                let (weight, numbers) = self.weighted(kv, weight, &row.values);
                for (v, x) in sum.values.iter().zip(numbers) {
                    k.mad_to(*v, weight, x, *v);
                }
            }
            for (to, from) in now.iter().zip(&next) {
                let words = to.keys.iter().chain(&to.values).zip(from.keys.iter().chain(&from.values));
                words.for_each(|(to, from)| k.set(*to, *from));
            }
        });
        // Merge the positions that the lanes of the warp worked on.
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
        let place = k.row(self.scratch(), self.warp, self.pitch());
        k.if_(k.both(k.eq(slot, 0), inside), || {
            k.if_(k.eq(piece, 0), || k.store_n(place, &[sum.max, sum.weight]));
            k.store_n(k.at(place.plus(4), dims), &sum.values);
        });
    }

    /// Words between the results of two warps.
    fn pitch(&self) -> Multiple {
        let k = self.k;
        k.plus(k.scale(k.shr(self.word(at::HEAD_DIM), 3), 8), 4)
    }

    fn store_attended(&self, index: Reg<u32>, sum: &Sum) {
        let k = self.k;
        self.store_flagged(index, &[k.mul(sum.values[0], k.rcp(sum.weight))]);
    }

    /// The lane whose number differs in bit `log2`.
    fn partner(&self, log2: Reg<u32>) -> Reg<u32> {
        let k = self.k;
        k.xor(self.lane, k.shl(k.var(1u32), log2))
    }

    fn scratch(&self) -> Pointer<Shared, f32> {
        self.inputs.cast()
    }

    /// Merges `count` results for dimension `d`, in order, `together` at once, which divides `count`.
    fn merge<S: ptxgen::Space>(
        &self,
        count: Reg<u32>,
        together: u32,
        place: impl Fn(Reg<u32>) -> Pointer<S, f32>,
        d: Reg<u32>,
    ) -> Sum {
        let k = self.k;
        let all = Sum { max: k.var(LOWEST), weight: k.var(0f32), values: vec![k.var(0f32)] };
        k.for_(0u32, count, together, |first: Reg<u32>| {
            let parts: Vec<_> = (0..together)
                .map(|i| {
                    let from = place(k.add(first, i));
                    (k.load(from), k.load(from.plus(1)), k.load(k.at(from.plus(4), d)))
                })
                .collect();
            let higher = parts.iter().fold(all.max, |top, part| k.max(top, part.0));
            let shrink = k.exp2(k.sub(all.max, higher));
            k.set(all.max, higher);
            k.set(all.weight, k.mul(all.weight, shrink));
            k.set(all.values[0], k.mul(all.values[0], shrink));
            for (max, weight, value) in parts {
                let factor = k.exp2(k.sub(max, higher));
                k.mad_to(all.weight, weight, factor, all.weight);
                k.mad_to(all.values[0], value, factor, all.values[0]);
            }
        });
        all
    }
}
