//! Attention over few positions: a block takes one query head and all positions, and waits for nothing but the
//! query and the newest key and value.
//!
//! Lanes share rows as in `attend`, but everything that does not depend on the number of positions is known
//! when the code is generated. Rows are scored together before any is weighted: one maximum for the whole warp.

use ptxgen::{Cache, Pred, Reg, Shuffle};

use crate::cache::CacheType;
use crate::kernels::cache::PAGE;
use crate::kernels::heads::LOWEST;
use crate::kernels::stream::block::Stream;
use crate::kernels::stream::cached::{Caches, Row};
use crate::kernels::stream::layout::CONSUMERS;
use crate::kernels::stream::record::at;
use crate::kernels::stream::share::{Sum, added_across};

/// Rows that a lane loads together.
const ROWS: usize = 4;
/// Values of a row in a lane: a piece of a cache in f16.
const VALUES: usize = 8;
/// The barrier at which consumers meet.
const MEET: u32 = 1;

/// A head's rows in the cache, and the lane's place in them.
struct Place<'a> {
    caches: &'a Caches,
    /// The lane's piece of the head's first row in the first page, and pieces of a row.
    piece: Reg<u32>,
    pieces: Reg<u32>,
    /// The next position of a lane is this much later.
    stride: u32,
}

/// Positions that `1 << log2` lanes per row take: two rounds of rows, no more than the first page has.
pub(super) const fn most(log2: u32) -> u32 {
    2 * ROWS as u32 * CONSUMERS * (32 >> log2)
}

