//! Description of a device: the most important facts.

use std::io::{self, Write};

use serde::Serialize;

use crate::characteristics::Characteristics;
use crate::doctor::surroundings::Surroundings;
use crate::hex::Hex;
use crate::report::Report;
use crate::report::style::{ASIDE, HEADING, NAME};
use crate::size::size;

/// A device's description.
#[derive(Clone, Debug, Serialize)]
pub struct DeviceInfo {
    /// Chip or marketing name.
    pub name: String,
    /// The driver that serves it: `nvgpu`, `rm` or `sim`.
    pub backend: String,
    /// Version of the driver, if it reports one.
    pub driver_version: String,
    /// Compute capability, e.g. `8.7`.
    pub compute_capability: String,
    /// The instruction set, e.g. `sm_87`.
    pub arch: String,
    /// Streaming multiprocessors.
    pub sm_count: u32,
    /// Texture processing clusters that scratch memory is provided for.
    pub tpc_count: u32,
    /// Warps an SM holds.
    pub max_warps_per_sm: u32,
    /// Shared memory one block can have.
    pub max_shared_per_block_bytes: u64,
    /// Highest clock of the SMs.
    pub max_clock_hz: Option<u64>,
    /// Memory the GPU can use.
    pub memory_bytes: u64,
    /// Whether that is the CPU's own memory.
    pub unified_memory: bool,
    /// Classes of the objects a channel talks to.
    pub classes: Vec<Class>,
    /// Windows through which kernels reach shared and local memory.
    pub windows: Vec<Window>,
    /// Mappings in the address space of the process.
    pub mappings: Vec<Mapping>,
    /// Whether the GPU's level-2 cache may keep buffers; `null` where that is not for the program to say.
    pub gpu_cache: Option<bool>,
    /// Facts about the GPU from the machine instead of the driver; absent for GPUs that are not a Jetson's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<Surroundings>,
    /// Report of nvgpu; absent for other drivers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nvgpu: Option<Characteristics>,
    /// Whether all of that is printed as text, too.
    #[serde(skip)]
    pub all: bool,
}

/// A class of engine objects.
#[derive(Clone, Debug, Serialize)]
pub struct Class {
    /// Purpose: `compute`, `copy` or `channel`.
    pub role: &'static str,
    /// Its number.
    pub number: Hex,
    /// Its name in NVIDIA's headers, where this crate knows it.
    pub name: Option<&'static str>,
}

/// An address window.
#[derive(Clone, Debug, Serialize)]
pub struct Window {
    /// Name of the memory seen through it.
    pub name: String,
    /// Its first address.
    pub base: Hex,
}

/// A range of the address space in use.
#[derive(Clone, Debug, Serialize)]
pub struct Mapping {
    /// Name or purpose.
    pub what: String,
    /// Its first address.
    pub va: Hex,
    /// Its length.
    pub size_bytes: u64,
}

impl Class {
    /// The class of that number.
    #[must_use]
    pub fn new(role: &'static str, number: u32) -> Self {
        Self { role, number: Hex(number.into()), name: nv_hw::class::name(number) }
    }
}

impl DeviceInfo {
    /// Describes an open device.
    #[must_use]
    pub fn of(device: &hcq::Device) -> Self {
        let info = device.info();
        Self {
            name: info.name.clone(),
            backend: info.backend.to_string(),
            driver_version: info.driver_version.clone(),
            compute_capability: format!("{}.{}", info.sm >> 8, info.sm & 0xff),
            arch: format!("sm_{}", info.sm_number()),
            sm_count: info.sm_count,
            tpc_count: info.tpc_count,
            max_warps_per_sm: info.max_warps_per_sm,
            max_shared_per_block_bytes: info.max_shared_per_block,
            max_clock_hz: info.max_clock_hz,
            memory_bytes: info.memory,
            unified_memory: info.unified_memory,
            classes: vec![
                Class::new("compute", info.classes.compute),
                Class::new("copy", info.classes.copy),
                Class::new("channel", info.classes.channel),
            ],
            windows: device
                .windows()
                .into_iter()
                .map(|(name, base)| Window { name: name.to_owned(), base: Hex(base.raw()) })
                .collect(),
            gpu_cache: info.gpu_cache.map(|cache| cache == hcq::GpuCache::Keep),
            machine: None,
            nvgpu: None,
            all: false,
            mappings: device
                .memory_map()
                .iter()
                .map(|m| Mapping { what: m.what.to_owned(), va: Hex(m.va.raw()), size_bytes: m.len })
                .collect(),
        }
    }
}

impl Report for DeviceInfo {
    const SCHEMA: &'static str = "nvdiag.info/1";

    fn has_problem(&self) -> bool {
        false
    }

    fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{HEADING}{}{HEADING:#}", self.name)?;
        let mut row = |name: &str, value: String| writeln!(out, "  {NAME}{name:<22}{NAME:#}{value}");
        let software = if self.backend == "sim" { " (software GPU)" } else { "" };
        row("backend", format!("{}{software}", self.backend))?;
        row("driver", self.driver_version.clone())?;
        row("compute capability", format!("{} ({})", self.compute_capability, self.arch))?;
        row("SMs", format!("{} in {} TPCs", self.sm_count, self.tpc_count))?;
        let warps = self.max_warps_per_sm;
        row("warps", format!("{warps} per SM ({} threads)", warps * 32))?;
        row("shared memory", format!("up to {} per block", size(self.max_shared_per_block_bytes)))?;
        if let Some(hz) = self.max_clock_hz {
            row("clock", format!("up to {} MHz", hz / 1_000_000))?;
        }
        let whose = if self.unified_memory { "shared with the CPU" } else { "of its own" };
        row("memory", format!("{} {whose}", size(self.memory_bytes)))?;
        if let Some(kept) = self.gpu_cache {
            let how = if kept { "may keep buffers" } else { "passes buffers by" };
            row("GPU's L2 cache", format!("{how} (HCQ_GPU_CACHE)"))?;
        }
        if let Some(clocks) = self.nvgpu.as_ref().map(|nvgpu| &nvgpu.clocks)
            && let Some(now) = clocks.actual_hz.or(clocks.target_hz)
        {
            row("clock now", format!("{} MHz", now / 1_000_000))?;
        }
        if let Some(machine) = &self.machine {
            let known = [("L4T", &machine.release), ("power mode", &machine.power_mode)];
            for (name, value) in known {
                row(name, value.clone().unwrap_or_else(|| "not reported".to_owned()))?;
            }
            let celsius = machine.gpu_celsius.map_or("not reported".to_owned(), |t| format!("{t:.1} °C"));
            row("temperature", celsius)?;
        }
        for class in &self.classes {
            let name = class.name.unwrap_or("unknown");
            row(&format!("{} class", class.role), format!("{:#x} {name}", class.number.0))?;
        }
        for window in &self.windows {
            row(&format!("{} window", window.name), format!("from {}", window.base))?;
        }
        writeln!(out, "{HEADING}Address space{HEADING:#}")?;
        if self.mappings.is_empty() {
            writeln!(out, "  {ASIDE}nothing is mapped{ASIDE:#}")?;
        }
        for mapping in &self.mappings {
            writeln!(out, "  {:<14} {:>10}  {}", mapping.va, size(mapping.size_bytes), mapping.what)?;
        }
        match &self.nvgpu {
            Some(nvgpu) if self.all => nvgpu.print(out),
            _ => Ok(()),
        }
    }
}
