//! The decode state in device memory, and the comparison that chooses a token.
//!
//! Layout, in 32-bit words: the position of the token being decoded, three words of padding, then the token
//! at every position. A step reads the token at its position and writes the one at the next, so the same
//! recorded launches serve every step.

use ptxgen::{Kernel, Reg, Shuffle};

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
