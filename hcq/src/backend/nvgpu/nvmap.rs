//! nvmap: memory as DMA buffers.

use std::sync::Arc;

use nvgpu_sys::{
    Ioctl, NVMAP_HANDLE_INNER_CACHEABLE, NVMAP_HANDLE_WRITE_COMBINE, NVMAP_HEAP_IOVMM, NvmapIocCreate64,
    NvmapIocFree, NvmapIocGetFd, Sys, nvmap_alloc_handle, nvmap_create_handle, nvmap_query_heap_params,
};

use super::handle::Handle;
use crate::address::Bytes;
use crate::backend::MemoryKind;
use crate::error::Error;

/// GPU pages of ga10b through this driver, in bytes; memory is allocated in whole pages.
pub(super) const PAGE: u64 = 4096;
/// Tag in the upper half of the flags, under which debugfs lists the memory; the kernel complains about 0.
const TAG: u32 = 0x0900 << 16;

/// Cache attribute of the CPU mapping.
fn cache_flags(kind: MemoryKind) -> u32 {
    match kind {
        MemoryKind::Command => NVMAP_HANDLE_WRITE_COMBINE,
        MemoryKind::Device | MemoryKind::Shared => NVMAP_HANDLE_INNER_CACHEABLE,
    }
}

/// Bytes that the heap of all buffers has left: what the kernel calls available, without the contiguous area.
pub(super) fn free_memory(nvmap: &Handle) -> Result<Bytes, Error> {
    let mut heap = nvmap_query_heap_params { heap_mask: NVMAP_HEAP_IOVMM, ..Default::default() };
    // SAFETY: the struct holds no addresses.
    unsafe { nvmap.send(&mut heap) }?;
    Ok(Bytes::new(heap.free))
}

/// Allocates `len` bytes of zeroed memory and returns its DMA buffer, which alone keeps it.
pub(super) fn allocate(
    sys: &Arc<dyn Sys>,
    nvmap: &Handle,
    len: u64,
    kind: MemoryKind,
) -> Result<Handle, Error> {
    // The 64-bit size comes in over both words; the handle goes out in the first.
    let mut create = NvmapIocCreate64(nvmap_create_handle { size: len as u32, handle: (len >> 32) as u32 });
    // SAFETY: the struct holds no addresses.
    unsafe { nvmap.send(&mut create) }?;
    let handle = create.0.size;
    let buffer = export(sys, nvmap, handle, kind);
    let mut free = NvmapIocFree(handle);
    // SAFETY: the handle is the one made above; the DMA buffer keeps the memory.
    let freed = unsafe { nvmap.send(&mut free) };
    let buffer = buffer?;
    freed.map(|()| buffer)
}

fn export(sys: &Arc<dyn Sys>, nvmap: &Handle, handle: u32, kind: MemoryKind) -> Result<Handle, Error> {
    let mut alloc = nvmap_alloc_handle {
        handle,
        heap_mask: NVMAP_HEAP_IOVMM,
        flags: cache_flags(kind) | TAG,
        align: PAGE as u32,
        numa_nid: -1,
    };
    // SAFETY: the struct holds no addresses.
    unsafe { nvmap.send(&mut alloc) }?;
    // The handle goes in by the second word, the descriptor comes out in the first.
    let mut get = NvmapIocGetFd(nvmap_create_handle { size: 0, handle });
    // SAFETY: the struct holds no addresses.
    unsafe { nvmap.send(&mut get) }?;
    Handle::from_answer(sys, NvmapIocGetFd::NAME, get.0.size.cast_signed())
}
