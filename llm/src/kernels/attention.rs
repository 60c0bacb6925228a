//! Attention of some query heads over rows of the cache that they share, on the tensor cores: a warp's part, in
//! registers alone.
//!
//! With g = lane / 4 and t = lane % 4 a lane has head g of eight. Both products read the cache as it lies, in pieces
//! of eight values: of a key the lane has pieces t, t + 4 and so on of row g of each eight, of values the pieces g,
//! g + 8 and so on of rows 2t and 2t + 1 of each eight. Which dimension of a head is which of a product's is free,
//! as long as both factors agree.
//!
//! - Scores are `queries x keys`: eight heads, the high halves of their values in rows 0 to 7 and what f16 leaves of
//!   them in rows 8 to 15, times eight positions. So queries have 22 bits. Of four heads both are in rows 0 to 7, and
//!   rows 8 to 15 are the next 16 values, for half of the registers. The lane that has two scores needs them as a
//!   right factor of the next product.
//! - Sums are `values x weights`, 16 dimensions times eight heads. A row of ones gives the sum of the weights, which
//!   so are rounded as those of the values are.
//! - Numbers of a cache in q8_0 are bytes times a scale that is relative to the largest one of a key's row, or of the
//!   same dimensions of values so far: f16 holds them, whatever the scales are.

use half::f16;
use ptxgen::{Accumulator, F16x2, Kernel, Pred, Reg, Shuffle, TileA, TileB};

use crate::cache::CacheType;
use crate::kernels::heads::LOWEST;

/// Most query heads of a warp.
pub const HEADS: u32 = 8;
/// Positions of a tile.
pub const TILE: u32 = 16;
/// Values of a piece.
pub const PIECE: u32 = 8;
/// Less than any scale that f16 has but 0.
const LEAST_SCALE: f32 = 1e-20;
/// A pair of ones in f16.
const ONES: u32 = 0x3c00_3c00;

/// A lane's eight values of a row, as they are cached: in f16, or in q8_0 two words of bytes and a word whose lower
/// half is their scale.
pub(crate) type Piece = [Reg<u32>; 4];

/// The rows of a tile's eight positions of keys, or of its values, in a lane.
pub(crate) struct Rows {
    /// The lane's pieces of a row, in order; of keys those of row g, then of row g + 8; of values those of rows 2t,
    /// 2t + 1, 2t + 8 and 2t + 9.
    pub rows: Vec<Vec<Piece>>,
}

/// A warp's running softmax of its heads.
pub(crate) struct Warp<'a> {
    k: &'a Kernel,
    /// The lane's head and its place among the four lanes of the head.
    pub g: Reg<u32>,
    pub t: Reg<u32>,
    queries: Vec<TileA>,
    /// Whether there are four heads, and lane g has head g modulo 4.
    few: bool,
    /// Largest score of head g, equal in its four lanes.
    max: Reg<f32>,
    /// Sums of weights of heads 2t and 2t + 1.
    total: Accumulator,
    sums: Vec<Accumulator>,
    /// The scale of the sums of each piece of values, of a cache in q8_0.
    scales: Option<Vec<Reg<f32>>>,
}

/// The sums of a head in a lane.
pub(crate) struct OfHead {
    /// Number of the head among those of the warp.
    pub head: Reg<u32>,
    /// Largest score, in units of log2, and the sum of weights.
    pub max: Reg<f32>,
    pub total: Reg<f32>,
    /// The sums of pieces g, g + 8 and so on.
    pub values: Vec<[Reg<f32>; PIECE as usize]>,
}

