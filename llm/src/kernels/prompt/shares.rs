//! Split-K parts of the positions in prompt attention where its tokens and heads do not fill a GPU.
//!
//! The number of a block's split-K parts follows from the number of its positions alone, so the same prompt
//! gives the same bits.

use half::f16;
use ptxgen::{Cache, F16x2, Global, Kernel, Multiple, Pointer, Ptr, Reg, Special, kernel_params};

use crate::kernels::heads::LOWEST;
use crate::kernels::prompt::chunk::COUNT_AT;

/// Tokens of a block of attention.
pub const TOKENS: u32 = 64;
/// Threads of a block of `prompt_merge`, a warp per head.
pub const THREADS: u32 = 128;
/// Heads of a block of `prompt_merge`.
pub const HEADS: u32 = THREADS / 32;
/// Positions of a share, at least, where there is more than one.
const LEAST: u32 = 256;
/// Most split-K parts.
const MOST: u32 = 32;
/// Blocks of attention that an SM is given before positions are split.
const BLOCKS_PER_SM: u32 = 2;

/// Positions of a tile for heads of up to `dims` dimensions: as many as the registers allow.
pub(super) const fn positions(dims: u32) -> u32 {
    if dims > 128 { 32 } else { 64 }
}

/// Most split-K parts for `tokens` tokens of `heads` heads on `sm_count` multiprocessors.
pub fn most(tokens: u32, heads: u32, sm_count: u32) -> u32 {
    (BLOCKS_PER_SM * sm_count / (tokens.div_ceil(TOKENS) * heads)).clamp(1, MOST)
}

/// Words of a token's share of one head: largest exponent, sum of weights, values.
pub const fn partial_words(head_dim: u32) -> u32 {
    head_dim + 8
}

/// The positions that a block of tokens sees, in split-K parts.
pub(super) struct Range {
    /// The position after the last one.
    end: Reg<u32>,
    /// Split-K parts, at least 1.
    pub shares: Reg<u32>,
    /// Positions of a share.
    share: Reg<u32>,
}

impl Range {
    /// Of the tokens from `first` on in a chunk of `count` tokens from position `start` on, in at most `most`
    /// parts of whole tiles.
    pub fn new(
        k: &Kernel,
        dims: u32,
        first: Reg<u32>,
        (start, count): (Reg<u32>, Reg<u32>),
        most: Reg<u32>,
    ) -> Self {
        let tile = positions(dims);
        let end = k.add(start, k.min(k.add(first, TOKENS), count));
        let parts = |of: Reg<u32>, by: u32| k.shr(k.add(of, by - 1), by.trailing_zeros());
        let tiles = parts(end, tile);
        let wanted = k.min(most, parts(end, LEAST));
        let share = k.div(k.sub(k.add(tiles, wanted), 1), wanted);
        let shares = k.div(k.sub(k.add(tiles, share), 1), share);
        Self { end, shares, share: k.mul(share, tile) }
    }

    /// The first position of a share, and that after its last.
    pub fn of_share(&self, k: &Kernel, share: Reg<u32>) -> (Reg<u32>, Reg<u32>) {
        let begin = k.mul(share, self.share);
        (begin, k.min(k.add(begin, self.share), self.end))
    }
}

/// The sums of split-K parts, `[share][token][head]`.
pub(super) struct Partials {
    at: Pointer<Global, f32>,
    pitch: Multiple,
    /// Values of a head.
    pub head_dim: Multiple,
}

impl Partials {
    pub fn new(k: &Kernel, at: Pointer<Global, f32>, head_dim: Multiple) -> Self {
        Self { at, pitch: k.plus(head_dim, 8), head_dim }
    }

    /// A token's share of head `head`; the grid has a row of blocks per head.
    pub fn of(
        &self,
        k: &Kernel,
        (share, tokens): (Reg<u32>, Reg<u32>),
        token: Reg<u32>,
        (head, heads): (Reg<u32>, Reg<u32>),
    ) -> Pointer<Global, f32> {
        let row = k.mad(k.mad(share, tokens, token), heads, head);
        k.row(self.at, row, self.pitch)
    }
}

kernel_params! {
    /// `prompt_merge_DIM`: adds the shares of `prompt_attention_DIM`, of which there are at most `most`;
    /// tokens whose positions are not split are left as they are. `out` is f16 `[token][head][head_values]`.
    /// Grid: `[tokens, heads / HEADS]`.
    pub struct Merge {
        partials: Ptr<f32, 16>, prompt: Ptr<u32, 16>, out: Ptr<f16, 16>,
        heads: u32, head_dim: Multiple = 8, head_values: Multiple = 4, most: u32,
    }
}

pub(crate) fn merge(dims: u32) -> Kernel {
    let k = Kernel::new(&format!("prompt_merge_{dims}"));
    k.max_threads(THREADS);
    let p = Merge::declare(&k);
    let (tid, token) = (k.special(Special::TidX), k.special(Special::CtaidX));
    let (lane, warp) = (k.and(tid, 31), k.shr(tid, 5));
    let head = k.mad(k.special(Special::CtaidY), HEADS, warp);
    let (start, count) = (k.load(p.prompt), k.load(p.prompt.plus(COUNT_AT)));
    k.exit_if(k.either(k.ge(token, count), k.ge(head, p.heads)));
    let first = k.and(token, !(TOKENS - 1));
    let range = Range::new(&k, dims, first, (start, count), p.most);
    k.exit_if(k.eq(range.shares, 1));
    let partials = Partials::new(&k, p.partials, p.head_dim);
    let of = |share| partials.of(&k, (share, count), token, (head, p.heads));
    let top = k.var(LOWEST);
    k.for_(0u32, range.shares, 1u32, |share: Reg<u32>| k.set(top, k.max(top, k.load(of(share)))));
    let to = k.row(p.out, k.mad(token, p.heads, head), p.head_values).cast::<F16x2>();
    k.for_(lane, k.halve(p.head_values, 1).reg(), 32u32, |pair: Reg<u32>| {
        let (total, values) = (k.var(0f32), [k.var(0f32), k.var(0f32)]);
        k.for_(0u32, range.shares, 1u32, |share: Reg<u32>| {
            let partial = of(share);
            let part = k.load_with(partial, 2, Cache::Default);
            let factor = k.exp2_flushed(k.sub(part[0], top));
            k.mad_to(total, part[1], factor, total);
            let part = k.load_with(k.at(partial.plus(2), k.scale(pair, 2)), 2, Cache::Default);
            values.iter().zip(part).for_each(|(sum, v)| k.mad_to(*sum, v, factor, *sum));
        });
        let share = k.div(1f32, total);
        let [a, b] = values.map(|v| k.mul(v, share));
        k.store(k.at(to, pair), k.pack_f32(a, b));
    });
    k
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_split_where_blocks_do_not_fill_the_gpu() {
        assert_eq!(most(64, 32, 132), 8);
        assert_eq!(most(512, 32, 132), 1);
        assert_eq!(most(64, 32, 16), 1, "32 blocks on 16 SMs");
        assert_eq!(most(64, 4, 132), 32);
        assert_eq!(most(2048, 128, 1), 1);
    }
}
