//! Mappings of buffers: `MAP_BUFFER_EX`, `UNMAP_BUFFER`, `MAPPING_MODIFY` and queries of mappings.

use crate::dram::PAGE;
use crate::driver::address_space::mapping::{KNOWN_FLAGS, MapRequest, Mapping, pages};
use crate::driver::address_space::space::{AddressSpace, Space};
use crate::driver::dmabuf::DmaBuf;
use crate::gpu::gmmu::PteAttributes;
use nix::errno::Errno;
use nvgpu_sys::{
    NVGPU_AS_MAP_BUFFER_ACCESS_READ_WRITE, NVGPU_AS_MAP_BUFFER_FLAGS_CACHEABLE,
    NVGPU_AS_MAP_BUFFER_FLAGS_SYSTEM_COHERENT, NVGPU_AS_MAP_BUFFER_FLAGS_TEGRA_RAW,
};
use std::sync::Arc;
use std::time::Duration;

/// No kind (`NV_KIND_INVALID`).
const INVALID_KIND: i16 = -1;
/// A compressible buffer at a fixed address keeps its place within so many bytes
/// (`gm20b_fb_compression_align_mask`).
const COMPRESSION_ALIGNMENT: u64 = 1 << 16;
/// Bytes of a buffer that one line of compression tags describes (`gp10b_fb_compression_page_size`).
const TAG_SPAN: u64 = 1 << 16;

impl AddressSpace {
    /// Maps a buffer and returns its address; every check in the driver's order.
    ///
    /// # Errors
    /// `EINVAL` and `ENOMEM` as the driver gives them.
    pub(crate) fn map(&self, buffer: &Arc<DmaBuf>, request: &MapRequest) -> Result<u64, Errno> {
        let size = buffer.size();
        if !request.is_fixed()
            && (request.offset != 0 || request.buffer_offset != 0 || request.mapping_size != 0)
        {
            return Err(Errno::EINVAL);
        }
        if request.mapping_size > size || request.buffer_offset > size - request.mapping_size {
            return Err(Errno::EINVAL);
        }
        if request.access() == 3
            || request.flags & NVGPU_AS_MAP_BUFFER_FLAGS_TEGRA_RAW != 0
            || request.flags & !KNOWN_FLAGS != 0
        {
            return Err(Errno::EINVAL);
        }
        let backing = buffer.gpu_backing().ok_or(Errno::EINVAL)?;
        if request.access() == NVGPU_AS_MAP_BUFFER_ACCESS_READ_WRITE && buffer.is_read_only() {
            return Err(Errno::EINVAL);
        }
        let kind = request.incompr_kind;
        let key_kind = if request.compr_kind == INVALID_KIND { kind } else { request.compr_kind };
        let mut space = self.space();
        if let Some(va) = space.reuse(buffer, request, key_kind) {
            return Ok(va);
        }
        let len = if request.mapping_size == 0 { size } else { request.mapping_size };
        let len = len.checked_next_multiple_of(PAGE).filter(|&l| l <= size).ok_or(Errno::EINVAL)?;
        if request.buffer_offset > size - len {
            return Err(Errno::EINVAL);
        }
        if request.is_fixed() {
            space.check_fixed(request.offset, len)?;
            let misaligned = (request.offset ^ request.buffer_offset) & (COMPRESSION_ALIGNMENT - 1) != 0;
            if request.compr_kind != INVALID_KIND && misaligned {
                return Err(Errno::EINVAL);
            }
        }
        if !(0..256).contains(&kind) || !request.buffer_offset.is_multiple_of(PAGE) {
            return Err(Errno::ENOMEM);
        }
        let va =
            if request.is_fixed() { request.offset } else { space.user.alloc(len).ok_or(Errno::ENOMEM)? };
        let attributes = request.attributes(buffer, kind);
        if self.tables.map(va, pages(&backing, request.buffer_offset, len), attributes).is_none() {
            self.tables.unmap(va, len);
            if !request.is_fixed() {
                space.user.release(va);
            }
            return Err(Errno::ENOMEM);
        }
        space.withdrawn.mapped(&(va..va + len));
        space.mappings.insert(
            va,
            Mapping {
                len,
                buffer: Arc::clone(buffer),
                buffer_offset: request.buffer_offset,
                kind: key_kind,
                flags: request.core_flags(),
                references: 1,
                read_only: attributes.read_only,
            },
        );
        self.tables.invalidate_tlb();
        Ok(va)
    }

    /// Returns the address at which the buffer is mapped with other caching than a request asks for.
    pub(crate) fn maps_otherwise(&self, buffer: &Arc<DmaBuf>, request: &MapRequest) -> Option<u64> {
        let space = self.space();
        let caching = |flags: u32| {
            flags & (NVGPU_AS_MAP_BUFFER_FLAGS_CACHEABLE | NVGPU_AS_MAP_BUFFER_FLAGS_SYSTEM_COHERENT)
        };
        let other =
            |m: &Mapping| Arc::ptr_eq(&m.buffer, buffer) && caching(m.flags) != caching(request.flags);
        space.mappings.iter().find(|(_, mapping)| other(mapping)).map(|(va, _)| *va)
    }

    /// Drops one reference of the mapping that starts at `va`; an unknown address is accepted. False when a
    /// mapping at a fixed address stays because others refer to it: the driver waits 100 ms for them and
    /// complains in the log. `running` is the time if launches run that may use it.
    pub(crate) fn unmap(&self, va: u64, running: Option<Duration>) -> bool {
        let mut space = self.space();
        let (fixed, len) = space.mappings.get(&va).map_or((false, 0), |m| (m.is_fixed(), m.len));
        let gone = self.drop_reference(&mut space, va);
        if let (true, Some(now)) = (gone, running) {
            space.withdrawn.add(va..va + len, now);
        }
        gone || !fixed
    }

