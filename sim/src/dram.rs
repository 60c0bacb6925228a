//! Physical memory: which host bytes back which physical page.
//!
//! Every dma-buf is a memfd. The program's CPU mapping and the GPU's page tables name the same bytes: the
//! program maps the memfd itself, the GPU reaches it through the mapping held here. Page tables live in this
//! memory too.

use nix::errno::Errno;
use nix::sys::mman::{MapFlags, ProtFlags};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, Weak};

/// Size of a page, for the CPU and for the GPU.
pub(crate) const PAGE: u64 = 4096;
/// Start of DRAM on Orin. Not zero: a page-table entry for physical address 0 would read as no mapping.
const DRAM_BASE: u64 = 0x8000_0000;

/// Host memory that is unmapped when its last owner is dropped.
#[derive(Debug)]
pub(crate) struct HostMapping {
    ptr: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is plain shared memory; every access to it is an atomic or a volatile copy.
unsafe impl Send for HostMapping {}
// SAFETY: as above.
unsafe impl Sync for HostMapping {}

impl HostMapping {
    /// Maps the first `len` bytes of a memfd, shared.
    pub(crate) fn shared(fd: BorrowedFd<'_>, len: usize) -> Result<Self, Errno> {
        let size = NonZeroUsize::new(len).ok_or(Errno::EINVAL)?;
        // SAFETY: a fresh mapping at an address the kernel chooses; nothing else refers to it.
        let ptr = unsafe {
            nix::sys::mman::mmap(
                None,
                size,
                ProtFlags::PROT_READ | ProtFlags::PROT_WRITE,
                MapFlags::MAP_SHARED,
                fd,
                0,
            )?
        };
        Ok(Self { ptr: ptr.cast(), len })
    }

    /// Zeroed private memory.
    pub(crate) fn anonymous(len: usize) -> Result<Self, Errno> {
        let size = NonZeroUsize::new(len).ok_or(Errno::EINVAL)?;
        // SAFETY: a fresh mapping at an address the kernel chooses; nothing else refers to it.
        let ptr = unsafe {
            nix::sys::mman::mmap_anonymous(
                None,
                size,
                ProtFlags::PROT_READ | ProtFlags::PROT_WRITE,
                MapFlags::MAP_PRIVATE,
            )?
        };
        Ok(Self { ptr: ptr.cast(), len })
    }

    /// First byte.
    pub(crate) fn ptr(&self) -> NonNull<u8> {
        self.ptr
    }
}

impl Drop for HostMapping {
    fn drop(&mut self) {
        // SAFETY: made by mmap with this length, and no pointer into it outlives the owner (see
        // `Dram::retire`).
        let result = unsafe { nix::sys::mman::munmap(self.ptr.cast(), self.len) };
        if let Err(errno) = result {
            tracing::warn!(%errno, "munmap of simulated memory failed");
        }
    }
}

/// A run of physical pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Physical address of the first byte.
    pub(crate) at: u64,
    /// Bytes.
    pub(crate) len: u64,
}

#[derive(Clone, Copy, Debug)]
struct Region {
    len: u64,
    host: usize,
}

/// All physical memory of the machine.
#[derive(Debug)]
pub(crate) struct Dram {
    size: u64,
    free: Mutex<BTreeMap<u64, u64>>,
    regions: RwLock<BTreeMap<u64, Region>>,
    /// Held for reading while the GPU may use host pointers into this memory.
    in_use: RwLock<()>,
    retired: Mutex<Vec<(HostMapping, Vec<Extent>)>>,
    sparse: HostMapping,
    /// Memory of which the GPU has copies, on a machine where the CPU's write-combined stores do not reach
    /// it.
    stale: Option<Mutex<Vec<Weak<Stale>>>>,
}

impl Dram {
    /// `size` bytes of memory, rounded down to whole pages.
    ///
    /// # Errors
    /// The errno of `mmap` when the host has no memory.
    pub(crate) fn new(size: u64) -> Result<Arc<Self>, Errno> {
        Ok(Arc::new(Self::of(size)?))
    }

