//! Attention over a share of the positions: a block takes up to four query heads that share keys and values, and a
//! warp takes all of these heads on the tensor cores, so that a row of the cache is read once.

use half::f16;
use ptxgen::{Cache, F16x2, Global, Pointer, Pred, Reg, Shared, Special};

use crate::cache::CacheType;
use crate::kernels::attention::{PIECE, Piece, Rows, TILE, Warp};
use crate::kernels::cache::{PAGE, four_bytes, quantize, scales};
use crate::kernels::stream::block::Stream;
use crate::kernels::stream::layout::CONSUMERS;
use crate::kernels::stream::record::at;
use crate::kernels::stream::share::{Heads, Share};
use crate::kernels::stream::task::HEADS_TOGETHER;

/// Shares begin at multiples of this, so that a tile is of one page.
pub(super) const ALIGNED: u32 = TILE;
/// Values of a piece.
const VALUES_OF_PIECE: usize = PIECE as usize;

/// A lane's pieces of keys or of values.
pub(super) struct Place {
    /// Word of the record that has the address of the cache: held in registers there are too few left.
    cache: i64,
    /// Its first piece of its first row of a page.
    first: Reg<u32>,
    /// Number of that row, and the others of a tile from there on.
    row: Reg<u32>,
    rows: &'static [u32],
    /// Number of its first piece of a row, and how far it is to the next one.
    own: Reg<u32>,
    step: u32,
    /// Whether the head has each of its pieces; `None` where every head has it.
    inside: Vec<Option<Pred>>,
    /// Bits of the numbers of the lanes that have the rest of a block of a cache in q8_0.
    block: [u32; 2],
}

/// The positions of a share that are in the cache.
#[derive(Clone, Copy)]
struct Cached {
    kv: CacheType,
    /// Positions before this one.
    end: Reg<u32>,
}

/// Where a tile is.
struct At {
    /// Its first position.
    tile: Reg<u32>,
    /// The row of that in the cache, asked for before what is computed meanwhile.
    row: Reg<u32>,
}

impl At {
    fn new(s: &Stream<'_>, tile: Reg<u32>, cached: &Cached) -> Self {
        Self { tile: s.k.var(tile), row: s.k.var(s.row_of(tile, cached.end)) }
    }
}

/// Whether there are registers for the values of a tile beside the keys of the next.
const fn loads_ahead(dims: u32) -> bool {
    dims <= 64
}

/// Bytes of a piece.
const fn piece_bytes(kv: CacheType) -> u32 {
    match kv {
        CacheType::F16 => 2 * PIECE,
        CacheType::Q8_0 => PIECE,
    }
}

impl Place {
    /// The lane's pieces: their numbers, the first one's past the end of the head.
    pub fn pieces<'a>(&'a self, s: &'a Stream<'_>) -> impl Iterator<Item = (Reg<u32>, Option<Pred>)> + 'a {
        (0u32..).zip(&self.inside).map(|(i, inside)| {
            let piece = s.k.add(self.own, self.step * i);
            (inside.map_or(piece, |inside| s.k.select(inside, piece, 0u32)), *inside)
        })
    }
}

