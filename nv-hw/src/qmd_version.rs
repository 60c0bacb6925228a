//! Versions of the queue metadata (QMD), the structure that describes a launch to the compute scheduler.
//!
//! Source: `clc7c0qmd.h`, `clcbc0qmd.h`.

use core::fmt;

/// Alignment of a QMD in GPU memory, in bytes.
pub const QMD_ALIGN: u64 = 256;

/// A QMD layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QmdVersion {
    /// v3.0, 256 bytes: Ampere.
    V03,
    /// v4.0, 384 bytes: Hopper.
    V04,
}

impl QmdVersion {
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
        self.size().next_multiple_of(QMD_ALIGN as usize)
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

impl fmt::Display for QmdVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}.0", self.major())
    }
}