    /// As [`new`](Self::new), where the GPU reads zeros in place of the CPU's stores through a write-combined
    /// mapping ([`Stale`]).
    ///
    /// # Errors
    /// The errno of `mmap` when the host has no memory.
    pub(crate) fn with_stale_write_combining(size: u64) -> Result<Arc<Self>, Errno> {
        Ok(Arc::new(Self { stale: Some(Mutex::default()), ..Self::of(size)? }))
    }

    fn of(size: u64) -> Result<Self, Errno> {
        let size = size / PAGE * PAGE;
        Ok(Self {
            sparse: HostMapping::anonymous(2 * PAGE as usize)?,
            size,
            free: Mutex::new(BTreeMap::from([(DRAM_BASE, size)])),
            regions: RwLock::default(),
            in_use: RwLock::new(()),
            retired: Mutex::default(),
            stale: None,
        })
    }

    /// The GPU's copy of write-combined memory, where it has one.
    ///
    /// # Errors
    /// The errno of `mmap`, or `ENOMEM`.
    pub(crate) fn copy_of(self: &Arc<Self>, cpu: &Arc<Backing>) -> Result<Option<Arc<Stale>>, Errno> {
        let Some(all) = &self.stale else { return Ok(None) };
        let len = usize::try_from(cpu.len).map_err(|_| Errno::ENOMEM)?;
        let gpu = self.attach(HostMapping::anonymous(len)?).ok_or(Errno::ENOMEM)?;
        let seen = HostMapping::anonymous(len)?;
        let stale = Arc::new(Stale { cpu: Arc::clone(cpu), gpu, seen });
        let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|stale| stale.strong_count() > 0);
        all.push(Arc::downgrade(&stale));
        Ok(Some(stale))
    }

    /// Shows the CPU the GPU's writes to memory that it has copies of.
    pub(crate) fn publish(&self) {
        if let Some(all) = &self.stale {
            let all = all.lock().unwrap_or_else(PoisonError::into_inner);
            all.iter().filter_map(Weak::upgrade).for_each(|stale| stale.publish());
        }
    }

    /// Bytes of memory in the machine.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Bytes that nothing uses.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.reap();
        self.free.lock().unwrap_or_else(PoisonError::into_inner).values().sum()
    }

    /// Gives host memory of `len` bytes physical addresses. `None` when memory is exhausted.
    pub(crate) fn attach(self: &Arc<Self>, host: HostMapping) -> Option<Arc<Backing>> {
        let len = host.len as u64;
        let extents = self.take(len.div_ceil(PAGE) * PAGE)?;
        let mut regions = self.regions.write().unwrap_or_else(PoisonError::into_inner);
        let mut offset = 0;
        for extent in &extents {
            let region = Region { len: extent.len, host: host.ptr.as_ptr() as usize + offset as usize };
            regions.insert(extent.at, region);
            offset += extent.len;
        }
        drop(regions);
        Some(Arc::new(Backing { dram: Arc::clone(self), host: Some(host), extents, len }))
    }

    /// Host memory that backs physical address `pa`, and how many bytes of it follow.
    pub(crate) fn resolve(&self, pa: u64) -> Option<(NonNull<u8>, u64)> {
        self.locate(pa).map(|(ptr, after, _)| (ptr, after))
    }

    /// Host memory that backs `pa`, the bytes of its region from there on, and those before it.
    pub(crate) fn locate(&self, pa: u64) -> Option<(NonNull<u8>, u64, u64)> {
        let regions = self.regions.read().unwrap_or_else(PoisonError::into_inner);
        let (&at, region) = regions.range(..=pa).next_back()?;
        let offset = pa - at;
        if offset >= region.len {
            return None;
        }
        Some((NonNull::new((region.host + offset as usize) as *mut u8)?, region.len - offset, offset))
    }

    /// Writes every page in use in the format of the LiME kernel module: a header for each run of pages, then
    /// the pages.
    ///
    /// # Errors
    /// Those of `out`.
    pub(crate) fn dump(&self, out: &mut dyn Write) -> io::Result<()> {
        const MAGIC: u32 = 0x4c69_4d45;
        const VERSION: u32 = 1;
        let _held = self.hold();
        let regions: Vec<(u64, Region)> = {
            let regions = self.regions.read().unwrap_or_else(PoisonError::into_inner);
            regions.iter().map(|(at, region)| (*at, *region)).collect()
        };
        let mut page = [0; PAGE as usize];
        for (at, region) in regions {
            out.write_all(&MAGIC.to_le_bytes())?;
            out.write_all(&VERSION.to_le_bytes())?;
            for word in [at, at + region.len - 1, 0] {
                out.write_all(&word.to_le_bytes())?;
            }
            for offset in (0..region.len).step_by(PAGE as usize) {
                for (i, word) in page.chunks_exact_mut(8).enumerate() {
                    let from = (region.host as u64 + offset + i as u64 * 8) as *const AtomicU64;
                    // SAFETY: the region has whole pages, page-aligned, which stay mapped while `_held`
                    // lives; atomics allow the GPU and the program to write meanwhile.
                    let value = unsafe { &*from }.load(Ordering::Relaxed);
                    word.copy_from_slice(&value.to_ne_bytes());
                }
                out.write_all(&page)?;
            }
        }
        Ok(())
    }

    /// A page of zeros: what reads of a sparse page see.
    pub(crate) fn sparse_source(&self) -> NonNull<u8> {
        self.sparse.ptr()
    }

    /// A page that writes to sparse pages vanish in.
    pub(crate) fn sparse_sink(&self) -> NonNull<u8> {
        let ptr = self.sparse.ptr();
        // SAFETY: the mapping has two pages.
        unsafe { ptr.add(PAGE as usize) }
    }

    /// Keeps every byte of this memory mapped while the guard lives, even memory that is freed meanwhile.
    pub(crate) fn hold(&self) -> RwLockReadGuard<'_, ()> {
        self.in_use.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Frees memory that was given back while the GPU was using it, if it uses none now. A thread that gives
    /// memory back while another one does this leaves it to the next: those that ask for free memory do it
    /// first.
    pub(crate) fn reap(&self) {
        let Ok(_idle) = self.in_use.try_write() else { return };
        let retired = std::mem::take(&mut *self.retired.lock().unwrap_or_else(PoisonError::into_inner));
        if retired.is_empty() {
            return;
        }
        let mut regions = self.regions.write().unwrap_or_else(PoisonError::into_inner);
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        for (_, extents) in &retired {
            for extent in extents {
                regions.remove(&extent.at);
                give(&mut free, *extent);
            }
        }
    }

    fn retire(&self, host: HostMapping, extents: Vec<Extent>) {
        self.retired.lock().unwrap_or_else(PoisonError::into_inner).push((host, extents));
        self.reap();
    }

    /// First fit; falls back to several pieces when no single one is large enough.
    fn take(&self, len: u64) -> Option<Vec<Extent>> {
        self.reap();
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let whole = free.iter().find(|&(_, &size)| size >= len).map(|(&at, _)| at);
        let pieces: Vec<Extent> = match whole {
            Some(at) => vec![Extent { at, len }],
            None => {
                let mut missing = len;
                let pieces = free
                    .iter()
                    .map_while(|(&at, &size)| {
                        let part = size.min(missing);
                        missing -= part;
                        (part > 0).then_some(Extent { at, len: part })
                    })
                    .collect();
                if missing > 0 {
                    return None;
                }
                pieces
            }
        };
        for piece in &pieces {
            if let Some(size) = free.remove(&piece.at)
                && size > piece.len
            {
                free.insert(piece.at + piece.len, size - piece.len);
            }
        }
        Some(pieces)
    }
}

