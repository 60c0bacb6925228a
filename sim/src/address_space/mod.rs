//! An address space (`vm_gk20a`): virtual-address allocators, reserved areas, mappings, and the page tables they are written to.

mod areas;
mod buddy;
mod mappings;
mod remap;

pub(crate) use mappings::MapRequest;
pub(crate) use remap::RemapOp;

use crate::dmabuf::DmaBuf;
use crate::gmmu::{PageTables, PteAttributes};
use crate::physical::{Dram, PAGE};
use areas::Area;
use buddy::Buddy;
use mappings::Mapping;
use nix::errno::Errno;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Granule of the borders of an address space: what one PDE0 entry covers.
const BORDER: u64 = 1 << 21;
/// Size of the range the driver keeps for itself behind the user's.
pub(crate) const KERNEL_RANGE: u64 = 1 << 32;
/// Number of syncpoints and bytes of the window of each.
pub(crate) const SYNCPOINTS: u32 = 1024;
pub(crate) const SYNCPOINT_STRIDE: u64 = 0x1_0000;

/// One GPU address space.
#[derive(Debug)]
pub(crate) struct AddressSpace {
    id: u32,
    tables: PageTables,
    dram: Arc<Dram>,
    generation: AtomicU64,
    space: Mutex<Space>,
}

#[derive(Debug)]
struct Space {
    user: Buddy,
    kernel: Buddy,
    areas: BTreeMap<u64, Area>,
    mappings: BTreeMap<u64, Mapping>,
    kernel_mappings: BTreeMap<u64, KernelMapping>,
    sync_map: Option<u64>,
}

/// Something in the driver's range.
#[derive(Debug)]
struct KernelMapping {
    len: u64,
    /// Has page-table entries.
    mapped: bool,
    /// Kept alive by the mapping.
    _buffer: Option<Arc<DmaBuf>>,
}

impl AddressSpace {
    /// Opens `[start, end)` for the user and the 4 GiB behind it for the driver.
    ///
    /// # Errors
    /// `EINVAL` for bad borders, `ENOMEM` past the MMU's reach or without memory.
    pub(crate) fn new(id: u32, start: u64, end: u64, dram: &Arc<Dram>) -> Result<Self, Errno> {
        let aligned = start.is_multiple_of(BORDER) && end.is_multiple_of(BORDER);
        if start == 0 || end == 0 || !aligned || start >= end {
            return Err(Errno::EINVAL);
        }
        if end.checked_add(KERNEL_RANGE).is_none_or(|top| top > 1 << crate::gmmu::VA_BITS) {
            return Err(Errno::ENOMEM);
        }
        let tables = PageTables::new(dram).ok_or(Errno::ENOMEM)?;
        let space = Space {
            user: Buddy::new(start, end),
            kernel: Buddy::new(end, end + KERNEL_RANGE),
            areas: BTreeMap::new(),
            mappings: BTreeMap::new(),
            kernel_mappings: BTreeMap::new(),
            sync_map: None,
        };
        Ok(Self {
            id,
            tables,
            dram: Arc::clone(dram),
            generation: AtomicU64::new(1),
            space: Mutex::new(space),
        })
    }

    fn space(&self) -> MutexGuard<'_, Space> {
        self.space.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of the address space (debugfs `gk20a_as_<id>`).
    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// Physical address of the top page table.
    pub(crate) fn root(&self) -> u64 {
        self.tables.root()
    }

    /// The memory its tables point into.
    pub(crate) fn dram(&self) -> &Dram {
        &self.dram
    }

    /// Changes with every TLB invalidate.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    fn invalidate_tlb(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// The user's range: first address and number of 4 KiB pages.
    pub(crate) fn user_region(&self) -> (u64, u64) {
        let space = self.space();
        (space.user.start(), (space.user.end() - space.user.start()) / PAGE)
    }

    /// Maps a whole buffer into the driver's range.
    pub(crate) fn map_kernel(&self, buffer: &Arc<DmaBuf>, attributes: PteAttributes) -> Result<u64, Errno> {
        let backing = buffer.backing().ok_or(Errno::EINVAL)?;
        let mut space = self.space();
        let va = space.kernel.alloc(backing.len()).ok_or(Errno::ENOMEM)?;
        let pages = mappings::pages(&backing, 0, backing.len());
        if self.tables.map(va, pages, attributes).is_none() {
            space.kernel.release(va);
            return Err(Errno::ENOMEM);
        }
        let mapping = KernelMapping { len: backing.len(), mapped: true, _buffer: Some(Arc::clone(buffer)) };
        space.kernel_mappings.insert(va, mapping);
        self.invalidate_tlb();
        Ok(va)
    }

    /// Reserves addresses in the driver's range for something that has no memory in this model (context images).
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
                self.invalidate_tlb();
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
        self.invalidate_tlb();
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
        self.invalidate_tlb();
        Ok(va)
    }
}
