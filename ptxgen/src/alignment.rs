//! Facts proven of an address.
//!
//! A fact is "the address is `residue` modulo `modulus`", `modulus` a power of two. It starts at a parameter
//! or a shared array, survives constant offsets exactly, and weakens when a run-time index is added: adding
//! `index × stride` keeps only the power of two that the stride (and the proven divisor of the index) leaves.
//! Nothing is ever assumed beyond that, so the width of an access chosen from it cannot fault.

/// Proven fact of an address: it is `residue` modulo `modulus`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alignment {
    modulus: u32,
    residue: u32,
}

impl Alignment {
    /// Beyond this nothing is of use; facts are kept up to it.
    const MAX: u32 = 1 << 16;

    /// A multiple of `align`, a power of two.
    pub(crate) fn to(align: u32) -> Self {
        debug_assert!(align.is_power_of_two());
        Self { modulus: align.min(Self::MAX), residue: 0 }
    }

    /// After adding exactly `bytes`.
    pub fn plus(self, bytes: i64) -> Self {
        let m = i64::from(self.modulus);
        let residue = (i64::from(self.residue) + bytes.rem_euclid(m)).rem_euclid(m);
        // A residue is below the modulus, hence fits.
        Self { residue: residue as u32, ..self }
    }

    /// After adding an unknown multiple of `stride` bytes.
    pub fn plus_multiple_of(self, stride: u64) -> Self {
        let kept = 1u32 << stride.trailing_zeros().min(Self::MAX.trailing_zeros());
        let modulus = self.modulus.min(kept);
        Self { modulus, residue: self.residue % modulus }
    }

    /// The largest power of two that certainly divides the address.
    pub fn proven(self) -> u32 {
        if self.residue == 0 { self.modulus } else { 1 << self.residue.trailing_zeros() }
    }
}
