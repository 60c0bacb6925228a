//! Memory as the CPU and the GPU see it.

use std::fmt;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use nix::sys::mman::{MapFlags, ProtFlags};
use nvgpu_sys::{
    Ioctl, NVGPU_AS_MAP_BUFFER_FLAGS_CACHEABLE, NVGPU_AS_MAP_BUFFER_FLAGS_FIXED_OFFSET, Sys,
    nvgpu_as_map_buffer_ex_args, nvgpu_as_unmap_buffer_args,
};

use super::handle::Handle;
use super::nvmap::{self, PAGE};
use super::settings::Caching;
use super::space::Space;
use crate::address::{Bytes, GpuVa};
use crate::backend::MemoryRequest;
use crate::errno::Errno;
use crate::error::{DriverError, Error};

/// A shared CPU mapping of a descriptor, from its start; unmapped on drop.
pub(super) struct CpuMapping {
    base: NonNull<u8>,
    len: usize,
    sys: Arc<dyn Sys>,
}

// SAFETY: the pointer is the address of a shared mapping; every access through it is a raw copy or an atomic.
unsafe impl Send for CpuMapping {}
// SAFETY: as above.
unsafe impl Sync for CpuMapping {}

impl fmt::Debug for CpuMapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CpuMapping({} at {:p})", Bytes(self.len as u64), self.base)
    }
}

impl CpuMapping {
    /// Maps `len` bytes of `fd`; `what` names them in errors.
    pub fn new(
        sys: &Arc<dyn Sys>,
        fd: BorrowedFd<'_>,
        len: usize,
        what: &'static str,
    ) -> Result<Self, Error> {
        Self::with(sys, fd, len, what, MapFlags::empty())
    }

    /// As [`new`](Self::new), with further flags.
    fn with(
        sys: &Arc<dyn Sys>,
        fd: BorrowedFd<'_>,
        len: usize,
        what: &'static str,
        flags: MapFlags,
    ) -> Result<Self, Error> {
        let failed =
            |errno| Error::Driver(DriverError::Mmap { what, len: len as u64, errno: Errno::of(errno) });
        let nonzero = NonZeroUsize::new(len).ok_or(failed(nix::errno::Errno::EINVAL))?;
        let prot = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: the memory is reached through raw copies and atomics only.
        let base = unsafe { sys.mmap(nonzero, prot, MapFlags::MAP_SHARED | flags, fd, 0) }.map_err(failed)?;
        Ok(Self { base: base.cast(), len, sys: sys.clone() })
    }

    /// First byte.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }
}

impl Drop for CpuMapping {
    fn drop(&mut self) {
        // SAFETY: address and length are those of one mapping, and its owner is going: nothing uses it any
        // more.
        if let Err(errno) = unsafe { self.sys.munmap(self.base.cast(), self.len) } {
            tracing::warn!(%errno, "{self:?} could not be unmapped");
        }
    }
}

/// Caching and mapping of a buffer, for both sides.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attributes {
    /// The CPU's mapping.
    pub caching: Caching,
    /// The GPU's level-2 cache may keep lines of it.
    pub keep: bool,
    /// The CPU's pages are mapped at once, where a driver's memory is there already: a large buffer has
    /// millions, each of which would fault at its first use.
    pub populate: bool,
}

/// Memory that CPU and GPU both see. The GPU's mapping goes with the address space, or by
/// [`unmap`](Self::unmap).
#[derive(Debug)]
pub(super) struct Mapped {
    cpu: CpuMapping,
    va: GpuVa,
}

impl Mapped {
    /// Allocates memory and maps it for both.
    pub fn new(space: &Space, request: &MemoryRequest, attributes: Attributes) -> Result<Self, Error> {
        let Space { sys, nvmap, address_space, .. } = space;
        let Attributes { caching, keep, populate } = attributes;
        let len = request.len;
        let buffer = nvmap::allocate(sys, nvmap, len, caching)?;
        let size = usize::try_from(len).unwrap_or(usize::MAX);
        let flags = if populate { MapFlags::MAP_POPULATE } else { MapFlags::empty() };
        let cpu = CpuMapping::with(sys, buffer.as_fd(), size, "a buffer", flags)?;
        let mut map = nvgpu_as_map_buffer_ex_args {
            flags: NVGPU_AS_MAP_BUFFER_FLAGS_FIXED_OFFSET
                | if keep { NVGPU_AS_MAP_BUFFER_FLAGS_CACHEABLE } else { 0 },
            // Pitch memory, not compressed.
            compr_kind: -1,
            incompr_kind: 0,
            dmabuf_fd: buffer.raw().cast_unsigned(),
            page_size: PAGE as u32,
            mapping_size: len,
            offset: request.va.raw(),
            ..Default::default()
        };
        // SAFETY: the descriptor is open; the address is one of the GPU, in a range reserved for this.
        unsafe { address_space.send(&mut map) }?;
        let mapped = Self { cpu, va: GpuVa::inside(map.offset) };
        if mapped.va != request.va {
            mapped.unmap(address_space)?;
            let name = nvgpu_as_map_buffer_ex_args::NAME;
            return Err(Error::Driver(DriverError::Answer {
                name,
                value: map.offset,
                expected: "the fixed address asked for",
            }));
        }
        // Both mappings keep the memory from here on; thousands of open buffers would use up descriptors.
        drop(buffer);
        Ok(mapped)
    }

    /// The CPU address.
    pub fn cpu(&self) -> NonNull<u8> {
        self.cpu.base()
    }

    /// Takes it out of the GPU's address space, and frees it.
    pub fn unmap(self, address_space: &Handle) -> Result<(), Error> {
        let mut args = nvgpu_as_unmap_buffer_args { offset: self.va.raw() };
        // SAFETY: the address is one of the GPU.
        unsafe { address_space.send(&mut args) }
    }
}
