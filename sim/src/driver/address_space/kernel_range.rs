//! The range that the driver keeps for itself: rings, context buffers, syncpoints.

use crate::driver::address_space::mapping::{KernelMapping, pages};
use crate::driver::address_space::space::AddressSpace;
use crate::driver::dmabuf::DmaBuf;
use crate::gpu::gmmu::PteAttributes;
use crate::gpu::syncpoint::{SYNCPOINT_STRIDE, SYNCPOINTS};
use nix::errno::Errno;
use std::sync::Arc;

impl AddressSpace {
    /// Maps a whole buffer into the driver's range.
    pub(crate) fn map_kernel(&self, buffer: &Arc<DmaBuf>, attributes: PteAttributes) -> Result<u64, Errno> {
        let backing = buffer.backing().ok_or(Errno::EINVAL)?;
        let mut space = self.space();
        let va = space.kernel.alloc(backing.len()).ok_or(Errno::ENOMEM)?;
        let pages = pages(&backing, 0, backing.len());
        if self.tables.map(va, pages, attributes).is_none() {
            space.kernel.release(va);
            return Err(Errno::ENOMEM);
        }
        let mapping = KernelMapping { len: backing.len(), mapped: true, _buffer: Some(Arc::clone(buffer)) };
        space.kernel_mappings.insert(va, mapping);
        self.tables.invalidate_tlb();
        Ok(va)
    }

    /// Reserves addresses in the driver's range for something that has no memory in this model (context
    /// images).
    pub(crate) fn reserve_kernel(&self, len: u64) -> Result<u64, Errno> {
        let mut space = self.space();
        let va = space.kernel.alloc(len).ok_or(Errno::ENOMEM)?;
        space.kernel_mappings.insert(va, KernelMapping { len, mapped: false, _buffer: None });
        Ok(va)
    }

    /// Undoes `map_kernel` or `reserve_kernel`.
    pub(crate) fn unmap_kernel(&self, va: u64) {
        let mut space = self.space();
        if let Some(mapping) = space.kernel_mappings.remove(&va) {
            if mapping.mapped {
                self.tables.unmap(va, mapping.len);
                self.tables.invalidate_tlb();
            }
            space.kernel.release(va);
        }
    }

    /// Base of the read-only map of all syncpoints, made on first use from `page` of each.
    pub(crate) fn sync_map(&self, page: impl Fn(u32) -> u64) -> Result<u64, Errno> {
        let mut space = self.space();
        if let Some(base) = space.sync_map {
            return Ok(base);
        }
        let len = u64::from(SYNCPOINTS) * SYNCPOINT_STRIDE;
        let base = space.kernel.alloc(len).ok_or(Errno::ENOMEM)?;
        let attributes = PteAttributes { read_only: true, ..PteAttributes::default() };
        for id in 0..SYNCPOINTS {
            let va = base + u64::from(id) * SYNCPOINT_STRIDE;
            if self.tables.map(va, std::iter::once(page(id)), attributes).is_none() {
                self.tables.unmap(base, len);
                space.kernel.release(base);
                return Err(Errno::ENOMEM);
            }
        }
        space.sync_map = Some(base);
        self.tables.invalidate_tlb();
        Ok(base)
    }

    /// Maps the 64 KiB window of one syncpoint, writable.
    pub(crate) fn map_syncpoint(&self, page: u64) -> Result<u64, Errno> {
        let mut space = self.space();
        let va = space.kernel.alloc(SYNCPOINT_STRIDE).ok_or(Errno::ENOMEM)?;
        if self.tables.map(va, std::iter::once(page), PteAttributes::default()).is_none() {
            space.kernel.release(va);
            return Err(Errno::ENOMEM);
        }
        space
            .kernel_mappings
            .insert(va, KernelMapping { len: SYNCPOINT_STRIDE, mapped: true, _buffer: None });
        self.tables.invalidate_tlb();
        Ok(va)
    }
}
