//! Attention of one position over the cache, in split-K parts of the positions, by the consumers.
//!
//! Near the start of a context a block takes one head and all positions (`near`), else a share of the
//! positions of up to four query heads that share keys and values, and a warp takes all of these heads (`far`).
//! With a cache in q8_0 and in models with norms of heads a warp takes one head up to some positions, which is sooner
//! done with the newest one: a few lanes hold one cached row, so a warp works on several positions at once, each with
//! a maximum and a sum of its own. What lanes and warps have is merged at the end, then (where positions are split)
//! by the block that completes last. The newest position is not read from the cache but received with the query.

use ptxgen::{Atomic, Multiple, Pointer, Pred, Reg};

use crate::cache::CacheType;
use crate::kernels::heads::LOWEST;
use crate::kernels::stream::block::Stream;
use crate::kernels::stream::cached::{Query, Row};
use crate::kernels::stream::far::ALIGNED;
use crate::kernels::stream::head_norm::Piece;
use crate::kernels::stream::layout::CONSUMERS;
use crate::kernels::stream::near::most;
use crate::kernels::stream::record::{NORMED_HEADS, QUANTIZED, at};
use crate::kernels::stream::share::{Heads, Share, Sum};
use crate::kernels::stream::task::HEADS_TOGETHER;

/// Positions of a share, as a power of two.
const SHARE_LOG2: u32 = 7;
/// Up to this many positions a block takes one head, and positions are not split.
const NEAR: u32 = 256;
/// From this position on a warp takes all heads of a block with caches in q8_0 and with norms of heads too; with heads
/// of more than 64 values in q8_0 from the second one on.
const FAR: u32 = 1024;
const FAR_OF_LONG: u32 = 12 * 1024;
/// Positions that a lane loads together.
const TOGETHER: usize = 2;
/// Results that are merged together.
const MERGED: u32 = 8;

/// The division of a step's attention.
struct Division {
    /// Query heads of a block, as a power of two.
    together_log2: Reg<u32>,
    /// Groups of heads of a key and value head.
    subgroups: Reg<u32>,
    units: Reg<u32>,
}

