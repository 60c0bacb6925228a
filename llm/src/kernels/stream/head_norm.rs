//! Norms of queries and keys, where an architecture has them: attention receives the plain products, and
//! normalizes and rotates what it uses.

use ptxgen::{Cache, Multiple, Pred, Reg};

use crate::kernels::rotation::{angle, rotate_pair};
use crate::kernels::stream::block::Stream;
use crate::kernels::stream::record::at;

/// The piece of a head that a lane has.
#[derive(Clone, Copy)]
pub(super) struct Piece {
    /// Number of the first value in the head.
    pub dims: Multiple,
    /// Whether the head has it.
    pub inside: Pred,
    /// Lanes that hold a head, as a power of two.
    pub lanes_log2: Reg<u32>,
    /// Whether the model has such norms: read before the values arrive.
    pub normed: Pred,
}

impl Stream<'_> {
    /// Normalizes the head of which each lane has a piece, with the weights at word `weight` of the record,
    /// and rotates it; nothing in models without such norms. In all lanes of the warp.
    pub(super) fn normalize_head(&self, values: &[Reg<f32>], weight: i64, piece: Piece) {
        let k = self.k;
        k.if_(piece.normed, || {
            let squares = k.var(0f32);
            values.iter().for_each(|v| k.mad_to(squares, *v, *v, squares));
            k.set(squares, k.select(piece.inside, squares, 0f32));
            k.for_(0u32, piece.lanes_log2, 1u32, |log2: Reg<u32>| {
                k.add_to(squares, k.broadcast(squares, self.partner(log2)));
            });
            let factor = k.rsqrt(k.mad(squares, self.number(at::INVERSE_LEN), self.number(at::EPS)));
            let weights = k.at(self.address::<f32>(weight), piece.dims);
            let turns = k.at(self.address::<u64>(at::TURNS), k.halve(piece.dims, 1));
            for (i, pair) in (0..).step_by(2).zip(values.as_chunks::<2>().0) {
                let weights = k.load_n::<2, _, _>(weights.plus(i), Cache::ReadOnly);
                let [a, b] = [0, 1].map(|v| k.mul(k.mul(pair[v], factor), weights[v]));
                let step = k.load_n::<1, _, _>(turns.plus(i / 2), Cache::ReadOnly)[0];
                let (x, y) = rotate_pair(k, angle(k, step, self.position()), a, b);
                k.set(pair[0], x);
                k.set(pair[1], y);
            }
        });
    }
}
