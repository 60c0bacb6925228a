//! What a device is: the facts a program chooses launches and buffer sizes by.

use std::fmt;

use crate::address::Bytes;
use crate::selector::GpuCache;

/// The driver that serves a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BackendKind {
    /// Tegra's `nvgpu.ko` and `nvmap.ko`.
    Nvgpu,
    /// The desktop driver's resource manager.
    Rm,
    /// The software ga10b, through the nvgpu backend.
    Sim,
}

impl fmt::Display for BackendKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nvgpu => "nvgpu",
            Self::Rm => "rm",
            Self::Sim => "sim",
        })
    }
}

/// Class numbers of the objects a channel talks to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Classes {
    /// Compute: 0xC7C0 on ga10b, 0xCBC0 on Hopper.
    pub compute: u32,
    /// Copy engine: 0xC7B5 on ga10b, 0xC8B5 on Hopper.
    pub copy: u32,
    /// The channel itself: 0xC76F on ga10b, 0xC86F on Hopper.
    pub channel: u32,
}

/// A device's description. Numbers come from the driver, except where a field says otherwise.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Info {
    /// Marketing or chip name, e.g. `ga10b`.
    pub name: String,
    /// The driver that serves it.
    pub backend: BackendKind,
    /// SM version as the driver gives it: major in bits 15:8, minor in bits 7:0 (0x807 = 8.7).
    pub sm: u32,
    /// The instruction set that goes with `sm`.
    pub arch: sass::Arch,
    /// Number of streaming multiprocessors.
    pub sm_count: u32,
    /// Number of texture processing clusters that scratch memory must be provided for: the most a graphics processing
    /// cluster can have, times the number of those.
    pub tpc_count: u32,
    /// Resident warps per SM (from the programming guide for the SM version).
    pub max_warps_per_sm: u32,
    /// Largest shared memory of one thread block, static and dynamic together (from the programming guide).
    pub max_shared_per_block: Bytes,
    /// Class numbers in use.
    pub classes: Classes,
    /// Memory the GPU can use; system memory on a device that shares it with the CPU.
    pub memory: Bytes,
    /// Whether buffers are the CPU's own memory, so that reading and writing them copies nothing across a bus.
    pub unified_memory: bool,
    /// Version of the driver, as far as it tells.
    pub driver_version: String,
    /// Highest clock of the SMs in Hz, where the driver tells.
    pub max_clock_hz: Option<u64>,
    /// Whether the GPU's level-2 cache may keep bulk memory, where that was for us to say.
    pub gpu_cache: Option<GpuCache>,
}

impl Info {
    /// The `sm_NN` number, e.g. 87.
    pub fn sm_number(&self) -> u32 {
        (self.sm >> 8) * 10 + (self.sm & 0xff)
    }
}
