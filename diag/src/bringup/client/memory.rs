//! Memory for both sides: allocated, mapped by the CPU, mapped by the GPU at an address of our choice.

use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use anyhow::{Context, ensure};
use nix::errno::Errno;
use nix::sys::mman::{MapFlags, ProtFlags};
use nvgpu_sys::{
    NVGPU_AS_ALLOC_SPACE_FLAGS_FIXED_OFFSET, NVGPU_AS_MAP_BUFFER_FLAGS_FIXED_OFFSET,
    NVGPU_GPU_IOCTL_ALLOC_AS_FLAGS_UNIFIED_VA, NVMAP_HEAP_IOVMM, NvmapIocCreate, NvmapIocFree, NvmapIocGetFd,
    Sys, nvgpu_alloc_as_args, nvgpu_as_alloc_space_args, nvgpu_as_map_buffer_ex_args, nvmap_alloc_handle,
    nvmap_create_handle,
};

use super::layout;
use super::node::{Fd, Nodes};

/// Length of the user-mode register page.
const USERMODE_LEN: usize = 0x1_0000;
/// Byte offset of the doorbell in it.
const DOORBELL: usize = 0x90;

/// A CPU mapping, removed on drop.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
    sys: Arc<dyn Sys>,
}

impl Mapping {
    /// Maps `len` bytes of `fd` from its start.
    pub fn new(sys: &Arc<dyn Sys>, fd: BorrowedFd<'_>, len: usize) -> Result<Self, Errno> {
        let size = NonZeroUsize::new(len).ok_or(Errno::EINVAL)?;
        let prot = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: the memory is reached through raw pointers and atomics alone.
        let base = unsafe { sys.mmap(size, prot, MapFlags::MAP_SHARED, fd, 0) }?;
        Ok(Self { base: base.cast(), len, sys: sys.clone() })
    }

    /// The 32-bit word at a byte offset.
    ///
    /// # Panics
    /// If it does not lie in the mapping.
    pub fn u32(&self, at: usize) -> &AtomicU32 {
        assert!(at + 4 <= self.len && at.is_multiple_of(4), "word {at:#x}");
        // SAFETY: aligned and inside the mapping, which lasts as long as `self`.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(at).cast()) }
    }

    /// The 64-bit word at a byte offset.
    ///
    /// # Panics
    /// If it does not lie in the mapping.
    pub fn u64(&self, at: usize) -> &AtomicU64 {
        assert!(at + 8 <= self.len && at.is_multiple_of(8), "word {at:#x}");
        // SAFETY: as above.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(at).cast()) }
    }

    /// Number of 32-bit words.
    pub fn words(&self) -> usize {
        self.len / 4
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: one mapping, whose owner is going.
        let _ = unsafe { self.sys.munmap(self.base.cast(), self.len) };
    }
}

/// Memory of `len` bytes with nvmap's cache attribute; `handle` is nvmap's number for it.
pub fn allocate(nodes: &Nodes, len: u64, cache: u32) -> anyhow::Result<(Fd, u32)> {
    /// Tag in the upper half of the flags; the kernel complains about 0.
    const TAG: u32 = 0x0900 << 16;
    let nvmap = &nodes.nvmap;
    let mut create = NvmapIocCreate(nvmap_create_handle { size: u32::try_from(len)?, handle: 0 });
    nvmap.ask(&mut create)?;
    let handle = create.0.handle;
    let export = || {
        let mut alloc = nvmap_alloc_handle {
            handle,
            heap_mask: NVMAP_HEAP_IOVMM,
            flags: cache | TAG,
            align: layout::PAGE as u32,
            numa_nid: -1,
        };
        nvmap.ask(&mut alloc)?;
        let mut get = NvmapIocGetFd(nvmap_create_handle { size: 0, handle });
        nvmap.ask(&mut get)?;
        Fd::answered::<NvmapIocGetFd>(nvmap.sys(), get.0.size.cast_signed())
    };
    let buffer = export();
    // The descriptor alone keeps the memory from here on.
    let freed = nvmap.ask(&mut NvmapIocFree(handle));
    let buffer = buffer?;
    freed?;
    Ok((buffer, handle))
}

