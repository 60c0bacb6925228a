//! Norms of queries and keys, where an architecture has them: attention receives the plain products, and
//! normalizes and rotates what it uses.

use ptxgen::{Cache, Multiple, Pred, Reg, Shuffle};

use crate::kernels::attention::PIECE;
use crate::kernels::rotation::{angle, rotate_pair};
use crate::kernels::stream::block::Stream;
use crate::kernels::stream::far::Place;
use crate::kernels::stream::record::{NORMED_HEADS, at};

/// The piece of a head that a lane has.
#[derive(Clone, Copy)]
pub(super) struct Piece {
    /// Number of the first value in the head.
    pub dims: Multiple,
    /// Whether the head has it.
    pub inside: Pred,
    /// Lanes that hold a head, as a power of two.
    pub lanes_log2: Reg<u32>,
}

impl Stream<'_> {
    /// Normalizes the head of which each lane has a piece, with the weights at word `weight` of the record,
    /// and rotates it; nothing in models without such norms. In all lanes of the warp.
    pub(super) fn normalize_piece(&self, values: &[Reg<f32>], weight: i64, piece: Piece) {
        let k = self.k;
        k.if_(self.is_set(NORMED_HEADS), || {
            let squares = k.var(k.select(piece.inside, self.squares(values), 0f32));
            k.for_(0u32, piece.lanes_log2, 1u32, |log2: Reg<u32>| {
                k.add_to(squares, k.broadcast(squares, self.partner(log2)));
            });
            self.rotate_normalized(values, piece.dims, weight, self.norm_factor(squares));
        });
    }

    /// [`Stream::normalize_piece`] of a head of which each of four neighbouring lanes has pieces.
    pub(super) fn normalize_pieces(&self, pieces: &[[Reg<f32>; PIECE as usize]], weight: i64, place: &Place) {
        let k = self.k;
        k.if_(self.is_set(NORMED_HEADS), || {
            let mut squares = k.var(0f32);
            for (values, (_, inside)) in pieces.iter().zip(place.pieces(self)) {
                let own = self.squares(values);
                squares = k.add(squares, inside.map_or(own, |inside| k.select(inside, own, 0f32)));
            }
            squares = k.add(squares, k.shuffle(squares, Shuffle::Xor(1)));
            squares = k.add(squares, k.shuffle(squares, Shuffle::Xor(2)));
            let factor = self.norm_factor(squares);
            for (values, (piece, _)) in pieces.iter().zip(place.pieces(self)) {
                self.rotate_normalized(values, k.scale(piece, PIECE), weight, factor);
            }
        });
    }

    fn squares(&self, values: &[Reg<f32>]) -> Reg<f32> {
        let squares = self.k.var(0f32);
        values.iter().for_each(|v| self.k.mad_to(squares, *v, *v, squares));
        squares
    }

    /// The factor of a head with this sum of squares.
    fn norm_factor(&self, squares: Reg<f32>) -> Reg<f32> {
        let k = self.k;
        k.rsqrt(k.mad(squares, self.number(at::INVERSE_LEN), self.number(at::EPS)))
    }

    /// Normalizes by `factor` and rotates the values from `dims` on of a head.
    fn rotate_normalized(&self, values: &[Reg<f32>], dims: Multiple, weight: i64, factor: Reg<f32>) {
        let k = self.k;
        let weights = k.at(self.address::<f32>(weight), dims);
        let turns = k.at(self.address::<u64>(at::TURNS), k.halve(dims, 1));
        for (i, pair) in (0..).step_by(2).zip(values.as_chunks::<2>().0) {
            let weights = k.load_n::<2, _, _>(weights.plus(i), Cache::ReadOnly);
            let [a, b] = [0, 1].map(|v| k.mul(k.mul(pair[v], factor), weights[v]));
            let step = k.load_n::<1, _, _>(turns.plus(i / 2), Cache::ReadOnly)[0];
            let (x, y) = rotate_pair(k, angle(k, step, self.position()), a, b);
            k.set(pair[0], x);
            k.set(pair[1], y);
        }
    }
}
