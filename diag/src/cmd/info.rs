//! `nvdiag info`: describes the GPU.

#![allow(unsafe_code, reason = "requests to the driver")]

use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use anyhow::Context;
use hcq::{BackendKind, Device, Selector};
use nix::fcntl::OFlag;
use nvdiag::characteristics::{Characteristics, Clocks};
use nvdiag::device::DeviceInfo;
use nvdiag::doctor::Surroundings;
use nvgpu_sys::{
    Ioctl, Linux, NVGPU_GPU_CLK_DOMAIN_GPCCLK, NVGPU_GPU_CLK_TYPE_ACTUAL, NVGPU_GPU_CLK_TYPE_EFFECTIVE,
    NVGPU_GPU_CLK_TYPE_TARGET, Sys, call, characteristics, nvgpu_gpu_clk_get_info_args, nvgpu_gpu_clk_info,
    nvgpu_gpu_clk_range, nvgpu_gpu_clk_range_args, nvgpu_gpu_clk_vf_point, nvgpu_gpu_clk_vf_points_args,
    nvgpu_gpu_zcull_get_ctx_size_args, nvgpu_gpu_zcull_get_info_args,
};

use crate::cmd::finding::Finding;
use crate::cmd::finding::show;
use crate::cmd::machine_files::Files;

/// Control node of the integrated GPU.
const CTRL: &std::ffi::CStr = c"/dev/nvgpu/igpu0/ctrl";

/// Describe the GPU: name, driver, size, clocks, classes, memory, address windows.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  nvdiag info                       the first GPU that can be opened
  nvdiag info --device nvgpu --all  everything that a Jetson's driver reports

Exit codes: 0 described; 2 bad usage, or no device.")]
pub struct Args {
    /// Which device: auto, nvgpu (a Jetson's), rm (a desktop GPU), sim (the software ga10b).
    #[arg(long, env = "HCQ_DEVICE", default_value_t = Selector::Auto)]
    device: Selector,
    /// Everything that nvgpu reports, field by field, as --json always has it.
    #[arg(long)]
    all: bool,
}

impl Args {
    /// Opens the device and prints its description.
    pub fn run(&self, json: bool, out: &mut dyn Write) -> anyhow::Result<Finding> {
        let device =
            Device::open(self.device).with_context(|| format!("cannot open device {}", self.device))?;
        let mut info = describe(&device)?;
        info.all = self.all;
        show(&info, json, out)
    }
}

/// Describes a device by the reports of its driver and its machine.
pub(super) fn describe(device: &Device) -> anyhow::Result<DeviceInfo> {
    let mut info = DeviceInfo::of(device);
    let driver: Option<Arc<dyn Sys>> = match device.info().backend {
        BackendKind::Nvgpu => Some(Arc::new(Linux)),
        // Its driver answers as a real one does.
        BackendKind::Sim => hcq::sim::of(device).map(|sim| sim as _),
        _ => None,
    };
    if let Some(driver) = driver {
        info.nvgpu = Some(ask(&*driver)?);
    }
    if device.info().backend == BackendKind::Nvgpu {
        info.machine = Some(Surroundings::of(&Files::own()));
    }
    Ok(info)
}

/// Reads everything that the driver reports without changing anything.
fn ask(driver: &dyn Sys) -> anyhow::Result<Characteristics> {
    let node = driver.open(CTRL, OFlag::O_RDWR | OFlag::O_CLOEXEC);
    let node = node.with_context(|| format!("cannot open {}", CTRL.to_string_lossy()))?;
    let ctrl = node.as_fd();
    let gpu = characteristics(driver, ctrl)?;
    // Absent where the kernel was built without graphics.
    // SAFETY: the struct holds no addresses.
    let zcull = unsafe { answer(driver, ctrl, nvgpu_gpu_zcull_get_info_args::default()) };
    // SAFETY: as above.
    let context = unsafe { answer(driver, ctrl, nvgpu_gpu_zcull_get_ctx_size_args::default()) };
    let found = Characteristics::of(&gpu, zcull.as_ref(), context.map(|c| c.size), clocks(driver, ctrl));
    driver.close(node).with_context(|| format!("cannot close {}", CTRL.to_string_lossy()))?;
    Ok(found)
}

/// The answer to a request; `None` where it is refused.
///
/// # Safety
/// As for [`call`].
unsafe fn answer<A: Ioctl>(driver: &dyn Sys, ctrl: BorrowedFd<'_>, mut args: A) -> Option<A> {
    // SAFETY: passed on to the caller.
    unsafe { call(driver, ctrl, &mut args) }.ok().filter(|left| *left == 0).map(|_| args)
}

fn clocks(driver: &dyn Sys, ctrl: BorrowedFd<'_>) -> Clocks {
    /// Most points requested.
    const POINTS: usize = 256;
    let mut range = nvgpu_gpu_clk_range::default();
    let asked = nvgpu_gpu_clk_range_args {
        num_entries: 1,
        clk_range_entries: (&raw mut range).expose_provenance() as u64,
        ..Default::default()
    };
    // SAFETY: the address is that of `range`, which outlives the call, and one entry is requested.
    let has_range = unsafe { answer(driver, ctrl, asked) }.is_some_and(|args| args.num_entries == 1);
    let clock = |kind: u32| {
        let mut entry = nvgpu_gpu_clk_info {
            clk_type: kind as u16,
            clk_domain: NVGPU_GPU_CLK_DOMAIN_GPCCLK,
            ..Default::default()
        };
        let asked = nvgpu_gpu_clk_get_info_args {
            num_entries: 1,
            clk_info_entries: (&raw mut entry).expose_provenance() as u64,
            ..Default::default()
        };
        // SAFETY: the address is that of `entry`, which outlives the call, and one entry is requested.
        unsafe { answer(driver, ctrl, asked) }?;
        Some(entry.freq_hz)
    };
    let mut points = vec![nvgpu_gpu_clk_vf_point::default(); POINTS];
    let asked = nvgpu_gpu_clk_vf_points_args {
        clk_domain: NVGPU_GPU_CLK_DOMAIN_GPCCLK,
        max_entries: POINTS as u16,
        clk_vf_point_entries: points.as_mut_ptr().expose_provenance() as u64,
        ..Default::default()
    };
    // SAFETY: the address is that of `points`, which outlives the call and has as many entries as stated.
    let count = unsafe { answer(driver, ctrl, asked) }.map_or(0, |args| usize::from(args.num_entries));
    points.truncate(count);
    Clocks {
        min_hz: has_range.then_some(range.min_hz),
        max_hz: has_range.then_some(range.max_hz),
        target_hz: clock(NVGPU_GPU_CLK_TYPE_TARGET),
        actual_hz: clock(NVGPU_GPU_CLK_TYPE_ACTUAL),
        effective_hz: clock(NVGPU_GPU_CLK_TYPE_EFFECTIVE),
        points_hz: points.iter().map(|point| point.freq_hz).collect(),
    }
}