    /// True when there is no mapping at `va` any more.
    pub(super) fn drop_reference(&self, space: &mut Space, va: u64) -> bool {
        let Some(mapping) = space.mappings.get_mut(&va) else { return true };
        mapping.references -= 1;
        if mapping.references > 0 {
            return false;
        }
        let Some(mapping) = space.mappings.remove(&va) else { return true };
        let sparse = space
            .areas
            .range(..=va)
            .next_back()
            .is_some_and(|(&start, area)| area.sparse && va - start < area.len);
        if !sparse || self.tables.map_sparse(va, mapping.len).is_none() {
            self.tables.unmap(va, mapping.len);
        }
        if !mapping.is_fixed() {
            space.user.release(va);
        }
        self.tables.pieces().unmapped(va..va + mapping.len);
        self.tables.invalidate_tlb();
        true
    }

    /// Changes the kind of part of a mapping. Only the low eight bits of a kind count; without compression
    /// tags the compressible one does not. As in the driver, `offset` counts from the start of the buffer and
    /// not of the part of it that is mapped, and from 64 KiB on the leaves get the number of a tag line.
    /// False when the mapping starts elsewhere in its buffer: its pages are others now.
    ///
    /// # Errors
    /// `EINVAL` for whatever is wrong.
    pub(crate) fn modify(&self, va: u64, offset: u64, len: u64, incompr_kind: i16) -> Result<bool, Errno> {
        let mut space = self.space();
        let mapping = space.mappings.get_mut(&va).ok_or(Errno::EINVAL)?;
        let inside = offset.checked_add(len).is_some_and(|end| end <= mapping.len);
        let whole_pages = offset.is_multiple_of(PAGE) && len.is_multiple_of(PAGE);
        if incompr_kind == INVALID_KIND || !whole_pages || !inside {
            return Err(Errno::EINVAL);
        }
        let backing = mapping.buffer.gpu_backing().ok_or(Errno::EINVAL)?;
        let request = MapRequest { flags: mapping.flags, ..MapRequest::default() };
        let mut at = offset;
        while at < offset + len {
            let end = (at / TAG_SPAN * TAG_SPAN + TAG_SPAN).min(offset + len);
            let attributes = PteAttributes {
                tag_line: if offset < TAG_SPAN { 0 } else { (at / TAG_SPAN) as u32 },
                ..request.attributes(&mapping.buffer, incompr_kind)
            };
            self.tables.map(va + at, pages(&backing, at, end - at), attributes).ok_or(Errno::EINVAL)?;
            at = end;
        }
        let moved = mapping.buffer_offset != 0 && len > 0;
        self.tables.invalidate_tlb();
        Ok(!moved)
    }

    /// User mappings that touch `[lo, hi)`, cut to it, as (address, length, read-only).
    pub(crate) fn user_mappings(&self, lo: u64, hi: u64) -> Vec<(u64, u64, bool)> {
        let space = self.space();
        let mut runs: Vec<(u64, u64, bool)> = Vec::new();
        for (&va, mapping) in &space.mappings {
            let (start, end) = (va.max(lo), (va + mapping.len).min(hi));
            if start >= end {
                continue;
            }
            match runs.last_mut() {
                Some((at, len, read_only)) if *at + *len == start && *read_only == mapping.read_only => {
                    *len += end - start;
                }
                _ => runs.push((start, end - start, mapping.read_only)),
            }
        }
        runs
    }

    /// Where this process has the byte at `va`.
    pub(crate) fn host_address(&self, va: u64) -> Option<u64> {
        let space = self.space();
        let (&start, mapping) = space.mappings.range(..=va).next_back()?;
        let into = Some(va - start).filter(|into| *into < mapping.len)?;
        Some(mapping.buffer.backing()?.ptr().addr().get() as u64 + mapping.buffer_offset + into)
    }

    /// The user mapping that holds `va`: its start, length and buffer.
    pub(crate) fn find_mapping(&self, va: u64) -> Option<(u64, u64, Arc<DmaBuf>)> {
        let space = self.space();
        let (&start, mapping) = space.mappings.range(..=va).next_back()?;
        (va - start < mapping.len).then(|| (start, mapping.len, Arc::clone(&mapping.buffer)))
    }
}

impl Space {
    /// A mapping the driver would hand out again instead of making a new one.
    fn reuse(&mut self, buffer: &Arc<DmaBuf>, request: &MapRequest, kind: i16) -> Option<u64> {
        let same = |m: &Mapping| m.buffer.key() == buffer.key() && m.kind == kind;
        let va = if request.is_fixed() {
            self.mappings.get(&request.offset).filter(|m| same(m) && m.flags == request.core_flags())?;
            request.offset
        } else {
            let (&va, first) = self.mappings.iter().find(|(_, m)| same(m))?;
            if first.flags != request.core_flags() {
                return None;
            }
            va
        };
        self.mappings.get_mut(&va)?.references += 1;
        Some(va)
    }

    fn check_fixed(&self, va: u64, len: u64) -> Result<(), Errno> {
        let end = va.checked_add(len).filter(|_| len > 0 && va.is_multiple_of(PAGE)).ok_or(Errno::EINVAL)?;
        let (&start, area) = self.areas.range(..=va).next_back().ok_or(Errno::EINVAL)?;
        if va - start >= area.len || end > start + area.len {
            return Err(Errno::EINVAL);
        }
        let before = self.mappings.range(..va).next_back();
        if before.is_some_and(|(&at, m)| at + m.len > va) || self.mappings.range(va..end).next().is_some() {
            return Err(Errno::EINVAL);
        }
        Ok(())
    }
}
