//! The decode state in device memory, and the comparison that chooses a token.
//!
//! Layout, in 32-bit words: the position of the token being decoded, three words of padding, then the token
//! at every position. A step reads the token at its position and writes the one at the next, so the same
//! recorded launches serve every step.

use ptxgen::{Global, Kernel, Pointer, Reg, Shared, Shuffle, Special};

/// Words before the tokens.
pub const TOKENS_AT: u32 = 4;

/// A logit and its index.
pub(crate) type Best = (Reg<f32>, Reg<u32>);

/// Replaces `best` by `other` if that is larger, or equal with a smaller index.
pub(crate) fn take_better(k: &Kernel, best: Best, other: Best) {
    let same = k.both(k.eq(other.0, best.0), k.lt(other.1, best.1));
    let better = k.either(k.gt(other.0, best.0), same);
    k.set(best.0, k.select(better, other.0, best.0));
    k.set(best.1, k.select(better, other.1, best.1));
}

/// Gives every lane the best of its warp.
pub(crate) fn warp_best(k: &Kernel, best: Best) {
    for lanes in [16, 8, 4, 2, 1] {
        let other = (k.shuffle(best.0, Shuffle::Xor(lanes)), k.shuffle(best.1, Shuffle::Xor(lanes)));
        take_better(k, best, other);
    }
}

/// The best of `count` logits that the threads of this block take, `threads` of all blocks of a row of the grid in
/// turn; in thread 0, the others end. `partial` has a word of each for every warp.
pub(crate) fn block_best(
    k: &Kernel,
    threads: u32,
    partial: (Pointer<Shared, f32>, Pointer<Shared, u32>),
    (tid, block): (Reg<u32>, Reg<u32>),
    (logits, count): (Pointer<Global, f32>, Reg<u32>),
) -> Best {
    let best = (k.var(f32::NEG_INFINITY), k.var(u32::MAX));
    let stride = k.mul(k.special(Special::NctaidX), threads);
    k.for_(k.mad(block, threads, tid), count, stride, |i: Reg<u32>| {
        take_better(k, best, (k.load(k.at(logits, i)), i));
    });
    warp_best(k, best);
    let warp = k.shr(tid, 5);
    k.if_(k.eq(k.and(tid, 31), 0), || {
        k.store(k.at(partial.0, warp), best.0);
        k.store(k.at(partial.1, warp), best.1);
    });
    k.sync_threads();
    k.exit_if(k.ne(tid, 0));
    for other in 1..i64::from(threads / 32) {
        take_better(k, best, (k.load(partial.0.plus(other)), k.load(partial.1.plus(other))));
    }
    best
}
