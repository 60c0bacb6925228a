//! Values of a whole warp, and the vector instructions that this host has for them.

/// One 32-bit register of all lanes.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct Lanes(pub [u32; 32]);

impl Lanes {
    pub const ZERO: Lanes = Lanes([0; 32]);

    pub const fn splat(x: u32) -> Self {
        Lanes([x; 32])
    }
}

/// Which copy of the operations to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Isa {
    /// Compiled for the baseline of the target.
    Baseline,
    /// Compiled for AVX2, FMA and the bit instructions that come with them.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// Compiled for these and AVX-512 F, CD, BW, DQ and VL.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Isa {
    /// The best one that this host has.
    pub fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("popcnt")
            && is_x86_feature_detected!("f16c")
        {
            let avx512 = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512cd")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl");
            return if avx512 { Isa::Avx512 } else { Isa::Avx2 };
        }
        Isa::Baseline
    }
}
