//! Barrier objects in shared memory (`mbarrier`): the effect of arrivals and bytes on their 64 bits.

/// Arrival of one thread, or of a copy that has ended, at an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Arrival {
    /// Arrivals of the current phase.
    pub count: u32,
    /// Bytes that it is to expect; negative: that have come.
    pub bytes: i64,
    /// The thread drops out of the following phases.
    pub leaves: bool,
}

/// Name of the count that leaves its range in an object.
pub(crate) type Overflow = &'static str;

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

/// The counts of an object are 20 bits wide.
const COUNT: u64 = 0xf_ffff;
/// First bit of 2^20 - n, of n expected arrivals.
const EXPECTED: u32 = 1;
/// First bit of the bytes that are expected and have not come: 22 bits, signed.
const BYTES: u32 = 21;
/// First bit of 2^20 - p, of p pending arrivals; the phase is above it.
const PENDING: u32 = 43;

/// An arrival on SM 9.0. Expected and pending arrivals and the phase lie where the code that ptxas makes reads
/// them; no code reads the bytes, whose place is assumed. When no arrival is pending and no byte, the phase
/// flips and the count starts again.
///
/// # Errors
/// PTX does not define more arrivals than a phase has, nor more than 2^20 - 1 bytes.
pub(crate) fn arrive_9x(state: u64, arrival: Arrival) -> Result<u64, Overflow> {
    let mut expected = state >> EXPECTED & COUNT;
    if arrival.leaves {
        expected = (expected + 1) & COUNT;
    }
    // 2^20 - 0 has lost its upper bit: all have arrived, bytes are missing.
    let arrived = match state >> PENDING & COUNT {
        0 => COUNT + 1,
        field => field,
    } + u64::from(arrival.count);
    if arrived > COUNT + 1 {
        return Err("arrivals at a barrier object");
    }
    let bytes = (((state >> BYTES) as i32) << 10 >> 10) as i64 + arrival.bytes;
    if bytes.unsigned_abs() > COUNT {
        return Err("bytes that a barrier object expects");
    }
    let ends = arrived == COUNT + 1 && bytes == 0;
    let (phase, arrived) = if ends { (!state >> 63, expected) } else { (state >> 63, arrived & COUNT) };
    let bytes = bytes as u64 & ((1 << (PENDING - BYTES)) - 1);
    Ok(phase << 63 | arrived << PENDING | bytes << BYTES | expected << EXPECTED | (state & 1))
}

/// The current phase of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Phase {
    pub parity: u32,
    /// Arrivals that end it, and those that are missing.
    pub expected: u32,
    pub missing: u32,
}

impl Phase {
    /// Of an object on SM 8.x.
    pub fn of_8x(word: u64) -> Self {
        let (expected, state) = (word as u32, (word >> 32) as u32);
        Phase {
            parity: state >> 31,
            expected: 0x4000_0000u32.wrapping_sub(expected) & 0x7fff_ffff,
            missing: 0x8000_0000 - (state & 0x7fff_ffff),
        }
    }

    /// Of an object on SM 9.0.
    pub fn of_9x(state: u64) -> Self {
        let left = |field: u64| ((COUNT + 1 - (field & COUNT)) & COUNT) as u32;
        let (expected, missing) = (left(state >> EXPECTED), left(state >> PENDING));
        Phase { parity: (state >> 63) as u32, expected, missing }
    }
}

/// Whether an arrival ended a phase.
pub(crate) fn ends_phase(before: u64, after: u64) -> bool {
    (before ^ after) >> 63 != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Arrival = Arrival { count: 1, bytes: 0, leaves: false };

    fn start(n: u64) -> u64 {
        (0x10_0000 - n) << 1 | ((0x10_0000 - n) << 11) << 32
    }

    fn pending(state: u64) -> u64 {
        (0x10_0000 - (state >> 43 & 0xf_ffff)) & 0xf_ffff
    }

    #[test]
    fn the_state_of_an_object_says_what_is_missing() {
        // As `mbarrier.init` of SM 8.x leaves it: 2^30 - 3, and 2^31 - 3 above.
        let mut word = 0x3fff_fffd | 0x7fff_fffd << 32;
        for (parity, missing) in [(0, 3), (0, 2), (0, 1), (1, 3), (1, 2)] {
            assert_eq!(Phase::of_8x(word), Phase { parity, expected: 3, missing });
            word = arrive_8x(word);
        }
        let mut state = start(2);
        for (parity, missing) in [(0, 2), (0, 1), (1, 2)] {
            assert_eq!(Phase::of_9x(state), Phase { parity, expected: 2, missing });
            state = arrive_9x(state, ONE).unwrap();
        }
    }

    #[test]
    fn a_phase_ends_with_its_last_arrival() {
        let arrive = |state, leaves| arrive_9x(state, Arrival { leaves, ..ONE }).unwrap();
        let mut state = start(3);
        for left in [2, 1] {
            state = arrive(state, false);
            assert_eq!((pending(state), state >> 63), (left, 0));
        }
        state = arrive(state, true);
        assert_eq!((pending(state), state >> 63), (2, 1), "one has left for good");
        state = arrive(arrive(state, false), false);
        assert_eq!((pending(state), state >> 63), (2, 0));
    }

    #[test]
    fn a_phase_ends_when_its_bytes_have_come_too_in_either_order() {
        let expect = Arrival { bytes: 4096, ..ONE };
        let come = |bytes: i64| Arrival { bytes: -bytes, ..Arrival::default() };
        for order in [[expect, come(1024), come(3072)], [come(1024), come(3072), expect]] {
            let mut state = start(1);
            for (i, step) in order.into_iter().enumerate() {
                assert_eq!(state >> 63, 0, "step {i} of {order:?}");
                state = arrive_9x(state, step).unwrap();
            }
            assert_eq!(state, start(1) | 1 << 63);
        }
    }

    #[test]
    fn too_many_arrivals_and_bytes_are_refused() {
        let waits = arrive_9x(start(1), Arrival { bytes: 16, ..ONE }).unwrap();
        assert_eq!(arrive_9x(waits, ONE), Err("arrivals at a barrier object"));
        let most = Arrival { bytes: 0xf_ffff, ..Arrival::default() };
        let full = arrive_9x(start(1), most).unwrap();
        let one_more = Arrival { bytes: 1, ..Arrival::default() };
        assert_eq!(arrive_9x(full, one_more), Err("bytes that a barrier object expects"));
        assert_eq!(arrive_9x(start(2), Arrival { count: 3, ..ONE }), Err("arrivals at a barrier object"));
    }
}
