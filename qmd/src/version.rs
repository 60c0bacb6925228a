//! The versions of the structure.

use std::fmt;

/// Alignment of a QMD in GPU memory, in bytes.
pub const ALIGN: u64 = 256;

/// A QMD layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Version {
    /// v3.0, 256 bytes: Ampere.
    V03,
    /// v4.0, 384 bytes: Hopper.
    V04,
}

impl Version {
    /// Size of the structure in bytes.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::V03 => 256,
            Self::V04 => 384,
        }
    }

    /// Distance between QMDs that lie one after the other, in bytes: a QMD starts on a multiple of 256.
    #[must_use]
    pub const fn stride(self) -> usize {
        self.size().next_multiple_of(ALIGN as usize)
    }

    /// The number in `QMD_MAJOR_VERSION`; the minor version is 0 in both.
    #[must_use]
    pub const fn major(self) -> u32 {
        match self {
            Self::V03 => 3,
            Self::V04 => 4,
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}.0", self.major())
    }
}
