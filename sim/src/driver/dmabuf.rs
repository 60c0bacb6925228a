//! Buffers: what nvmap allocates and a dma-buf descriptor names.

use crate::dram::{Backing, Dram, HostMapping, Stale};
use crate::driver::descriptor::FileKey;
use crate::poison::POISON;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::Mode;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

/// Properties of a buffer that the driver keeps, besides its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BufferFacts {
    /// Bytes, whole pages.
    pub(crate) size: u64,
    /// Heap it came from; 0 while it is not allocated.
    pub(crate) heap: u32,
    /// Offset in a carveout, in bytes.
    pub(crate) offset: u64,
    /// The last request for its memory.
    pub(crate) request: BufferRequest,
    /// Whether it may only be read.
    pub(crate) read_only: bool,
    /// Serial number of the buffer.
    pub(crate) serial: u64,
}

/// Arguments of `ALLOC` for a buffer. They stay also when there is no memory for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BufferRequest {
    /// Flags (cache attribute, contiguous, tag).
    pub(crate) flags: u32,
    /// Caching of the CPU's mappings.
    pub(crate) coherency: u32,
    /// Alignment in bytes.
    pub(crate) align: u32,
}

impl Default for BufferRequest {
    /// That of a new buffer (`nvmap_create_handle`).
    fn default() -> Self {
        Self { flags: 0, coherency: nvgpu_sys::NVMAP_HANDLE_WRITE_COMBINE, align: 0 }
    }
}

/// A buffer. The memory stays while anything refers to it: handles, GPU mappings, notifiers, rings.
#[derive(Debug)]
pub(crate) struct DmaBuf {
    key: FileKey,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    facts: BufferFacts,
    /// Held while a handle exists, so that `GET_FD` can duplicate it.
    memfd: Option<OwnedFd>,
    backing: Option<Arc<Backing>>,
    /// The GPU's copy of it.
    stale: Option<Arc<Stale>>,
    metadata: Option<Metadata>,
}

/// Metadata attached to a buffer by `REGISTER_BUFFER`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Metadata {
    /// At most 256 bytes.
    pub(crate) bytes: Vec<u8>,
    /// Whether it may be replaced.
    pub(crate) mutable: bool,
}

