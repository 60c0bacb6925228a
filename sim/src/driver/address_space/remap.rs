//! `REMAP`: buffers moved in and out of a sparse area, page by page.

use crate::dram::PAGE;
use crate::driver::address_space::mapping::pages;
use crate::driver::address_space::space::{AddressSpace, Space};
use crate::driver::dmabuf::DmaBuf;
use crate::gpu::gmmu::PteAttributes;
use nix::errno::Errno;
use std::sync::Arc;

/// One checked operation: pages of a buffer, or none, at a page of the area.
#[derive(Clone, Debug)]
pub(crate) struct RemapOp {
    /// `None` makes the pages sparse again.
    pub(crate) buffer: Option<Arc<DmaBuf>>,
    /// First page of the buffer.
    pub(crate) buffer_page: u64,
    /// First virtual page.
    pub(crate) page: u64,
    /// Number of pages.
    pub(crate) count: u64,
    /// The GPU may cache.
    pub(crate) cached: bool,
    /// Writes fault.
    pub(crate) read_only: bool,
    /// Memory kind.
    pub(crate) kind: u8,
}

impl AddressSpace {
    /// Applies all operations, or none.
    ///
    /// # Errors
    /// `EINVAL` when one of them lies outside the sparse area that holds the first.
    pub(crate) fn remap(&self, ops: &[RemapOp]) -> Result<(), Errno> {
        let Some(first) = ops.first() else { return Ok(()) };
        let mut space = self.space();
        let address = first.page.checked_mul(PAGE).ok_or(Errno::EINVAL)?;
        let (&start, area) = space.areas.range(..=address).next_back().ok_or(Errno::EINVAL)?;
        let area_len = area.len;
        if !area.sparse || address - start >= area_len {
            return Err(Errno::EINVAL);
        }
        for op in ops {
            let va = op.page.checked_mul(PAGE).filter(|&va| va >= start).ok_or(Errno::EINVAL)?;
            let len = op.count.checked_mul(PAGE).filter(|&l| l > 0).ok_or(Errno::EINVAL)?;
            if va.checked_add(len).is_none_or(|end| end > start + area_len) {
                return Err(Errno::EINVAL);
            }
            if let Some(buffer) = &op.buffer {
                let end = op.buffer_page.checked_add(op.count).and_then(|p| p.checked_mul(PAGE));
                if end.is_none_or(|end| end > buffer.size()) || buffer.backing().is_none() {
                    return Err(Errno::EINVAL);
                }
            }
        }
        for op in ops {
            let (va, len) = (op.page * PAGE, op.count * PAGE);
            let backing = op.buffer.as_ref().and_then(|b| b.backing());
            match &backing {
                Some(backing) => {
                    let attributes = PteAttributes {
                        cached: op.cached,
                        read_only: op.read_only,
                        kind: op.kind,
                        ..PteAttributes::default()
                    };
                    self.tables.map(va, pages(backing, op.buffer_page * PAGE, len), attributes)
                }
                None => self.tables.map_sparse(va, len),
            }
            .ok_or(Errno::EINVAL)?;
            space.retain_remapped(start, va, len, op.buffer.clone());
        }
        self.tables.invalidate_tlb();
        Ok(())
    }
}

impl Space {
    /// Keeps the buffers of remapped pages alive until their pages are replaced or the area is freed.
    fn retain_remapped(&mut self, area: u64, va: u64, len: u64, buffer: Option<Arc<DmaBuf>>) {
        let Some(area) = self.areas.get_mut(&area) else { return };
        area.buffers.retain(|&(at, size, _)| at < va || at + size > va + len);
        if let Some(buffer) = buffer {
            area.buffers.push((va, len, buffer));
        }
    }
}
