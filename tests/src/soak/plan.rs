//! The plan of a run, and the measurements of the process.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};

/// Counts and times of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Launches of one queue, each its own submission.
    pub launches: u32,
    /// Threads that share a device.
    pub threads: u32,
    /// Time for which they do.
    pub time: Duration,
    /// Queues that are created, used and dropped, one after the other.
    pub queues: u32,
    /// Orders in which a device and five objects of it are dropped, of 720 that there are.
    pub orders: u32,
    /// Each how many-th call of the driver fails, in each manner; 1 for all.
    pub failures: u32,
    /// Processes that are killed with work in flight, and forks.
    pub kills: u32,
    /// The program `hcq-soak`, which is started for other processes.
    pub program: PathBuf,
    /// Seed of what the threads choose.
    pub seed: u64,
}

/// The result of a part.
#[derive(Clone, Debug)]
pub struct Part {
    /// In words.
    pub what: String,
    /// Its time.
    pub elapsed: Duration,
    /// Memory of the process afterwards, in KiB.
    pub resident_kib: u64,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, resident) = (self.elapsed.as_secs_f64(), self.resident_kib / 1024);
        write!(f, "{}: {seconds:.1} s, {resident} MiB resident afterwards", self.what)
    }
}

/// Descriptors that the process has open.
pub(super) fn descriptors() -> Result<usize> {
    Ok(std::fs::read_dir("/proc/self/fd").context("/proc/self/fd")?.count())
}

/// Memory that the process holds.
pub(super) fn resident_kib() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status").context("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next()).context("no VmRSS")?;
    Ok(number.parse()?)
}
