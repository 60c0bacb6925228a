//! The interface to the kernel: every system call on a GPU node is a method of [`Sys`].
//!
//! [`Linux`] makes the real calls. The software device, the tracer and the fault injector are other
//! implementations of the same trait; code above it is the same for all of them.

use std::ffi::{CStr, c_void};
use std::num::NonZeroUsize;
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollTimeout};
use nix::sys::mman::{MapFlags, ProtFlags};
use nix::sys::stat::Mode;

/// The memory allocator's node.
pub const MEMORY_NODE: &CStr = c"/dev/nvmap";

/// Opens [`MEMORY_NODE`], for reading alone where it may not be written.
///
/// Images give it to group `video` with mode 0660 or 0440 (NVIDIA/NemoClaw issues 4231 and 5018). A reader may do
/// everything: no request looks at how the node was opened, and buffers are open for writing on their own account
/// (`nvmap_ioctl` in nvmap_dev.c, `__dma_buf_export` in nvmap_dmabuf.c, nv-oot r36.2 to rel-36).
///
/// # Errors
/// The errno of `open(2)`.
pub fn open_nvmap(sys: &dyn Sys) -> Result<OwnedFd, Errno> {
    match sys.open(MEMORY_NODE, OFlag::O_RDWR | OFlag::O_CLOEXEC) {
        Err(Errno::EACCES) => sys.open(MEMORY_NODE, OFlag::O_RDONLY | OFlag::O_CLOEXEC),
        other => other,
    }
}

/// The system calls a GPU driver's nodes are used with.
///
/// Descriptors are real kernel descriptors in every implementation: a software device returns ones that it
/// created with `memfd_create` or `eventfd`.
///
/// # Safety
/// Callers reach memory through the answers, so an implementation guarantees, as the kernel does:
/// - [`mmap`](Self::mmap) returns the start of `len` bytes of memory that belong to no one else in the
///   process and start on a page. All of them can be read, and written if `prot` says so, until
///   [`munmap`](Self::munmap) of the same range, whatever happens to `fd` meanwhile.
/// - A descriptor in an answer (of [`open`](Self::open), or where a request puts one into its argument) is
///   open and the caller's alone; it stays open until the caller closes it.
/// - [`ioctl`](Self::ioctl) writes nothing but `arg` and the memory that addresses in it name, which it
///   writes as the driver would.
/// - [`poll`](Self::poll) and [`close`](Self::close) write nothing but `fds`.
///
/// ```compile_fail,E0200
/// # use nvgpu_sys::Sys;
/// #[derive(Debug)]
/// struct Tracer<S>(S);
///
/// impl<S: Sys> Sys for Tracer<S> { /* ... */ } // no `unsafe`: refused
/// ```
pub unsafe trait Sys: Send + Sync + std::fmt::Debug {
    /// Returns how long [`call`](crate::call) repeats a request that signals keep interrupting (`EINTR`).
    fn patience(&self) -> Duration {
        Duration::from_secs(10)
    }

    /// Opens a device node.
    ///
    /// # Errors
    /// The errno of `open(2)`.
    fn open(&self, path: &CStr, flags: OFlag) -> Result<OwnedFd, Errno>;

