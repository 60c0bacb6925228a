//! What PTX is written for: GPU generations and versions of the language.

use std::fmt;

/// A GPU generation to compile for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// Tegra ga10b (Orin).
    Sm87,
    /// Hopper (H100, H200).
    Sm90,
}

impl Target {
    /// All of them.
    pub const ALL: [Target; 2] = [Target::Sm87, Target::Sm90];

    /// As ptxas spells it.
    pub const fn name(self) -> &'static str {
        match self {
            Target::Sm87 => "sm_87",
            Target::Sm90 => "sm_90",
        }
    }

    /// The first PTX version that knows it.
    pub(crate) const fn since(self) -> Version {
        match self {
            Target::Sm87 => Version::new(7, 4),
            Target::Sm90 => Version::new(7, 8),
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