/// An address space with both windows and the arena reserved.
#[derive(Debug)]
pub struct Space {
    pub(super) fd: Fd,
    next: u64,
}

impl Space {
    /// Makes it; an address that is not the requested one is an error.
    pub fn new(nodes: &Nodes) -> anyhow::Result<Self> {
        let mut args = nvgpu_alloc_as_args {
            flags: NVGPU_GPU_IOCTL_ALLOC_AS_FLAGS_UNIFIED_VA,
            va_range_start: layout::VA_START,
            va_range_end: layout::VA_END,
            ..Default::default()
        };
        nodes.ctrl.ask(&mut args)?;
        let space = Self {
            fd: Fd::answered::<nvgpu_alloc_as_args>(nodes.ctrl.sys(), args.as_fd)?,
            next: layout::ARENA,
        };
        for (what, va, len) in [
            ("the shared-memory window", layout::SHARED_WINDOW, layout::WINDOW_ROOM),
            ("the local-memory window", layout::LOCAL_WINDOW, layout::WINDOW_ROOM),
            ("the addresses of buffers", layout::ARENA, layout::LOCAL_WINDOW - layout::ARENA),
        ] {
            let mut args = nvgpu_as_alloc_space_args {
                pages: len / layout::PAGE,
                page_size: layout::PAGE as u32,
                flags: NVGPU_AS_ALLOC_SPACE_FLAGS_FIXED_OFFSET,
                o_a: va,
                ..Default::default()
            };
            space.fd.ask(&mut args).with_context(|| format!("{what} cannot be reserved at {va:#x}"))?;
            ensure!(args.o_a == va, "{what}: asked for {va:#x}, got {:#x}", args.o_a);
        }
        Ok(space)
    }

    /// Memory that both sides see.
    pub fn memory(&mut self, nodes: &Nodes, len: u64, cache: u32) -> anyhow::Result<GpuMemory> {
        let (buffer, _) = allocate(nodes, len, cache)?;
        let cpu = Mapping::new(nodes.nvmap.sys(), buffer.as_fd(), usize::try_from(len)?);
        let cpu = cpu.context("memory cannot be mapped by the CPU")?;
        let mut map = nvgpu_as_map_buffer_ex_args {
            flags: NVGPU_AS_MAP_BUFFER_FLAGS_FIXED_OFFSET,
            compr_kind: -1,
            incompr_kind: 0,
            dmabuf_fd: buffer.raw().cast_unsigned(),
            mapping_size: len,
            offset: self.next,
            ..Default::default()
        };
        self.fd.ask(&mut map)?;
        ensure!(map.offset == self.next, "asked for a mapping at {:#x}, got {:#x}", self.next, map.offset);
        self.next += len.next_multiple_of(layout::PAGE);
        Ok(GpuMemory { cpu, va: map.offset })
    }
}

/// Memory that both sides see. The GPU's mapping ends with the address space.
#[derive(Debug)]
pub struct GpuMemory {
    pub cpu: Mapping,
    pub va: u64,
}

/// The user-mode register page.
#[derive(Debug)]
pub struct Doorbell(Mapping);

impl Doorbell {
    /// Maps it; `EBUSY` when it is mapped already.
    pub fn map(nodes: &Nodes) -> Result<Self, Errno> {
        Mapping::new(nodes.ctrl.sys(), nodes.ctrl.as_fd(), USERMODE_LEN).map(Self)
    }

    /// Its first word, with the class of its layout in bits 15:0.
    pub fn first_word(&self) -> u32 {
        self.0.u32(0).load(Ordering::Acquire)
    }

    /// The GPU's time in ns.
    pub fn time(&self) -> u64 {
        loop {
            let high = self.0.u32(0x84).load(Ordering::Acquire);
            let low = self.0.u32(0x80).load(Ordering::Acquire);
            if self.0.u32(0x84).load(Ordering::Acquire) == high {
                return u64::from(high) << 32 | u64::from(low);
            }
        }
    }

    /// Signals that the channel with this token has new entries.
    pub fn ring(&self, token: u32) {
        self.0.u32(DOORBELL).store(token, Ordering::Release);
    }
}
