//! The driver's nodes of one device: the address space with its windows, and the channel group that runs in
//! it.

use std::ffi::CStr;
use std::os::fd::AsFd;
use std::sync::Arc;

use nix::fcntl::OFlag;
use nvgpu_sys::{
    Ioctl, NVGPU_AS_ALLOC_SPACE_FLAGS_FIXED_OFFSET, NVGPU_GPU_IOCTL_ALLOC_AS_FLAGS_UNIFIED_VA, Sys,
    nvgpu_alloc_as_args, nvgpu_as_alloc_space_args, nvgpu_gpu_num_vsms, nvgpu_gpu_open_tsg_args,
    nvmap_query_heap_params,
};

use super::handle::Handle;
use super::nvmap::PAGE;
use crate::address::{Bytes, GpuVa};
use crate::backend::Layout;
use crate::errno::Errno;
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
/// Addresses kept free from each window's base: more than the 16 MiB a window is believed to span.
const WINDOW_ROOM: u64 = 1 << 30;

/// An address space, and what it takes to make memory and channels in it.
#[derive(Debug)]
pub(super) struct Space {
    // Dropped in this order: the group before the address space its channels run in.
    pub tsg: Handle,
    pub address_space: Handle,
    pub nvmap: Handle,
    pub ctrl: Handle,
    pub sys: Arc<dyn Sys>,
}

impl Space {
    /// Opens the nodes and creates an address space, with both windows reserved unless `reserve_windows` is
    /// off; says what the GPU is.
    pub fn open(sys: Arc<dyn Sys>, kind: BackendKind, reserve_windows: bool) -> Result<(Self, Info), Error> {
        let flags = OFlag::O_RDWR | OFlag::O_CLOEXEC;
        let open = |path: &CStr| match sys.open(path, flags) {
            Ok(fd) => Ok(Handle::new(&sys, fd)),
            Err(errno) => Err(Error::Open { path: path.into(), errno: Errno::of(errno) }),
        };
        let ctrl = open(CTRL)?;
        let nvmap = open(NVMAP)?;
        let info = describe(&ctrl, &nvmap, kind)?;
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
        Ok((Self { tsg, address_space, nvmap, ctrl, sys }, info))
    }
}

/// Where the addresses for buffers end.
const fn arena_end(reserve_windows: bool) -> u64 {
    if reserve_windows { LOCAL_WINDOW } else { VA_END }
}

/// The address space as it was reserved.
pub(super) fn layout(reserve_windows: bool) -> Layout {
    let arena = ARENA_START..arena_end(reserve_windows);
    Layout {
        low: arena.clone(),
        high: arena,
        shared_window: GpuVa::inside(SHARED_WINDOW),
        local_window: GpuVa::inside(LOCAL_WINDOW),
        reserved: [SHARED_WINDOW..SHARED_WINDOW + WINDOW_ROOM, LOCAL_WINDOW..LOCAL_WINDOW + WINDOW_ROOM],
        granule: PAGE,
        channel_va: 0,
    }
}

/// What the GPU is.
fn describe(ctrl: &Handle, nvmap: &Handle, kind: BackendKind) -> Result<Info, Error> {
    let gpu = nvgpu_sys::characteristics(ctrl.sys(), ctrl.as_fd()).map_err(Error::ioctl)?;
    let sm = gpu.sm_arch_sm_version;
    let number = (sm >> 8) * 10 + (sm & 0xff);
    let unsupported =
        Error::Unsupported { what: "SM version", value: sm.into(), supported: "0x800 to 0x809, 0x900" };
    let Some(target) = qmd::Target::from_sm(number) else { return Err(unsupported) };
    let mut sms = nvgpu_gpu_num_vsms::default();
    // SAFETY: the struct holds no addresses.
    unsafe { ctrl.send(&mut sms) }?;
    let mut heap = nvmap_query_heap_params { heap_mask: nvgpu_sys::NVMAP_HEAP_IOVMM, ..Default::default() };
    // SAFETY: the struct holds no addresses.
    unsafe { nvmap.send(&mut heap) }?;
    let name: Vec<u8> = gpu.chipname.iter().copied().take_while(|b| *b != 0).collect();
    let driver_version = match kind {
        BackendKind::Sim => format!("sim {}", env!("CARGO_PKG_VERSION")),
        _ => std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned(),
    };
    Ok(Info {
        name: String::from_utf8_lossy(&name).into_owned(),
        backend: kind,
        sm,
        sm_count: sms.num_vsms,
        tpc_count: gpu.num_gpc.saturating_mul(gpu.num_tpc_per_gpc),
        max_warps_per_sm: target.max_warps(),
        max_shared_per_block: Bytes::new(u64::from(target.max_shared_bytes() - qmd::RESERVED_SHARED_BYTES)),
        classes: Classes { compute: gpu.compute_class, copy: gpu.dma_copy_class, channel: gpu.gpfifo_class },
        memory: Bytes::new(heap.total),
        unified_memory: gpu.on_board_video_memory_size == 0,
        driver_version,
        max_clock_hz: Some(gpu.max_freq).filter(|hz| *hz != 0),
        gpu_cache: None,
    })
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
