//! The GPU's view of an address space: every access is translated by the page tables.

use crate::gpu::gmmu::{PageTables, walk};
use crate::gpu::sm::launch::{Access, Memory, MemoryFault, Span};
use crate::pieces::Pieces;
use crate::pieces::seen::SeenWrites;
use nv_hw::fault::fault_type;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

/// Memory as one channel sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GpuMemory<'a> {
    tables: &'a PageTables,
}

// SAFETY: spans come from `Dram`, whose memory stays mapped while its users hold it (`Dram::hold`), as
// everything that runs GPU work does; the bytes are only reached through raw pointers and atomics.
unsafe impl Memory for GpuMemory<'_> {
    fn translate(&self, va: u64, access: Access) -> Result<Span, MemoryFault> {
        let refuse = |kind| MemoryFault { va, access, kind };
        let dram = self.tables.dram();
        let leaf = walk(dram, self.tables.root(), va).map_err(refuse)?;
        let writes = matches!(access, Access::Write | Access::Atomic);
        if leaf.privileged {
            return Err(refuse(fault_type::PRIV_VIOLATION));
        }
        if writes && leaf.read_only {
            return Err(refuse(fault_type::RO_VIOLATION));
        }
        let Some(pa) = leaf.pa else {
            let host = if writes { dram.sparse_sink() } else { dram.sparse_source() };
            return Ok(Span { va: leaf.va, len: leaf.len, host, writable: writes });
        };
        // A run of consecutive physical pages may cross buffers, whose host memory is not consecutive.
        let offset = va - leaf.va;
        let (host, after, before) =
            dram.locate(pa + offset).ok_or_else(|| refuse(fault_type::UNSUPPORTED_APERTURE))?;
        let back = before.min(offset);
        let start = NonNull::new(host.as_ptr().wrapping_sub(back as usize));
        Ok(Span {
            va: va - back,
            len: (leaf.len - offset).min(after) + back,
            host: start.ok_or_else(|| refuse(fault_type::UNSUPPORTED_APERTURE))?,
            writable: !leaf.read_only,
        })
    }

    fn generation(&self) -> u64 {
        self.tables.generation()
    }

    fn pieces(&self) -> Option<&Pieces> {
        Some(self.tables.pieces())
    }
}

impl<'a> GpuMemory<'a> {
    /// The view of an address space. Keep a [`Dram::hold`](crate::dram::Dram::hold) guard while using it.
    pub(crate) fn new(tables: &'a PageTables) -> Self {
        Self { tables }
    }

    /// Shows the program the GPU's writes, where it does not see them by itself.
    pub(crate) fn publish(&self) {
        self.tables.dram().publish();
    }

    /// Host pointer to `va` and the bytes that follow it there.
    fn at(&self, va: u64, access: Access) -> Result<(NonNull<u8>, u64), MemoryFault> {
        let span = self.translate(va, access)?;
        let offset = va - span.va;
        let ptr = span.host.as_ptr().wrapping_add(offset as usize);
        let ptr =
            NonNull::new(ptr).ok_or(MemoryFault { va, access, kind: fault_type::UNSUPPORTED_APERTURE })?;
        Ok((ptr, span.len - offset))
    }

    /// Reads `bytes.len()` bytes at `va`.
    pub(crate) fn read(&self, va: u64, bytes: &mut [u8]) -> Result<(), MemoryFault> {
        let mut done = 0;
        while done < bytes.len() {
            let (host, len) = self.at(va.wrapping_add(done as u64), Access::Read)?;
            let part = (bytes.len() - done).min(len as usize);
            let target = NonNull::from(&mut bytes[done..done + part]).cast();
            // SAFETY: `part` bytes follow in the span and in `bytes`, which is borrowed exclusively.
            unsafe { copy_bytes(host, target, part) };
            done += part;
        }
        Ok(())
    }

    /// Writes bytes at `va`.
    pub(crate) fn write(&self, va: u64, bytes: &[u8]) -> Result<(), MemoryFault> {
        let mut done = 0;
        while done < bytes.len() {
            let (host, len) = self.at(va.wrapping_add(done as u64), Access::Write)?;
            let part = (bytes.len() - done).min(len as usize);
            for (i, byte) in bytes[done..done + part].iter().enumerate() {
                // SAFETY: `i < part` bytes follow in the span.
                unsafe { AtomicU8::from_ptr(host.as_ptr().add(i)) }.store(*byte, Ordering::Relaxed);
            }
            done += part;
        }
        Ok(())
    }

