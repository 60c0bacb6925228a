//! The layout of activation vectors: *striped*, so that 16 neighbouring values of each lane are contiguous
//! loads of a warp.
//!
//! Of every 16 neighbouring values the first four of all sixteens come first, then the second four, and so
//! on. A lane that unpacks 16 neighbouring weights then reads its activations in four 16-byte loads, each
//! contiguous across the warp.

use ptxgen::{Global, Kernel, Multiple, Pointer, Reg};

/// The place of value `index` in a striped vector of `len` values.
pub const fn striped(index: usize, len: usize) -> usize {
    (index / 4 % 4) * (len / 4) + index / 16 * 4 + index % 4
}

/// [`striped`] in a kernel; `quarter` is a quarter of the vector's length.
pub(crate) fn striped_index(k: &Kernel, index: Reg<u32>, quarter: Reg<u32>) -> Reg<u32> {
    let stripe = k.bfe(index, 2, 2);
    let within = k.bfi(index, k.shl(k.shr(index, 4), 2), 0, 2);
    k.mad(stripe, quarter, within)
}

/// The address of the striped vector's four values from `4 · chunk` on.
pub(crate) fn striped_chunk(
    k: &Kernel,
    x: Pointer<Global, f32>,
    chunk: Reg<u32>,
    quarter: Multiple,
) -> Pointer<Global, f32> {
    let stripe = k.mul(k.and(chunk, 3), quarter.reg());
    let index = k.mad(k.shr(chunk, 2), 4u32, stripe);
    // Both terms are multiples of four: the vector's length is one of 16.
    k.at(x, k.scale(k.shr(index, 2), 4))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn striping_moves_every_value_to_a_place_of_its_own() {
        for len in [16, 64, 256, 4096] {
            let mut places: Vec<usize> = (0..len).map(|i| striped(i, len)).collect();
            places.sort_unstable();
            assert!(places.into_iter().eq(0..len));
        }
    }
}
