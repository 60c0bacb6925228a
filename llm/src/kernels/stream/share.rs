//! Split-K parts of the positions of a head, and the part of one that a warp or a block has.

use ptxgen::{Kernel, Pred, Reg, Shuffle};

use crate::kernels::heads::LOWEST;

/// The work of a block: a share of the positions of some heads.
pub(super) struct Share {
    /// Number of the group of heads.
    pub unit: Reg<u32>,
    /// Number of the split-K part, and of all.
    pub share: Reg<u32>,
    pub shares: Reg<u32>,
    pub begin: Reg<u32>,
    pub end: Reg<u32>,
}

/// The query heads of a block.
pub(super) struct Heads {
    pub kv_head: Reg<u32>,
    /// The first of them, and how many there are.
    pub first: Reg<u32>,
    pub heads: Reg<u32>,
    /// Whether the block caches the newest position, if it attends to it.
    pub caches: Pred,
}

/// A running softmax: largest score, sum of weights, weighted sum of some dimensions.
pub(super) struct Sum {
    pub max: Reg<f32>,
    pub weight: Reg<f32>,
    pub values: Vec<Reg<f32>>,
}

impl Sum {
    /// Of nothing yet.
    pub fn new(k: &Kernel, values: usize) -> Self {
        let values = (0..values).map(|_| k.var(0f32)).collect();
        Self { max: k.var(LOWEST), weight: k.var(0f32), values }
    }
}

/// Adds up `values` of the lanes that share rows: in each step a lane keeps one half and gives the other to a lane
/// across. `first` becomes the number of the first value that is left; `also` is what else is added in a step.
pub(super) fn added_across<const LOG2: u32>(
    k: &Kernel,
    lane: Reg<u32>,
    mut values: Vec<Reg<f32>>,
    first: Reg<u32>,
    mut also: impl FnMut(Shuffle),
) -> Vec<Reg<f32>> {
    for bit in (LOG2..5).rev() {
        let upper = k.ne(k.and(lane, 1u32 << bit), 0);
        let half = values.len() / 2;
        values = (0..half)
            .map(|i| {
                let keep = k.select(upper, values[half + i], values[i]);
                let give = k.select(upper, values[i], values[half + i]);
                k.add(keep, k.shuffle(give, Shuffle::Xor(1 << bit)))
            })
            .collect();
        k.set(first, k.add(first, k.select(upper, half as u32, 0u32)));
        also(Shuffle::Xor(1 << bit));
    }
    values
}
