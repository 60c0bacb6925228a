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

/// The bit of each lane in a mask.
static BITS: [u32; 32] = {
    let (mut bits, mut i) = ([0; 32], 0);
    while i < 32 {
        bits[i] = 1 << i;
        i += 1;
    }
    bits
};

/// Whether `lane` is in `mask`. In a loop over the lanes this is one vector test; with a shift by the lane
/// the compiler takes the sign bit apart from the others.
#[inline(always)]
pub(crate) fn has(mask: u32, lane: usize) -> bool {
    mask & BITS[lane & 31] != 0
}

/// All ones if `lane` is in `mask`, else zero.
#[inline(always)]
pub(crate) fn spread(mask: u32, lane: usize) -> u32 {
    u32::from(has(mask, lane)).wrapping_neg()
}

/// A value of each lane. Unlike `std::array::from_fn` and `map`, which may stay calls of code for the
/// baseline, it becomes a part of the operation that it is in.
#[inline(always)]
pub(crate) fn each<T: Copy + Default>(f: impl Fn(usize) -> T) -> [T; 32] {
    let mut t = [T::default(); 32];
    for i in 0..32 {
        t[i] = f(i);
    }
    t
}

/// Instruction set of the host, which selects a copy of the operations.
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
