//! The copy rate of a device, to compare kernels that read memory with.

use std::time::{Duration, Instant};

use hcq::{Buffer, Device, Queue};
use serde::Serialize;

use ga10b_llm::Result;

/// Measurements, of which the median counts.
const SAMPLES: usize = 11;
/// Copies per measurement.
const COPIES: u64 = 4;
/// The longest that a measurement may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Bytes to copy on a GPU with its own memory: several times the largest level-2 cache (60 MB on an H200).
pub const LARGE: u64 = 256 << 20;
/// Bytes to copy if memory is shared with the CPU: it is scarce, and the cache small (4 MiB on an Orin).
pub const SMALL: u64 = 64 << 20;

/// The unit that copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CopyBy {
    /// A kernel on all SMs.
    Kernel,
    /// A copy engine.
    CopyEngine,
}

impl CopyBy {
    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kernel => "a kernel",
            Self::CopyEngine => "a copy engine",
        }
    }
}

/// A measured copy rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CopyBandwidth {
    /// Bytes read and written per ns: the median of the faster way.
    pub gigabytes_per_second: f64,
    /// The faster way.
    pub by: CopyBy,
    /// Size of the copied buffer.
    pub buffer_bytes: u64,
}

impl CopyBandwidth {
    /// Copies `bytes` bytes from one buffer to another on the device, by a kernel (if the device's options
    /// let kernels make copies of that size) and by a copy engine, after at least one copy and `warm_up`
    /// each. Timed by the GPU.
    ///
    /// # Errors
    /// The device's errors, for example memory that is used up.
    pub fn measure(device: &Device, bytes: u64, warm_up: Duration) -> Result<Self> {
        let (from, to) = (device.alloc(bytes)?, device.alloc(bytes)?);
        let by_kernel = median(&mut device.queue()?, &from, &to, warm_up)?;
        let by_engine = median(&mut device.copy_queue()?, &from, &to, warm_up)?;
        let (ns, by) = match by_kernel < by_engine {
            true => (by_kernel, CopyBy::Kernel),
            false => (by_engine, CopyBy::CopyEngine),
        };
        let moved = 2 * COPIES * bytes;
        Ok(Self { gigabytes_per_second: moved as f64 / ns.max(1) as f64, by, buffer_bytes: bytes })
    }
}

/// Time of [`COPIES`] copies in ns.
fn median(queue: &mut Queue, from: &Buffer, to: &Buffer, warm_up: Duration) -> Result<u64> {
    let mut sample = || -> Result<u64> {
        let start = queue.timestamp()?;
        for _ in 0..COPIES {
            queue.copy(from, 0, to, 0, from.len())?;
        }
        let end = queue.timestamp()?;
        queue.submit()?.wait(PATIENCE)?;
        Ok(end.ns().zip(start.ns()).map_or(0, |(end, start)| end.saturating_sub(start)))
    };
    let begin = Instant::now();
    sample()?;
    while begin.elapsed() < warm_up {
        sample()?;
    }
    let mut times = (0..SAMPLES).map(|_| sample()).collect::<Result<Vec<_>>>()?;
    times.sort_unstable();
    Ok(times[SAMPLES / 2])
}
