//! nvmap: memory as DMA buffers.

use std::sync::Arc;

use nvgpu_sys::{
    Ioctl, NVMAP_HANDLE_INNER_CACHEABLE, NVMAP_HANDLE_WRITE_COMBINE, NVMAP_HEAP_IOVMM, NvmapIocCreate,
    NvmapIocCreate64, NvmapIocFree, NvmapIocGetFd, Sys, nvmap_alloc_handle, nvmap_create_handle,
    nvmap_query_heap_params,
};

use super::handle::Handle;
use super::settings::Caching;
use crate::error::Error;

/// GPU pages of ga10b through this driver, in bytes; memory is allocated in whole pages.
pub(super) const PAGE: u64 = 4096;
/// Tag in the upper half of the flags, under which debugfs lists the memory; the kernel complains about 0.
const TAG: u32 = 0x0900 << 16;

/// Cache attribute of the CPU mapping.
fn cache_flags(caching: Caching) -> u32 {
    match caching {
        Caching::WriteCombined => NVMAP_HANDLE_WRITE_COMBINE,
        Caching::Cacheable => NVMAP_HANDLE_INNER_CACHEABLE,
    }
}

/// Memory of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Memory {
    /// All of it.
    pub total: u64,
    /// Memory that can be allocated: the kernel's available memory without the contiguous area.
    pub free: u64,
}

/// The size of nvmap's heap of all buffers, or else of the machine's memory.
pub(super) fn memory(nvmap: &Handle) -> Result<Memory, Error> {
    let mut heap = nvmap_query_heap_params { heap_mask: NVMAP_HEAP_IOVMM, ..Default::default() };
    // SAFETY: the struct holds no addresses.
    let refused = match unsafe { nvmap.send(&mut heap) } {
        Ok(()) => return Ok(Memory { total: heap.total, free: heap.free }),
        Err(error) => error,
    };
    match std::fs::read_to_string("/proc/meminfo").ok().as_deref().and_then(of_meminfo) {
        Some(memory) => {
            tracing::debug!(error = %refused, "the size of memory is that of /proc/meminfo");
            Ok(memory)
        }
        None => Err(refused),
    }
}

/// Memory as `/proc/meminfo` has it.
fn of_meminfo(text: &str) -> Option<Memory> {
    let bytes = |name: &str| {
        let kib = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        kib.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    };
    Some(Memory { total: bytes("MemTotal")?, free: bytes("MemAvailable")? })
}

/// Allocates `len` bytes of zeroed memory and returns its DMA buffer, which alone keeps it.
pub(super) fn allocate(
    sys: &Arc<dyn Sys>,
    nvmap: &Handle,
    len: u64,
    caching: Caching,
) -> Result<Handle, Error> {
    let handle = create(nvmap, len)?;
    let buffer = export(sys, nvmap, handle, caching);
    let mut free = NvmapIocFree(handle);
    // SAFETY: the handle is the one made above; the DMA buffer keeps the memory.
    let freed = unsafe { nvmap.send(&mut free) };
    let buffer = buffer?;
    freed.map(|()| buffer)
}

/// Names a buffer to be of `len` bytes; the request for 64 bits, which nobody is known to have sent on an Orin,
/// only where it takes them.
fn create(nvmap: &Handle, len: u64) -> Result<u32, Error> {
    if let Ok(size) = u32::try_from(len) {
        let mut create = NvmapIocCreate(nvmap_create_handle { size, handle: 0 });
        // SAFETY: the struct holds no addresses.
        unsafe { nvmap.send(&mut create) }?;
        return Ok(create.0.handle);
    }
    // The size comes in over both words; the handle goes out in the first.
    let mut create = NvmapIocCreate64(nvmap_create_handle { size: len as u32, handle: (len >> 32) as u32 });
    // SAFETY: the struct holds no addresses.
    unsafe { nvmap.send(&mut create) }?;
    Ok(create.0.size)
}

fn export(sys: &Arc<dyn Sys>, nvmap: &Handle, handle: u32, caching: Caching) -> Result<Handle, Error> {
    let mut alloc = nvmap_alloc_handle {
        handle,
        heap_mask: NVMAP_HEAP_IOVMM,
        flags: cache_flags(caching) | TAG,
        align: PAGE as u32,
        // All memory of an Orin.
        numa_nid: 0,
    };
    // SAFETY: the struct holds no addresses.
    unsafe { nvmap.send(&mut alloc) }?;
    // The handle goes in by the second word, the descriptor comes out in the first.
    let mut get = NvmapIocGetFd(nvmap_create_handle { size: 0, handle });
    // SAFETY: the struct holds no addresses.
    unsafe { nvmap.send(&mut get) }?;
    Handle::from_answer(sys, NvmapIocGetFd::NAME, get.0.size.cast_signed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_memory_is_read_from_the_kernel_s_table() {
        let [total, free] = [64_348_344, 1_000_000].map(|kib| kib << 10);
        let text = "MemTotal:       64348344 kB\nMemFree: 1 kB\nMemAvailable:    1000000 kB\n";
        assert_eq!(of_meminfo(text), Some(Memory { total, free }));
        assert_eq!(of_meminfo("MemFree: 1 kB\nMemAvailable: 1 kB\n"), None);
        assert_eq!(of_meminfo("MemTotal: many kB\nMemAvailable: 1 kB\n"), None);
    }
}
