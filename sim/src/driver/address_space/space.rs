//! An address space: its ranges, their mappings, and the page tables it is written to.

use crate::dram::{Dram, PAGE};
use crate::driver::address_space::area::Area;
use crate::driver::address_space::buddy::Buddy;
use crate::driver::address_space::mapping::{KernelMapping, Mapping};
use crate::driver::address_space::withdrawn::Withdrawn;
use crate::gpu::gmmu::{PageTables, VA_BITS};
use nix::errno::Errno;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Granule of the borders of an address space: the span of one PDE0 entry.
const BORDER: u64 = 1 << 21;
/// Size of the range the driver keeps for itself, after the user's.
pub(crate) const KERNEL_RANGE: u64 = 1 << 32;

/// One GPU address space.
#[derive(Debug)]
pub(crate) struct AddressSpace {
    id: u32,
    pub(super) tables: Arc<PageTables>,
    space: Mutex<Space>,
}

#[derive(Debug)]
pub(super) struct Space {
    pub(super) user: Buddy,
    pub(super) kernel: Buddy,
    pub(super) areas: BTreeMap<u64, Area>,
    pub(super) mappings: BTreeMap<u64, Mapping>,
    pub(super) kernel_mappings: BTreeMap<u64, KernelMapping>,
    pub(super) sync_map: Option<u64>,
    pub(super) withdrawn: Withdrawn,
}

impl AddressSpace {
    /// Opens `[start, end)` for the user and the 4 GiB after it for the driver.
    ///
    /// # Errors
    /// `EINVAL` for bad borders, `ENOMEM` past the MMU's reach or without memory.
    pub(crate) fn new(id: u32, start: u64, end: u64, dram: &Arc<Dram>) -> Result<Self, Errno> {
        let aligned = start.is_multiple_of(BORDER) && end.is_multiple_of(BORDER);
        if start == 0 || end == 0 || !aligned || start >= end {
            return Err(Errno::EINVAL);
        }
        if end.checked_add(KERNEL_RANGE).is_none_or(|top| top > 1 << VA_BITS) {
            return Err(Errno::ENOMEM);
        }
        let tables = Arc::new(PageTables::new(dram).ok_or(Errno::ENOMEM)?);
        let space = Space {
            user: Buddy::new(start, end),
            kernel: Buddy::new(end, end + KERNEL_RANGE),
            areas: BTreeMap::new(),
            mappings: BTreeMap::new(),
            kernel_mappings: BTreeMap::new(),
            sync_map: None,
            withdrawn: Withdrawn::default(),
        };
        Ok(Self { id, tables, space: Mutex::new(space) })
    }

    pub(super) fn space(&self) -> MutexGuard<'_, Space> {
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

    /// Its page tables, for the GPU.
    pub(crate) fn tables(&self) -> &Arc<PageTables> {
        &self.tables
    }

    /// Returns the time at which the program unmapped an address while a launch ran that may still use it.
    pub(crate) fn withdrawn_since(&self, va: u64) -> Option<Duration> {
        self.space().withdrawn.since(va)
    }

    /// The user's range: first address and number of 4 KiB pages.
    pub(crate) fn user_region(&self) -> (u64, u64) {
        let space = self.space();
        (space.user.start(), (space.user.end() - space.user.start()) / PAGE)
    }
}
