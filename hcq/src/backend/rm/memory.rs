//! Video and system memory, mapped into the address space at addresses chosen above.

use std::ptr::NonNull;
use std::sync::Arc;

use rm_sys::{
    Bits, NV_MEMORY_ALLOCATION_PARAMS, NV01_MEMORY_LOCAL_USER, NV01_MEMORY_SYSTEM,
    NVOS32_ALLOC_FLAGS_ALIGNMENT_FORCE, NVOS32_ALLOC_FLAGS_IGNORE_BANK_PLACEMENT,
    NVOS32_ALLOC_FLAGS_MAP_NOT_REQUIRED, NVOS32_ALLOC_FLAGS_MEMORY_HANDLE_PROVIDED,
    NVOS32_ALLOC_FLAGS_PERSISTENT_VIDMEM, NVOS32_ATTR_COHERENCY, NVOS32_ATTR_COHERENCY_CACHED,
    NVOS32_ATTR_COHERENCY_UNCACHED, NVOS32_ATTR_LOCATION, NVOS32_ATTR_LOCATION_PCI, NVOS32_ATTR_PAGE_SIZE,
    NVOS32_ATTR_PAGE_SIZE_HUGE, NVOS32_ATTR_PHYSICALITY, NVOS32_ATTR_PHYSICALITY_ALLOW_NONCONTIGUOUS,
    NVOS32_ATTR_PHYSICALITY_CONTIGUOUS, NVOS32_ATTR_PHYSICALITY_NONCONTIGUOUS, NVOS32_ATTR2_GPU_CACHEABLE,
    NVOS32_ATTR2_GPU_CACHEABLE_NO, NVOS32_ATTR2_GPU_CACHEABLE_YES, NVOS32_ATTR2_PAGE_SIZE_HUGE,
    NVOS32_ATTR2_PAGE_SIZE_HUGE_2MB, NVOS32_ATTR2_ZBC, NVOS32_ATTR2_ZBC_PREFER_NO_ZBC, NVOS32_TYPE_IMAGE,
    NVOS32_TYPE_NOTIFIER, NVOS46_FLAGS_CACHE_SNOOP, NVOS46_FLAGS_DMA_OFFSET_FIXED,
};

use super::client::Object;
use super::mapping::{CpuMapping, Node};
use super::space::Space;
use crate::error::{DriverError, Error};

/// Mappings of the address space start and end on multiples of this: no two share a page of any size.
pub(super) const GRANULE: u64 = 2 << 20;
/// Pages of system memory.
const PAGE: u64 = 4096;

/// Placement and caching of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Placement {
    /// The GPU's own.
    Video,
    /// The CPU's, cached and kept coherent by snooping.
    System,
    /// The CPU's, for the driver to write error records to.
    Notifier,
}

/// `value` in its field; the constants used here fit theirs.
const fn field(bits: Bits, value: u32) -> u32 {
    match bits.put(value) {
        Some(word) => word,
        None => panic!("the value does not fit its field"),
    }
}

impl Placement {
    fn class(self) -> u32 {
        match self {
            Self::Video => NV01_MEMORY_LOCAL_USER,
            Self::System | Self::Notifier => NV01_MEMORY_SYSTEM,
        }
    }

    fn node(self) -> Node {
        match self {
            Self::Video => Node::Gpu,
            Self::System | Self::Notifier => Node::Control,
        }
    }

    /// Fields of `NV_MEMORY_ALLOCATION_PARAMS`, for memory in one stretch of the GPU's or in several.
    fn parameters(self, owner: u32, len: u64, contiguous: bool) -> NV_MEMORY_ALLOCATION_PARAMS {
        const COMMON: u32 = NVOS32_ALLOC_FLAGS_IGNORE_BANK_PLACEMENT
            | NVOS32_ALLOC_FLAGS_ALIGNMENT_FORCE
            | NVOS32_ALLOC_FLAGS_MEMORY_HANDLE_PROVIDED
            | NVOS32_ALLOC_FLAGS_MAP_NOT_REQUIRED;
        const SYSTEM: u32 = field(NVOS32_ATTR_LOCATION, NVOS32_ATTR_LOCATION_PCI)
            | field(NVOS32_ATTR_PHYSICALITY, NVOS32_ATTR_PHYSICALITY_NONCONTIGUOUS);
        const PLAIN: u32 = field(NVOS32_ATTR2_ZBC, NVOS32_ATTR2_ZBC_PREFER_NO_ZBC);
        const ONE: u32 = field(NVOS32_ATTR_PHYSICALITY, NVOS32_ATTR_PHYSICALITY_CONTIGUOUS);
        const SEVERAL: u32 = field(NVOS32_ATTR_PHYSICALITY, NVOS32_ATTR_PHYSICALITY_ALLOW_NONCONTIGUOUS);
        let stretches = if contiguous { ONE } else { SEVERAL };
        let (flags, attr, attr2, alignment) = match self {
            Self::Video => (
                COMMON | NVOS32_ALLOC_FLAGS_PERSISTENT_VIDMEM,
                stretches | field(NVOS32_ATTR_PAGE_SIZE, NVOS32_ATTR_PAGE_SIZE_HUGE),
                PLAIN
                    | field(NVOS32_ATTR2_GPU_CACHEABLE, NVOS32_ATTR2_GPU_CACHEABLE_YES)
                    | field(NVOS32_ATTR2_PAGE_SIZE_HUGE, NVOS32_ATTR2_PAGE_SIZE_HUGE_2MB),
                GRANULE,
            ),
            Self::System => (
                COMMON,
                SYSTEM | field(NVOS32_ATTR_COHERENCY, NVOS32_ATTR_COHERENCY_CACHED),
                PLAIN | field(NVOS32_ATTR2_GPU_CACHEABLE, NVOS32_ATTR2_GPU_CACHEABLE_NO),
                PAGE,
            ),
            Self::Notifier => (
                COMMON,
                SYSTEM | field(NVOS32_ATTR_COHERENCY, NVOS32_ATTR_COHERENCY_UNCACHED),
                PLAIN | field(NVOS32_ATTR2_GPU_CACHEABLE, NVOS32_ATTR2_GPU_CACHEABLE_NO),
                PAGE,
            ),
        };
        NV_MEMORY_ALLOCATION_PARAMS {
            owner,
            type_: if self == Self::Notifier { NVOS32_TYPE_NOTIFIER } else { NVOS32_TYPE_IMAGE },
            flags,
            attr,
            attr2,
            format: 6, // pitch linear, as every client passes it
            size: len,
            alignment,
            limit: len - 1,
            ..Default::default()
        }
    }
}