impl<'a> Warp<'a> {
    /// A warp for heads of up to `dims` values, `few` of them or eight, whose lane is `lane`. `query` gives piece
    /// t + 4i of head g for each i, times the scale of scores in units of log2; zeros past the end of the head, and
    /// of heads that there are not.
    pub fn new(
        k: &'a Kernel,
        kv: CacheType,
        (dims, few): (u32, bool),
        lane: Reg<u32>,
        query: impl Fn(usize) -> Vec<Reg<f32>>,
    ) -> Self {
        let (g, t) = (k.shr(lane, 2), k.and(lane, 3));
        let halves = |pair: &[Reg<f32>]| {
            let high = k.pack_f32(pair[0], pair[1]);
            let (a, b) = k.unpack(high);
            let [a, b] = [a, b].map(|half| k.convert::<f16, f32>(half));
            let low = k.pack_f32(k.sub(pair[0], a), k.sub(pair[1], b));
            let own = [high, low].map(|pair| k.bits::<F16x2, u32>(pair));
            [high, low, k.bits(k.select(k.lt(g, 4), own[0], own[1]))]
        };
        let tiles = |piece: u32| {
            let values = query(piece as usize);
            let pairs: Vec<[Reg<F16x2>; 3]> = values.chunks_exact(2).map(halves).collect();
            let both = |i: usize| TileA([pairs[i][0], pairs[i][1], pairs[i + 1][0], pairs[i + 1][1]]);
            match few {
                false => vec![both(0), both(2)],
                true => vec![TileA([0, 2, 1, 3].map(|i: usize| pairs[i][2]))],
            }
        };
        let queries = (0..dims / 32).flat_map(tiles).collect();
        let sums = (0..dims / 16).map(|_| k.accumulator()).collect();
        let scales = || (0..Self::value_pieces(dims)).map(|_| k.var(LEAST_SCALE)).collect();
        let scales = (kv == CacheType::Q8_0).then(scales);
        Self { k, g, t, queries, few, max: k.var(LOWEST), total: k.accumulator(), sums, scales }
    }

    /// Pieces of a key in a lane.
    pub const fn key_pieces(dims: u32) -> u32 {
        dims / 32
    }

    /// Pieces of a value in a lane.
    pub const fn value_pieces(dims: u32) -> u32 {
        dims / 64
    }

    /// The rows of a tile that a lane has of keys, and those of values.
    pub fn rows(&self) -> ([Reg<u32>; 2], [Reg<u32>; 4]) {
        let k = self.k;
        let first = k.mul(self.t, 2u32);
        ([k.var(self.g), k.add(self.g, 8)], [0, 1, 8, 9].map(|row| k.add(first, row)))
    }

    /// The scores of a tile: for head g those of positions 2t, 2t + 1, 2t + 8 and 2t + 9.
    pub fn scores(&self, keys: &Rows) -> [Reg<f32>; 4] {
        let k = self.k;
        let of = |row: &Vec<Piece>| {
            let largest = self.scales.as_ref().map(|_| {
                let least = k.var(LEAST_SCALE);
                row.iter().fold(least, |largest, piece| k.max(largest, scale(k, piece)))
            });
            let inverse = largest.map(|largest| k.rcp(largest));
            let sums = [k.accumulator(), k.accumulator()];
            let per_piece = self.queries.len() / row.len();
            for (queries, piece) in self.queries.chunks_exact(per_piece).zip(row) {
                let [a, b, c, d] = numbers(k, piece, inverse).map(|word| k.bits::<u32, F16x2>(word));
                k.multiply(sums[0], queries[0], TileB([a, b]));
                match self.few {
                    false => k.multiply(sums[0], queries[1], TileB([c, d])),
                    true => k.multiply(sums[1], queries[0], TileB([c, d])),
                }
            }
            let scores = [0, 1].map(|i| match self.few {
                false => k.add(sums[0].0[i], sums[0].0[i + 2]),
                true => {
                    let own = k.add(sums[0].0[i], sums[1].0[i + 2]);
                    k.add(own, k.shuffle(own, Shuffle::Xor(16)))
                }
            });
            match largest.map(|largest| self.of_two(largest)) {
                Some([a, b]) => [k.mul(scores[0], a), k.mul(scores[1], b)],
                None => scores,
            }
        };
        let [[a, b], [c, d]] = [of(&keys.rows[0]), of(&keys.rows[1])];
        [a, b, c, d]
    }

    /// The numbers in a tile of the positions whose scores a lane has.
    pub fn positions(&self) -> [Reg<u32>; 4] {
        self.rows().1
    }

    /// `scores`, and lower than all others where a position is not `there`.
    pub fn hidden(&self, scores: [Reg<f32>; 4], there: [Pred; 4]) -> [Reg<f32>; 4] {
        std::array::from_fn(|i| self.k.select(there[i], scores[i], LOWEST))
    }

