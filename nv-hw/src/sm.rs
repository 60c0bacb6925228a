//! Facts about the SMs of each compute capability, a row for each.
//!
//! Sources: warps, blocks and registers from the technical specifications per compute capability in the CUDA
//! C++ programming guide; carve-outs from CUDA's `cuda_occupancy.h`; QMD versions from `clc6c0qmd.h`,
//! `clc7c0qmd.h` and `clcbc0qmd.h` of NVIDIA's open-gpu-doc; encodings from comparison with `nvdisasm`.
//! SM 8.8: `ptxas` 13.5 refuses more than 16 blocks and 1,536 threads for each SM, `cuda_occupancy.h` of CUDA
//! 13.5 has its carve-outs, and `ptxas` 13.5 compiles the corpus of `sass` to the same bytes as for 8.6 or 8.7.

use core::fmt;

use crate::qmd_version::QmdVersion;

/// Encoding of instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// SM 8.0 to 8.9: Ampere and Ada.
    Sm8x,
    /// SM 9.0: Hopper.
    Sm9x,
}

/// Properties of an SM from which its limits follow.
struct Row {
    sm: u32,
    encoding: Encoding,
    qmd: QmdVersion,
    is_run: bool,
    max_warps: u32,
    max_blocks: u32,
    carve_outs: usize,
}

/// Shared-memory carve-outs in KiB; parts differ in how far down the list they go.
const CARVE_OUTS_KIB: [u32; 10] = [0, 8, 16, 32, 64, 100, 132, 164, 196, 228];

/// Declares the SMs. `run` by what is known to take launches of the QMD version, or `decoded` alone, where no
/// header names the compute class and descriptors are read as those of the generation.
macro_rules! sms {
    ($(
        $(#[$doc:meta])*
        $name:ident = $sm:literal $encoding:ident $how:ident $qmd:ident,
            $warps:literal warps, $blocks:literal blocks, $carve_outs:literal carve_outs;
    )*) => {
        /// A compute capability: the instruction set of a GPU, its limits, and the launch descriptor it takes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Sm {
            $($(#[$doc])* $name,)*
        }

        impl Sm {
            /// All of them, ascending.
            pub const ALL: [Self; [$($sm),*].len()] = [$(Self::$name),*];

            const fn row(self) -> Row {
                match self {
                    $(Self::$name => Row {
                        sm: $sm,
                        encoding: Encoding::$encoding,
                        qmd: QmdVersion::$qmd,
                        is_run: sms!(@ $how),
                        max_warps: $warps,
                        max_blocks: $blocks,
                        carve_outs: $carve_outs,
                    },)*
                }
            }

            /// The SM of a compute capability written as a number, 87 for 8.7.
            #[must_use]
            pub const fn from_sm(sm: u32) -> Option<Self> {
                match sm {
                    $($sm => Some(Self::$name),)*
                    _ => None,
                }
            }
        }
    };
    (@ run) => { true };
    (@ decoded) => { false };
}

sms! {
    /// GA100.
    Sm80 = 80 Sm8x run V03, 64 warps, 32 blocks, 8 carve_outs;
    /// GA102 to GA107.
    Sm86 = 86 Sm8x run V03, 48 warps, 16 blocks, 6 carve_outs;
    /// ga10b, the GPU of Jetson Orin.
    Sm87 = 87 Sm8x run V03, 48 warps, 16 blocks, 8 carve_outs;
    /// A compute capability that CUDA 13 knows; no public header names its GPU. Decoded, not run.
    Sm88 = 88 Sm8x decoded V03, 48 warps, 16 blocks, 6 carve_outs;
    /// AD102 to AD107.
    Sm89 = 89 Sm8x run V03, 48 warps, 24 blocks, 6 carve_outs;
    /// GH100.
    Sm90 = 90 Sm9x run V04, 64 warps, 32 blocks, 10 carve_outs;
}

impl Sm {
    /// The compute capability as a number, 87 for 8.7.
    #[must_use]
    pub const fn sm(self) -> u32 {
        self.row().sm
    }

    /// Whether it is known to take launch descriptors of [`version`](Self::version). Where it is not, code is
    /// decoded and nothing is launched.
    #[must_use]
    pub const fn is_run(self) -> bool {
        self.row().is_run
    }

    /// Returns the encoding of its instructions, which decides the tables that decode them.
    #[must_use]
    pub const fn encoding(self) -> Encoding {
        self.row().encoding
    }

    /// The QMD version its compute class takes.
    #[must_use]
    pub const fn version(self) -> QmdVersion {
        self.row().qmd
    }

    /// The value of `SASS_VERSION`: major in the upper, minor in the lower four bits.
    #[must_use]
    pub const fn sass_version(self) -> u8 {
        (((self.sm() / 10) << 4) | (self.sm() % 10)) as u8
    }

    /// The SM whose [`sass_version`](Self::sass_version) this is.
    #[must_use]
    pub const fn from_sass_version(version: u8) -> Option<Self> {
        Self::from_sm((version >> 4) as u32 * 10 + (version & 15) as u32)
    }

    /// The shared-memory carve-outs of an SM in KiB, ascending.
    ///
    /// A launch that names any other size is accepted and never placed.
    #[must_use]
    pub const fn carve_outs_kib(self) -> &'static [u32] {
        CARVE_OUTS_KIB.split_at(self.row().carve_outs).0
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
        self.row().max_warps
    }

    /// Most blocks an SM holds.
    #[must_use]
    pub const fn max_blocks(self) -> u32 {
        self.row().max_blocks
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

impl fmt::Display for Sm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}", self.sm())
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::string::ToString;

    use super::*;

    #[test]
    fn an_sm_is_found_by_its_number_and_by_the_version_of_its_code() {
        for sm in Sm::ALL {
            assert_eq!(
                (Sm::from_sm(sm.sm()), Sm::from_sass_version(sm.sass_version())),
                (Some(sm), Some(sm))
            );
        }
        assert_eq!((Sm::from_sm(75), Sm::from_sass_version(0x75)), (None, None));
        assert_eq!((Sm::Sm87.to_string().as_str(), Sm::Sm87.sass_version()), ("sm_87", 0x87));
    }

    #[test]
    fn one_sm_is_decoded_and_not_run() {
        assert!(Sm::ALL.into_iter().filter(|sm| !sm.is_run()).eq([Sm::Sm88]));
    }

    #[test]
    fn the_largest_block_takes_the_largest_carve_out() {
        let largest = Sm::ALL.map(Sm::max_shared_bytes);
        assert_eq!(largest, [164 << 10, 100 << 10, 164 << 10, 100 << 10, 100 << 10, 228 << 10]);
        assert_eq!((Sm::Sm86.carve_out_for(65 << 10), Sm::Sm86.carve_out_for(101 << 10)), (Some(100), None));
    }
}
