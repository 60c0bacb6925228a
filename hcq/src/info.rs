//! Facts about a device by which a program chooses launches and buffer sizes.

use std::fmt;

use crate::error::{Error, OpenError};

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

/// Whether the GPU's level-2 cache may keep lines of bulk memory (buffers, code) of a Jetson, whose memory is
/// the CPU's too. Other GPUs decide that for themselves.
///
/// The CPU does not read that cache: what a kernel wrote stays there until it is written back, and what
/// it has read before is not read again after the CPU has changed it. With [`Keep`](Self::Keep) every
/// [`Buffer`](crate::Buffer) read and write by the CPU therefore has the driver write the cache back and
/// empty it first (`NVGPU_GPU_IOCTL_FLUSH_L2`); pushbuffers, signals and
/// [`alloc_host`](crate::Device::alloc_host) memory are never kept. `docs/gpu-cache.md` says what is known of
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GpuCache {
    /// Every access of the GPU reaches memory: what the driver does without a flag.
    Bypass,
    /// Lines may stay, and the CPU's accesses are preceded by a flush.
    Keep,
}

impl GpuCache {
    /// The environment variable that decides where
    /// [`DeviceOptions::gpu_cache`](crate::DeviceOptions::gpu_cache) does not: `off` or `on`.
    pub const VARIABLE: &str = "HCQ_GPU_CACHE";

    /// Reads [`VARIABLE`](Self::VARIABLE); [`Bypass`](Self::Bypass) when it is not set.
    ///
    /// # Errors
    /// [`OpenError::UnknownSetting`] for anything but `off` and `on`.
    pub fn from_env() -> Result<Self, Error> {
        let value = std::env::var_os(Self::VARIABLE).unwrap_or_default();
        match value.to_str() {
            Some("" | "off" | "0") => Ok(Self::Bypass),
            Some("on" | "1") => Ok(Self::Keep),
            _ => Err(Error::Open(OpenError::UnknownSetting {
                variable: Self::VARIABLE,
                value: value.to_string_lossy().into_owned(),
                expected: "off or on".into(),
            })),
        }
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
    /// Number of streaming multiprocessors.
    pub sm_count: u32,
    /// Number of texture processing clusters that scratch memory must be provided for: the most a graphics
    /// processing cluster can have, times the number of those.
    pub tpc_count: u32,
    /// Resident warps per SM (from the programming guide for the SM version).
    pub max_warps_per_sm: u32,
    /// Largest shared memory of one thread block in bytes, static and dynamic together (from the programming
    /// guide).
    pub max_shared_per_block: u64,
    /// Class numbers in use.
    pub classes: Classes,
    /// Bytes of memory the GPU can use; system memory on a device that shares it with the CPU.
    pub memory: u64,
    /// Whether buffers are the CPU's own memory, so that reading and writing them copies nothing across a
    /// bus.
    pub unified_memory: bool,
    /// Version of the driver, as far as it reports one.
    pub driver_version: String,
    /// Highest clock of the SMs in Hz, where the driver reports it.
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
