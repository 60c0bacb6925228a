//! The GPU's clock beside the program's.

use std::time::{Duration, Instant};

use crate::error::Error;

/// Readings of the clock for one that counts: the quickest is the least uncertain.
const READINGS: usize = 16;
/// The step of the GPU's clock in ns (31.25 MHz on current chips).
const STEP: u64 = 32;

/// One moment on both clocks.
///
/// Two of them, some time apart, relate every timestamp between to the program's clock: the rates of the two
/// differ by some parts per million.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockPair {
    /// The GPU's clock in ns, the one that timestamps are taken from.
    pub gpu_ns: u64,
    /// The program's, in the middle of reading the other.
    pub cpu: Instant,
    /// Largest difference of the two: half of the time that reading took, and a step of the GPU's clock.
    pub error: Duration,
}

/// Reads the GPU's clock some times, the program's before and after each, and keeps the quickest.
pub(crate) fn pair(mut gpu_time: impl FnMut() -> Result<u64, Error>) -> Result<ClockPair, Error> {
    let mut read = || -> Result<ClockPair, Error> {
        let before = Instant::now();
        let gpu_ns = gpu_time()?;
        let half = before.elapsed() / 2;
        Ok(ClockPair { gpu_ns, cpu: before + half, error: half + Duration::from_nanos(STEP) })
    };
    let mut best = read()?;
    for _ in 1..READINGS {
        let next = read()?;
        if next.error < best.error {
            best = next;
        }
    }
    Ok(best)
}
