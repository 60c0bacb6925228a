//! Attention for each type of cache: reading rows, scores, weighted values, the newest position.

use half::f16;
use ptxgen::{Cache, F16x2, Global, Kernel, Multiple, Pointer, Pred, Reg};

use crate::cache::CacheType;
use crate::kernels::cache::{
    PAGE, four_bytes, largest, numbers, product, quantize, scales, split, to_integers,
};
use crate::kernels::stream::block::Stream;
use crate::kernels::stream::head_norm::Piece;
use crate::kernels::stream::record::at;

/// A piece of a key and one of a value, 16 bytes each; in q8_0 a fifth word has the f16 scale.
pub(super) struct Row {
    pub keys: [Reg<u32>; 5],
    pub values: [Reg<u32>; 5],
}

/// The lane's part of the query, in the form that scores take.
pub(super) enum Query {
    Floats(Vec<Reg<f32>>),
    /// 16-bit integers in separate bytes, and their scale.
    Integers {
        high: Vec<Reg<u32>>,
        low: Vec<Reg<u32>>,
        scale: Reg<f32>,
    },
}

/// The lane's pieces of the newest key and value.
pub(super) type Newest = [Vec<Reg<f32>>; 2];

/// The layer's cache.
pub(super) struct Caches {
    pub keys: Pointer<Global, u8>,
    pub values: Pointer<Global, u8>,
    /// The scales of both in q8_0.
    scales: Option<[Pointer<Global, f16>; 2]>,
}

/// The lane's pieces of 16 bytes of a key and value head's rows.
#[derive(Clone, Copy)]
pub(super) struct Pieces {
    /// Its piece of the first row.
    first: Reg<u32>,
    /// Pieces of a row.
    row: Reg<u32>,
    /// Pieces of a page's row in the other heads.
    others: Reg<u32>,
}

impl Pieces {
    /// The piece of a row of the cache.
    pub(super) fn of(self, k: &Kernel, row: Reg<u32>) -> Reg<u32> {
        let before = k.and(row, !(PAGE - 1));
        k.mad(before, self.others, k.mad(row, self.row, self.first))
    }
}

impl Row {
    pub(super) fn empty(k: &Kernel) -> Self {
        let empty = || [(); 5].map(|()| k.var::<u32>(0u32));
        Self { keys: empty(), values: empty() }
    }
}

