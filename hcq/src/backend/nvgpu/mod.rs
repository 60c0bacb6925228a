//! Tegra's `nvgpu.ko` and `nvmap.ko`, over any [`Sys`]: a Jetson, the software ga10b, a tracer, a fault injector.
//!
//! One address space and one channel group (TSG) for each device. Addresses are fixed: after the windows, one large
//! area is reserved in the driver, and every buffer is mapped inside it where the tables above this backend say.

use std::collections::HashMap;
use std::ffi::CStr;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use nix::fcntl::OFlag;
use nvgpu_sys::{
    Ioctl, NVGPU_AS_ALLOC_SPACE_FLAGS_FIXED_OFFSET, NVGPU_GPU_IOCTL_ALLOC_AS_FLAGS_UNIFIED_VA, Sys,
    nvgpu_alloc_as_args, nvgpu_as_alloc_space_args, nvgpu_gpu_get_gpu_time_args, nvgpu_gpu_l2_fb_args,
    nvgpu_gpu_num_vsms, nvgpu_gpu_open_tsg_args, nvmap_query_heap_params,
};

use crate::address::{Bytes, GpuVa};
use crate::backend::{
    Backend, Channel, ChannelId, ChannelRequest, Layout, Memory, MemoryId, MemoryKind, MemoryRequest,
    RawFault,
};
use crate::context::lock;
use crate::error::Error;
use crate::info::{BackendKind, Classes, Info};
use crate::selector::GpuCache;

mod channel;
mod fault;
mod handle;
mod log;
mod mapping;
mod nvmap;

use channel::ChannelState;
use handle::Handle;
pub(crate) use log::{KernelLog, Kmsg, NoLog};
use mapping::Mapped;

/// Control node of the integrated GPU, as JetPack 6 names it.
const CTRL: &CStr = c"/dev/nvgpu/igpu0/ctrl";
/// Memory allocator.
const NVMAP: &CStr = c"/dev/nvmap";

/// GPU pages of ga10b through this driver.
const PAGE: u64 = 4096;
/// First address of the user range; a multiple of the driver's 2 MiB.
const VA_START: u64 = 1 << 32;
/// End of the user range. The driver's own 4 GiB range follows, which must stay below 2^40: some of its registers
/// hold only address bits 39:8, and a context placed higher stops the machine.
const VA_END: u64 = 0xff_0000_0000;
/// First address for buffers.
const ARENA_START: u64 = 0x10_0000_0000;
/// Base of the shared-memory window.
const SHARED_WINDOW: u64 = 0xfe_0000_0000;
/// Base of the local-memory window.
const LOCAL_WINDOW: u64 = 0xfd_0000_0000;
/// Addresses kept free from each window's base: more than the 16 MiB a window is believed to span.
const WINDOW_ROOM: u64 = 1 << 30;
/// `l2_flush` and `l2_invalidate` of `NVGPU_GPU_IOCTL_FLUSH_L2`: dirty lines go to memory, then all lines go.
const FLUSH_AND_INVALIDATE: u8 = 1 | 1 << 1;
/// Bytes of the doorbell page.
const USERMODE_LEN: usize = 0x1_0000;
/// `NOTIFY_CHANNEL_PENDING`: the doorbell, in the usermode page.
const DOORBELL: usize = 0x90;

/// A Jetson's GPU, or what behaves like one.
#[derive(Debug)]
pub(crate) struct Nvgpu {
    // Dropped in this order: channels before the group, mappings before the address space they are in.
    channels: Mutex<HashMap<u64, ChannelState>>,
    mappings: Mutex<HashMap<u64, Mapped>>,
    tsg: Handle,
    address_space: Handle,
    doorbell: mapping::CpuMapping,
    nvmap: Handle,
    ctrl: Handle,
    sys: Arc<dyn Sys>,
    next_id: AtomicU64,
    info: Info,
    layout: Layout,
    log: Box<dyn KernelLog>,
    cache: GpuCache,
}

impl Nvgpu {
    /// Opens the device and creates its address space, with both windows reserved unless `reserve_windows` is off.
    pub fn open(
        sys: Arc<dyn Sys>,
        kind: BackendKind,
        log: Box<dyn KernelLog>,
        reserve_windows: bool,
        cache: GpuCache,
    ) -> Result<Self, Error> {
        let flags = OFlag::O_RDWR | OFlag::O_CLOEXEC;
        let open = |path: &CStr| match sys.open(path, flags) {
            Ok(fd) => Ok(Handle::new(&sys, fd)),
            Err(errno) => Err(Error::Open { path: path.into(), errno }),
        };
        let ctrl = open(CTRL)?;
        let nvmap = open(NVMAP)?;
        let info = Info { gpu_cache: Some(cache), ..describe(&ctrl, &nvmap, kind)? };
        let address_space = create_address_space(&sys, &ctrl)?;
        // Windows first, then everything else: what is mapped later can only be outside them.
        if reserve_windows {
            for window in [SHARED_WINDOW, LOCAL_WINDOW] {
                reserve(&address_space, window, WINDOW_ROOM)?;
            }
            reserve(&address_space, ARENA_START, LOCAL_WINDOW - ARENA_START)?;
        } else {
            reserve(&address_space, ARENA_START, VA_END - ARENA_START)?;
        }
        let mut group = nvgpu_gpu_open_tsg_args::default();
        // SAFETY: the struct holds no addresses.
        unsafe { ctrl.send(&mut group) }?;
        let tsg = Handle::from_answer(&sys, nvgpu_gpu_open_tsg_args::NAME, group.tsg_fd.cast_signed())?;
        let doorbell = mapping::CpuMapping::new(&sys, ctrl.as_fd(), USERMODE_LEN, "the doorbell page")?;
        let end = if reserve_windows { LOCAL_WINDOW } else { VA_END };
        let layout = Layout {
            low: ARENA_START..end,
            high: ARENA_START..end,
            shared_window: GpuVa::inside(SHARED_WINDOW),
            local_window: GpuVa::inside(LOCAL_WINDOW),
            reserved: [SHARED_WINDOW..SHARED_WINDOW + WINDOW_ROOM, LOCAL_WINDOW..LOCAL_WINDOW + WINDOW_ROOM],
            granule: PAGE,
            channel_va: 0,
        };
        Ok(Self {
            channels: Mutex::default(),
            mappings: Mutex::default(),
            tsg,
            address_space,
            doorbell,
            nvmap,
            ctrl,
            sys,
            next_id: AtomicU64::new(1),
            info,
            layout,
            log,
            cache,
        })
    }