    /// Sends one request; `arg` is the argument struct, as bytes, read and written in place.
    ///
    /// An empty `arg` passes a null pointer. The requests in [`BY_VALUE`] take the four bytes of `arg` as a
    /// number.
    ///
    /// # Errors
    /// The errno of `ioctl(2)`.
    ///
    /// # Safety
    /// `arg` must be the struct that `request` names on this node, and addresses and descriptors inside it
    /// must be valid for the driver's use of them, for as long as it lasts.
    unsafe fn ioctl(&self, fd: BorrowedFd<'_>, request: u32, arg: &mut [u8]) -> Result<i32, Errno>;

    /// Maps `len` bytes of `fd` from `offset`, at an address the kernel chooses.
    ///
    /// # Errors
    /// The errno of `mmap(2)`.
    ///
    /// # Safety
    /// The memory may be written by others (the GPU, the driver): it must be reached through raw pointers,
    /// volatile accesses or atomics only.
    unsafe fn mmap(
        &self,
        len: NonZeroUsize,
        prot: ProtFlags,
        flags: MapFlags,
        fd: BorrowedFd<'_>,
        offset: i64,
    ) -> Result<NonNull<c_void>, Errno>;

    /// Removes a mapping that [`mmap`](Sys::mmap) of the same `Sys` made.
    ///
    /// # Errors
    /// The errno of `munmap(2)`.
    ///
    /// # Safety
    /// Nothing may use the range afterwards, and `addr` and `len` must be those of one mapping.
    unsafe fn munmap(&self, addr: NonNull<c_void>, len: usize) -> Result<(), Errno>;

    /// Waits for events; returns the number of descriptors that have some.
    ///
    /// # Errors
    /// The errno of `poll(2)`.
    fn poll(&self, fds: &mut [PollFd<'_>], timeout: PollTimeout) -> Result<i32, Errno>;

    /// Closes a descriptor and reports the error, which dropping it would not.
    ///
    /// # Errors
    /// The errno of `close(2)`; the descriptor is gone even then.
    fn close(&self, fd: OwnedFd) -> Result<(), Errno>;
}

// SAFETY: every call is passed on to an implementation.
unsafe impl<S: Sys + ?Sized> Sys for Arc<S> {
    fn patience(&self) -> Duration {
        (**self).patience()
    }

    fn open(&self, path: &CStr, flags: OFlag) -> Result<OwnedFd, Errno> {
        (**self).open(path, flags)
    }

    unsafe fn ioctl(&self, fd: BorrowedFd<'_>, request: u32, arg: &mut [u8]) -> Result<i32, Errno> {
        // SAFETY: the caller's promise.
        unsafe { (**self).ioctl(fd, request, arg) }
    }

    unsafe fn mmap(
        &self,
        len: NonZeroUsize,
        prot: ProtFlags,
        flags: MapFlags,
        fd: BorrowedFd<'_>,
        offset: i64,
    ) -> Result<NonNull<c_void>, Errno> {
        // SAFETY: the caller's promise.
        unsafe { (**self).mmap(len, prot, flags, fd, offset) }
    }

    unsafe fn munmap(&self, addr: NonNull<c_void>, len: usize) -> Result<(), Errno> {
        // SAFETY: the caller's promise.
        unsafe { (**self).munmap(addr, len) }
    }

    fn poll(&self, fds: &mut [PollFd<'_>], timeout: PollTimeout) -> Result<i32, Errno> {
        (**self).poll(fds, timeout)
    }

    fn close(&self, fd: OwnedFd) -> Result<(), Errno> {
        (**self).close(fd)
    }
}

/// Requests whose argument is a number and not an address. Their `arg` is that number, as a native-endian
/// `u32`.
pub const BY_VALUE: &[u32] = &[crate::bindings::NVMAP_IOC_FREE];

/// The running kernel.
#[derive(Clone, Copy, Debug, Default)]
pub struct Linux;

// SAFETY: the calls are the kernel's.
unsafe impl Sys for Linux {
    fn open(&self, path: &CStr, flags: OFlag) -> Result<OwnedFd, Errno> {
        nix::fcntl::open(path, flags | OFlag::O_CLOEXEC, Mode::empty())
    }

    unsafe fn ioctl(&self, fd: BorrowedFd<'_>, request: u32, arg: &mut [u8]) -> Result<i32, Errno> {
        let arg = match <[u8; 4]>::try_from(&*arg) {
            Ok(value) if BY_VALUE.contains(&request) => {
                std::ptr::without_provenance_mut(u32::from_ne_bytes(value) as usize)
            }
            _ if arg.is_empty() => std::ptr::null_mut(),
            _ => arg.as_mut_ptr(),
        };
        // SAFETY: the caller vouches that the bytes are the struct `request` names; the descriptor is open.
        // The cast is lossless: requests are 32 bits, the C library's parameter is at least that wide (glibc)
        // or an int (musl).
        Errno::result(unsafe { libc::ioctl(fd.as_raw_fd(), request as _, arg) })
    }

    unsafe fn mmap(
        &self,
        len: NonZeroUsize,
        prot: ProtFlags,
        flags: MapFlags,
        fd: BorrowedFd<'_>,
        offset: i64,
    ) -> Result<NonNull<c_void>, Errno> {
        // SAFETY: the kernel chooses the address, so no existing mapping is replaced; the caller reaches the
        // memory through raw pointers only.
        unsafe { nix::sys::mman::mmap(None, len, prot, flags, fd, offset) }
    }

    unsafe fn munmap(&self, addr: NonNull<c_void>, len: usize) -> Result<(), Errno> {
        // SAFETY: the caller names one mapping that nothing uses any more.
        unsafe { nix::sys::mman::munmap(addr, len) }
    }

    fn poll(&self, fds: &mut [PollFd<'_>], timeout: PollTimeout) -> Result<i32, Errno> {
        nix::poll::poll(fds, timeout)
    }

    fn close(&self, fd: OwnedFd) -> Result<(), Errno> {
        nix::unistd::close(fd.into_raw_fd())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn a_missing_node_reports_its_errno() {
        let error = Linux.open(c"/dev/nvgpu/no-such-node", OFlag::O_RDWR).unwrap_err();
        assert_eq!(error, Errno::ENOENT);
    }

    #[test]
    fn an_ioctl_on_a_node_that_takes_none_is_enotty() {
        let fd = Linux.open(c"/dev/null", OFlag::O_RDWR).unwrap();
        // SAFETY: `/dev/null` serves no ioctl, so the empty argument is never read.
        let error = unsafe { Linux.ioctl(fd.as_fd(), 0x80044701, &mut []) }.unwrap_err();
        assert!(matches!(error, Errno::ENOTTY | Errno::ENOSYS));
        Linux.close(fd).unwrap();
    }

    #[test]
    fn mapping_and_unmapping_a_node() {
        let fd = Linux.open(c"/dev/zero", OFlag::O_RDWR).unwrap();
        let len = NonZeroUsize::new(4096).unwrap();
        // SAFETY: a fresh private mapping, read through a raw pointer below.
        let at =
            unsafe { Linux.mmap(len, ProtFlags::PROT_READ, MapFlags::MAP_PRIVATE, fd.as_fd(), 0) }.unwrap();
        // SAFETY: the mapping is 4096 readable bytes.
        assert_eq!(unsafe { at.cast::<u8>().read_volatile() }, 0);
        // SAFETY: the mapping made above, not used after.
        unsafe { Linux.munmap(at, 4096) }.unwrap();
    }
}
