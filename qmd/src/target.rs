//! The GPUs a QMD can be built for, and their limits.

use std::fmt;

use crate::version::Version;

/// A compute capability: decides the QMD version and the limits the builder enforces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Target {
    /// GA100.
    Sm80,
    /// GA102 to GA107.
    Sm86,
    /// ga10b, the GPU of Jetson Orin.
    Sm87,
    /// AD102 to AD107.
    Sm89,
    /// GH100.
    Sm90,
}

/// Size of the per-block area CUDA keeps for itself in shared memory, in bytes.
pub const RESERVED_SHARED_BYTES: u32 = 0x400;

/// Shared-memory carve-outs in KiB; parts differ in how far down the list they go.
const CARVE_OUTS_KIB: [u32; 10] = [0, 8, 16, 32, 64, 100, 132, 164, 196, 228];

impl Target {
    /// The target for a compute capability written as a number, 87 for 8.7.
    #[must_use]
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

    /// The compute capability as a number, 87 for 8.7.
    #[must_use]
    pub const fn sm(self) -> u32 {
        match self {
            Self::Sm80 => 80,
            Self::Sm86 => 86,
            Self::Sm87 => 87,
            Self::Sm89 => 89,
            Self::Sm90 => 90,
        }
    }

    /// The QMD version its compute class takes.
    #[must_use]
    pub const fn version(self) -> Version {
        match self {
            Self::Sm80 | Self::Sm86 | Self::Sm87 | Self::Sm89 => Version::V03,
            Self::Sm90 => Version::V04,
        }
    }

    /// The value of `SASS_VERSION`: major in the upper, minor in the lower four bits.
    #[must_use]
    pub const fn sass_version(self) -> u8 {
        (((self.sm() / 10) << 4) | (self.sm() % 10)) as u8
    }

    /// The target whose [`sass_version`](Self::sass_version) this is.
    #[must_use]
    pub const fn from_sass_version(version: u8) -> Option<Self> {
        Self::from_sm((version >> 4) as u32 * 10 + (version & 15) as u32)
    }

    /// The shared-memory carve-outs of an SM in KiB, ascending.
    ///
    /// A launch that names any other size is accepted and never placed.
    #[must_use]
    pub fn carve_outs_kib(self) -> &'static [u32] {
        match self {
            Self::Sm86 | Self::Sm89 => &CARVE_OUTS_KIB[..6],
            Self::Sm80 | Self::Sm87 => &CARVE_OUTS_KIB[..8],
            Self::Sm90 => &CARVE_OUTS_KIB,
        }
    }

    /// The smallest carve-out in KiB that holds `bytes`; `None` if the largest does not.
    #[must_use]
    pub fn carve_out_for(self, bytes: u32) -> Option<u32> {
        self.carve_outs_kib().iter().copied().find(|kib| kib * 1024 >= bytes)
    }

    /// Largest shared memory of one block in bytes, CUDA's reserved area included.
    #[must_use]
    pub fn max_shared_bytes(self) -> u32 {
        self.carve_outs_kib().last().map_or(0, |kib| kib * 1024)
    }

    /// Registers in one of the four partitions of an SM.
    #[must_use]
    pub const fn partition_registers(self) -> u32 {
        16384
    }

    /// Most warps an SM holds.
    #[must_use]
    pub const fn max_warps(self) -> u32 {
        match self {
            Self::Sm80 | Self::Sm90 => 64,
            Self::Sm86 | Self::Sm87 | Self::Sm89 => 48,
        }
    }

    /// Warps of `registers` registers per thread that fit into the register file of an SM. The SM may hold
    /// fewer.
    ///
    /// Registers are allocated per warp in units of 256, warps over four partitions (the rule of CUDA's
    /// occupancy header).
    #[must_use]
    pub const fn warps_by_registers(self, registers: u32) -> u32 {
        let units = registers.saturating_mul(32).div_ceil(256);
        let per_warp = if units == 0 { 256 } else { units.saturating_mul(256) };
        4 * (self.partition_registers() / per_warp)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}", self.sm())
    }
}

/// The code of a carve-out in the `*_SM_CONFIG_SHARED_MEM_SIZE` fields.
pub(crate) const fn carve_out_code(kib: u32) -> u32 {
    kib / 4 + 1
}

/// The carve-out in KiB that a code stands for; `None` for 0, which stands for none.
pub(crate) const fn carve_out_kib(code: u32) -> Option<u32> {
    match code.checked_sub(1) {
        Some(quarter) => Some(quarter * 4),
        None => None,
    }
}