    fn new_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }
}

fn describe(ctrl: &Handle, nvmap: &Handle, kind: BackendKind) -> Result<Info, Error> {
    let gpu = nvgpu_sys::characteristics(ctrl.sys(), ctrl.as_fd())?;
    let sm = gpu.sm_arch_sm_version;
    let number = (sm >> 8) * 10 + (sm & 0xff);
    let unsupported =
        Error::Unsupported { what: "SM version", value: sm.into(), supported: "0x800 to 0x809, 0x900" };
    let (Some(arch), Some(target)) = (sass::Arch::from_sm(number), qmd::Target::from_sm(number)) else {
        return Err(unsupported);
    };
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
        arch,
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

/// Whether memory of this kind may be kept in the GPU's cache: what both sides poll must not be.
fn is_kept(kind: MemoryKind) -> bool {
    kind == MemoryKind::Device
}

impl Backend for Nvgpu {
    fn info(&self) -> &Info {
        &self.info
    }

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn allocate(&self, request: &MemoryRequest) -> Result<Memory, Error> {
        let keep = self.cache == GpuCache::Keep && is_kept(request.kind);
        let mapped = Mapped::new(&self.sys, &self.nvmap, &self.address_space, request, keep)?;
        let memory = Memory { id: MemoryId(self.new_id()), cpu: Some(mapped.cpu()) };
        lock(&self.mappings).insert(memory.id.0, mapped);
        Ok(memory)
    }

    fn free(&self, memory: MemoryId) -> Result<(), Error> {
        let mapped = lock(&self.mappings).remove(&memory.0);
        match mapped {
            Some(mapped) => mapped.unmap(&self.address_space),
            None => Ok(()),
        }
    }

    fn before_cpu_access(&self, kind: MemoryKind) -> Result<(), Error> {
        if self.cache == GpuCache::Bypass || !is_kept(kind) {
            return Ok(());
        }
        let mut args = nvgpu_gpu_l2_fb_args { flags: FLUSH_AND_INVALIDATE, ..Default::default() };
        // SAFETY: the struct holds no addresses.
        unsafe { self.ctrl.send(&mut args) }
    }

    fn create_channel(&self, request: &ChannelRequest) -> Result<Channel, Error> {
        let id = ChannelId(self.new_id());
        let state = ChannelState::new(self, request)?;
        let channel = Channel { id, ring: state.ring(), userd: state.userd(), token: state.token() };
        lock(&self.channels).insert(id.0, state);
        Ok(channel)
    }

    fn destroy_channel(&self, channel: ChannelId) {
        let state = lock(&self.channels).remove(&channel.0);
        if let Some(state) = state {
            drop(state);
        }
    }

    fn ring_doorbell(&self, token: u32) {
        let at: NonNull<u8> = self.doorbell.base();
        // SAFETY: the page is mapped for `USERMODE_LEN` bytes while `self` exists and the doorbell lies in it, 4-byte
        // aligned. The GPU is powered: only a channel's owner rings, and a deterministic channel holds a power reference.
        unsafe { AtomicU32::from_ptr(at.as_ptr().add(DOORBELL).cast()) }.store(token, Ordering::Release);
    }

    fn channel_error(&self, channel: ChannelId) -> Option<u32> {
        lock(&self.channels).get(&channel.0)?.error()
    }

    fn fault(&self, channel: ChannelId) -> RawFault {
        fault::read(self, channel)
    }

    fn gpu_time(&self) -> Result<u64, Error> {
        let mut args = nvgpu_gpu_get_gpu_time_args::default();
        // SAFETY: the struct holds no addresses.
        unsafe { self.ctrl.send(&mut args) }?;
        Ok(args.gpu_timestamp)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A description of an Orin's GPU.
    pub(crate) fn info() -> Info {
        Info {
            name: "ga10b".into(),
            backend: BackendKind::Nvgpu,
            sm: 0x807,
            arch: sass::Arch::Sm87,
            sm_count: 16,
            tpc_count: 8,
            max_warps_per_sm: 48,
            max_shared_per_block: Bytes::new(163 << 10),
            classes: Classes { compute: 0xc7c0, copy: 0xc7b5, channel: 0xc76f },
            memory: Bytes::new(64 << 30),
            unified_memory: true,
            driver_version: String::new(),
            max_clock_hz: None,
            gpu_cache: None,
        }
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
