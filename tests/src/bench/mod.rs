//! Benchmarks: the device under test, its kernels, and what was measured so far. `hcq-bench` runs them.

pub mod control_loop;
mod copies;
mod launches;
pub mod table;

use std::time::{Duration, Instant};

use crate::kernels::{BENCH, SUITE, arch, early_cubin};
use anyhow::{Context, Result};
use hcq::{Args, BackendKind, Buffer, Device, Kernel, LaunchConfig, Program};

use crate::bench::table::Figure;

/// Deadline of the GPU for anything.
pub const DEADLINE: Duration = Duration::from_secs(60);
/// Bytes of a MiB.
pub const MIB: u64 = 1 << 20;
/// Work before the first figure.
pub const WARM: Duration = Duration::from_millis(1500);
/// Work before each of the figures during which most of the GPU is idle.
pub const WARM_AGAIN: Duration = Duration::from_millis(300);

/// A device, and what was measured on it.
#[derive(Debug)]
pub struct Bench {
    /// The device.
    pub device: Device,
    /// The kernels of `tests/kernels/bench.ptx`.
    pub program: Program,
    fill: Kernel,
    /// The figures so far.
    pub figures: Vec<Figure>,
}

/// Microseconds since `since`.
pub fn us(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e6
}

impl Bench {
    /// The kernels are loaded, and nothing is measured.
    ///
    /// # Errors
    /// Those of loading them.
    pub fn new(device: Device) -> Result<Self> {
        let program = device.load(BENCH).context("loading the kernels")?;
        let fill = device.load(SUITE)?.kernel("fill")?;
        Ok(Self { device, program, fill, figures: Vec::new() })
    }

    /// Adds a row.
    pub fn record(&mut self, name: impl Into<String>, unit: &'static str, samples: Vec<f64>) {
        self.figures.push(Figure::new(name, unit, samples));
    }

    /// Whether the GPU is software, whose times say nothing about a GPU.
    #[must_use]
    pub fn is_software(&self) -> bool {
        self.device.info().backend == BackendKind::Sim
    }

    /// Keeps the whole GPU busy for a while: an idle one lowers its clocks within a second, and takes more
    /// than one of work to raise them again. The software GPU has none.
    pub fn warm_up(&self, time: Duration) -> Result<()> {
        if self.is_software() {
            return Ok(());
        }
        let count = 1 << 20;
        let out = self.device.alloc(4 * u64::from(count))?;
        let (mut queue, began) = (self.device.queue()?, Instant::now());
        let args = Args::new().buffer(&out).u32(count).u32(0);
        while began.elapsed() < time {
            for _ in 0..20 {
                // SAFETY: the kernel writes `count` words, all of `out`.
                unsafe { queue.launch(&self.fill, LaunchConfig::new(count / 1024, 1024), &args)? };
            }
            queue.submit()?.wait(DEADLINE)?;
        }
        Ok(())
    }

    /// A kernel that works on one word of `data`, `offset` bytes in.
    pub fn on_word(&self, name: &str, data: &Buffer, offset: u64) -> Result<(Kernel, Args)> {
        Ok((self.program.kernel(name)?, Args::new().buffer_at(data, offset).u32(1)))
    }

    /// A kernel that waits for the grid before it and then works on the first word of `data`, where the
    /// device has code for one.
    pub fn on_word_early(&self, name: &str, data: &Buffer) -> Result<Option<(Kernel, Args)>> {
        let Some(cubin) = early_cubin(arch(&self.device)?) else { return Ok(None) };
        let kernel = self.device.load(cubin).context("loading the kernels")?.kernel(name)?;
        Ok(Some((kernel, Args::new().buffer(data).u32(1))))
    }
}
