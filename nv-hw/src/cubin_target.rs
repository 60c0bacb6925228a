//! Compilation targets: SMs and their variants.

use core::fmt;

use crate::sm::Sm;

/// Compilation target: a GPU generation, or one with instructions that no other has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CubinTarget {
    /// Ampere GA100 (A100, A30).
    Sm80,
    /// Ampere GA102 to GA107 (GeForce RTX 30, RTX A, A10, A40).
    Sm86,
    /// Tegra ga10b (Orin).
    Sm87,
    /// Ada (GeForce RTX 40, L4, L40).
    Sm89,
    /// Hopper (H100, H200).
    Sm90,
    /// Hopper with instructions that no later generation has: matrix products of warpgroups, registers that
    /// move between warpgroups.
    Sm90a,
}

impl CubinTarget {
    /// The generations; [`CubinTarget::Sm90a`] is not one of its own.
    pub const ALL: [CubinTarget; 5] =
        [CubinTarget::Sm80, CubinTarget::Sm86, CubinTarget::Sm87, CubinTarget::Sm89, CubinTarget::Sm90];

    /// The generation of a compute capability written as a number, 87 for 8.7.
    pub fn from_sm(sm: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|target| target.sm() == sm)
    }

    /// The compute capability as a number, 87 for 8.7.
    pub const fn sm(self) -> u32 {
        match self {
            Self::Sm80 => Sm::Sm80.sm(),
            Self::Sm86 => Sm::Sm86.sm(),
            Self::Sm87 => Sm::Sm87.sm(),
            Self::Sm89 => Sm::Sm89.sm(),
            Self::Sm90 | Self::Sm90a => Sm::Sm90.sm(),
        }
    }

    /// As ptxas spells it.
    pub const fn name(self) -> &'static str {
        match self {
            CubinTarget::Sm80 => "sm_80",
            CubinTarget::Sm86 => "sm_86",
            CubinTarget::Sm87 => "sm_87",
            CubinTarget::Sm89 => "sm_89",
            CubinTarget::Sm90 => "sm_90",
            CubinTarget::Sm90a => "sm_90a",
        }
    }

    /// Whether NVIDIA documents that a cubin for this target runs on a GPU of `device`: the same major
    /// version, and the same or a later minor one. Code for Tegra runs on that Tegra alone, and Tegra runs
    /// no other; code for [`CubinTarget::Sm90a`] runs on 9.0 alone (CUDA C++ Programming Guide, "Binary
    /// Compatibility" and "Architecture-Specific Features").
    pub const fn runs_on(self, device: CubinTarget) -> bool {
        if matches!(self, CubinTarget::Sm87) || matches!(device, CubinTarget::Sm87) {
            return self.sm() == device.sm();
        }
        if matches!(self, CubinTarget::Sm90a) {
            return device.sm() == 90;
        }
        self.sm() / 10 == device.sm() / 10 && self.sm() <= device.sm()
    }

    /// Major and minor number of the first PTX version that knows it.
    #[must_use]
    pub const fn ptx_version(self) -> (u8, u8) {
        match self {
            CubinTarget::Sm80 => (7, 0),
            CubinTarget::Sm86 => (7, 1),
            CubinTarget::Sm87 => (7, 4),
            CubinTarget::Sm89 | CubinTarget::Sm90 => (7, 8),
            CubinTarget::Sm90a => (8, 0),
        }
    }
}

impl fmt::Display for CubinTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::format;
    use std::vec::Vec;

    use super::*;

    #[test]
    fn every_target_is_found_by_its_number_and_called_by_it() {
        for target in CubinTarget::ALL {
            assert_eq!(CubinTarget::from_sm(target.sm()), Some(target));
            assert_eq!(target.name(), format!("sm_{}", target.sm()));
        }
        assert_eq!(CubinTarget::from_sm(75), None);
        assert_eq!(CubinTarget::Sm90a.name(), "sm_90a");
    }

    #[test]
    fn a_cubin_runs_on_later_parts_of_its_major_version_but_not_across_to_tegra() {
        let runs_on =
            |code: CubinTarget| CubinTarget::ALL.into_iter().filter(move |device| code.runs_on(*device));
        let served = |code| runs_on(code).map(CubinTarget::sm).collect::<Vec<_>>();
        assert_eq!(served(CubinTarget::Sm80), [80, 86, 89]);
        assert_eq!(served(CubinTarget::Sm86), [86, 89]);
        assert_eq!(served(CubinTarget::Sm87), [87]);
        assert_eq!(served(CubinTarget::Sm89), [89]);
        assert_eq!(served(CubinTarget::Sm90), [90]);
        assert_eq!(served(CubinTarget::Sm90a), [90]);
    }
}
