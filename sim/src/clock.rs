//! The GPU's clock (PTIMER): nanoseconds in steps of 32.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Nanoseconds since the machine "booted", as timestamps of semaphores and `GET_GPU_TIME` show them.
#[derive(Debug)]
pub(crate) struct Clock {
    boot: Instant,
}

impl Clock {
    /// A clock that already shows some seconds, as on a machine that has been up for a moment.
    pub(crate) fn new() -> Self {
        let boot = Instant::now().checked_sub(Duration::from_secs(60)).unwrap_or_else(Instant::now);
        Self { boot }
    }

    /// PTIMER: nanoseconds, a multiple of 32 (the source runs at 31.25 MHz).
    pub(crate) fn ptimer(&self) -> u64 {
        self.boot.elapsed().as_nanos() as u64 & !31
    }

    /// Time since boot, as the kernel log prints it.
    pub(crate) fn uptime(&self) -> Duration {
        self.boot.elapsed()
    }

    /// Wall-clock nanoseconds, as the error notifier records them.
    pub(crate) fn wall(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64)
    }
}