impl Stream<'_> {
    /// Attention of the block's heads over at most [`most`] positions in a cache in f16, whose rows lie in
    /// `1 << LOG2` lanes.
    pub(super) fn attend_near<const LOG2: u32>(&self) {
        let k = self.k;
        let heads = k.mul(self.word(at::KV_HEADS), self.word(at::GROUP));
        k.for_(self.block(), heads, self.blocks(), |head: Reg<u32>| {
            self.gather_near::<LOG2>(head);
            let reads = k.lt(k.mad(self.warp, 32u32, self.lane), self.word(at::OUT_QUADS));
            k.if_else(
                k.eq(self.warp, 0),
                || {
                    k.sync_named(MEET, 32 * CONSUMERS);
                    k.if_(reads, || self.merge_warps(head));
                },
                || k.arrive_named(MEET, 32 * CONSUMERS),
            );
            // The results are read before others are written in their place. Those of the next layer depend on
            // what is sent here.
            k.if_(k.lt(k.add(head, self.blocks()), heads), || self.sync_consumers());
        });
        self.stamp(3);
    }

    /// Loads the rows of positions `first`, `first + stride` and so on, as far as they are cached.
    fn fetch_near(&self, place: &Place<'_>, first: Reg<u32>, rows: &[Row; ROWS]) {
        let k = self.k;
        for (i, row) in (0..).zip(rows) {
            let position = k.add(first, i * place.stride);
            let there = k.lt(position, self.position());
            self.fetch_both(place.caches, there, k.mad(position, place.pieces, place.piece), row);
        }
    }

    /// The warp's part of a head, which goes to shared memory.
    fn gather_near<const LOG2: u32>(&self, head: Reg<u32>) {
        let k = self.k;
        let kv = CacheType::F16;
        let slots = 32 >> LOG2;
        let stride = CONSUMERS * slots;
        let head_dim = self.word(at::HEAD_DIM);
        let pieces = k.shr(head_dim, VALUES.trailing_zeros());
        let own = k.and(self.lane, (1 << LOG2) - 1);
        let inside = k.lt(own, pieces);
        let own = k.select(inside, own, 0u32);
        let dims = k.scale(own, VALUES as u32);
        let kv_head = k.div(head, self.word(at::GROUP));
        let in_group = k.sub(head, k.mul(kv_head, self.word(at::GROUP)));
        let caches = self.caches(kv);
        let start = k.mad(self.warp, slots, k.shr(self.lane, LOG2));
        // All positions are in the first page.
        let before = k.mad(k.load(self.pages), self.word(at::KV_HEADS), kv_head);
        let piece = k.mad(k.mul(before, PAGE), pieces, own);
        let place = Place { caches: &caches, piece, pieces, stride };
        let rows = || -> [Row; ROWS] { std::array::from_fn(|_| Row::empty(k)) };
        let (now, next) = (rows(), rows());
        let all = stride * ROWS as u32;
        self.fetch_near(&place, start, &now);
        self.fetch_near(&place, k.add(start, all), &next);
        let position = self.position();
        // The warp in which the newest position has its turn.
        let newest = k.eq(k.and(k.shr(position, slots.trailing_zeros()), CONSUMERS - 1), self.warp);
        let packets = |first_row: Reg<u32>, head: Reg<u32>| {
            let value = k.add(k.mad(head, head_dim, first_row), dims.reg());
            self.packet(self.address(at::X), k.shr(value, 2))
        };
        let from = [
            packets(k.var(0u32), head),
            packets(self.word(at::Q_ROWS), kv_head),
            packets(self.word(at::K_ROWS), kv_head),
        ];
        let scale = k.select(inside, self.number(at::SCALE), 0f32);
        let (query, pieces_of_newest) = self.receive_pieces(kv, newest, from);
        self.stamp(1);
        self.stamp(2);
        let query: Vec<Reg<f32>> = query.into_iter().map(|v| k.mul(v, scale)).collect();
        k.if_(newest, || {
            let row = self.newest(kv, pieces_of_newest, [from[1], from[2]], None);
            for (i, to) in (0..).zip(now.iter().chain(&next)) {
                let here = k.eq(k.add(start, i * stride), position);
                for (to, from) in [(&to.keys, &row.keys), (&to.values, &row.values)] {
                    to[..4].iter().zip(from).for_each(|(to, from)| k.set(*to, k.select(here, *from, *to)));
                }
            }
            let mine = k.eq(k.and(position, slots - 1), k.shr(self.lane, LOG2));
            let first = k.eq(in_group, 0);
            k.if_(k.both(first, k.both(mine, inside)), || {
                self.cache(&caches, k.mad(position, place.pieces, place.piece), &row);
            });
        });
        let sum = Sum::new(k, VALUES);
        self.add_near::<LOG2>(&sum, &query, &now, start, stride, true);
        k.if_(k.ge(position, all), || {
            self.add_near::<LOG2>(&sum, &query, &next, k.add(start, all), stride, false);
        });
        self.store_near::<LOG2>(&sum, own, inside);
    }

    /// Adds rows to a sum, which has some already unless they are the `first`.
    fn add_near<const LOG2: u32>(
        &self,
        sum: &Sum,
        query: &[Reg<f32>],
        rows: &[Row; ROWS],
        start: Reg<u32>,
        stride: u32,
        first: bool,
    ) {
        let k = self.k;
        let mut scores: Vec<Reg<f32>> =
            rows.iter().map(|row| self.dot_pairs(query, &row.keys[..4])).collect();
        for bit in 0..LOG2 {
            scores = scores.into_iter().map(|s| k.add(s, k.shuffle(s, Shuffle::Xor(1 << bit)))).collect();
        }
        let scores: Vec<Reg<f32>> = (0..)
            .zip(scores)
            .map(|(i, s)| k.select(k.le(k.add(start, i * stride), self.position()), s, LOWEST))
            .collect();
        let mut top = scores.iter().copied().reduce(|a, b| k.max(a, b)).unwrap_or(sum.max);
        for bit in LOG2..5 {
            top = k.max(top, k.shuffle(top, Shuffle::Xor(1 << bit)));
        }
        if !first {
            top = k.max(top, sum.max);
            let shrink = k.exp2_flushed(k.sub(sum.max, top));
            [sum.weight].iter().chain(&sum.values).for_each(|v| k.set(*v, k.mul(*v, shrink)));
        }
        k.set(sum.max, top);
        for (row, score) in rows.iter().zip(scores) {
            let weight = k.exp2_flushed(k.sub(score, top));
            k.set(sum.weight, k.add(sum.weight, weight));
            for (v, x) in sum.values.iter().zip(self.pairs(&row.values[..4])) {
                k.mad_to(*v, weight, x, *v);
            }
        }
    }

    /// The lane's part of a score.
    fn dot_pairs(&self, query: &[Reg<f32>], key: &[Reg<u32>]) -> Reg<f32> {
        let k = self.k;
        let score = k.var(0f32);
        query.iter().zip(self.pairs(key)).for_each(|(q, x)| k.mad_to(score, *q, x, score));
        score
    }

    /// Adds the sums of the warp's lanes, which share a maximum, and stores them.
    fn store_near<const LOG2: u32>(&self, sum: &Sum, own: Reg<u32>, inside: Pred) {
        let k = self.k;
        let weight = k.var(sum.weight);
        let first = k.var(k.mul(own, VALUES as u32));
        let values = added_across::<LOG2>(k, self.lane, sum.values.clone(), first, |across| {
            k.set(weight, k.add(weight, k.shuffle(weight, across)));
        });
        let place = k.row(self.scratch, self.warp, self.pitch());
        let count = values.len() as u32;
        k.if_(inside, || {
            let at = k.scale(k.shr(first, count.trailing_zeros()), count);
            k.store_n(k.at(place.plus(4), at), &values);
        });
        k.if_(k.eq(self.lane, 0), || k.store_n(place, &[sum.max, weight]));
    }

    /// Merges the warps' results for the lane's four dimensions and sends them.
    fn merge_warps(&self, head: Reg<u32>) {
        let k = self.k;
        let parts: Vec<_> = (0..CONSUMERS)
            .map(|warp| {
                let from = k.row(self.scratch, k.var(warp), self.pitch());
                let of = k.load_n::<2, _, _>(from, Cache::Default);
                (of, k.load_n::<4, _, _>(k.at(from.plus(4), k.scale(self.lane, 4)), Cache::Default))
            })
            .collect();
        let top = parts.iter().map(|(of, _)| of[0]).reduce(|a, b| k.max(a, b)).unwrap_or(parts[0].0[0]);
        let weight = k.var(0f32);
        let values = [(); 4].map(|()| k.var(0f32));
        for ([max, sum], own) in parts {
            let factor = k.exp2_flushed(k.sub(max, top));
            k.mad_to(weight, sum, factor, weight);
            values.iter().zip(own).for_each(|(v, x)| k.mad_to(*v, x, factor, *v));
        }
        let inverse = k.rcp(weight);
        let to = self.packet(self.address(at::OUT), k.mad(head, self.word(at::OUT_QUADS), self.lane));
        self.send(to, values.map(|v| k.mul(v, inverse)), self.phase(at::OUTPUT));
    }
}
