//! Attention over many positions: a block takes a share of the positions of up to four query heads that share
//! keys and values, and a warp takes all of these heads, so that a row of the cache is read once.

use ptxgen::{Cache, Multiple, Pointer, Pred, Reg, Shared, Shuffle, Target};

use crate::cache::CacheType;
use crate::kernels::format::Format;
use crate::kernels::heads::LOWEST;
use crate::kernels::stream::block::Stream;
use crate::kernels::stream::cached::{Caches, Pieces, Row};
use crate::kernels::stream::layout::CONSUMERS;
use crate::kernels::stream::record::at;
use crate::kernels::stream::share::{Heads, Share, Sum, added_across};
use crate::kernels::stream::task::HEADS_TOGETHER;

/// Heads of a warp.
const HEADS: usize = HEADS_TOGETHER as usize;
/// Values of a row in a lane: a piece of a cache in f16.
const VALUES: usize = 8;

/// The part of a row that is loaded.
#[derive(Clone, Copy)]
enum Part {
    Keys,
    Values,
}

/// The rows of a key and value head that are read.
struct Place<'a> {
    caches: &'a Caches,
    /// The lane's pieces of the rows.
    pieces: Pieces,
    /// Positions before this one are in the cache.
    end: Reg<u32>,
    /// The next position of a lane is this much later.
    stride: u32,
}

