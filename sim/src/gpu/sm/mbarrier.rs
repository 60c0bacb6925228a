//! Barrier objects in shared memory (`mbarrier`): what an arrival makes of their 64 bits.

/// An arrival on SM 8.x: the upper word counts up; when its low 31 bits wrap, the carry flips the phase in
/// bit 31 and the count starts again from the lower word.
pub(crate) fn arrive_8x(word: u64) -> u64 {
    let (expected, state) = (word as u32, (word >> 32) as u32);
    let next = state.wrapping_add(1);
    let next = if (state ^ next) & 0x8000_0000 != 0 {
        // The lower word holds 2^30 - n, a phase begins at 2^31 - n.
        (next & 0x8000_0000) | (expected.wrapping_add(0x4000_0000) & 0x7fff_ffff)
    } else {
        next
    };
    u64::from(expected) | u64::from(next) << 32
}

/// Arrivals on SM 9.0, as the code that ptxas makes reads the object: the lower word holds 2^20 - n of n
/// expected arrivals in [1,21), the upper one 2^20 - p of p pending ones in [11,31) and the phase in bit 31.
/// When none is pending, the phase flips and the count starts again.
pub(crate) fn arrive_9x(state: u64, count: u32, leaves: bool) -> u64 {
    let (mut expected, upper) = (state as u32, (state >> 32) as u32);
    if leaves {
        expected = expected.wrapping_add(2);
    }
    let next = upper.wrapping_add(count << 11);
    let next = if (upper ^ next) >> 31 != 0 {
        (next & 0x8000_07ff) | (expected >> 1 & 0xf_ffff) << 11
    } else {
        next
    };
    u64::from(expected) | u64::from(next) << 32
}

#[cfg(test)]
mod tests {
    use super::arrive_9x as arrive;

    #[test]
    fn a_phase_ends_with_its_last_arrival() {
        let start = |n: u64| (0x10_0000 - n) << 1 | ((0x10_0000 - n) << 11) << 32;
        let pending = |s: u64| 0x10_0000 - (s >> 43 & 0xf_ffff);
        let mut state = start(3);
        for left in [2, 1] {
            state = arrive(state, 1, false);
            assert_eq!((pending(state), state >> 63), (left, 0));
        }
        state = arrive(state, 1, true);
        assert_eq!((pending(state), state >> 63), (2, 1), "one has left for good");
        state = arrive(arrive(state, 1, false), 1, false);
        assert_eq!((pending(state), state >> 63), (2, 0));
    }
}
