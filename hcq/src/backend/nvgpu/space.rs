//! The driver's nodes of one device: the address space with its windows, and the channel group that runs in
//! it.

use std::ffi::CStr;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};

use nix::fcntl::OFlag;
use nvgpu_sys::{
    Ioctl, NVGPU_AS_ALLOC_SPACE_FLAGS_FIXED_OFFSET, NVGPU_COMPUTE_PREEMPTION_MODE_CILP,
    NVGPU_GPU_IOCTL_ALLOC_AS_FLAGS_UNIFIED_VA, NVGPU_TSG_SUBCONTEXT_TYPE_ASYNC, NvgpuIoctlTsgSetTimeslice,
    Sys, nvgpu_alloc_as_args, nvgpu_as_alloc_space_args, nvgpu_gpu_num_vsms, nvgpu_gpu_open_tsg_args,
    nvgpu_timeslice_args, nvgpu_tsg_create_subcontext_args, nvmap_query_heap_params,
};

use super::handle::Handle;
use super::nvmap::PAGE;
use super::settings::Settings;
use crate::address::{Bytes, GpuVa};
use crate::backend::Layout;
use crate::error::Error;
use crate::info::{BackendKind, Classes, Info};

/// Control node of the integrated GPU, as JetPack 6 names it.
const CTRL: &CStr = c"/dev/nvgpu/igpu0/ctrl";
/// Memory allocator.
const NVMAP: &CStr = c"/dev/nvmap";

/// First address of the user range; a multiple of the driver's 2 MiB.
const VA_START: u64 = 1 << 32;
/// End of the user range. The driver's own 4 GiB range follows, which must stay below 2^40: some of its
/// registers hold only address bits 39:8, and a context placed higher stops the machine.
const VA_END: u64 = 0xff_0000_0000;
/// First address for buffers.
const ARENA_START: u64 = 0x10_0000_0000;
/// Base of the shared-memory window.
const SHARED_WINDOW: u64 = 0xfe_0000_0000;
/// Base of the local-memory window.
const LOCAL_WINDOW: u64 = 0xfd_0000_0000;
/// Most warps of an SM that are believed of a driver.
const MOST_WARPS: u32 = 256;
/// Addresses kept free from each window's base: more than the 16 MiB a window is believed to span.
const WINDOW_ROOM: u64 = 1 << 30;

/// An address space, and what it takes to make memory and channels in it.
#[derive(Debug)]
pub(super) struct Space {
    /// Channels that were not finished, which are closed when no other works.
    pub unfinished: Mutex<Vec<Handle>>,
    // Dropped in this order: the group before the address space its channels run in.
    pub tsg: Handle,
    pub address_space: Handle,
    pub nvmap: Handle,
    pub ctrl: Handle,
    pub sys: Arc<dyn Sys>,
    /// What the driver says of the chip that the description does not hold.
    pub chip: Chip,
    /// The subcontext that channels run in.
    pub veid: u32,
}

/// What the driver says of the chip, besides its description.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chip {
    /// Warps per SM that local memory is provided for.
    pub local_warps: u32,
    /// Whether kernels can be preempted between two instructions.
    pub cilp: bool,
}

