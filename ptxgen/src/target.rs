//! What PTX is written for: GPU generations and versions of the language.

use std::fmt;

/// What to compile for: a GPU generation, or one with instructions that no other has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
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
    /// Hopper with what no later generation has: matrix products of warpgroups, registers that move between
    /// warpgroups.
    Sm90a,
}

impl Target {
    /// The generations; [`Target::Sm90a`] is not one of its own.
    pub const ALL: [Target; 5] = [Target::Sm80, Target::Sm86, Target::Sm87, Target::Sm89, Target::Sm90];

    /// The generation of a compute capability written as a number, 87 for 8.7.
    pub fn from_sm(sm: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|target| target.sm() == sm)
    }

    /// The compute capability as a number, 87 for 8.7.
    pub const fn sm(self) -> u32 {
        match self {
            Target::Sm80 => 80,
            Target::Sm86 => 86,
            Target::Sm87 => 87,
            Target::Sm89 => 89,
            Target::Sm90 | Target::Sm90a => 90,
        }
    }

    /// As ptxas spells it.
    pub const fn name(self) -> &'static str {
        match self {
            Target::Sm80 => "sm_80",
            Target::Sm86 => "sm_86",
            Target::Sm87 => "sm_87",
            Target::Sm89 => "sm_89",
            Target::Sm90 => "sm_90",
            Target::Sm90a => "sm_90a",
        }
    }

    /// Whether NVIDIA documents that a cubin for this target runs on a GPU of `device`: the same major
    /// version, and the same or a later minor one. Code for Tegra runs on that Tegra alone, and Tegra runs
    /// no other; code for [`Target::Sm90a`] runs on 9.0 alone (CUDA C++ Programming Guide, "Binary
    /// Compatibility" and "Architecture-Specific Features").
    pub const fn runs_on(self, device: Target) -> bool {
        if matches!(self, Target::Sm87) || matches!(device, Target::Sm87) {
            return self.sm() == device.sm();
        }
        if matches!(self, Target::Sm90a) {
            return device.sm() == 90;
        }
        self.sm() / 10 == device.sm() / 10 && self.sm() <= device.sm()
    }

    /// The first PTX version that knows it.
    pub(crate) const fn since(self) -> Version {
        match self {
            Target::Sm80 => Version::new(7, 0),
            Target::Sm86 => Version::new(7, 1),
            Target::Sm87 => Version::new(7, 4),
            Target::Sm89 | Target::Sm90 => Version::new(7, 8),
            Target::Sm90a => Version::new(8, 0),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A PTX language version. The default is 7.0, which has all that every kernel uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    major: u8,
    minor: u8,
}

impl Version {
    /// `major.minor`.
    pub const fn new(major: u8, minor: u8) -> Self {
        Self { major, minor }
    }
}

impl Default for Version {
    fn default() -> Self {
        Self::new(7, 0)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_is_found_by_its_number_and_called_by_it() {
        for target in Target::ALL {
            assert_eq!(Target::from_sm(target.sm()), Some(target));
            assert_eq!(target.name(), format!("sm_{}", target.sm()));
        }
        assert_eq!(Target::from_sm(75), None);
        assert_eq!(Target::Sm90a.name(), "sm_90a");
    }

    #[test]
    fn a_cubin_runs_on_later_parts_of_its_major_version_but_not_across_to_tegra() {
        let runs_on = |code: Target| Target::ALL.into_iter().filter(move |device| code.runs_on(*device));
        let served = |code| runs_on(code).map(Target::sm).collect::<Vec<_>>();
        assert_eq!(served(Target::Sm80), [80, 86, 89]);
        assert_eq!(served(Target::Sm86), [86, 89]);
        assert_eq!(served(Target::Sm87), [87]);
        assert_eq!(served(Target::Sm89), [89]);
        assert_eq!(served(Target::Sm90), [90]);
        assert_eq!(served(Target::Sm90a), [90]);
    }
}