/// Memory, where the CPU sees it, and where the GPU does. Undone in this order: GPU mapping, CPU mapping,
/// memory.
#[derive(Debug)]
pub(super) struct Allocation {
    gpu: Option<GpuMapping>,
    cpu: Option<CpuMapping>,
    memory: Object,
}

impl Allocation {
    /// Allocates `len` bytes, not 0, mapped nowhere yet.
    pub fn new(space: &Arc<Space>, placement: Placement, len: u64) -> Result<Self, Error> {
        let client = space.client();
        let create = |contiguous| {
            let mut parameters = placement.parameters(client.root(), len, contiguous);
            let memory = client.create_with(space.device(), placement.class(), &mut parameters)?;
            Ok((memory, parameters))
        };
        // One stretch is found faster, where there is one.
        let (memory, parameters) = create(true).or_else(|error: Error| {
            match placement == Placement::Video && error.is_shortage() {
                true => create(false),
                false => Err(error),
            }
        })?;
        if parameters.size < len {
            let expected = "at least the size asked for";
            return Err(Error::Driver(DriverError::Answer {
                name: "NV_MEMORY_ALLOCATION_PARAMS",
                value: parameters.size,
                expected,
            }));
        }
        Ok(Self { gpu: None, cpu: None, memory })
    }

    /// Maps all `len` bytes into the process.
    pub fn map_cpu(
        &mut self,
        space: &Space,
        placement: Placement,
        len: u64,
        what: &'static str,
    ) -> Result<(), Error> {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let handle = self.memory.handle();
        self.cpu =
            Some(CpuMapping::new(space.client(), space.device(), handle, len, placement.node(), what)?);
        Ok(())
    }

    /// Maps all `len` bytes into the address space at `va`.
    pub fn map_gpu(
        &mut self,
        space: &Arc<Space>,
        placement: Placement,
        len: u64,
        va: u64,
    ) -> Result<(), Error> {
        const FIXED: u32 = field(NVOS46_FLAGS_DMA_OFFSET_FIXED, 1);
        const SNOOP: u32 = field(NVOS46_FLAGS_CACHE_SNOOP, 1);
        let flags = if placement == Placement::Video { FIXED } else { FIXED | SNOOP };
        let memory = self.memory.handle();
        space.client().map_gpu(space.device(), space.range(), memory, len, va, flags)?;
        self.gpu = Some(GpuMapping { space: space.clone(), memory, len, va });
        Ok(())
    }

    /// Handle of the memory.
    pub fn handle(&self) -> u32 {
        self.memory.handle()
    }

    /// The CPU mapping, if there is one.
    pub fn cpu(&self) -> Option<&CpuMapping> {
        self.cpu.as_ref()
    }

    /// First byte as the CPU sees it.
    pub fn pointer(&self) -> Option<NonNull<u8>> {
        self.cpu.as_ref().map(CpuMapping::base)
    }
}

/// A mapping into the address space; removed on drop.
#[derive(Debug)]
struct GpuMapping {
    space: Arc<Space>,
    memory: u32,
    len: u64,
    va: u64,
}

impl Drop for GpuMapping {
    fn drop(&mut self) {
        let space = &self.space;
        if !space.client().sys().is_open_here() {
            return;
        }
        if let Err(error) =
            space.client().unmap_gpu(space.device(), space.range(), self.memory, self.len, self.va)
        {
            tracing::warn!(%error, va = self.va, "a GPU mapping could not be removed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_those_that_are_known_to_work() {
        let video = Placement::Video.parameters(7, 4 << 20, false);
        assert_eq!(
            (video.flags, video.attr, video.attr2),
            (0x1_c101, 3 << 27 | 3 << 23, 1 | 1 << 2 | 1 << 20)
        );
        assert_eq!((video.owner, video.limit, video.alignment), (7, (4 << 20) - 1, 2 << 20));
        let system = Placement::System.parameters(7, 4096, false);
        assert_eq!(
            (system.flags, system.attr, system.attr2),
            (0xc101, 1 << 25 | 1 << 27 | 1 << 29, 1 | 2 << 2)
        );
        let notifier = Placement::Notifier.parameters(7, 4096, false);
        assert_eq!((notifier.type_, notifier.attr), (13, 1 << 25 | 1 << 27));
    }
}