    /// Adds tiles with these scores, of which one at least is that of a position.
    pub fn add(&self, scores: &[[Reg<f32>; 4]], values: &[Rows]) {
        let k = self.k;
        let own = scores.as_flattened().iter().fold(self.max, |top, score| k.max(top, *score));
        let top = k.max(own, k.shuffle(own, Shuffle::Xor(1)));
        let top = k.max(top, k.shuffle(top, Shuffle::Xor(2)));
        k.if_(k.any(k.gt(top, self.max)), || {
            let shrink = k.exp2_flushed(k.sub(self.max, top));
            k.set(self.max, top);
            let factors = self.of_two(shrink);
            for sum in self.sums.iter().chain([&self.total]) {
                sum.0.iter().enumerate().for_each(|(i, v)| k.set(*v, k.mul(*v, factors[i % 2])));
            }
        });
        for (scores, values) in scores.iter().zip(values) {
            let [a, b, c, d] = scores.map(|score| k.exp2_flushed(k.sub(score, self.max)));
            let weights = TileB([k.pack_f32(a, b), k.pack_f32(c, d)]);
            let ones = k.bits::<u32, F16x2>(k.var(ONES));
            k.multiply(self.total, TileA([ones; 4]), weights);
            for (piece, sums) in self.sums.chunks_exact(4).enumerate() {
                let inverse = self.scales.as_ref().map(|scales| {
                    self.raise(scales[piece], sums, values.rows.iter().map(|row| scale(k, &row[piece])));
                    k.rcp(scales[piece])
                });
                let rows: Vec<Piece> =
                    values.rows.iter().map(|row| numbers(k, &row[piece], inverse)).collect();
                // Two dimensions of all four rows.
                for (word, sum) in sums.iter().enumerate() {
                    let pair = |row: usize, half: usize| {
                        let selector = [0x5410u32, 0x7632][half];
                        k.bits::<u32, F16x2>(k.prmt(rows[row][word], rows[row + 1][word], selector))
                    };
                    k.multiply(*sum, TileA([pair(0, 0), pair(0, 1), pair(2, 0), pair(2, 1)]), weights);
                }
            }
        }
    }

    /// Makes `own`, the scale of `sums`, at least the largest of `scales` in the four lanes.
    fn raise(&self, own: Reg<f32>, sums: &[Accumulator], scales: impl Iterator<Item = Reg<f32>>) {
        let k = self.k;
        let top = scales.fold(own, |top, scale| k.max(top, scale));
        let top = k.max(top, k.shuffle(top, Shuffle::Xor(1)));
        let top = k.max(top, k.shuffle(top, Shuffle::Xor(2)));
        k.if_(k.any(k.gt(top, own)), || {
            let shrink = k.div(own, top);
            k.set(own, top);
            sums.iter().flat_map(|sum| sum.0).for_each(|v| k.set(v, k.mul(v, shrink)));
        });
    }

    /// A number of heads 2t and 2t + 1, of lanes that have one of head g.
    fn of_two(&self, of_head: Reg<f32>) -> [Reg<f32>; 2] {
        let k = self.k;
        let first = k.mul(self.t, 8u32);
        [0, 4].map(|lane| k.broadcast(of_head, k.add(first, lane)))
    }

    /// The warp's sums of heads 2t and 2t + 1.
    pub fn results(&self) -> [OfHead; 2] {
        let k = self.k;
        let max = self.of_two(self.max);
        [0, 1].map(|h| OfHead {
            head: k.mad(self.t, 2u32, h as u32),
            max: max[h],
            total: self.total.0[h],
            values: (0..)
                .zip(self.sums.chunks_exact(4))
                .map(|(piece, sums): (usize, _)| {
                    std::array::from_fn(|i| {
                        let sum = sums[i / 2].0[h + 2 * (i % 2)];
                        self.scales.as_ref().map_or(sum, |scales| k.mul(sum, scales[piece]))
                    })
                })
                .collect(),
        })
    }
}

/// The scale of a piece in q8_0.
fn scale(k: &Kernel, piece: &Piece) -> Reg<f32> {
    k.convert::<f16, f32>(k.unpack(k.bits::<u32, F16x2>(piece[2])).0)
}

/// The numbers of a piece in f16; of one in q8_0 times `inverse`.
fn numbers(k: &Kernel, piece: &Piece, inverse: Option<Reg<f32>>) -> Piece {
    let Some(inverse) = inverse else { return *piece };
    let relative = k.mul(scale(k, piece), inverse);
    let relative = k.pack_f32(relative, relative);
    // A byte behind the upper byte of 1024 is 1024 more in f16.
    let [upper, bias] = [0x6464_6464u32, 0xe480_e480];
    let pairs = [piece[0], piece[1]].map(|word| {
        let bytes = k.xor(word, 0x8080_8080u32);
        [0x4140u32, 0x4342].map(|two| {
            let number = k.bits::<u32, F16x2>(k.prmt(bytes, upper, two));
            let number = k.add::<F16x2>(number, k.bits::<u32, F16x2>(k.var(bias)));
            k.bits::<F16x2, u32>(k.mul::<F16x2>(number, relative))
        })
    });
    [pairs[0][0], pairs[0][1], pairs[1][0], pairs[1][1]]
}
