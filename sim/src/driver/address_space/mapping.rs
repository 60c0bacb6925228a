//! Mappings, as an address space keeps them.

use crate::dram::{Backing, PAGE};
use crate::driver::dmabuf::DmaBuf;
use crate::gpu::gmmu::PteAttributes;
use nvgpu_sys::{
    NVGPU_AS_MAP_BUFFER_ACCESS_READ_ONLY, NVGPU_AS_MAP_BUFFER_FLAGS_ACCESS_BITMASK_OFFSET,
    NVGPU_AS_MAP_BUFFER_FLAGS_CACHEABLE, NVGPU_AS_MAP_BUFFER_FLAGS_FIXED_OFFSET,
    NVGPU_AS_MAP_BUFFER_FLAGS_L3_ALLOC, NVGPU_AS_MAP_BUFFER_FLAGS_MAPPABLE_COMPBITS,
    NVGPU_AS_MAP_BUFFER_FLAGS_SYSTEM_COHERENT, NVGPU_AS_MAP_BUFFER_FLAGS_TEGRA_RAW,
    NVGPU_AS_MAP_BUFFER_FLAGS_UNMAPPED_PTE,
};
use std::sync::Arc;

/// All flags this driver knows.
pub(super) const KNOWN_FLAGS: u32 = NVGPU_AS_MAP_BUFFER_FLAGS_FIXED_OFFSET
    | NVGPU_AS_MAP_BUFFER_FLAGS_CACHEABLE
    | NVGPU_AS_MAP_BUFFER_FLAGS_UNMAPPED_PTE
    | NVGPU_AS_MAP_BUFFER_FLAGS_MAPPABLE_COMPBITS
    | NVGPU_AS_MAP_BUFFER_FLAGS_L3_ALLOC
    | NVGPU_AS_MAP_BUFFER_FLAGS_SYSTEM_COHERENT
    | NVGPU_AS_MAP_BUFFER_FLAGS_TEGRA_RAW
    | 3 << NVGPU_AS_MAP_BUFFER_FLAGS_ACCESS_BITMASK_OFFSET;

/// A buffer, or part of one, at a virtual address.
#[derive(Debug)]
pub(super) struct Mapping {
    pub(super) len: u64,
    pub(super) buffer: Arc<DmaBuf>,
    pub(super) buffer_offset: u64,
    pub(super) kind: i16,
    pub(super) flags: u32,
    pub(super) references: u32,
    pub(super) read_only: bool,
}

impl Mapping {
    pub(super) fn is_fixed(&self) -> bool {
        self.flags & NVGPU_AS_MAP_BUFFER_FLAGS_FIXED_OFFSET != 0
    }
}

/// Arguments of `MAP_BUFFER_EX`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MapRequest {
    /// `NVGPU_AS_MAP_BUFFER_FLAGS_*`.
    pub(crate) flags: u32,
    /// Compressible kind, -1 for none. There are no compression tags to give: it only counts for finding a
    /// mapping again and for the alignment of fixed addresses.
    pub(crate) compr_kind: i16,
    /// Kind that the leaves get.
    pub(crate) incompr_kind: i16,
    /// Wanted address, with the fixed flag.
    pub(crate) offset: u64,
    /// First byte of the buffer.
    pub(crate) buffer_offset: u64,
    /// Bytes; 0 for all.
    pub(crate) mapping_size: u64,
}

impl MapRequest {
    pub(super) fn is_fixed(&self) -> bool {
        self.flags & NVGPU_AS_MAP_BUFFER_FLAGS_FIXED_OFFSET != 0
    }

    /// The flags that a mapping remembers: the driver drops those it ignores.
    pub(super) fn core_flags(&self) -> u32 {
        self.flags & !NVGPU_AS_MAP_BUFFER_FLAGS_MAPPABLE_COMPBITS
    }

    pub(super) fn access(&self) -> u32 {
        self.flags >> NVGPU_AS_MAP_BUFFER_FLAGS_ACCESS_BITMASK_OFFSET & 3
    }

    pub(super) fn attributes(&self, buffer: &DmaBuf, kind: i16) -> PteAttributes {
        let has = |flag| self.flags & flag != 0;
        PteAttributes {
            cached: has(NVGPU_AS_MAP_BUFFER_FLAGS_CACHEABLE),
            coherent: has(NVGPU_AS_MAP_BUFFER_FLAGS_SYSTEM_COHERENT),
            read_only: self.access() == NVGPU_AS_MAP_BUFFER_ACCESS_READ_ONLY || buffer.is_read_only(),
            privileged: false,
            invalid: has(NVGPU_AS_MAP_BUFFER_FLAGS_UNMAPPED_PTE),
            l3: has(NVGPU_AS_MAP_BUFFER_FLAGS_L3_ALLOC),
            kind: kind as u8,
            tag_line: 0,
        }
    }
}

/// Something in the driver's range.
#[derive(Debug)]
pub(super) struct KernelMapping {
    pub(super) len: u64,
    /// Has page-table entries.
    pub(super) mapped: bool,
    /// Kept alive by the mapping.
    pub(super) _buffer: Option<Arc<DmaBuf>>,
}

/// Physical pages of `[offset, offset + len)` of a buffer's memory, in order.
pub(super) fn pages(backing: &Backing, offset: u64, len: u64) -> impl Iterator<Item = u64> {
    let all = backing.extents().iter().flat_map(|e| (0..e.len / PAGE).map(move |i| e.at + i * PAGE));
    all.skip((offset / PAGE) as usize).take(len.div_ceil(PAGE) as usize)
}
