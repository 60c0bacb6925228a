//! A hash of a whole model, to notice that another one is in use.

use std::fmt;
use std::str::FromStr;

use rayon::prelude::*;
use twox_hash::XxHash3_128;

/// Bytes that one thread hashes at a time.
const PIECE: usize = 8 << 20;

/// A hash of all bytes of a model's files, metadata and weights: XXH3 in 128 bits of the hashes of their pieces of
/// 8 MiB and of their lengths.
///
/// Every change by accident or by conversion is noticed. It is no defence against who makes a file that has the
/// hash of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fingerprint(u128);

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl FromStr for Fingerprint {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        u128::from_str_radix(text, 16).map(Self)
    }
}

impl Fingerprint {
    /// Of the bytes of each file, on all cores.
    pub(super) fn of<'a>(files: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut all = Vec::new();
        for bytes in files {
            let pieces: Vec<u128> = bytes.par_chunks(PIECE).map(XxHash3_128::oneshot).collect();
            all.extend(pieces.into_iter().flat_map(u128::to_le_bytes));
            all.extend((bytes.len() as u64).to_le_bytes());
        }
        Self(XxHash3_128::oneshot(&all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_counts() {
        let of = |bytes: &[u8]| Fingerprint::of([bytes]);
        let mut bytes = vec![7; PIECE + 5];
        let whole = of(&bytes);
        assert_eq!(whole.to_string().parse(), Ok(whole));
        assert_ne!(whole, of(&bytes[..PIECE + 4]));
        for at in [0, PIECE / 3, PIECE - 1, PIECE, PIECE + 4] {
            bytes[at] ^= 1;
            assert_ne!(whole, of(&bytes), "byte {at}");
            bytes[at] ^= 1;
        }
        assert_eq!(whole, of(&bytes));
        let (first, second) = bytes.split_at(3);
        assert_ne!(whole, Fingerprint::of([first, second]));
        assert_ne!(Fingerprint::of([second, first]), Fingerprint::of([first, second]));
    }
}