impl Space {
    /// Opens the nodes and creates an address space; says what the GPU is.
    pub fn open(sys: Arc<dyn Sys>, kind: BackendKind, settings: &Settings) -> Result<(Self, Info), Error> {
        let reserve_windows = settings.reserve_windows;
        let flags = OFlag::O_RDWR | OFlag::O_CLOEXEC;
        let open = |path: &CStr| match sys.open(path, flags) {
            Ok(fd) => Ok(Handle::new(&sys, fd)),
            Err(errno) => Err(Error::open(path, errno)),
        };
        let ctrl = open(CTRL)?;
        let nvmap = open(NVMAP)?;
        let (info, chip) = describe(&ctrl, &nvmap, kind)?;
        let address_space = create_address_space(&sys, &ctrl)?;
        // Windows first, then everything else: what is mapped later can only be outside them.
        if reserve_windows {
            for window in [SHARED_WINDOW, LOCAL_WINDOW] {
                reserve(&address_space, window, WINDOW_ROOM)?;
            }
        }
        reserve(&address_space, ARENA_START, arena_end(reserve_windows) - ARENA_START)?;
        let mut group = nvgpu_gpu_open_tsg_args::default();
        // SAFETY: the struct holds no addresses.
        unsafe { ctrl.send(&mut group) }?;
        let tsg = Handle::from_answer(&sys, nvgpu_gpu_open_tsg_args::NAME, group.tsg_fd.cast_signed())?;
        if let Some(slice) = settings.timeslice {
            let timeslice_us = u32::try_from(slice.as_micros()).unwrap_or(u32::MAX);
            let mut args =
                NvgpuIoctlTsgSetTimeslice(nvgpu_timeslice_args { timeslice_us, ..Default::default() });
            // SAFETY: the struct holds no addresses.
            unsafe { tsg.send(&mut args) }?;
        }
        let mut veid = 0;
        if settings.async_subcontext {
            let mut args = nvgpu_tsg_create_subcontext_args {
                type_: NVGPU_TSG_SUBCONTEXT_TYPE_ASYNC,
                as_fd: address_space.raw(),
                ..Default::default()
            };
            // SAFETY: the descriptor is the address space's, which is open.
            unsafe { tsg.send(&mut args) }?;
            veid = args.veid;
        }
        Ok((Self { unfinished: Mutex::default(), tsg, address_space, nvmap, ctrl, sys, chip, veid }, info))
    }
}

/// Where the addresses for buffers end.
const fn arena_end(reserve_windows: bool) -> u64 {
    if reserve_windows { LOCAL_WINDOW } else { VA_END }
}

/// The address space as it was reserved.
pub(super) fn layout(reserve_windows: bool, local_warps: u32) -> Layout {
    let arena = ARENA_START..arena_end(reserve_windows);
    Layout {
        low: arena.clone(),
        high: arena,
        shared_window: GpuVa::inside(SHARED_WINDOW),
        local_window: GpuVa::inside(LOCAL_WINDOW),
        reserved: [SHARED_WINDOW..SHARED_WINDOW + WINDOW_ROOM, LOCAL_WINDOW..LOCAL_WINDOW + WINDOW_ROOM],
        local_warps,
        granule: PAGE,
        channel_va: 0,
    }
}

/// Memory of the machine, in bytes: what nvmap says of its heap, or else the kernel of the machine.
fn memory(nvmap: &Handle) -> Result<Bytes, Error> {
    let mut heap = nvmap_query_heap_params { heap_mask: nvgpu_sys::NVMAP_HEAP_IOVMM, ..Default::default() };
    // SAFETY: the struct holds no addresses.
    let refused = match unsafe { nvmap.send(&mut heap) } {
        Ok(()) => return Ok(Bytes::new(heap.total)),
        Err(error) => error,
    };
    match std::fs::read_to_string("/proc/meminfo").ok().as_deref().and_then(total_memory) {
        Some(bytes) => {
            tracing::debug!(error = %refused, "the size of memory is that of /proc/meminfo");
            Ok(Bytes::new(bytes))
        }
        None => Err(refused),
    }
}

