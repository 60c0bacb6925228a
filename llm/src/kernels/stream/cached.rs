//! The caches near the start of a context, in f16: reading rows, the newest position.

use half::f16;
use ptxgen::{Cache, F16x2, Global, Kernel, Pointer, Pred, Reg};

use crate::kernels::stream::block::Stream;
use crate::kernels::stream::record::at;

/// A piece of a key and one of a value, eight values each.
pub(super) struct Row {
    pub keys: [Reg<u32>; 4],
    pub values: [Reg<u32>; 4],
}

/// The lane's pieces of the newest key and value.
pub(super) type Newest = [Vec<Reg<f32>>; 2];

/// The layer's cache.
pub(super) struct Caches {
    pub keys: Pointer<Global, u8>,
    pub values: Pointer<Global, u8>,
}

impl Row {
    pub(super) fn empty(k: &Kernel) -> Self {
        let empty = || [(); 4].map(|()| k.var::<u32>(0u32));
        Self { keys: empty(), values: empty() }
    }
}

impl Stream<'_> {
    /// The caches of the layer.
    pub(super) fn caches(&self) -> Caches {
        Caches { keys: self.address(at::KEYS), values: self.address(at::VALUES) }
    }

    /// Loads piece `piece` of keys and of values where `there` holds.
    pub(super) fn fetch_both(&self, from: &Caches, there: Pred, piece: Reg<u32>, to: &Row) {
        let k = self.k;
        for (cache, to) in [(from.keys, &to.keys), (from.values, &to.values)] {
            k.load_words_where(Some(there), k.at_stride(cache, piece, 16), to, Cache::Default);
        }
    }

    /// Receives the lane's pieces of the query and, where `newest` holds, of the newest key and value, from
    /// these places. The same in all lanes.
    pub(super) fn receive_pieces(
        &self,
        newest: Pred,
        from: [Pointer<Global, u32>; 3],
    ) -> (Vec<Reg<f32>>, Newest) {
        let k = self.k;
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
        (piece(0), [piece(1), piece(2)])
    }

    /// The lane's pieces of the newest key and value as they are cached.
    pub(super) fn newest(&self, pieces: &Newest) -> Row {
        let k = self.k;
        let [keys, values] = pieces
            .each_ref()
            .map(|values| std::array::from_fn(|i| k.bits(k.pack_f32(values[2 * i], values[2 * i + 1]))));
        Row { keys, values }
    }

    /// Stores piece `piece` of keys and of values.
    pub(super) fn cache(&self, to: &Caches, piece: Reg<u32>, row: &Row) {
        let k = self.k;
        for (cache, words) in [(to.keys, &row.keys), (to.values, &row.values)] {
            k.store_n(k.at_stride(cache, piece, 16).cast::<u32>(), words);
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