    /// The host's address of the byte at `va`; `None` where nothing is mapped.
    pub(crate) fn host(&self, va: u64) -> Option<u64> {
        self.host_range(va).map(|(host, _)| host)
    }

    /// The host's address of the byte at `va`, and how many bytes follow there.
    pub(crate) fn host_range(&self, va: u64) -> Option<(u64, u64)> {
        self.at(va, Access::Read).ok().map(|(host, len)| (host.as_ptr().addr() as u64, len))
    }

    /// Reads `count` little-endian words at `va`.
    pub(crate) fn words(&self, va: u64, count: usize) -> Result<Vec<u32>, MemoryFault> {
        let mut bytes = vec![0; count * 4];
        self.read(va, &mut bytes)?;
        Ok(bytes.chunks_exact(4).map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect())
    }

    /// The word at `va`; `None` where nothing is mapped.
    pub(crate) fn word_at(&self, va: u64) -> Option<u32> {
        self.words(va, 1).ok()?.first().copied()
    }

    /// Writes that were seen.
    pub(crate) fn seen(&self) -> &'a SeenWrites {
        self.tables.pieces().seen()
    }

    /// Copies `len` bytes, ascending.
    pub(crate) fn copy(&self, from: u64, to: u64, len: u64) -> Result<(), MemoryFault> {
        let mut done = 0;
        while done < len {
            let (source, readable) = self.at(from.wrapping_add(done), Access::Read)?;
            let (target, writable) = self.at(to.wrapping_add(done), Access::Write)?;
            let part = (len - done).min(readable).min(writable);
            // SAFETY: `part` bytes follow in both spans; both are guest memory, reached through atomics.
            unsafe { copy_bytes(source, target, part as usize) };
            done += part;
        }
        Ok(())
    }

    /// Runs `f` on the 32-bit word at `va`, which is a multiple of 4.
    pub(crate) fn word32<R>(
        &self,
        va: u64,
        access: Access,
        f: impl FnOnce(&AtomicU32) -> R,
    ) -> Result<R, MemoryFault> {
        let (host, _) = self.at(va & !3, access)?;
        // SAFETY: aligned by the mask, inside the span, and guest memory is only reached through atomics.
        Ok(f(unsafe { AtomicU32::from_ptr(host.as_ptr().cast()) }))
    }

    /// Runs `f` on the 64-bit word at `va`, which is a multiple of 8.
    pub(crate) fn word64<R>(
        &self,
        va: u64,
        access: Access,
        f: impl FnOnce(&AtomicU64) -> R,
    ) -> Result<R, MemoryFault> {
        let (host, _) = self.at(va & !7, access)?;
        // SAFETY: as in `word32`.
        Ok(f(unsafe { AtomicU64::from_ptr(host.as_ptr().cast()) }))
    }
}

/// Copies bytes between memory that others may read and write meanwhile, by eights where both sides allow it.
///
/// # Safety
/// `len` bytes must be mapped at both addresses, readable and writable respectively.
unsafe fn copy_bytes(from: NonNull<u8>, to: NonNull<u8>, len: usize) {
    let (from, to) = (from.as_ptr(), to.as_ptr());
    let byte = |i: usize| {
        // SAFETY: `i < len`.
        let (source, target) = unsafe { (AtomicU8::from_ptr(from.add(i)), AtomicU8::from_ptr(to.add(i))) };
        target.store(source.load(Ordering::Relaxed), Ordering::Relaxed);
    };
    let mut i = 0;
    if (from as usize ^ to as usize) & 7 == 0 {
        while i < len && (from as usize + i) & 7 != 0 {
            byte(i);
            i += 1;
        }
        while i + 8 <= len {
            // SAFETY: `i + 8 <= len`, and both addresses are multiples of 8 here.
            let (source, target) =
                unsafe { (AtomicU64::from_ptr(from.add(i).cast()), AtomicU64::from_ptr(to.add(i).cast())) };
            target.store(source.load(Ordering::Relaxed), Ordering::Relaxed);
            i += 8;
        }
    }
    while i < len {
        byte(i);
        i += 1;
    }
}
