//! Damage.

use rand::Rng;
use rand::rngs::StdRng;

/// A value at which arithmetic tends to go wrong.
pub(crate) fn awkward(rng: &mut StdRng) -> u64 {
    match rng.random_range(0..6) {
        0 => rng.random_range(0..16),
        1 => 0u64.wrapping_sub(rng.random_range(1..16)),
        2 => 1 << rng.random_range(0..64),
        3 => (1u64 << rng.random_range(0..64)).wrapping_sub(1),
        4 => rng.random_range(0..0x1_0000),
        _ => rng.random(),
    }
}

/// Damages up to `most` places in the first `head` bytes, and sometimes the length.
pub fn damage(rng: &mut StdRng, bytes: &mut Vec<u8>, head: usize, most: usize) {
    for _ in 0..rng.random_range(1..=most) {
        let head = head.min(bytes.len());
        if head == 0 {
            return;
        }
        let at = rng.random_range(0..head);
        match rng.random_range(0..10) {
            0..4 => bytes[at] ^= 1 << rng.random_range(0..8),
            4 => bytes[at] = rng.random(),
            5..8 => {
                let width = *[2, 4, 8].get(rng.random_range(0..3)).unwrap_or(&8);
                let at = if rng.random_ratio(3, 4) { at & !(width - 1) } else { at };
                let value = awkward(rng).to_le_bytes();
                let end = (at + width).min(bytes.len());
                bytes[at..end].copy_from_slice(&value[..end - at]);
            }
            8 => {
                let len = rng.random_range(0..=(bytes.len() - at).min(64));
                let to = rng.random_range(0..=bytes.len() - len);
                bytes.copy_within(at..at + len, to);
            }
            _ if rng.random_ratio(1, 8) => bytes.truncate(at),
            _ => {}
        }
    }
}

/// One of several.
pub(crate) fn pick<'a, T>(rng: &mut StdRng, of: &'a [T]) -> &'a T {
    &of[rng.random_range(0..of.len())]
}
