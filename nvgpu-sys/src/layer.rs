//! Implementations of [`Sys`] above another one, which change a few calls and pass the others on.

use std::ffi::{CStr, c_void};
use std::num::NonZeroUsize;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollTimeout};
use nix::sys::mman::{MapFlags, ProtFlags};

use crate::sys::Sys;

/// A [`Sys`] that passes every call on to the one below it, but for those that it overrides: a tracer, a fault
/// injector. What implements this implements `Sys`.
///
/// # Safety
/// That of [`Sys`], for the overridden methods.
///
/// ```
/// # use std::{ffi::CStr, os::fd::OwnedFd, sync::Arc};
/// # use nix::{errno::Errno, fcntl::OFlag};
/// # use nvgpu_sys::{Layer, Linux, Sys};
/// /// Opens no node.
/// #[derive(Debug)]
/// struct Locked(Arc<dyn Sys>);
///
/// // SAFETY: every call is passed on, or refused.
/// unsafe impl Layer for Locked {
///     fn below(&self) -> &dyn Sys {
///         &*self.0
///     }
///
///     fn open(&self, _: &CStr, _: OFlag) -> Result<OwnedFd, Errno> {
///         Err(Errno::EACCES)
///     }
/// }
///
/// let sys: Arc<dyn Sys> = Arc::new(Locked(Arc::new(Linux)));
/// assert_eq!(sys.open(c"/dev/null", OFlag::O_RDWR).unwrap_err(), Errno::EACCES);
/// ```
pub unsafe trait Layer: Send + Sync + std::fmt::Debug {
    /// The one that calls are passed on to.
    fn below(&self) -> &dyn Sys;

    /// [`Sys::patience`].
    fn patience(&self) -> Duration {
        self.below().patience()
    }

    /// [`Sys::open`].
    ///
    /// # Errors
    /// As there.
    fn open(&self, path: &CStr, flags: OFlag) -> Result<OwnedFd, Errno> {
        self.below().open(path, flags)
    }

    /// [`Sys::ioctl`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// As there.
    unsafe fn ioctl(&self, fd: BorrowedFd<'_>, request: u32, arg: &mut [u8]) -> Result<i32, Errno> {
        // SAFETY: the caller's promise.
        unsafe { self.below().ioctl(fd, request, arg) }
    }

    /// [`Sys::mmap`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// As there.
    unsafe fn mmap(
        &self,
        len: NonZeroUsize,
        prot: ProtFlags,
        flags: MapFlags,
        fd: BorrowedFd<'_>,
        offset: i64,
    ) -> Result<NonNull<c_void>, Errno> {
        // SAFETY: the caller's promise.
        unsafe { self.below().mmap(len, prot, flags, fd, offset) }
    }

    /// [`Sys::munmap`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// As there.
    unsafe fn munmap(&self, addr: NonNull<c_void>, len: usize) -> Result<(), Errno> {
        // SAFETY: the caller's promise.
        unsafe { self.below().munmap(addr, len) }
    }

    /// [`Sys::poll`].
    ///
    /// # Errors
    /// As there.
    fn poll(&self, fds: &mut [PollFd<'_>], timeout: PollTimeout) -> Result<i32, Errno> {
        self.below().poll(fds, timeout)
    }

    /// [`Sys::close`].
    ///
    /// # Errors
    /// As there.
    fn close(&self, fd: OwnedFd) -> Result<(), Errno> {
        self.below().close(fd)
    }
}

// SAFETY: what is overridden keeps the promise of `Layer`, and the rest is that of the one below.
unsafe impl<L: Layer> Sys for L {
    fn patience(&self) -> Duration {
        Layer::patience(self)
    }

    fn open(&self, path: &CStr, flags: OFlag) -> Result<OwnedFd, Errno> {
        Layer::open(self, path, flags)
    }

    unsafe fn ioctl(&self, fd: BorrowedFd<'_>, request: u32, arg: &mut [u8]) -> Result<i32, Errno> {
        // SAFETY: the caller's promise.
        unsafe { Layer::ioctl(self, fd, request, arg) }
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
        unsafe { Layer::mmap(self, len, prot, flags, fd, offset) }
    }

    unsafe fn munmap(&self, addr: NonNull<c_void>, len: usize) -> Result<(), Errno> {
        // SAFETY: the caller's promise.
        unsafe { Layer::munmap(self, addr, len) }
    }

    fn poll(&self, fds: &mut [PollFd<'_>], timeout: PollTimeout) -> Result<i32, Errno> {
        Layer::poll(self, fds, timeout)
    }

    fn close(&self, fd: OwnedFd) -> Result<(), Errno> {
        Layer::close(self, fd)
    }
}