/// `MemTotal` of `/proc/meminfo`, in bytes.
fn total_memory(text: &str) -> Option<u64> {
    let kib = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    kib.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// What the GPU is.
fn describe(ctrl: &Handle, nvmap: &Handle, kind: BackendKind) -> Result<(Info, Chip), Error> {
    let gpu = nvgpu_sys::characteristics(ctrl.sys(), ctrl.as_fd()).map_err(Error::ioctl)?;
    let sm = gpu.sm_arch_sm_version;
    let number = (sm >> 8) * 10 + (sm & 0xff);
    let target = qmd::Target::from_sm(number).ok_or(Error::UnsupportedSm { sm: number })?;
    let mut sms = nvgpu_gpu_num_vsms::default();
    // SAFETY: the struct holds no addresses.
    unsafe { ctrl.send(&mut sms) }?;
    let memory = memory(nvmap)?;
    // The driver gives the warps of an SM or, in a dump of an Orin, twice that.
    let local_warps = target.max_warps().max(gpu.sm_arch_warp_count.min(MOST_WARPS));
    let cilp = gpu.compute_preemption_mode_flags & NVGPU_COMPUTE_PREEMPTION_MODE_CILP != 0;
    let name: Vec<u8> = gpu.chipname.iter().copied().take_while(|b| *b != 0).collect();
    let driver_version = match kind {
        BackendKind::Sim => format!("sim {}", env!("CARGO_PKG_VERSION")),
        _ => std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned(),
    };
    let info = Info {
        name: String::from_utf8_lossy(&name).into_owned(),
        backend: kind,
        sm,
        sm_count: sms.num_vsms,
        tpc_count: gpu.num_gpc.saturating_mul(gpu.num_tpc_per_gpc),
        max_warps_per_sm: target.max_warps(),
        max_shared_per_block: Bytes::new(u64::from(target.max_shared_bytes() - qmd::RESERVED_SHARED_BYTES)),
        classes: Classes { compute: gpu.compute_class, copy: gpu.dma_copy_class, channel: gpu.gpfifo_class },
        memory,
        unified_memory: gpu.on_board_video_memory_size == 0,
        driver_version,
        max_clock_hz: Some(gpu.max_freq).filter(|hz| *hz != 0),
        gpu_cache: None,
    };
    Ok((info, Chip { local_warps, cilp }))
}

fn create_address_space(sys: &Arc<dyn Sys>, ctrl: &Handle) -> Result<Handle, Error> {
    let mut args = nvgpu_alloc_as_args {
        flags: NVGPU_GPU_IOCTL_ALLOC_AS_FLAGS_UNIFIED_VA,
        va_range_start: VA_START,
        va_range_end: VA_END,
        ..Default::default()
    };
    // SAFETY: the struct holds no addresses.
    unsafe { ctrl.send(&mut args) }?;
    Handle::from_answer(sys, nvgpu_alloc_as_args::NAME, args.as_fd)
}

/// Takes `len` bytes of addresses at `va` out of the driver's own allocator.
fn reserve(address_space: &Handle, va: u64, len: u64) -> Result<(), Error> {
    let mut args = nvgpu_as_alloc_space_args {
        pages: len / PAGE,
        page_size: PAGE as u32,
        flags: NVGPU_AS_ALLOC_SPACE_FLAGS_FIXED_OFFSET,
        o_a: va,
        ..Default::default()
    };
    // SAFETY: the struct holds no addresses of this process.
    unsafe { address_space.send(&mut args) }?;
    match args.o_a == va {
        true => Ok(()),
        false => Err(Error::Answer {
            name: nvgpu_as_alloc_space_args::NAME,
            value: args.o_a,
            expected: "the fixed address asked for",
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_memory_is_read_from_the_kernel_s_table() {
        assert_eq!(total_memory("MemTotal:       64348344 kB\nMemFree: 1 kB\n"), Some(64_348_344 << 10));
        assert_eq!(total_memory("MemFree: 1 kB\n"), None);
        assert_eq!(total_memory("MemTotal: many kB\n"), None);
    }

    #[test]
    fn the_address_plan_keeps_the_drivers_range_below_40_bits() {
        const {
            assert!(
                VA_END + (4 << 30) <= 1 << 40
                    && VA_START.is_multiple_of(2 << 20)
                    && VA_END.is_multiple_of(2 << 20)
            )
        };
        const { assert!(SHARED_WINDOW + WINDOW_ROOM <= VA_END && LOCAL_WINDOW + WINDOW_ROOM <= SHARED_WINDOW) };
    }
}
