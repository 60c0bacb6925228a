//! Reserved ranges: `ALLOC_SPACE` and `FREE_SPACE`.

use crate::dram::PAGE;
use crate::driver::address_space::area::Area;
use crate::driver::address_space::space::AddressSpace;
use nix::errno::Errno;

impl AddressSpace {
    /// Reserves `pages` pages, at `fixed` or anywhere, and returns the address.
    ///
    /// # Errors
    /// `EINVAL` for a page size other than 4 KiB, `ENOMEM` when the range cannot be had.
    pub(crate) fn alloc_space(
        &self,
        pages: u64,
        page_size: u32,
        fixed: Option<u64>,
        sparse: bool,
    ) -> Result<u64, Errno> {
        if u64::from(page_size) != PAGE {
            return Err(Errno::EINVAL);
        }
        // The driver multiplies without a check for overflow.
        let len = pages.wrapping_mul(PAGE);
        let mut space = self.space();
        let va = match fixed {
            Some(at) => space.user.alloc_fixed(at, len),
            None => space.user.alloc(len),
        };
        let va = va.ok_or(Errno::ENOMEM)?;
        if sparse && self.tables.map_sparse(va, len).is_none() {
            self.tables.unmap(va, len);
            space.user.release(va);
            return Err(Errno::ENOMEM);
        }
        space.areas.insert(va, Area { len, sparse, buffers: Vec::new() });
        if sparse {
            self.tables.invalidate_tlb();
        }
        Ok(va)
    }

    /// Gives back the reservation that holds `address` and drops one reference of every fixed mapping inside;
    /// an address that no reservation holds is accepted. Returns how many of those mappings still have
    /// references: their page-table entries stay while the addresses are free again.
    pub(crate) fn free_space(&self, address: u64) -> usize {
        let mut space = self.space();
        let Some((&start, area)) = space.areas.range(..=address).next_back() else { return 0 };
        let (len, sparse) = (area.len, area.sparse);
        if address - start >= len {
            return 0;
        }
        let inside: Vec<u64> = space.mappings.range(start..start + len).map(|(&va, _)| va).collect();
        let left = inside.into_iter().filter(|&va| !self.drop_reference(&mut space, va)).count();
        space.areas.remove(&start);
        if sparse {
            // The driver clears such a range by making it sparse: reads give zeros until something else is
            // mapped.
            if self.tables.map_sparse(start, len).is_none() {
                self.tables.unmap(start, len);
            }
            self.tables.invalidate_tlb();
        }
        space.user.release(start);
        left
    }
}