impl DmaBuf {
    /// A buffer of `size` bytes without memory.
    pub(crate) fn new(size: u64, serial: u64) -> Result<Self, Errno> {
        let memfd = memfd_create(c"dmabuf", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?;
        let key = FileKey::of(memfd.as_fd())?;
        let facts = BufferFacts { size, serial, ..BufferFacts::default() };
        let state = State { facts, memfd: Some(memfd), backing: None, stale: None, metadata: None };
        Ok(Self { key, state: Mutex::new(state) })
    }

    /// The buffer of a descriptor after all its other owners were dropped.
    pub(crate) fn revive(fd: BorrowedFd<'_>, facts: BufferFacts, dram: &Arc<Dram>) -> Result<Self, Errno> {
        let key = FileKey::of(fd)?;
        let writable = reopen(fd, OFlag::O_RDWR)?;
        let backing = if facts.heap == 0 { None } else { Some(back(writable.as_fd(), facts.size, dram)?) };
        let stale =
            backing.as_ref().map_or(Ok(None), |backing| gpu_copy(backing, facts.request.coherency, dram))?;
        let state = State { facts, memfd: None, backing, stale, metadata: None };
        Ok(Self { key, state: Mutex::new(state) })
    }

    /// Returns a read-only view of it: other descriptors, the same memory.
    ///
    /// # Errors
    /// `EBADF` without a handle of it; that of opening a file.
    pub(crate) fn read_only(&self) -> Result<Self, Errno> {
        let state = self.state();
        let memfd = reopen(state.memfd.as_ref().ok_or(Errno::EBADF)?.as_fd(), OFlag::O_RDONLY)?;
        let key = FileKey::of(memfd.as_fd())?;
        let facts = BufferFacts { read_only: true, ..state.facts };
        let (backing, stale) = (state.backing.clone(), state.stale.clone());
        Ok(Self {
            key,
            state: Mutex::new(State { facts, memfd: Some(memfd), backing, stale, metadata: None }),
        })
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Identity of its descriptors.
    pub(crate) fn key(&self) -> FileKey {
        self.key
    }

    /// Returns its properties.
    pub(crate) fn facts(&self) -> BufferFacts {
        self.state().facts
    }

    /// Bytes.
    pub(crate) fn size(&self) -> u64 {
        self.state().facts.size
    }

    /// Whether it may only be read.
    pub(crate) fn is_read_only(&self) -> bool {
        self.state().facts.read_only
    }

    /// Stores the arguments of `ALLOC`.
    pub(crate) fn request(&self, request: BufferRequest) {
        self.state().facts.request = request;
    }

    /// Gives it memory, which holds zeros or, if `poisoned`, the pattern of memory that nothing wrote.
    pub(crate) fn allocate(
        &self,
        heap: u32,
        offset: u64,
        dram: &Arc<Dram>,
        poisoned: bool,
    ) -> Result<(), Errno> {
        let mut state = self.state();
        if state.backing.is_some() {
            return Err(Errno::EEXIST);
        }
        let size = state.facts.size;
        if size > dram.free_bytes() {
            return Err(Errno::ENOMEM);
        }
        let memfd = state.memfd.as_ref().ok_or(Errno::EINVAL)?;
        nix::unistd::ftruncate(memfd, size as i64).map_err(|_| Errno::ENOMEM)?;
        // A DMA buffer has one size for its life. Pages that a program cut off would end this process with
        // SIGBUS when the GPU, or the program's own mapping, reaches for them.
        let sealed = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
        fcntl(memfd, FcntlArg::F_ADD_SEALS(sealed)).map_err(|_| Errno::ENOMEM)?;
        let backing = back(memfd.as_fd(), size, dram)?;
        if poisoned {
            backing.fill(POISON);
        }
        state.stale = gpu_copy(&backing, state.facts.request.coherency, dram)?;
        state.backing = Some(backing);
        state.facts = BufferFacts { heap, offset, ..state.facts };
        Ok(())
    }

    /// Its memory; `None` before `allocate`.
    pub(crate) fn backing(&self) -> Option<Arc<Backing>> {
        self.state().backing.clone()
    }

    /// The memory of a program's mapping for the GPU; `None` before `allocate`.
    pub(crate) fn gpu_backing(&self) -> Option<Arc<Backing>> {
        let state = self.state();
        state.stale.as_ref().map(|stale| Arc::clone(stale.gpu())).or_else(|| state.backing.clone())
    }

    /// A new descriptor of it.
    pub(crate) fn descriptor(&self) -> Result<OwnedFd, Errno> {
        let state = self.state();
        let memfd = state.memfd.as_ref().ok_or(Errno::EBADF)?;
        memfd.try_clone().map_err(|e| e.raw_os_error().map_or(Errno::EMFILE, Errno::from_raw))
    }

    /// The last handle was freed: no further descriptor can be requested.
    pub(crate) fn drop_descriptor(&self) {
        self.state().memfd = None;
    }

    /// Keeps `fd` so that descriptors can be made again.
    pub(crate) fn adopt_descriptor(&self, fd: BorrowedFd<'_>) -> Result<(), Errno> {
        let mut state = self.state();
        if state.memfd.is_none() {
            state.memfd = Some(
                fd.try_clone_to_owned()
                    .map_err(|e| e.raw_os_error().map_or(Errno::EMFILE, Errno::from_raw))?,
            );
        }
        Ok(())
    }

    /// Returns the metadata that `REGISTER_BUFFER` attached.
    pub(crate) fn metadata(&self) -> Option<Metadata> {
        self.state().metadata.clone()
    }

    /// Attaches metadata.
    pub(crate) fn set_metadata(&self, metadata: Metadata) {
        self.state().metadata = Some(metadata);
    }
}

/// Another descriptor of a memfd.
fn reopen(fd: BorrowedFd<'_>, access: OFlag) -> Result<OwnedFd, Errno> {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    nix::fcntl::open(path.as_str(), access | OFlag::O_CLOEXEC, Mode::empty())
}

fn back(fd: BorrowedFd<'_>, size: u64, dram: &Arc<Dram>) -> Result<Arc<Backing>, Errno> {
    let len = usize::try_from(size).map_err(|_| Errno::ENOMEM)?;
    let host = HostMapping::shared(fd, len).map_err(|_| Errno::ENOMEM)?;
    dram.attach(host).ok_or(Errno::ENOMEM)
}

/// Makes the GPU's copy of write-combined memory.
fn gpu_copy(backing: &Arc<Backing>, coherency: u32, dram: &Arc<Dram>) -> Result<Option<Arc<Stale>>, Errno> {
    match coherency {
        nvgpu_sys::NVMAP_HANDLE_WRITE_COMBINE => dram.copy_of(backing),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU8, Ordering};

    #[test]
    fn a_buffer_keeps_its_size_whatever_is_done_to_its_descriptors() {
        const LEN: u64 = 8192;
        let dram = Dram::new(1 << 20).unwrap();
        let buffer = DmaBuf::new(LEN, 1).unwrap();
        buffer.allocate(nvgpu_sys::NVMAP_HEAP_IOVMM, 0, &dram, false).unwrap();
        let fd = buffer.descriptor().unwrap();
        for size in [0, LEN as i64 / 2, 2 * LEN as i64] {
            assert_eq!(nix::unistd::ftruncate(&fd, size), Err(Errno::EPERM), "to {size} bytes");
        }
        let seals = SealFlag::F_SEAL_WRITE;
        assert_eq!(fcntl(&fd, FcntlArg::F_ADD_SEALS(seals)), Err(Errno::EPERM), "no other seals");
        let backing = buffer.backing().unwrap();
        // SAFETY: the last byte of the buffer's mapping, which `backing` holds.
        let last = unsafe { AtomicU8::from_ptr(backing.ptr().as_ptr().add(LEN as usize - 1)) };
        last.store(7, Ordering::Relaxed);
        assert_eq!(last.load(Ordering::Relaxed), 7);
    }
}