/// Write-combined memory whose lines of zeros are in a cache that the GPU's reads look into: the GPU reads
/// zeros, and its own writes, which the CPU reads too. A word to which the GPU writes the value that it read
/// there keeps the CPU's value.
#[derive(Debug)]
pub(crate) struct Stale {
    /// Memory that the CPU reads and writes.
    cpu: Arc<Backing>,
    /// Memory that the GPU reads and writes.
    gpu: Arc<Backing>,
    /// The GPU's bytes that the CPU has been shown.
    seen: HostMapping,
}

impl Stale {
    /// The pages that the GPU's page tables point to.
    pub(crate) fn gpu(&self) -> &Arc<Backing> {
        &self.gpu
    }

    fn publish(&self) {
        for ((gpu, seen), cpu) in self.gpu.words().zip(words(&self.seen)).zip(self.cpu.words()) {
            let value = gpu.load(Ordering::Acquire);
            if seen.swap(value, Ordering::Relaxed) != value {
                cpu.store(value, Ordering::Release);
            }
        }
    }
}

/// The words of a mapping of this machine's memory.
fn words(host: &HostMapping) -> impl Iterator<Item = &AtomicU32> {
    (0..host.len / 4).map(|word| {
        // SAFETY: inside the mapping, which is borrowed; memory of the machine is reached through atomics.
        unsafe { AtomicU32::from_ptr(host.ptr.as_ptr().cast::<u32>().add(word)) }
    })
}

