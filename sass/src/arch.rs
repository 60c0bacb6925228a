//! The instruction sets this crate knows.

use std::fmt;

/// The instruction set of one compute capability.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Arch {
    /// Ampere: GA100.
    Sm80,
    /// Ampere: GA102 to GA107.
    Sm86,
    /// Ampere: ga10b, the GPU of Jetson Orin.
    Sm87,
    /// Ada: AD102 to AD107.
    Sm89,
    /// Hopper: GH100.
    Sm90,
}

/// How instructions are encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// SM 8.0 to 8.9: Ampere and Ada.
    Sm8x,
    /// SM 9.0: Hopper.
    Sm9x,
}

impl Arch {
    /// All of them, ascending.
    pub const ALL: [Self; 5] = [Self::Sm80, Self::Sm86, Self::Sm87, Self::Sm89, Self::Sm90];

    /// The instruction set of a compute capability written as ptxas writes it (`87` for 8.7), if this crate
    /// knows it.
    pub const fn from_sm(sm: u32) -> Option<Self> {
        match sm {
            80 => Some(Self::Sm80),
            86 => Some(Self::Sm86),
            87 => Some(Self::Sm87),
            89 => Some(Self::Sm89),
            90 => Some(Self::Sm90),
            _ => None,
        }
    }

    /// The compute capability as ptxas writes it: 87 for 8.7.
    pub const fn sm(self) -> u32 {
        match self {
            Self::Sm80 => 80,
            Self::Sm86 => 86,
            Self::Sm87 => 87,
            Self::Sm89 => 89,
            Self::Sm90 => 90,
        }
    }

    /// How its instructions are encoded: which tables decode them.
    pub const fn encoding(self) -> Encoding {
        match self {
            Self::Sm80 | Self::Sm86 | Self::Sm87 | Self::Sm89 => Encoding::Sm8x,
            Self::Sm90 => Encoding::Sm9x,
        }
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}", self.sm())
    }
}