impl Stream<'_> {
    /// The consumer's part of a share in a cache in f16, whose rows lie in `1 << LOG2` lanes: the sums of all
    /// heads go to shared memory.
    pub(super) fn gather_far<const LOG2: u32>(&self, s: &Share, h: &Heads) {
        // As many rows together as registers are left for.
        if self.target >= Target::Sm90 && self.variant.formats.len() < Format::ALL.len() {
            self.gather_rows::<LOG2, 3>(s, h);
        } else {
            self.gather_rows::<LOG2, 2>(s, h);
        }
    }

    /// The same, with `ROWS` rows that a lane loads together.
    fn gather_rows<const LOG2: u32, const ROWS: usize>(&self, s: &Share, h: &Heads) {
        let k = self.k;
        let kv = CacheType::F16;
        let slots = 32 >> LOG2;
        let head_dim = self.word(at::HEAD_DIM);
        let pieces = k.shr(head_dim, VALUES.trailing_zeros());
        let own = k.and(self.lane, (1 << LOG2) - 1);
        let inside = k.lt(own, pieces);
        let own = k.select(inside, own, 0u32);
        let dims = k.scale(own, VALUES as u32);
        let caches = self.caches(kv);
        let slot = k.shr(self.lane, LOG2);
        let stride = CONSUMERS * slots;
        let all = stride * ROWS as u32;
        let pieces = self.pieces(h.kv_head, pieces, own);
        let end = k.min(s.end, self.position());
        let place = Place { caches: &caches, pieces, end, stride };
        let rows: [Row; ROWS] = std::array::from_fn(|_| Row::empty(k));
        let first = k.mad(self.warp, slots, s.begin);
        self.fetch_far(&place, Part::Keys, k.add(first, slot), &rows);
        self.fetch_far(&place, Part::Values, k.add(first, slot), &rows);

        let packets = |row: Reg<u32>, head: Reg<u32>| {
            let value = k.add(k.mad(head, head_dim, row), dims.reg());
            self.packet(self.address(at::X), k.shr(value, 2))
        };
        let last = k.sub(h.heads, 1);
        let from: [Pointer<_, u32>; HEADS] =
            std::array::from_fn(|i| packets(k.var(0u32), k.add(h.first, k.min(k.var(i as u32), last))));
        let received = self.receive::<{ 2 * HEADS }>(
            std::array::from_fn(|i| from[i / 2].plus(4 * (i % 2) as i64)),
            self.phase(at::INPUT),
        );
        let scale = k.select(inside, self.number(at::SCALE), 0f32);
        let query: [Vec<Reg<f32>>; HEADS] = std::array::from_fn(|i| {
            received[2 * i..][..2].as_flattened().iter().map(|v| k.var(k.mul(*v, scale))).collect()
        });
        self.stamp(1);
        self.stamp(2);
        let sums: [Sum; HEADS] = std::array::from_fn(|_| Sum::new(k, VALUES));
        k.for_(first, end, all, |tile: Reg<u32>| {
            let tile = k.add(tile, slot);
            let there: [_; ROWS] = std::array::from_fn(|i| k.lt(k.add(tile, i as u32 * stride), end));
            let next = k.add(tile, all);
            let scores = self.scores_far::<LOG2, ROWS>(&query, &rows);
            self.fetch_far(&place, Part::Keys, next, &rows);
            self.add_far(&sums, scores, &rows, there);
            self.fetch_far(&place, Part::Values, next, &rows);
        });
        // The last warp has the fewest rows.
        let newest = k.both(k.le(s.begin, self.position()), k.gt(s.end, self.position()));
        k.if_(k.both(newest, k.eq(self.warp, CONSUMERS - 1)), || {
            let from = [packets(self.word(at::Q_ROWS), h.kv_head), packets(self.word(at::K_ROWS), h.kv_head)];
            let packets = std::array::from_fn(|i| from[i / 2].plus(4 * (i % 2) as i64));
            let values = self.receive::<4>(packets, self.phase(at::INPUT)).concat();
            let row = self.newest(kv, Some([values[..8].to_vec(), values[8..].to_vec()]), from, None);
            let mine = k.eq(slot, 0);
            let piece = place.pieces.of(k, self.position());
            k.if_(k.both(h.caches, k.both(mine, inside)), || self.cache(&caches, piece, &row));
            let row = [row];
            let scores = self.scores_far::<LOG2, 1>(&query, &row);
            self.add_far(&sums, scores, &row, [mine]);
        });
        self.store_far::<LOG2>(&sums, own, inside);
    }

    /// Loads keys or values of positions `first`, `first + stride` and so on, as far as they are cached and in the
    /// share.
    fn fetch_far<const ROWS: usize>(
        &self,
        place: &Place<'_>,
        part: Part,
        first: Reg<u32>,
        rows: &[Row; ROWS],
    ) {
        let k = self.k;
        for (i, row) in (0..).zip(rows) {
            let position = k.add(first, i * place.stride);
            let there = k.lt(position, place.end);
            let (cache, to) = match part {
                Part::Keys => (place.caches.keys, &row.keys),
                Part::Values => (place.caches.values, &row.values),
            };
            let from = k.at_stride(cache, place.pieces.of(k, position), 16);
            k.load_words_where(Some(there), from, &to[..4], Cache::Default);
        }
    }

    /// The scores of rows for all heads, in all lanes that hold them.
    fn scores_far<const LOG2: u32, const N: usize>(
        &self,
        query: &[Vec<Reg<f32>>; HEADS],
        rows: &[Row; N],
    ) -> [[Reg<f32>; N]; HEADS] {
        let k = self.k;
        let mut scores: [[Reg<f32>; N]; HEADS] = [(); HEADS].map(|()| [(); N].map(|()| k.var(0f32)));
        for (i, row) in rows.iter().enumerate() {
            let key = self.pairs(&row.keys[..4]);
            for (scores, query) in scores.iter().zip(query) {
                query.iter().zip(&key).for_each(|(q, x)| k.mad_to(scores[i], *q, *x, scores[i]));
            }
        }
        for bit in 0..LOG2 {
            scores = scores.map(|s| s.map(|s| k.add(s, k.shuffle(s, Shuffle::Xor(1 << bit)))));
        }
        scores
    }

    /// Adds rows with these scores to the sums of all heads, where they are there.
    fn add_far<const N: usize>(
        &self,
        sums: &[Sum; HEADS],
        scores: [[Reg<f32>; N]; HEADS],
        rows: &[Row; N],
        there: [Pred; N],
    ) {
        let k = self.k;
        let weights: [[Reg<f32>; N]; HEADS] = std::array::from_fn(|h| {
            let scores: [Reg<f32>; N] = std::array::from_fn(|i| k.select(there[i], scores[h][i], LOWEST));
            let sum = &sums[h];
            let top = scores.iter().fold(sum.max, |top, score| k.max(top, *score));
            let shrink = k.exp2(k.sub(sum.max, top));
            k.set(sum.max, top);
            k.set(sum.weight, k.mul(sum.weight, shrink));
            sum.values.iter().for_each(|v| k.set(*v, k.mul(*v, shrink)));
            std::array::from_fn(|i| {
                let weight = k.select(there[i], k.exp2(k.sub(scores[i], top)), 0f32);
                k.set(sum.weight, k.add(sum.weight, weight));
                weight
            })
        });
        for (i, row) in rows.iter().enumerate() {
            let value = self.pairs(&row.values[..4]);
            for (sum, weights) in sums.iter().zip(&weights) {
                sum.values.iter().zip(&value).for_each(|(v, x)| k.mad_to(*v, weights[i], *x, *v));
            }
        }
    }

    /// Address of the first warp's results for head `head` of the block.
    pub(super) fn place_far(&self, head: Reg<u32>) -> Pointer<Shared, f32> {
        let k = self.k;
        k.row(self.inputs.cast::<f32>(), k.mul(head, CONSUMERS), self.pitch())
    }

    /// Adds the sums of the warp's lanes and stores them.
    fn store_far<const LOG2: u32>(&self, sums: &[Sum; HEADS], own: Reg<u32>, inside: Pred) {
        let k = self.k;
        // The inputs of the phase before lay there.
        self.sync_consumers();
        for (h, sum) in (0..).zip(sums) {
            let mut top = sum.max;
            for bit in LOG2..5 {
                top = k.max(top, k.shuffle(top, Shuffle::Xor(1 << bit)));
            }
            let shrink = k.exp2(k.sub(sum.max, top));
            let values: Vec<Reg<f32>> = sum.values.iter().map(|v| k.mul(*v, shrink)).collect();
            let mut weight = k.mul(sum.weight, shrink);
            let first = k.var(k.mul(own, VALUES as u32));
            let values = added_across::<LOG2>(k, self.lane, values, first, |across| {
                weight = k.add(weight, k.shuffle(weight, across));
            });
            let place = k.row(self.place_far(k.var(h)), self.warp, self.pitch());
            let count = values.len() as u32;
            let at: Multiple = k.scale(k.shr(first, count.trailing_zeros()), count);
            k.if_(inside, || k.store_n(k.at(place.plus(4), at), &values));
            k.if_(k.eq(self.lane, 0), || k.store_n(place, &[top, weight]));
        }
    }
}
