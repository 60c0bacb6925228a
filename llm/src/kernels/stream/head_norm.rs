//! Norms of queries and keys, where an architecture has them: attention receives the plain products, and
//! normalizes and rotates what it uses.

use ptxgen::{Cache, Reg, Shuffle};

use crate::kernels::attention::PIECE;
use crate::kernels::rotation::{angle, rotate_pair};
use crate::kernels::stream::block::Stream;
use crate::kernels::stream::far::Place;
use crate::kernels::stream::record::{NORMED_HEADS, at};

impl Stream<'_> {
    /// Normalizes the head of which each of four neighbouring lanes has pieces, with the weights at word `weight` of
    /// the record, and rotates it; nothing in models without such norms. In all lanes of the warp.
    pub(super) fn normalize_head(&self, pieces: &[[Reg<f32>; PIECE as usize]], weight: i64, place: &Place) {
        let k = self.k;
        k.if_(self.is_set(NORMED_HEADS), || {
            let mut squares = k.var(0f32);
            for (values, (_, inside)) in pieces.iter().zip(place.pieces(self)) {
                let own = k.var(0f32);
                values.iter().for_each(|v| k.mad_to(own, *v, *v, own));
                squares = k.add(squares, inside.map_or(own, |inside| k.select(inside, own, 0f32)));
            }
            squares = k.add(squares, k.shuffle(squares, Shuffle::Xor(1)));
            squares = k.add(squares, k.shuffle(squares, Shuffle::Xor(2)));
            let factor = k.rsqrt(k.mad(squares, self.number(at::INVERSE_LEN), self.number(at::EPS)));
            for (values, (piece, _)) in pieces.iter().zip(place.pieces(self)) {
                let weights = k.at(self.address::<f32>(weight), k.scale(piece, PIECE));
                let turns = k.at(self.address::<u64>(at::TURNS), k.scale(piece, PIECE / 2));
                for (i, pair) in (0..).step_by(2).zip(values.as_chunks::<2>().0) {
                    let weights = k.load_n::<2, _, _>(weights.plus(i), Cache::ReadOnly);
                    let [a, b] = [0, 1].map(|v| k.mul(k.mul(pair[v], factor), weights[v]));
                    let step = k.load_n::<1, _, _>(turns.plus(i / 2), Cache::ReadOnly)[0];
                    let (x, y) = rotate_pair(k, angle(k, step, self.position()), a, b);
                    k.set(pair[0], x);
                    k.set(pair[1], y);
                }
            }
        });
    }
}
