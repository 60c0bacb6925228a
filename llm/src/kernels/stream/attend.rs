//! Attention of one position over the cache, in split-K parts of the positions, by the consumers.
//!
//! Near the start of a context a block takes one head and all positions (`near`), else a share of the
//! positions of up to four query heads that share keys and values (`far`), which also is the way of caches in q8_0
//! and of models with norms of heads. What the warps have is merged in the block, then (where positions are split) by
//! the block that completes last. The newest position is not read from the cache but received with the query.

use ptxgen::{Atomic, Multiple, Pointer, Reg};

use crate::cache::CacheType;
use crate::kernels::stream::block::Stream;
use crate::kernels::stream::far::ALIGNED;
use crate::kernels::stream::layout::CONSUMERS;
use crate::kernels::stream::near::most;
use crate::kernels::stream::record::{NORMED_HEADS, QUANTIZED, at};
use crate::kernels::stream::share::{Heads, Share, Sum};
use crate::kernels::stream::task::HEADS_TOGETHER;

/// Positions of a share, as a power of two.
const SHARE_LOG2: u32 = 7;
/// Up to this many positions a block takes one head, and positions are not split.
const NEAR: u32 = 256;
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
        self.gather_share(s, &h);
        self.sync_consumers();
        self.merge_share(s, &h);
        self.sync_consumers();
    }

    /// The block's sums over a share, in shared memory.
    fn gather_share(&self, s: &Share, h: &Heads) {
        let k = self.k;
        let of = |kv: CacheType| {
            k.if_else(
                k.le(self.word(at::HEAD_DIM), 64),
                || self.gather_far::<64, 4, 2>(kv, s, h),
                || self.gather_far::<128, 8, 4>(kv, s, h),
            );
        };
        k.if_else(self.is_set(QUANTIZED), || of(CacheType::Q8_0), || of(CacheType::F16));
    }

    /// Merges the results of the block's warps, and, in the block that completes last, those of all split-K
    /// parts. A thread has four dimensions of a head.
    fn merge_share(&self, s: &Share, h: &Heads) {
        let k = self.k;
        let (head_dim, pitch) = (self.word(at::HEAD_DIM), self.pitch());
        let quads_log2 = k.select(k.le(head_dim, 64), 4u32, 5u32);
        let thread = k.mad(self.warp, 32u32, self.lane);
        let own = k.shr(thread, quads_log2);
        let quad = k.sub(thread, k.shl(own, quads_log2));
        let works = k.both(k.lt(own, h.heads), k.lt(quad, k.shr(head_dim, 2)));
        let own = k.min(own, HEADS_TOGETHER - 1);
        let share_words = k.scale(k.shr(k.mul(pitch.reg(), HEADS_TOGETHER), 2), 4);
        let unit_rows = k.mul(s.unit, self.word(at::MOST_SHARES));
        let partials = k.row(self.address::<f32>(at::PARTIALS), unit_rows, share_words);
        let split = k.gt(s.shares, 1);
        let head = k.add(h.first, own);
        let out = |sum: &Sum| {
            let inverse = k.rcp(sum.weight);
            let values = std::array::from_fn(|i| k.mul(sum.values[i], inverse));
            let index = k.mad(head, k.shr(head_dim, 2), quad);
            self.send(self.packet(self.address(at::OUT), index), values, self.phase(at::OUTPUT));
        };
        k.if_(works, || {
            let first = self.place_far(own);
            let sum = self.merge(k.var(CONSUMERS), |warp| k.row(first, warp, pitch), quad);
            k.if_else(
                split,
                || {
                    let to = k.row(k.row(partials, s.share, share_words), own, pitch);
                    k.if_(k.eq(quad, 0), || k.store_n(to, &[sum.max, sum.weight]));
                    k.store_n(k.at(to.plus(4), k.scale(quad, 4)), &sum.values);
                },
                || out(&sum),
            );
        });
        k.if_(split, || {
            let counter = k.at(self.address::<u32>(at::COUNTERS), s.unit);
            let first_thread = k.eq(thread, 0);
            self.sync_consumers();
            k.if_(first_thread, || {
                k.fence();
                let others = k.atomic(counter, Atomic::Add, 1u32);
                k.fence();
                k.store(self.last, others);
            });
            self.sync_consumers();
            k.if_(k.eq(k.add(k.load(self.last), 1), s.shares), || {
                k.if_(works, || {
                    let own = k.row(partials, own, pitch);
                    out(&self.merge(s.shares, |share| k.row(own, share, share_words), quad));
                });
                k.if_(first_thread, || k.store(counter, 0u32));
            });
        });
    }

    /// Words between the results of two warps.
    pub(super) fn pitch(&self) -> Multiple {
        let k = self.k;
        k.plus(k.scale(k.shr(self.word(at::HEAD_DIM), 3), 8), 4)
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