impl Stream<'_> {
    /// The caches of the layer.
    pub(super) fn caches(&self, kv: CacheType) -> Caches {
        let (keys, values) = (self.address::<u8>(at::KEYS), self.address::<u8>(at::VALUES));
        let scales = match kv {
            CacheType::F16 => None,
            CacheType::Q8_0 => Some([keys, values].map(|cache| scales(self.k, cache, self.scales_at()))),
        };
        Caches { keys, values, scales }
    }

    /// Piece `own` of the rows of head `kv_head`, which have `row` pieces each.
    pub(super) fn pieces(&self, kv_head: Reg<u32>, row: Reg<u32>, own: Reg<u32>) -> Pieces {
        let k = self.k;
        let first = k.mad(k.mul(kv_head, PAGE), row, own);
        Pieces { first, row, others: k.mul(k.sub(self.word(at::KV_HEADS), 1), row) }
    }

    /// Loads piece `piece` of keys and of values where `there` holds.
    pub(super) fn fetch_both(&self, from: &Caches, there: Pred, piece: Reg<u32>, to: &Row) {
        let k = self.k;
        for (i, (cache, to)) in [(from.keys, &to.keys), (from.values, &to.values)].into_iter().enumerate() {
            k.load_words_where(Some(there), k.at_stride(cache, piece, 16), &to[..4], Cache::Default);
            if let Some(scales) = from.scales {
                // Two pieces are a block.
                let scale = k.at(scales[i], k.shr(piece, 1));
                k.load_half_where(Some(there), scale, to[4], Cache::Default);
            }
        }
    }

    /// The lane's part of the query, times `scale`.
    pub(super) fn query(&self, kv: CacheType, values: Vec<Reg<f32>>, scale: Reg<f32>) -> Query {
        let k = self.k;
        match kv {
            CacheType::F16 => Query::Floats(values.into_iter().map(|v| k.mul(v, scale)).collect()),
            CacheType::Q8_0 => {
                let largest = largest(k, &values, &[]);
                let (inverse, _) = to_integers(k, largest);
                let split = |four: &[Reg<f32>; 4]| split(k, *four, inverse);
                let (high, low) = values.as_chunks().0.iter().map(split).map(|[h, l]| (h, l)).unzip();
                Query::Integers { high, low, scale: k.mul(k.mul(largest, 1f32 / 32767.0), scale) }
            }
        }
    }

    /// The lane's part of the score of a key.
    pub(super) fn score(&self, query: &Query, key: &[Reg<u32>; 5]) -> Reg<f32> {
        let k = self.k;
        match query {
            Query::Floats(query) => {
                let score = k.var(0f32);
                query.iter().zip(self.pairs(&key[..4])).for_each(|(q, x)| k.mad_to(score, *q, x, score));
                score
            }
            Query::Integers { high, low, scale } => {
                k.mul(product(k, &key[..4], high, low), k.mul(self.half(key[4]), *scale))
            }
        }
    }

    /// The numbers of a piece of values, and their weight.
    pub(super) fn weighted(
        &self,
        kv: CacheType,
        weight: Reg<f32>,
        value: &[Reg<u32>; 5],
    ) -> (Reg<f32>, Vec<Reg<f32>>) {
        let k = self.k;
        match kv {
            CacheType::F16 => (weight, self.pairs(&value[..4])),
            CacheType::Q8_0 => {
                let numbers = value[..4].iter().flat_map(|word| numbers(k, *word)).collect();
                (k.mul(weight, self.half(value[4])), numbers)
            }
        }
    }

    /// The f16 in the lower half of a word.
    fn half(&self, word: Reg<u32>) -> Reg<f32> {
        let k = self.k;
        k.convert::<f16, f32>(k.unpack(k.bits::<u32, F16x2>(word)).0)
    }

    /// Byte offset of the scales in a cache in q8_0.
    pub(super) fn scales_at(&self) -> Multiple {
        self.k.scale(self.k.shr(self.word(at::SCALES_AT), 5), 32)
    }

    /// Receives the lane's pieces of the query and, where `newest` holds, of the newest key and value, from
    /// these places. The same in all lanes. In q8_0 all pieces together would take more registers than there
    /// are: key and value are received later.
    pub(super) fn receive_pieces(
        &self,
        kv: CacheType,
        newest: Pred,
        from: [Pointer<Global, u32>; 3],
    ) -> (Vec<Reg<f32>>, Option<Newest>) {
        let k = self.k;
        if kv == CacheType::Q8_0 {
            return (self.receive_piece(from[0]), None);
        }
        let phase = self.phase(at::INPUT);
        let packet = |i: usize| from[i / 2].plus(4 * (i % 2) as i64);
        let values: Vec<Reg<f32>> = (0..24).map(|_| k.var(0f32)).collect();
        let set = |received: &[[Reg<f32>; 4]]| {
            values.iter().zip(received.as_flattened()).for_each(|(to, value)| k.set(*to, *value));
        };
        k.if_else(
            newest,
            || set(&self.receive::<6>(std::array::from_fn(packet), phase)),
            || set(&self.receive::<2>(std::array::from_fn(packet), phase)),
        );
        let piece = |i: usize| values[8 * i..][..8].to_vec();
        (piece(0), Some([piece(1), piece(2)]))
    }

    /// Receives the lane's piece of a vector for a cache in q8_0.
    fn receive_piece(&self, from: Pointer<Global, u32>) -> Vec<Reg<f32>> {
        let packets = std::array::from_fn(|i| from.plus(4 * i as i64));
        self.receive::<4>(packets, self.phase(at::INPUT)).concat()
    }

    /// The lane's piece of the newest key and value as they are cached; the key is normalized where models need
    /// it, given the lane's place in the head.
    pub(super) fn newest(
        &self,
        kv: CacheType,
        pieces: Option<Newest>,
        from: [Pointer<Global, u32>; 2],
        own: Option<Piece>,
    ) -> Row {
        let k = self.k;
        let pieces = pieces.map_or([None, None], |pieces| pieces.map(Some));
        let [keys, values] = [0, 1].map(|i| {
            let values = pieces[i].clone().unwrap_or_else(|| self.receive_piece(from[i]));
            if let (0, Some(own)) = (i, own) {
                self.normalize_piece(&values, at::RESIDUAL, own);
            }
            let words: Vec<Reg<u32>> = match kv {
                CacheType::F16 => {
                    let pairs = values.chunks_exact(2).map(|v| k.bits(k.pack_f32(v[0], v[1])));
                    pairs.chain([k.var(0u32)]).collect()
                }
                CacheType::Q8_0 => {
                    // Two lanes have a block.
                    let values: [Reg<f32>; 16] = std::array::from_fn(|i| values[i]);
                    let (scale, quants) = quantize(k, values, &[1]);
                    let zero = k.convert::<f32, f16>(k.var(0f32));
                    let scale = k.bits(k.pack(scale, zero));
                    quants.as_chunks().0.iter().map(|q| four_bytes(k, *q, 0)).chain([scale]).collect()
                }
            };
            std::array::from_fn(|i| words[i])
        });
        Row { keys, values }
    }

    /// Stores piece `piece` of keys and of values.
    pub(super) fn cache(&self, to: &Caches, piece: Reg<u32>, row: &Row) {
        let k = self.k;
        for (i, (cache, words)) in [(to.keys, &row.keys), (to.values, &row.values)].into_iter().enumerate() {
            k.store_n(k.at_stride(cache, piece, 16).cast::<u32>(), &words[..4]);
            if let Some(scales) = to.scales {
                let (scale, _) = k.unpack(k.bits::<u32, F16x2>(words[4]));
                k.if_(k.eq(k.and(piece, 1), 0), || {
                    k.store(k.at(scales[i], k.shr(piece, 1)), scale);
                });
            }
        }
    }

    /// Pairs in single precision.
    pub(super) fn pairs(&self, pairs: &[Reg<u32>]) -> Vec<Reg<f32>> {
        let k = self.k;
        let both = |pair: &Reg<u32>| {
            let (lo, hi) = k.unpack(k.bits::<u32, F16x2>(*pair));
            [k.convert::<f16, f32>(lo), k.convert::<f16, f32>(hi)]
        };
        pairs.iter().flat_map(both).collect()
    }
}