/// A lane's part in merging a head's results of the block: those of `warps` warps, four dimensions at a time.
struct Merge {
    /// Number of the head in the block.
    head: Reg<u32>,
    /// The first four dimensions, and how far it is to the next.
    first: Reg<u32>,
    step: Reg<u32>,
    warps: Reg<u32>,
    /// Shared address of the first warp's result, and words between those of warps.
    base: Reg<u32>,
    between: Reg<u32>,
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
        let general = self.is_set(QUANTIZED | NORMED_HEADS);
        let lanes_log2 = k.select(general, 0u32, self.word(at::LANES_LOG2));
        let takes = |log2| k.both(k.eq(lanes_log2, log2), k.lt(self.position(), most(log2)));
        k.if_else(
            takes(3),
            || self.attend_near::<3>(),
            || k.if_else(takes(4), || self.attend_near::<4>(), || self.attend_shares()),
        );
    }

    /// Attention in split-K parts of the positions.
    fn attend_shares(&self) {
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
        k.if_(split, || {
            let each = k.div(k.add(positions, k.sub(shares, 1)), shares);
            k.set(per_share, k.and(k.add(each, ALIGNED - 1), !(ALIGNED - 1)));
        });
        k.for_(self.block(), k.mul(d.units, shares), self.blocks(), |item: Reg<u32>| {
            let share = k.var(0u32);
            k.if_(split, || k.set(share, k.div(item, d.units)));
            let unit = k.sub(item, k.mul(share, d.units));
            let begin = k.min(positions, k.mul(share, per_share));
            let end = k.min(positions, k.add(begin, per_share));
            self.attend_share(&d, &Share { unit, share, shares, begin, end });
        });
        self.stamp(3);
    }

    fn attend_share(&self, d: &Division, s: &Share) {
        let k = self.k;
        let kv_head = k.div(s.unit, d.subgroups);
        let subgroup = k.sub(s.unit, k.mul(kv_head, d.subgroups));
        let first = k.shl(subgroup, d.together_log2);
        let together = k.shl(k.var(1u32), d.together_log2);
        let heads = k.min(k.sub(self.word(at::GROUP), first), together);
        let first = k.mad(kv_head, self.word(at::GROUP), first);
        let h = Heads { kv_head, first, heads, caches: k.eq(subgroup, 0) };
        let merge = self.gather_share(d, s, &h);
        self.sync_consumers();
        self.merge_share(s, &h, &merge);
        self.sync_consumers();
    }

    /// The block's sums over a share, in shared memory.
    fn gather_share(&self, d: &Division, s: &Share, h: &Heads) -> Merge {
        let k = self.k;
        let pitch = self.pitch().reg();
        let own_head = k.and(self.warp, k.sub(k.shl(k.var(1u32), d.together_log2), 1));
        let own = k.shr(self.warp, d.together_log2);
        let warps = k.shr(k.var(CONSUMERS), d.together_log2);
        let merge = Merge {
            head: k.var(own_head),
            first: k.var(k.mad(own, 32u32, self.lane)),
            step: k.var(k.mul(warps, 32u32)),
            warps: k.var(warps),
            base: k.var(0u32),
            between: k.var(k.shl(pitch, d.together_log2)),
        };
        let long = k.both(self.is_set(QUANTIZED), k.gt(self.word(at::HEAD_DIM), 64));
        let far = k.select(long, FAR_OF_LONG, FAR);
        let soon = k.both(self.is_set(QUANTIZED | NORMED_HEADS), k.lt(self.position(), far));
        let of = |kv: CacheType| {
            k.if_else(
                k.le(self.word(at::HEAD_DIM), 64),
                || self.gather_far::<64, 4, 2>(kv, s, h),
                || self.gather_far::<128, 8, 4>(kv, s, h),
            );
        };
        k.if_else(
            soon,
            || {
                let head = k.add(h.first, k.min(own_head, k.sub(h.heads, 1)));
                let newest = k.both(k.le(s.begin, self.position()), k.gt(s.end, self.position()));
                let newest = k.both(newest, k.eq(own, 0));
                let caches = k.both(newest, k.both(h.caches, k.eq(own_head, 0)));
                let warp = Warp { kv_head: h.kv_head, head, own, warps, newest, caches };
                k.if_else(
                    self.is_set(QUANTIZED),
                    || self.gather(CacheType::Q8_0, s, &warp),
                    || self.gather(CacheType::F16, s, &warp),
                );
                k.set(merge.base, k.address(k.row(self.scratch, own_head, self.pitch())));
            },
            || {
                k.if_else(self.is_set(QUANTIZED), || of(CacheType::Q8_0), || of(CacheType::F16));
                // A thread has four dimensions of a head.
                let quads = k.select(k.le(self.word(at::HEAD_DIM), 64), 4u32, 5u32);
                let thread = k.mad(self.warp, 32u32, self.lane);
                k.set(merge.head, k.shr(thread, quads));
                k.set(merge.first, k.sub(thread, k.shl(merge.head, quads)));
                k.set(merge.step, 32 * CONSUMERS);
                k.set(merge.warps, CONSUMERS);
                k.set(merge.base, k.address(self.place_far(merge.head)));
                k.set(merge.between, pitch);
            },
        );
        merge
    }

    /// Merges the results of the block's warps, and, in the block that completes last, those of all split-K
    /// parts.
    fn merge_share(&self, s: &Share, h: &Heads, m: &Merge) {
        let k = self.k;
        let (quads, pitch) = (self.word(at::OUT_QUADS), self.pitch());
        let share_words = k.scale(k.shr(k.mul(pitch.reg(), HEADS_TOGETHER), 2), 4);
        let unit_rows = k.mul(s.unit, self.word(at::MOST_SHARES));
        let partials = k.row(self.address::<f32>(at::PARTIALS), unit_rows, share_words);
        let split = k.gt(s.shares, 1);
        let end = k.select(k.lt(m.head, h.heads), quads, 0u32);
        let head = k.add(h.first, k.min(m.head, k.sub(h.heads, 1)));
        let out = |quad: Reg<u32>, sum: &Sum| {
            let inverse = k.rcp(sum.weight);
            let values = std::array::from_fn(|i| k.mul(sum.values[i], inverse));
            let index = k.mad(head, quads, quad);
            self.send(self.packet(self.address(at::OUT), index), values, self.phase(at::OUTPUT));
        };
        k.for_(m.first, end, m.step, |quad: Reg<u32>| {
            let between = k.scale(k.shr(m.between, 2), 4);
            let first = k.shared_pointer::<f32>(m.base, 16);
            let sum = self.merge(m.warps, |w| k.row(first, w, between), quad);
            k.if_else(
                split,
                || {
                    let to = k.row(k.row(partials, s.share, share_words), m.head, pitch);
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
                k.for_(m.first, end, m.step, |quad: Reg<u32>| {
                    let own = k.row(partials, m.head, pitch);
                    out(quad, &self.merge(s.shares, |share| k.row(own, share, share_words), quad));
                });
                k.if_(first_thread, || k.store(counter, 0u32));
            });
        });
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

        let rows = self.pieces(w.kv_head, pieces, piece);
        let caches = self.caches(kv);
        let two = || -> [Row; TOGETHER] { std::array::from_fn(|_| Row::empty(k)) };
        let (now, next) = (two(), two());
        let stride = k.shl(w.warps, slots_log2);
        let start = k.add(s.begin, k.shl(w.own, slots_log2));
        let end = k.min(s.end, self.position());
        let positions = |tile: Reg<u32>| -> [Reg<u32>; TOGETHER] {
            let first = k.add(tile, slot);
            std::array::from_fn(|i| k.mad(stride, i as u32, first))
        };
        // Asked for before what is computed meanwhile.
        let places = |tile: Reg<u32>| positions(tile).map(|position| self.row_of(position, self.position()));
        let fetch_all = |tile: Reg<u32>, places: [Reg<u32>; TOGETHER], to: &[Row; TOGETHER]| {
            for ((position, place), row) in positions(tile).into_iter().zip(places).zip(to) {
                self.fetch_both(&caches, k.lt(position, end), rows.of(k, place), row);
            }
        };
        let stride_all = k.mul(stride, TOGETHER as u32);
        fetch_all(start, places(start), &now);
        let second = k.add(start, stride_all);
        fetch_all(second, places(second), &next);
        let place = |first_row: Reg<u32>, head: Reg<u32>| {
            let value = k.add(k.mad(head, head_dim, first_row), dims.reg());
            self.packet(self.address(at::X), k.shr(value, 2))
        };
        let from = [
            place(k.var(0u32), w.head),
            place(self.word(at::Q_ROWS), w.kv_head),
            place(self.word(at::K_ROWS), w.kv_head),
        ];
        let own = Piece { dims, inside, lanes_log2 };
        let (query, newest) = self.receive_pieces(kv, w.newest, from);
        self.stamp(1);
        self.stamp(2);
        self.normalize_piece(&query, at::WEIGHT, own);
        let query = self.query(kv, query, scale);
        let sum = Sum::new(k, kv.piece() as usize);
        k.if_(w.newest, || {
            let row = self.newest(kv, newest, [from[1], from[2]], Some(own));
            let mine = k.eq(slot, 0);
            k.set(sum.max, k.select(mine, self.scored(&query, &row, lanes_log2), LOWEST));
            k.set(sum.weight, k.select(mine, 1f32, 0f32));
            let (weight, numbers) = self.weighted(kv, sum.weight, &row.values);
            sum.values.iter().zip(numbers).for_each(|(v, x)| k.set(*v, k.mul(weight, x)));
            let piece = rows.of(k, self.row_of(self.position(), self.position()));
            k.if_(k.both(w.caches, k.both(mine, inside)), || self.cache(&caches, piece, &row));
        });
        k.for_(start, end, stride_all, |tile: Reg<u32>| {
            let after = k.mad(stride_all, 2u32, tile);
            let places = places(after).map(|place| k.var(place));
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
            fetch_all(after, places, &next);
        });
        self.merge_lanes(&sum, lanes_log2);
        self.store_sum(&sum, slot, inside, (piece, dims));
    }

    /// Stores the warp's sum in shared memory; the lanes of slot 0 have it, a piece of the head each.
    fn store_sum(&self, sum: &Sum, slot: Reg<u32>, inside: Pred, (piece, dims): (Reg<u32>, Multiple)) {
        let k = self.k;
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
        let shrink = k.exp2_flushed(k.sub(sum.max, higher));
        k.set(sum.max, higher);
        k.set(sum.weight, k.mul(sum.weight, shrink));
        sum.values.iter().for_each(|v| k.set(*v, k.mul(*v, shrink)));
        for ((row, score), there) in rows.iter().zip(scores).zip(there) {
            let weight = k.select(there, k.exp2_flushed(k.sub(score, higher)), 0f32);
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
            let shrink = k.exp2_flushed(k.sub(sum.max, top));
            k.set(sum.max, top);
            for v in sum.values.iter().chain([&sum.weight]) {
                let own = k.mul(*v, shrink);
                k.set(*v, k.add(own, k.broadcast(own, partner)));
            }
        });
    }

    /// Words between the results of two warps.
    pub(super) fn pitch(&self) -> Multiple {
        let k = self.k;
        k.plus(k.scale(k.shr(self.word(at::HEAD_DIM), 3), 8), 4)
    }

    /// The lane whose number differs in bit `log2`.
    pub(super) fn partner(&self, log2: Reg<u32>) -> Reg<u32> {
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
        let all = Sum::new(k, 4);
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
            let shrink = k.exp2_flushed(k.sub(all.max, higher));
            k.set(all.max, higher);
            k.set(all.weight, k.mul(all.weight, shrink));
            all.values.iter().for_each(|sum| k.set(*sum, k.mul(*sum, shrink)));
            for (max, weight, values) in parts {
                let factor = k.exp2_flushed(k.sub(max, higher));
                k.mad_to(all.weight, weight, factor, all.weight);
                all.values.iter().zip(values).for_each(|(sum, v)| k.mad_to(*sum, v, factor, *sum));
            }
        });
        all
    }
}

/// The scratch memory holds a row per consumer.
const _: () = assert!(CONSUMERS >= HEADS_TOGETHER);