/// Adds `extent` to the free ranges and joins it with its neighbours.
fn give(free: &mut BTreeMap<u64, u64>, extent: Extent) {
    let Extent { mut at, mut len } = extent;
    if let Some((&before, &size)) = free.range(..at).next_back()
        && before + size == at
    {
        free.remove(&before);
        at = before;
        len += size;
    }
    if let Some(size) = free.remove(&(at + len)) {
        len += size;
    }
    free.insert(at, len);
}

/// Physical pages and the host memory that backs them; freed when the last owner is dropped and the GPU does
/// not use it.
#[derive(Debug)]
pub(crate) struct Backing {
    dram: Arc<Dram>,
    host: Option<HostMapping>,
    extents: Vec<Extent>,
    len: u64,
}

impl Backing {
    /// Bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Returns the places of the pages.
    pub(crate) fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// Writes `value` to every word.
    pub(crate) fn fill(&self, value: u32) {
        self.words().for_each(|word| word.store(value, Ordering::Relaxed));
    }

    /// Writes zero to every word that holds `value`.
    pub(crate) fn clear(&self, value: u32) {
        self.words()
            .filter(|word| word.load(Ordering::Relaxed) == value)
            .for_each(|word| word.store(0, Ordering::Relaxed));
    }

    fn words(&self) -> impl Iterator<Item = &AtomicU32> {
        self.host.iter().flat_map(words)
    }

    /// First byte on the host.
    pub(crate) fn ptr(&self) -> NonNull<u8> {
        self.host.as_ref().map_or(NonNull::dangling(), HostMapping::ptr)
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        if let Some(host) = self.host.take() {
            self.dram.retire(host, std::mem::take(&mut self.extents));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_pages_are_joined_and_reused() {
        let dram = Dram::new(16 * PAGE).unwrap();
        let a = dram.attach(HostMapping::anonymous(8 * 4096).unwrap()).unwrap();
        let b = dram.attach(HostMapping::anonymous(4 * 4096).unwrap()).unwrap();
        let c = dram.attach(HostMapping::anonymous(4 * 4096).unwrap()).unwrap();
        assert!(dram.attach(HostMapping::anonymous(4096).unwrap()).is_none());
        drop(a);
        drop(c);
        let d = dram.attach(HostMapping::anonymous(12 * 4096).unwrap()).unwrap();
        assert_eq!(d.extents().len(), 2);
        drop((b, d));
        assert_eq!(dram.free_bytes(), 16 * PAGE);
    }

    #[test]
    fn memory_stays_while_the_gpu_uses_it() {
        let dram = Dram::new(16 * PAGE).unwrap();
        let a = dram.attach(HostMapping::anonymous(4096).unwrap()).unwrap();
        let at = a.extents()[0].at;
        let guard = dram.hold();
        drop(a);
        assert!(dram.resolve(at).is_some());
        drop(guard);
        dram.reap();
        assert!(dram.resolve(at).is_none());
    }
}
