//! The instruction sets this crate knows.

use std::fmt;

/// An instruction set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Arch {
    /// Ampere and Ada: SM 8.0 to 8.7 and 8.9 share one encoding.
    Sm87,
    /// Hopper: SM 9.0.
    Sm90,
}

impl Arch {
    /// The instruction set of a compute capability written as ptxas writes it (`87` for 8.7), if this crate knows it.
    pub const fn from_sm(sm: u32) -> Option<Self> {
        match sm {
            80..=87 | 89 => Some(Self::Sm87),
            90 => Some(Self::Sm90),
            _ => None,
        }
    }

    /// The compute capability whose tables are used: 87 or 90.
    pub const fn sm(self) -> u32 {
        match self {
            Self::Sm87 => 87,
            Self::Sm90 => 90,
        }
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}", self.sm())
    }
}