impl Stream<'_> {
    /// The consumer's part of a share, for heads of up to `DIMS` values (of 128 those of more than 64), of which a lane
    /// has `KEYS` packets of a key and `VALUES` of a value: the sums of all heads go to shared memory.
    pub(super) fn gather_far<const DIMS: u32, const KEYS: usize, const VALUES: usize>(
        &self,
        kv: CacheType,
        s: &Share,
        h: &Heads,
    ) {
        let k = self.k;
        let head_dim = self.word(at::HEAD_DIM);
        let pieces = k.shr(head_dim, PIECE.trailing_zeros());
        // Read anew: what comes of it would else be held in registers by all phases.
        let lane = k.special(Special::LaneId);
        let (g, t) = (k.shr(lane, 2), k.and(lane, 3));
        let head = k.mul(h.kv_head, PAGE);
        let least = if DIMS > 64 { DIMS / 2 } else { 0 };
        let place = |cache, (row, rows), (own, step, count): (Reg<u32>, u32, u32), block| Place {
            cache,
            first: k.mad(k.add(head, row), pieces, own),
            row,
            rows,
            own,
            step,
            inside: (0..count)
                .map(|i| (step * (i + 1) * PIECE > least).then(|| k.lt(k.add(own, step * i), pieces)))
                .collect(),
            block,
        };
        let keys: Place = place(at::KEYS, (g, &[0, 8][..]), (t, 4, Warp::key_pieces(DIMS)), [1, 2]);
        let rows = (k.mul(t, 2u32), &[0, 1, 8, 9][..]);
        let values: Place = place(at::VALUES, rows, (g, 8, Warp::value_pieces(DIMS)), [4, 8]);
        let cached = Cached { kv, end: k.min(s.end, self.position()) };

        let empty = |place: &Place| -> Rows {
            let row = || place.inside.iter().map(|_| -> Piece { std::array::from_fn(|_| k.var(0u32)) });
            Rows { rows: place.rows.iter().map(|_| row().collect()).collect() }
        };
        let (of_keys, of_values) = (empty(&keys), empty(&values));
        let first = k.mad(self.warp, TILE, s.begin);
        if loads_ahead(DIMS) {
            let at = At::new(self, first, &cached);
            self.fetch_ahead(&keys, &cached, &at, &of_keys);
            self.fetch_ahead(&values, &cached, &at, &of_values);
        }
        let own = k.and(g, HEADS_TOGETHER - 1);
        let head = k.add(h.first, k.min(own, k.sub(h.heads, 1)));
        let query = self.receive_far::<KEYS>(&keys, k.mul(head, head_dim));
        self.normalize_pieces(&query, at::WEIGHT, &keys);
        let scale = self.number(at::SCALE);
        let warp = Warp::new(k, kv, (DIMS, !loads_ahead(DIMS)), lane, |piece| {
            let there = k.lt(own, h.heads);
            let there = keys.inside[piece].map_or(there, |inside| k.both(there, inside));
            query[piece].iter().map(|v| k.select(there, k.mul(*v, scale), 0f32)).collect()
        });
        self.stamp(1);
        self.stamp(2);
        let all = TILE * CONSUMERS;
        k.for_(first, cached.end, all, |tile: Reg<u32>| {
            let at = At::new(self, if loads_ahead(DIMS) { k.add(tile, all) } else { tile }, &cached);
            if !loads_ahead(DIMS) {
                self.fetch(&keys, &cached, &at, &of_keys);
            }
            let scores = warp.scores(&of_keys).map(|score| k.var(score));
            match loads_ahead(DIMS) {
                true => self.fetch_ahead(&keys, &cached, &at, &of_keys),
                false => self.fetch(&values, &cached, &at, &of_values),
            }
            k.if_(k.gt(k.add(tile, TILE), cached.end), || {
                let there = warp.positions().map(|position| k.lt(k.add(tile, position), cached.end));
                let hidden = warp.hidden(scores, there);
                scores.iter().zip(hidden).for_each(|(score, hidden)| k.set(*score, hidden));
            });
            warp.add(&[scores], std::slice::from_ref(&of_values));
            if loads_ahead(DIMS) {
                self.fetch_ahead(&values, &cached, &at, &of_values);
            }
        });
        self.add_newest::<KEYS, VALUES>(&warp, &cached, [&keys, &values], (s, h));
        self.store_far(&warp);
    }

    /// Adds the newest position, if it is in the share, and caches it.
    fn add_newest<const KEYS: usize, const VALUES: usize>(
        &self,
        warp: &Warp<'_>,
        cached: &Cached,
        [keys, values]: [&Place; 2],
        (s, h): (&Share, &Heads),
    ) {
        let k = self.k;
        // The last warp has the fewest rows.
        let newest = k.both(k.le(s.begin, self.position()), k.gt(s.end, self.position()));
        k.if_(k.both(newest, k.eq(self.warp, CONSUMERS - 1)), || {
            let kv_head = k.mul(h.kv_head, self.word(at::HEAD_DIM));
            let key = self.receive_far::<KEYS>(keys, k.add(kv_head, self.word(at::Q_ROWS)));
            self.normalize_pieces(&key, at::RESIDUAL, keys);
            let key = self.newest_far(cached.kv, keys, &key);
            let value = self.receive_far::<VALUES>(values, k.add(kv_head, self.word(at::K_ROWS)));
            let value = self.newest_far(cached.kv, values, &value);
            // The lanes that have the tile's first row cache it.
            for (place, row, lanes) in [(keys, &key, k.eq(warp.g, 0)), (values, &value, k.eq(warp.t, 0))] {
                k.if_(k.both(h.caches, lanes), || self.cache_far(place, cached, row));
            }
            let repeated = |row: Vec<Piece>, count: usize| Rows { rows: vec![row; count] };
            let scores = warp.scores(&repeated(key, 2));
            let there = warp.positions().map(|position| k.eq(position, 0));
            warp.add(&[warp.hidden(scores, there)], &[repeated(value, 4)]);
        });
    }

    /// Receives the lane's pieces of a head whose values begin at `first` among queries, keys and values.
    fn receive_far<const PACKETS: usize>(
        &self,
        place: &Place,
        first: Reg<u32>,
    ) -> Vec<[Reg<f32>; VALUES_OF_PIECE]> {
        let k = self.k;
        let packets: Vec<_> = place
            .pieces(self)
            .map(|(piece, _)| self.packet(self.address(at::X), k.shr(k.mad(piece, PIECE, first), 2)))
            .collect();
        let from = std::array::from_fn(|i| packets[i / 2].plus(4 * (i % 2) as i64));
        let received = self.receive::<PACKETS>(from, self.phase(at::INPUT));
        received.as_flattened().as_chunks().0.to_vec()
    }

    /// The lane's first piece of a tile that begins at `row` of the cache, and the pieces of a row.
    fn piece_far(&self, place: &Place, row: Reg<u32>) -> (Reg<u32>, Reg<u32>) {
        let k = self.k;
        let pieces = k.shr(self.word(at::HEAD_DIM), PIECE.trailing_zeros());
        let others = k.mul(k.sub(self.word(at::KV_HEADS), 1), pieces);
        let before = k.and(row, !(PAGE - 1));
        (k.mad(before, others, k.mad(row, pieces, place.first)), pieces)
    }

    /// Loads the rows of a tile, as far as they are cached and in the share; others keep what
    /// they have.
    fn fetch_ahead(&self, place: &Place, cached: &Cached, at: &At, to: &Rows) {
        let k = self.k;
        let ((piece, pieces), row) = (self.piece_far(place, at.row), k.add(at.tile, place.row));
        for (number, to) in place.rows.iter().zip(&to.rows) {
            let there = k.lt(k.add(row, *number), cached.end);
            self.fetch_row(place, cached.kv, k.mad(pieces, *number, piece), Some(there), to);
        }
    }

    /// Loads the rows of a tile, which has some; others are its last one. What the registers
    /// have is of no use meanwhile, so that others can have them.
    fn fetch(&self, place: &Place, cached: &Cached, at: &At, to: &Rows) {
        let k = self.k;
        let (piece, pieces) = self.piece_far(place, at.row);
        // From the lane's first row, which may be past the last.
        let last = k.sub(k.sub(k.sub(cached.end, 1), at.tile), place.row);
        for (number, to) in place.rows.iter().zip(&to.rows) {
            let [number, last] = [k.var(*number), last].map(|v| k.bits::<u32, i32>(v));
            let number = k.bits::<i32, u32>(k.min(number, last));
            for (words, inside) in to.iter().zip(&place.inside) {
                inside.iter().for_each(|_| words.iter().for_each(|word| k.set(*word, 0u32)));
            }
            self.fetch_row(place, cached.kv, k.mad(pieces, number, piece), None, to);
        }
    }

    /// Loads the lane's pieces of a row from piece `piece` of the cache on, if it is `there`.
    fn fetch_row(&self, place: &Place, kv: CacheType, piece: Reg<u32>, there: Option<Pred>, to: &[Piece]) {
        let (k, bytes) = (self.k, piece_bytes(kv));
        let from = k.at_stride(self.address::<u8>(place.cache), piece, bytes);
        let scale = self.scale_far(place, kv, piece);
        for ((i, to), inside) in (0u32..).zip(to).zip(&place.inside) {
            let guard = match (there, *inside) {
                (Some(there), Some(inside)) => Some(k.both(there, inside)),
                (there, inside) => there.or(inside),
            };
            let from = from.plus_bytes((place.step * bytes * i).into());
            k.load_words_where(guard, from, &to[..bytes as usize / 4], Cache::Default);
            if let Some(scale) = scale {
                let from = scale.plus((place.step / 4 * i).into());
                k.load_half_where(guard, from, to[2], Cache::Default);
            }
        }
    }

    /// The scale of the lane's first piece of a row, whose number in the cache is `piece`, in a cache in q8_0.
    fn scale_far(&self, place: &Place, kv: CacheType, piece: Reg<u32>) -> Option<Pointer<Global, f16>> {
        let k = self.k;
        (kv == CacheType::Q8_0).then(|| {
            let at = self.scales_at();
            k.at(scales(k, self.address(place.cache), at), k.shr(piece, 2))
        })
    }

    /// The lane's pieces of the newest row as they are cached, zeros past the end of the head.
    fn newest_far(&self, kv: CacheType, place: &Place, row: &[[Reg<f32>; VALUES_OF_PIECE]]) -> Vec<Piece> {
        let k = self.k;
        let cached = |(values, inside): (&[Reg<f32>; VALUES_OF_PIECE], &Option<Pred>)| -> Piece {
            let words = match kv {
                CacheType::F16 => {
                    std::array::from_fn(|i| k.bits(k.pack_f32(values[2 * i], values[2 * i + 1])))
                }
                CacheType::Q8_0 => {
                    let (scale, quants) = quantize(k, *values, &place.block);
                    let zero = k.convert::<f32, f16>(k.var(0f32));
                    let [a, b] = [0, 4].map(|i| four_bytes(k, std::array::from_fn(|v| quants[i + v]), 0));
                    [a, b, k.bits(k.pack(scale, zero)), k.var(0u32)]
                }
            };
            words.map(|word| inside.map_or(word, |inside| k.select(inside, word, 0u32)))
        };
        row.iter().zip(&place.inside).map(cached).collect()
    }

    /// Stores the lane's pieces of the row of the newest position; those of the tile's first row, whose number is that
    /// of `place`.
    fn cache_far(&self, place: &Place, cached: &Cached, row: &[Piece]) {
        let k = self.k;
        let bytes = piece_bytes(cached.kv);
        let (piece, _) = self.piece_far(place, self.row_of(self.position(), self.position()));
        let to = k.at_stride(self.address::<u8>(place.cache), piece, bytes);
        let scale = self.scale_far(place, cached.kv, piece);
        for ((i, words), inside) in (0u32..).zip(row).zip(&place.inside) {
            let store = || {
                let to = to.plus_bytes((place.step * bytes * i).into()).cast::<u32>();
                k.store_n(to, &words[..bytes as usize / 4]);
                if let Some(to) = scale {
                    // Four pieces are a block.
                    k.if_(k.eq(k.and(place.own, 3), 0), || {
                        let (scale, _) = k.unpack(k.bits::<u32, F16x2>(words[2]));
                        k.store(to.plus((place.step / 4 * i).into()), scale);
                    });
                }
            };
            match inside {
                Some(inside) => k.if_(*inside, store),
                None => store(),
            }
        }
    }

    /// Address of the first warp's results for head `head` of the block.
    pub(super) fn place_far(&self, head: Reg<u32>) -> Pointer<Shared, f32> {
        let k = self.k;
        k.row(self.inputs.cast::<f32>(), k.mul(head, CONSUMERS), self.pitch())
    }

    /// Stores what the warp has of the block's heads.
    fn store_far(&self, warp: &Warp<'_>) {
        let k = self.k;
        // The inputs of the phase before lay there.
        self.sync_consumers();
        for own in warp.results() {
            k.if_(k.lt(own.head, HEADS_TOGETHER), || {
                let place = k.row(self.place_far(own.head), self.warp, self.pitch());
                k.if_(k.eq(warp.g, 0), || k.store_n(place, &[own.max, own.total]));
                for (i, values) in (0u32..).zip(&own.values) {
                    let piece = k.add(warp.g, 8 * i);
                    let to = k.at(place.plus(4), k.scale(piece, PIECE));
                    let inside = k.lt(k.mul(piece, PIECE), self.word(at::HEAD_DIM));
                    k.if_(inside, || {
                        values.chunks_exact(4).zip([0, 4]).for_each(|(four, i)| k.store_n(to.plus(i), four));
                    });
                }
            });
        }
    }
}
